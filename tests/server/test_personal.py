"""Strategies that tell silos apart: personal models, anchors and corrections."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest

from server import build_strategy, restore_state, save_state
from server._personal import personal_models
from silos import OpacusEngine, Weights, build_model, hash_weights
from silos._drift import Drift

Federation = Any
RUNS = count()
WEIGHTS = {"zurich": 3, "aarhus": 0.5, "madrid": 2}


@pytest.fixture
def exact(federation: Federation) -> Federation:
    """The federation in float64, whose silos take plain SGD steps."""
    model = build_model("linear", input_shape=(4,), outputs=1, seed=3)
    federation.engine._inner = OpacusEngine(model, task="binary", input_shape=(4,), outputs=1, dtype="float64")
    federation.initial = {name: array.astype(np.float64) for name, array in federation.initial.items()}
    federation.schedules = {name: replace(one, momentum=0.0) for name, one in federation.schedules.items()}
    return federation


def trained(
    federation: Federation,
    silo: str,
    round: int,
    weights: Weights,
    *,
    attempt: int = 0,
    pull: float = 0.0,
    anchor: Weights | None = None,
) -> Weights:
    """What a silo answers, asked directly."""
    one = federation.silos[silo]
    streams = (one.streams.generator(silo, round, purpose, attempt) for purpose in ("sampling", "noise"))
    schedule = replace(federation.schedules[silo], pull=pull)
    drift = Drift.of(schedule, weights, anchor, None)
    return one.engine.train(weights, one.shard, schedule, *streams, drift)[0]


def models_of(strategy: Any, federation: Federation) -> dict[str, Weights]:
    return personal_models(strategy, list(federation.silos))


def mean_of(models: dict[str, Weights]) -> Weights:
    whole = sum(WEIGHTS[silo] for silo in models)
    parts = [{name: array * WEIGHTS[silo] / whole for name, array in model.items()} for silo, model in models.items()]
    return {name: np.sum([part[name] for part in parts], axis=0) for name in parts[0]}


def distance(one: Weights, other: Weights) -> float:
    return float(np.sqrt(sum(np.square(one[name] - other[name]).sum() for name in one)))


def path(
    federation: Federation, name: str, rounds: int = 4, away: Sequence[tuple[str, int]] = (), **options: float
) -> tuple[list[Weights], dict[str, Weights]]:
    """Models after each round, and personal ones after the last, of a new run; silos that are away skip a round."""
    run = f"run {next(RUNS)}"
    federation.silos.update({silo: replace(one, run=run) for silo, one in federation.silos.items()})
    everybody, found, weights = federation.schedules, [], federation.initial
    (one, *_) = everybody.values()
    strategy = build_strategy(name, options, distance=one.steps * one.learning_rate)
    for round in range(1, rounds + 1):
        federation.schedules = {silo: each for silo, each in everybody.items() if (silo, round) not in away}
        (result,) = federation.run(strategy, round, first=round, weights=weights)
        assert result.failures == {}
        weights = result.weights
        found.append(weights)
    federation.schedules = everybody
    return found, models_of(strategy, federation)


def test_alone_is_each_silo_training_by_itself(federation: Federation) -> None:
    strategy = build_strategy("alone")
    last = list(federation.run(strategy, 3))[-1]
    found = models_of(strategy, federation)
    assert list(found) == list(federation.silos)
    for silo, model in found.items():
        weights = federation.initial
        for round in (1, 2, 3):
            weights = trained(federation, silo, round, weights)
        assert hash_weights(model) == hash_weights(weights)
    assert distance(last.weights, mean_of(found)) < 1e-6


def test_a_silo_that_is_away_keeps_its_model(federation: Federation) -> None:
    strategy = build_strategy("alone")
    everybody = federation.schedules
    list(federation.run(strategy, 1))
    federation.schedules = {name: one for name, one in everybody.items() if name != "madrid"}
    before = models_of(strategy, federation)
    list(federation.run(strategy, 2, first=2))
    after = models_of(strategy, federation)
    changed = [name for name in after if hash_weights(after[name]) != hash_weights(before[name])]
    assert changed == ["zurich", "aarhus"]


@pytest.mark.parametrize("name", ["alone", "mr-mtl", "ditto"])
def test_personal_models_survive_a_restart(federation: Federation, name: str) -> None:
    whole, part, rest = (build_strategy(name) for _ in range(3))
    list(federation.run(whole, 4))
    last = list(federation.run(part, 2))[-1]
    restore_state(rest, save_state(part))
    list(federation.run(rest, 4, first=3, weights=last.weights))
    for ours, theirs in zip(models_of(rest, federation).values(), models_of(whole, federation).values(), strict=True):
        assert hash_weights(ours) == hash_weights(theirs)


def test_strategies_of_one_model_have_no_personal_ones(federation: Federation) -> None:
    strategy = build_strategy("fedavg")
    list(federation.run(strategy, 1))
    assert models_of(strategy, federation) == {}


AWAY = [(), (("madrid", 2), ("zurich", 3))]


@pytest.mark.parametrize("away", AWAY)
def test_mean_regularised_without_pull_is_training_alone(exact: Federation, away: Sequence[tuple[str, int]]) -> None:
    ours, theirs = path(exact, "mr-mtl", away=away, pull=0.0), path(exact, "alone", away=away)
    for mean, expected in zip(ours[0], theirs[0], strict=True):
        assert distance(mean, expected) == 0
    for silo, model in ours[1].items():
        assert distance(model, theirs[1][silo]) == 0


@pytest.mark.parametrize("away", AWAY)
def test_mean_regularised_with_an_infinite_pull_is_fedavg(exact: Federation, away: Sequence[tuple[str, int]]) -> None:
    ours, personal = path(exact, "mr-mtl", away=away, pull=float("inf"))
    theirs, _ = path(exact, "fedavg", away=away)
    for mean, expected in zip(ours, theirs, strict=True):
        assert distance(mean, expected) == 0
    for model in personal.values():
        assert distance(model, theirs[-1]) == 0


def test_mean_regularised_tends_to_fedavg_as_the_pull_grows(exact: Federation) -> None:
    expected = path(exact, "fedavg")[0][-1]
    gaps = [distance(path(exact, "mr-mtl", pull=pull)[0][-1], expected) for pull in (1e2, 1e4, 1e6)]
    assert gaps[0] > 1e-8
    assert gaps[0] / gaps[1] == pytest.approx(100, rel=0.1)
    assert gaps[1] / gaps[2] == pytest.approx(100, rel=0.1)


def test_mean_regularised_takes_the_proximal_step_of_its_penalty(exact: Federation) -> None:
    """The new models minimise |w_i - v_i|^2 / (2 K eta) + pull/2 |w_i - mean|^2, so that its gradient is zero there."""
    pull, step = 0.7, 2 * 0.5
    (mean,), personal = path(exact, "mr-mtl", rounds=1, pull=pull)
    answers = {silo: trained(exact, silo, 1, exact.initial) for silo in exact.silos}
    assert distance(mean, mean_of(answers)) < 1e-12
    for silo, model in personal.items():
        for name, w in model.items():
            gradient = (w - answers[silo][name]) / step + pull * (w - mean[name])
            np.testing.assert_allclose(gradient, 0, atol=1e-12)
    assert distance(mean_of(personal), mean) < 1e-12


def test_scaffold_of_one_step_is_fedavg_whatever_silos_hold(exact: Federation) -> None:
    exact.schedules = {name: replace(one, steps=1) for name, one in exact.schedules.items()}
    for mean, expected in zip(path(exact, "scaffold")[0], path(exact, "fedavg")[0], strict=True):
        assert distance(mean, expected) < 1e-12


def test_scaffold_of_equal_silos_is_fedavg(exact: Federation) -> None:
    def alike(silo: str) -> dict[str, Any]:
        return {"shard": replace(exact.silos["zurich"].shard, name=silo)}

    exact.silos.update({name: replace(silo, **alike(name)) for name, silo in exact.silos.items()})
    quiet = {"noise_multiplier": 0.0, "sampling_rate": 1.0, "steps": 5}
    exact.schedules = {name: replace(one, **quiet) for name, one in exact.schedules.items()}
    for mean, expected in zip(path(exact, "scaffold")[0], path(exact, "fedavg")[0], strict=True):
        assert distance(mean, expected) < 1e-12


def test_scaffold_corrects_each_silo_by_the_gradients_of_all(exact: Federation) -> None:
    """In round 2, the control of round 1: a silo's way over K eta; by public weights the corrections cancel out."""
    strategy = build_strategy("scaffold", distance=2 * 0.5)
    first, second = exact.run(strategy, 2)
    ways = {silo: trained(exact, silo, 1, exact.initial) for silo in exact.silos}
    controls = {
        silo: {name: exact.initial[name] - array for name, array in model.items()} for silo, model in ways.items()
    }
    whole, answers = mean_of(controls), {}
    for silo, own in exact.silos.items():
        streams = (own.streams.generator(silo, 2, purpose) for purpose in ("sampling", "noise"))
        correction: Weights = {name: whole[name] - array for name, array in controls[silo].items()}
        schedule = exact.schedules[silo]
        drift = Drift.of(schedule, first.weights, None, correction)
        answers[silo], _ = own.engine.train(first.weights, own.shard, schedule, *streams, drift)
    assert distance(second.weights, mean_of(answers)) < 1e-12
    assert min(distance(whole, control) for control in controls.values()) > 0.05


def test_fedprox_without_pull_is_fedavg(exact: Federation) -> None:
    for mean, expected in zip(path(exact, "fedprox", pull=0.0)[0], path(exact, "fedavg")[0], strict=True):
        assert distance(mean, expected) == 0


def test_fedprox_pulls_each_silo_to_the_model_of_all(exact: Federation) -> None:
    (one,) = path(exact, "fedprox", rounds=1, pull=1.5)[0]
    answers = {silo: trained(exact, silo, 1, exact.initial, pull=1.5) for silo in exact.silos}
    assert distance(one, mean_of(answers)) < 1e-12


def test_dittos_model_of_all_is_fedavgs_and_its_others_are_pulled_to_it(exact: Federation) -> None:
    means, personal = path(exact, "ditto", rounds=2, pull=0.5)
    expected, _ = path(exact, "fedavg", rounds=2)
    for mean, other in zip(means, expected, strict=True):
        assert distance(mean, other) == 0
    for silo, model in personal.items():
        first = trained(exact, silo, 1, exact.initial, attempt=1, pull=0.5, anchor=exact.initial)
        second = trained(exact, silo, 2, first, attempt=1, pull=0.5, anchor=means[0])
        assert distance(model, second) < 1e-12


def test_dittos_second_pass_is_charged(federation: Federation) -> None:
    list(federation.run(build_strategy("ditto"), 3))
    for silo, schedule in federation.schedules.items():
        charges = federation.ledger.charges(silo)
        assert [(one.key.round, one.key.attempt) for one in charges] == [(r, a) for r in (1, 2, 3) for a in (0, 1)]
        assert [one.priced() for one in charges] == [schedule.mechanism()] * 6
        assert len({one.output for one in charges}) == 6


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "mr-mtl", "ditto"])
def test_fine_tuned_silos_go_on_alone_from_what_the_strategy_left_them(federation: Federation, name: str) -> None:
    before, tuned = build_strategy(name), build_strategy(name, fine_tuned_after=2)
    last = list(federation.run(before, 2))[-1]
    left = models_of(before, federation) or dict.fromkeys(federation.silos, last.weights)
    results = list(federation.run(tuned, 4))
    assert hash_weights(results[1].weights) == hash_weights(last.weights)
    for silo, model in models_of(tuned, federation).items():
        expected = trained(federation, silo, 4, trained(federation, silo, 3, left[silo]))
        assert hash_weights(model) == hash_weights(expected)
    passes = 2 if name == "ditto" else 1
    assert {len(federation.ledger.charges(silo)) for silo in federation.silos} == {2 * passes + 2}


@pytest.mark.parametrize("name", ["fedadam", "ditto"])
@pytest.mark.parametrize("stop", [1, 2, 3])
def test_a_fine_tuned_run_resumes_to_the_same_bytes(federation: Federation, name: str, stop: int) -> None:
    whole, part, rest = (build_strategy(name, fine_tuned_after=2) for _ in range(3))
    expected = list(federation.run(whole, 4))[-1]
    last = list(federation.run(part, stop))[-1]
    restore_state(rest, save_state(part))
    found = list(federation.run(rest, 4, first=stop + 1, weights=last.weights))[-1]
    assert hash_weights(found.weights) == hash_weights(expected.weights)
    for ours, theirs in zip(models_of(rest, federation).values(), models_of(whole, federation).values(), strict=True):
        assert hash_weights(ours) == hash_weights(theirs)


def test_one_local_step_is_one_step_on_the_sum_of_all_noisy_gradients(exact: Federation) -> None:
    """DP-FedSGD: FedAvg over silos that take one step each."""
    exact.schedules = {name: replace(one, steps=1, learning_rate=0.25) for name, one in exact.schedules.items()}
    (found,) = path(exact, "fedavg", rounds=1)[0]
    exact.schedules = {name: replace(one, learning_rate=1.0) for name, one in exact.schedules.items()}
    unit = mean_of({silo: trained(exact, silo, 1, exact.initial) for silo in exact.silos})
    for name, start in exact.initial.items():
        np.testing.assert_allclose(found[name], start - 0.25 * (start - unit[name]), rtol=0, atol=1e-12)
