"""Strategies that keep a model for each silo."""

from typing import Any

import numpy as np

from server import build_strategy, restore_state, save_state
from server._personal import personal_models
from silos import Weights, hash_weights

Federation = Any


def trained_alone(federation: Federation, silo: str, rounds: int) -> Weights:
    """A silo's model after training by itself, asked directly."""
    weights, one = federation.initial, federation.silos[silo]
    for round in range(1, rounds + 1):
        streams = (one.streams.generator(silo, round, purpose) for purpose in ("sampling", "noise"))
        weights, _ = one.engine.train(weights, one.shard, federation.schedules[silo], *streams)
    return weights


def test_alone_is_each_silo_training_by_itself(federation: Federation) -> None:
    strategy = build_strategy("alone")
    last = list(federation.run(strategy, 3))[-1]
    found = personal_models(strategy, list(federation.silos))
    assert list(found) == list(federation.silos)
    for name, model in found.items():
        assert hash_weights(model) == hash_weights(trained_alone(federation, name, 3))
    for name, mean in last.weights.items():
        models = [found[silo][name] * weight for silo, weight in (("zurich", 3), ("aarhus", 0.5), ("madrid", 2))]
        np.testing.assert_allclose(mean, sum(models) / 5.5, rtol=0, atol=1e-6)


def test_a_silo_that_is_away_keeps_its_model(federation: Federation) -> None:
    strategy = build_strategy("alone")
    everybody = federation.schedules
    list(federation.run(strategy, 1))
    federation.schedules = {name: one for name, one in everybody.items() if name != "madrid"}
    before = personal_models(strategy, list(federation.silos))
    list(federation.run(strategy, 2, first=2))
    after = personal_models(strategy, list(federation.silos))
    changed = [name for name in after if hash_weights(after[name]) != hash_weights(before[name])]
    assert changed == ["zurich", "aarhus"]


def test_personal_models_survive_a_restart(federation: Federation) -> None:
    whole, part, rest = (build_strategy("alone") for _ in range(3))
    list(federation.run(whole, 4))
    list(federation.run(part, 2))
    restore_state(rest, save_state(part))
    list(federation.run(rest, 4, first=3, weights=federation.initial))
    silos = list(federation.silos)
    for ours, theirs in zip(personal_models(rest, silos).values(), personal_models(whole, silos).values(), strict=True):
        assert hash_weights(ours) == hash_weights(theirs)


def test_strategies_of_one_model_have_no_personal_ones(federation: Federation) -> None:
    strategy = build_strategy("fedavg")
    list(federation.run(strategy, 1))
    assert personal_models(strategy, list(federation.silos)) == {}
