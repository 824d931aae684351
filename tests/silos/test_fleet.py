"""A fleet gives what Opacus gives, silo by silo, and no silo's result depends on its company."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from torch import nn

from accounting import InvalidValue
from silos import (
    FleetEngine,
    Job,
    ModelRefused,
    OpacusEngine,
    Schedule,
    Shard,
    Streams,
    Task,
    Weights,
    build_model,
    weights_of,
)
from silos._drift import Drift
from silos._streams import poisson_sample, poisson_samples

FEATURES = 5
OUTPUTS: dict[Task, int] = {"binary": 1, "multiclass": 3, "regression": 1}
SCHEDULES = [
    Schedule(
        sampling_rate=rate,
        steps=steps,
        noise_multiplier=sigma,
        clip_norm=clip,
        expected_batch=divisor,
        learning_rate=pace,
        momentum=momentum,
        pull=pull,
    )
    for rate, steps, sigma, clip, divisor, pace, momentum, pull in (
        (0.2, 3, 0.7, 0.5, 20.5, 0.8, 0.9, 0.6),
        (1e-9, 2, 1.1, 1.0, 4.0, 0.3, 0.0, 1.7),
        (1.0, 1, 0.6, 0.3, 30.0, 0.5, 0.5, 0.0),
        (0.1, 18, 0.9, 0.2, 9.0, 0.2, 0.4, 0.0),
        (0.7, 4, 0.0, float("inf"), 40.0, 0.1, 0.0, 0.0),
        (0.4, 5, 2.0, 0.8, 100.0, 0.6, 0.3, 0.0),
    )
]
CORRECTED = (0, 3)
"""Silos whose steps are corrected; those with a pull have an anchor, the others neither."""
SIZES = (500, 7, 40, 120, 33, 2, 0, 64)


def make_federation(task: Task, *, odd: bool = False) -> list[Shard]:
    """Ragged shards; with `odd`, some of their records are not finite."""
    generator = np.random.default_rng(5)
    shards = []
    for number, records in enumerate(SIZES):
        features = generator.normal(size=(records, FEATURES)).astype(np.float32)
        classes = generator.integers(max(2, OUTPUTS[task]), size=records)
        if odd and records > 2:
            features[0, 1], features[1, 3] = np.nan, np.inf
            features[2] = -3e38
        shards.append(
            Shard(
                name=f"silo {number}",
                features=features,
                labels=classes if task == "multiclass" else classes.astype(np.float32),
                individuals=np.arange(records).astype(np.str_),
            )
        )
    return shards


def make_engines(
    task: Task,
    *,
    kind: str = "mlp",
    hidden: Sequence[int] = (4,),
    activation: str = "tanh",
    dtype: Literal["float32", "float64"] = "float32",
) -> tuple[OpacusEngine, FleetEngine, Weights]:
    shape, outputs = (FEATURES,), OUTPUTS[task]
    model = build_model(kind, input_shape=shape, outputs=outputs, hidden=hidden, activation=activation, seed=2)
    opacus = OpacusEngine(model, task=task, input_shape=shape, outputs=outputs, dtype=dtype)
    fleet = FleetEngine(model, task=task, input_shape=shape, outputs=outputs, dtype=dtype)
    return opacus, fleet, weights_of(model)


def make_jobs(
    shards: Sequence[Shard],
    weights: Weights,
    streams: Streams,
    round: int = 1,
    schedules: Sequence[Schedule] = SCHEDULES,
) -> list[Job]:
    return [
        Job(
            weights=weights,
            shard=shard,
            schedule=schedules[number % len(schedules)],
            sampling=streams.generator(shard.name, round, "sampling"),
            noise=streams.generator(shard.name, round, "noise"),
            drift=make_drift(number, schedules[number % len(schedules)], weights),
        )
        for number, shard in enumerate(shards)
    ]


def make_drift(number: int, schedule: Schedule, weights: Weights) -> Drift | None:
    anchor: Weights = {name: 0.5 * array.astype(np.float64) - 0.1 for name, array in weights.items()}
    correction: Weights = {name: np.full_like(array, 0.05 * (number + 1)) for name, array in weights.items()}
    return Drift.of(schedule, weights, anchor, correction if number in CORRECTED else None)


def one_by_one(engine: OpacusEngine | FleetEngine, jobs: Sequence[Job]) -> list[tuple[Weights, int]]:
    return [engine.train(job.weights, job.shard, job.schedule, job.sampling, job.noise, job.drift) for job in jobs]


def at_once(engine: FleetEngine, jobs: Sequence[Job]) -> list[tuple[Weights, int]]:
    outcomes = engine.train_all(jobs)
    assert len(outcomes) == len(jobs)
    results = [outcome for outcome in outcomes if not isinstance(outcome, Exception)]
    assert len(results) == len(jobs)
    return results


def flat(weights: Weights) -> np.ndarray:
    return np.concatenate([array.ravel() for array in weights.values()]).astype(np.float64)


def distance(found: Weights, expected: Weights) -> float:
    return float(np.linalg.norm(flat(found) - flat(expected)) / np.linalg.norm(flat(expected)))


def average(results: Sequence[tuple[Weights, int]]) -> Weights:
    models = [weights for weights, _ in results]
    return {name: np.mean([model[name] for model in models], axis=0) for name in models[0]}


@pytest.mark.parametrize(("task", "odd"), [("binary", False), ("multiclass", True)])
def test_in_float64_the_engines_agree_after_twenty_rounds(task: Task, odd: bool, streams: Streams) -> None:
    opacus, fleet, weights = make_engines(task, dtype="float64")
    shards, ours, theirs = make_federation(task, odd=odd), weights, weights
    for round in range(1, 21):
        theirs_by_silo = one_by_one(opacus, make_jobs(shards, theirs, streams, round))
        ours_by_silo = at_once(fleet, make_jobs(shards, ours, streams, round))
        assert [steps for _, steps in ours_by_silo] == [steps for _, steps in theirs_by_silo]
        theirs, ours = average(theirs_by_silo), average(ours_by_silo)
    assert distance(theirs, weights) > 0.1
    assert distance(ours, theirs) < 1e-6


@pytest.mark.parametrize("activation", ["elu", "gelu", "relu", "sigmoid", "tanh"])
@pytest.mark.parametrize("hidden", [(6,), (9, 3)])
def test_in_float32_the_engines_agree_after_a_step(activation: str, hidden: tuple[int, ...], streams: Streams) -> None:
    opacus, fleet, weights = make_engines("multiclass", activation=activation, hidden=hidden)
    shards, schedules = make_federation("multiclass"), [replace(one, steps=1) for one in SCHEDULES]
    jobs = [make_jobs(shards, weights, streams, schedules=schedules) for _ in range(2)]
    for (ours, executed), (theirs, _) in zip(at_once(fleet, jobs[0]), one_by_one(opacus, jobs[1]), strict=True):
        assert executed == 1
        assert {array.dtype for array in ours.values()} == {np.dtype("float32")}
        assert distance(ours, theirs) < 1e-5


@pytest.mark.parametrize("task", OUTPUTS)
def test_a_linear_model_agrees_in_every_task(task: Task, streams: Streams) -> None:
    opacus, fleet, weights = make_engines(task, kind="linear", dtype="float64")
    shards = make_federation(task)
    expected = one_by_one(opacus, make_jobs(shards, weights, streams))
    for (ours, _), (theirs, _) in zip(at_once(fleet, make_jobs(shards, weights, streams)), expected, strict=True):
        assert distance(ours, theirs) < 1e-12


def same_bytes(found: Weights, expected: Weights) -> bool:
    return all(found[name].tobytes() == expected[name].tobytes() for name in expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("task", "kind", "hidden", "activation"),
    [
        ("multiclass", "mlp", (4,), "tanh"),
        ("multiclass", "mlp", (7, 3), "elu"),
        ("binary", "mlp", (3,), "sigmoid"),
        ("binary", "mlp", (1,), "gelu"),
        ("regression", "mlp", (33,), "relu"),
        ("binary", "linear", (), "tanh"),
    ],
)
def test_a_silos_bytes_do_not_depend_on_its_company(
    dtype: Literal["float32", "float64"],
    task: Task,
    kind: str,
    hidden: tuple[int, ...],
    activation: str,
    streams: Streams,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, fleet, weights = make_engines(task, kind=kind, hidden=hidden, activation=activation, dtype=dtype)
    shards = make_federation(task, odd=True)
    shards += [replace(shard, name=f"{shard.name} again") for shard in shards for _ in range(2)]
    alone = [same for same, _ in one_by_one(fleet, make_jobs(shards, weights, streams))]
    forwards = at_once(fleet, make_jobs(shards, weights, streams))
    backwards = at_once(fleet, make_jobs(shards, weights, streams)[::-1])[::-1]
    monkeypatch.setattr("silos._fleet._IN_BLOCK", 2000)
    in_blocks = at_once(fleet, make_jobs(shards, weights, streams))
    monkeypatch.setattr("silos._fleet._IN_LAYER", 1000)
    in_parts = at_once(fleet, make_jobs(shards, weights, streams))
    for results in (forwards, backwards, in_blocks, in_parts):
        for (found, _), expected in zip(results, alone, strict=True):
            assert {name: array.tobytes() for name, array in found.items()} == {
                name: array.tobytes() for name, array in expected.items()
            }


def test_silos_train_on_from_where_their_streams_are(streams: Streams) -> None:
    """A round leaves both streams as Opacus leaves them, at the end of what it drew."""
    opacus, fleet, weights = make_engines("multiclass")
    ours, theirs = (make_jobs(make_federation("multiclass"), weights, streams) for _ in range(2))
    at_once(fleet, ours)
    one_by_one(opacus, theirs)
    for own, other in zip(ours, theirs, strict=True):
        assert own.noise.random() == other.noise.random()
        assert own.sampling.random() == other.sampling.random()


@pytest.mark.parametrize("records", [0, 1, 90])
def test_samples_of_many_steps_are_those_of_one_step_after_the_other(records: int, streams: Streams) -> None:
    together, apart = (streams.generator("north", 1, "sampling") for _ in range(2))
    rows, sizes = poisson_samples(records, 0.2, together, steps=7)
    expected = [poisson_sample(records, 0.2, apart) for _ in range(7)]
    assert sizes.tolist() == [len(sample) for sample in expected]
    assert rows.tolist() == [row for sample in expected for row in sample]


def test_a_silo_whose_labels_are_no_classes_fails_alone(streams: Streams) -> None:
    _, fleet, weights = make_engines("multiclass")
    shards = make_federation("multiclass")
    expected = at_once(fleet, make_jobs(shards, weights, streams))
    shards[1] = replace(shards[1], labels=shards[1].labels + 2)
    outcomes = fleet.train_all(make_jobs(shards, weights, streams))
    assert isinstance(outcomes[1], InvalidValue)
    for number in (0, 2, 7):
        outcome = outcomes[number]
        assert not isinstance(outcome, Exception)
        assert flat(outcome[0]).tolist() == flat(expected[number][0]).tolist()


def test_a_silo_with_other_weights_or_features_fails_alone(streams: Streams) -> None:
    _, fleet, weights = make_engines("binary")
    shards = make_federation("binary")
    shards[2] = replace(shards[2], features=shards[2].features[:, :-1])
    jobs = make_jobs(shards, weights, streams)
    jobs[0] = replace(jobs[0], weights={"other": np.zeros(1, dtype=np.float32)})
    outcomes = fleet.train_all(jobs)
    assert [isinstance(outcome, InvalidValue) for outcome in outcomes] == [True, False, True, *[False] * 5]
    with pytest.raises(InvalidValue, match="missing or unknown"):
        one_by_one(fleet, jobs[:1])


def test_shards_that_are_gone_leave_room_for_new_ones(streams: Streams) -> None:
    _, fleet, weights = make_engines("binary")
    first = make_federation("binary")
    at_once(fleet, make_jobs(first, weights, streams))
    expected = one_by_one(make_engines("binary")[1], make_jobs(first[3:5], weights, streams))
    kept = first[3:5]
    del first
    later = [*kept, *(replace(shard, name=f"later {shard.name}") for shard in kept)]
    found = at_once(fleet, make_jobs(later, weights, streams))
    for (ours, _), (theirs, _) in zip(found[:2], expected, strict=True):
        assert flat(ours).tolist() == flat(theirs).tolist()


class Doubled(nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(input)


def _with_hook() -> nn.Module:
    model = nn.Linear(4, 2)
    model.register_forward_hook(lambda _, __, output: output + 1)
    return model


def _shared() -> nn.Module:
    layer = nn.Linear(4, 4)
    return nn.Sequential(layer, nn.Tanh(), layer)


def _frozen() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4).requires_grad_(False), nn.Tanh(), nn.Linear(4, 2))


@pytest.mark.parametrize(
    "model",
    [
        Doubled(4, 2),
        _with_hook(),
        _shared(),
        _frozen(),
        nn.utils.parametrizations.weight_norm(nn.Linear(4, 2)),
        nn.Sequential(nn.Linear(4, 2), nn.Softmax(1)),
        nn.Sequential(nn.Linear(4, 2), nn.Tanh()),
        nn.Sequential(nn.Tanh(), nn.Linear(4, 2)),
        nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.Linear(3, 2)),
        nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Tanh(), nn.Linear(3, 2)),
        nn.Sequential(),
        build_model("cnn", input_shape=(1, 28, 28), outputs=10, seed=0),
    ],
)
def test_what_is_not_a_chain_of_plain_layers_is_left_to_opacus(model: nn.Module) -> None:
    assert not FleetEngine.supports(model)
    with pytest.raises(ModelRefused, match="fleet"):
        FleetEngine(model, task="multiclass", input_shape=(4,), outputs=2)


@pytest.mark.parametrize(
    "model",
    [
        nn.Linear(6, 2, bias=False),
        nn.Sequential(nn.Flatten(), nn.Linear(6, 4, bias=False), nn.ELU(alpha=0.3), nn.Linear(4, 2)),
        nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(6, 4), nn.Identity(), nn.GELU("tanh")), nn.Linear(4, 2)),
        nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 2, bias=False)),
        nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)),
    ],
)
def test_chains_of_every_build_agree(model: nn.Module, streams: Streams) -> None:
    generator = np.random.default_rng(0)
    shape = (2, 3) if isinstance(model, nn.Sequential) and isinstance(model[0], nn.Flatten) else (6,)
    shard = Shard(
        name="north",
        features=generator.normal(size=(50, *shape)).astype(np.float32),
        labels=generator.integers(2, size=50),
        individuals=np.arange(50).astype(np.str_),
    )
    assert FleetEngine.supports(model)
    results = [
        one_by_one(
            kind(model, task="multiclass", input_shape=shape, outputs=2, dtype="float64"),
            make_jobs([shard], weights_of(model), streams),
        )[0]
        for kind in (FleetEngine, OpacusEngine)
    ]
    assert distance(results[0][0], results[1][0]) < 1e-12
