"""What moves weights beside gradients: public anchors and corrections, the same for both engines."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from accounting import InvalidValue, Ledger
from silos import Declined, FleetEngine, OpacusEngine, Request, Schedule, Shard, Silo, Streams, Weights, build_model
from silos._drift import Drift

Make = Callable[..., Schedule]

KINDS = (OpacusEngine, FleetEngine)


def make_arrays(weights: Weights, seed: int) -> Weights:
    generator = np.random.default_rng(seed)
    return {name: generator.normal(size=array.shape) for name, array in weights.items()}


@pytest.fixture
def drifted(weights: Weights, make_shard: Callable[..., Shard], streams: Streams) -> Callable[..., Weights]:
    """Weights after a round over no records and without noise: what drift alone does."""
    model = build_model("mlp", input_shape=(5,), outputs=3, hidden=(4,), seed=1)

    def run(kind: type[OpacusEngine | FleetEngine], schedule: Schedule, drift: Drift | None) -> Weights:
        engine = kind(model, task="multiclass", input_shape=(5,), outputs=3, dtype="float64")
        sampling, noise = streams.generator("north", 1, "sampling"), streams.generator("north", 1, "noise")
        found, executed = engine.train(weights, make_shard(0), schedule, sampling, noise, drift)
        assert executed == schedule.steps
        return found

    return run


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("pull", "left"), [(0.5, (1 - 0.8 * 0.5) ** 4), (1.25, 0.0)])
def test_each_step_takes_weights_nearer_to_the_anchor(
    kind: type[OpacusEngine | FleetEngine],
    pull: float,
    left: float,
    weights: Weights,
    make_schedule: Make,
    drifted: Callable[..., Weights],
) -> None:
    schedule = replace(make_schedule(momentum=0.0, noise_multiplier=0.0), pull=pull)
    anchor = make_arrays(weights, 1)
    after = drifted(kind, schedule, Drift.of(schedule, weights, anchor, None))
    for name, start in weights.items():
        np.testing.assert_allclose(after[name], anchor[name] + left * (start - anchor[name]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_correction_is_added_to_each_gradient(
    kind: type[OpacusEngine | FleetEngine], weights: Weights, make_schedule: Make, drifted: Callable[..., Weights]
) -> None:
    schedule = make_schedule(momentum=0.0, noise_multiplier=0.0)
    correction = make_arrays(weights, 2)
    after = drifted(kind, schedule, Drift.of(schedule, weights, None, correction))
    for name, start in weights.items():
        np.testing.assert_allclose(after[name], start - 4 * 0.8 * correction[name], rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_are_their_own_anchor_stay(
    kind: type[OpacusEngine | FleetEngine], weights: Weights, make_schedule: Make, drifted: Callable[..., Weights]
) -> None:
    schedule = replace(make_schedule(noise_multiplier=0.0), pull=1.0)
    after = drifted(kind, schedule, Drift.of(schedule, weights, None, None))
    for name, start in weights.items():
        np.testing.assert_allclose(after[name], start, rtol=0, atol=1e-12)


def test_without_pull_and_correction_there_is_no_drift(weights: Weights, make_schedule: Make) -> None:
    assert Drift.of(make_schedule(), weights, make_arrays(weights, 1), None) is None


def test_a_pull_beyond_the_anchor_is_refused(make_schedule: Make) -> None:
    with pytest.raises(InvalidValue, match="pull"):
        replace(make_schedule(), pull=1.26)


def test_a_request_is_another_with_another_start_anchor_or_correction(weights: Weights, make_schedule: Make) -> None:
    other = make_arrays(weights, 1)
    requests = [
        Request(round=1, schedule=make_schedule(), weights=start, anchor=anchor, correction=correction)
        for start in (weights, other)
        for anchor in (None, weights, other)
        for correction in (None, weights, other)
    ]
    requests.append(Request(round=1, schedule=replace(make_schedule(), pull=0.5), weights=weights))
    assert len({request.fingerprint() for request in requests}) == len(requests)


@pytest.mark.parametrize("name", ["anchor", "correction"])
@pytest.mark.parametrize("fault", [lambda array: array * np.nan, lambda array: array[..., :1], lambda array: array > 0])
def test_arrays_that_are_no_weights_are_declined_before_any_charge(
    name: str,
    fault: Callable[[np.ndarray], np.ndarray],
    engine: OpacusEngine,
    weights: Weights,
    make_shard: Callable[..., Shard],
    make_schedule: Make,
    streams: Streams,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with Ledger.open(tmp_path_factory.mktemp("drift") / "ledger.db", create=True) as ledger:
        silo = Silo(run="run", shard=make_shard(), engine=engine, ledger=ledger, streams=streams)
        odd = {key: fault(array) for key, array in weights.items()}
        with pytest.raises(Declined):
            silo.train(Request(round=1, schedule=make_schedule(), weights=weights, **{name: odd}))
        assert ledger.silos() == []
