"""Individuals with several records: sampled whole, summed, clipped as one, and priced as what was done."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from accounting import MultiRecordSampledGaussian, Relation, SampledGaussian, epsilon
from silos import FleetEngine, Job, OpacusEngine, Schedule, Shard, Streams, Weights, build_model

MakeShard = Callable[..., Shard]
MakeSchedule = Callable[..., Schedule]


@pytest.fixture
def crowd(make_shard: MakeShard) -> Shard:
    """Forty records of 13 individuals, in no order; up to 4 each."""
    ids = np.random.default_rng(5).permutation(np.arange(40) % 13)
    return replace(make_shard(), individuals=np.array([f"p{one}" for one in ids], dtype=np.str_))


def change(engine: OpacusEngine, weights: Weights, shard: Shard, schedule: Schedule, streams: Streams) -> np.ndarray:
    sampling = streams.generator(shard.name, 1, "sampling")
    after, executed = engine.train(weights, shard, schedule, sampling, streams.generator(shard.name, 1, "noise"))
    assert executed == schedule.steps
    return np.concatenate([(after[name] - weights[name]).ravel() for name in weights])


def rows_of(shard: Shard, rows: np.ndarray) -> Shard:
    return replace(shard, features=shard.features[rows], labels=shard.labels[rows], individuals=shard.individuals[rows])


def step(make_schedule: MakeSchedule, **changes: object) -> Schedule:
    """A step without noise in which learning rate and divisor are one, so that the update is the sum, negated."""
    one: dict[str, object] = {"steps": 1, "noise_multiplier": 0.0, "learning_rate": 1.0, "expected_batch": 1.0}
    return make_schedule(**(one | {"momentum": 0.0, "by_individual": True, "records": 4} | changes))


def test_an_individuals_gradients_are_summed_and_clipped_as_one(
    engine: OpacusEngine, weights: Weights, crowd: Shard, make_schedule: MakeSchedule, streams: Streams
) -> None:
    # By hand from sums of single records, which the engine gives when nothing is clipped.
    bare = step(make_schedule, sampling_rate=1.0, clip_norm=float("inf"), by_individual=False, records=1)
    expected = np.zeros(sum(array.size for array in weights.values()))
    clip_norm = 0.6
    for one in np.unique(crowd.individuals):
        gradient = change(engine, weights, rows_of(crowd, np.flatnonzero(crowd.individuals == one)), bare, streams)
        expected += gradient * min(1.0, clip_norm / (np.linalg.norm(gradient) + 1e-6))
    found = change(engine, weights, crowd, step(make_schedule, sampling_rate=1.0, clip_norm=clip_norm), streams)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_an_individual_moves_the_sum_by_at_most_the_clip_norm_however_many_records_it_has(
    engine: OpacusEngine, weights: Weights, crowd: Shard, make_schedule: MakeSchedule, streams: Streams
) -> None:
    crowd.features[::3] *= 100
    schedule = step(make_schedule, sampling_rate=1.0, clip_norm=0.05)
    whole = change(engine, weights, crowd, schedule, streams)
    moves = [
        np.linalg.norm(
            whole - change(engine, weights, rows_of(crowd, np.flatnonzero(crowd.individuals != one)), schedule, streams)
        )
        for one in np.unique(crowd.individuals)
    ]
    assert max(moves) <= 0.05 * (1 + 1e-9)
    assert min(moves) >= 0.05 * 0.9


def test_an_individual_is_in_a_step_with_all_its_records_at_the_scheduled_rate(
    make_schedule: MakeSchedule, streams: Streams
) -> None:
    # Each record has an input of its own, so that the update of a linear model shows who was taken.
    records, rounds, rate = 40, 400, 0.3
    ids = np.arange(records) % 16
    shard = Shard(
        name="north",
        features=np.eye(records, dtype=np.float32),
        labels=np.zeros(records, dtype=np.float32),
        individuals=np.array([f"p{one}" for one in ids], dtype=np.str_),
    )
    model = build_model("linear", input_shape=(records,), outputs=1, seed=0)
    engine = OpacusEngine(model, task="binary", input_shape=(records,), outputs=1, max_physical_batch=5)
    start = {name: np.zeros(shape, dtype=np.float32) for name, shape in engine.layout.items()}
    schedule = step(make_schedule, sampling_rate=rate)
    taken = []
    for number in range(1, rounds + 1):
        noise = streams.generator("north", number, "noise")
        after, _ = engine.train(start, shard, schedule, streams.generator("north", number, "sampling"), noise)
        taken.append(next(iter(after.values())).ravel()[:records] != 0)
    together = np.array(taken)
    for one in range(16):
        own = together[:, ids == one]
        assert (own.all(axis=1) == own.any(axis=1)).all()
        assert own[:, 0].mean() == pytest.approx(rate, abs=0.1)
    # 6,400 coins: a standard error of 0.006. Records by coins of their own would be met at 1 - 0.7^2.5 = 0.59.
    assert together[:, :16].mean() == pytest.approx(rate, abs=0.025)


def test_physical_batches_never_part_an_individual(
    make_engine: Callable[..., OpacusEngine],
    weights: Weights,
    crowd: Shard,
    make_schedule: MakeSchedule,
    streams: Streams,
) -> None:
    schedule = make_schedule(sampling_rate=0.7, by_individual=True, records=4)
    whole = change(make_engine(), weights, crowd, schedule, streams)
    for size in (1, 3, 5, 16):
        split = change(make_engine(max_physical_batch=size), weights, crowd, schedule, streams)
        np.testing.assert_allclose(split, whole, rtol=0, atol=1e-12)


def test_a_record_that_is_not_finite_takes_out_its_individual_and_nobody_else(
    engine: OpacusEngine, weights: Weights, crowd: Shard, make_schedule: MakeSchedule, streams: Streams
) -> None:
    schedule = step(make_schedule, sampling_rate=1.0)
    one = crowd.individuals[7]
    rest = change(engine, weights, rows_of(crowd, np.flatnonzero(crowd.individuals != one)), schedule, streams)
    crowd.features[7, 0] = np.nan
    np.testing.assert_allclose(change(engine, weights, crowd, schedule, streams), rest, rtol=0, atol=1e-12)


def test_where_each_has_one_record_sampling_individuals_is_sampling_records(
    engine: OpacusEngine, weights: Weights, make_shard: MakeShard, make_schedule: MakeSchedule, streams: Streams
) -> None:
    shard = replace(make_shard(), individuals=np.array([f"p{number:02d}" for number in range(40)], dtype=np.str_))
    schedule = make_schedule()
    records = change(engine, weights, shard, schedule, streams)
    individuals = change(engine, weights, shard, replace(schedule, by_individual=True), streams)
    np.testing.assert_allclose(individuals, records, rtol=0, atol=1e-12)


def test_each_way_to_sample_has_its_own_law(make_schedule: MakeSchedule) -> None:
    schedule = make_schedule(sampling_rate=0.05, noise_multiplier=1.5, steps=20)
    by_record, by_individual = replace(schedule, records=5), replace(schedule, records=5, by_individual=True)
    assert isinstance(by_record.mechanism(), MultiRecordSampledGaussian)
    assert isinstance(by_individual.mechanism(), SampledGaussian)
    assert all(each.mechanism().covers(5) for each in (by_record, by_individual))
    assert not schedule.mechanism().covers(5)
    prices = [
        epsilon([each.mechanism()], relation=Relation.ZERO_OUT, delta=1e-5).epsilon
        for each in (schedule, by_individual, by_record)
    ]
    assert prices[0] == prices[1] < prices[2]
    assert Schedule.from_config(dict(by_individual.to_config())) == by_individual


def test_a_fleet_leaves_individuals_to_opacus(crowd: Shard, make_schedule: MakeSchedule, streams: Streams) -> None:
    model = build_model("mlp", input_shape=(5,), outputs=3, hidden=(4,), seed=1)
    fleet = FleetEngine(model, task="multiclass", input_shape=(5,), outputs=3)
    weights = {name: np.zeros(shape, dtype=np.float32) for name, shape in fleet.layout.items()}
    (outcome,) = fleet.train_all(
        [
            Job(
                weights=weights,
                shard=crowd,
                schedule=make_schedule(by_individual=True),
                sampling=streams.generator("north", 1, "sampling"),
                noise=streams.generator("north", 1, "noise"),
            )
        ]
    )
    assert isinstance(outcome, Exception)
    assert "OpacusEngine" in str(outcome)
