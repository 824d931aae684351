"""Fleets and Opacus agree on every shipped scenario that a fleet trains."""

import numpy as np
import pytest

from scenarios import load, make_plan, names, prepare, public_sizes
from silos import FleetEngine, Job, OpacusEngine, Streams, build_model, weights_of

ROUNDS = 20


def supported() -> list[str]:
    return [name for name in names() if load(name).model.kind in ("linear", "mlp")]


@pytest.mark.slow
@pytest.mark.parametrize("name", supported())
def test_a_shipped_scenario_gives_the_same_model_on_both_engines(name: str) -> None:
    scenario = load(name)
    data = prepare(scenario)
    plan = make_plan(scenario, public_sizes(scenario, data))
    schedules = {part.silo: part.schedule for part in plan.silos}
    shape, outputs = data.input_shape, data.outputs
    model = build_model(
        scenario.model.kind,
        input_shape=shape,
        outputs=outputs,
        hidden=scenario.model.hidden,
        activation=scenario.model.activation,
        seed=scenario.seed,
    )
    assert FleetEngine.supports(model)
    opacus = OpacusEngine(model, task=data.task, input_shape=shape, outputs=outputs, dtype="float64")
    fleet = FleetEngine(model, task=data.task, input_shape=shape, outputs=outputs, dtype="float64")
    streams = Streams(b"sixteen bytes ok")

    def jobs(weights: dict[str, np.ndarray], round: int) -> list[Job]:
        return [
            Job(
                weights=weights,
                shard=shard,
                schedule=schedules[silo],
                sampling=streams.generator(silo, round, "sampling"),
                noise=streams.generator(silo, round, "noise"),
            )
            for silo, shard in data.shards.items()
        ]

    def average(models: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        return {key: np.mean([one[key] for one in models], axis=0) for key in models[0]}

    start = ours = theirs = {key: array.astype(np.float64) for key, array in weights_of(model).items()}
    for round in range(1, ROUNDS + 1):
        alone = [
            opacus.train(one.weights, one.shard, one.schedule, one.sampling, one.noise) for one in jobs(theirs, round)
        ]
        together = fleet.train_all(jobs(ours, round))
        theirs = average([weights for weights, _ in alone])
        ours = average([outcome[0] for outcome in together if not isinstance(outcome, Exception)])
        assert [outcome[1] for outcome in together if not isinstance(outcome, Exception)] == [
            steps for _, steps in alone
        ]
    flat = [np.concatenate([array.ravel() for array in weights.values()]) for weights in (start, ours, theirs)]
    assert np.linalg.norm(flat[1] - flat[2]) < 1e-6 * np.linalg.norm(flat[2])
    assert np.linalg.norm(flat[0] - flat[2]) > 0.01 * np.linalg.norm(flat[2])
