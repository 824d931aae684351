"""The engine against DP-SGD written out by hand, and its formal guarantees one by one."""

import math
import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from silos import OpacusEngine, Schedule, Shard, Streams, Weights

MakeShard = Callable[..., Shard]
MakeSchedule = Callable[..., Schedule]
MakeEngine = Callable[..., OpacusEngine]


def train(
    engine: OpacusEngine, weights: Weights, shard: Shard, schedule: Schedule, streams: Streams, round: int = 1
) -> tuple[Weights, int]:
    sampling = streams.generator(shard.name, round, "sampling")
    return engine.train(weights, shard, schedule, sampling, streams.generator(shard.name, round, "noise"))


def flat(weights: Weights) -> np.ndarray:
    return np.concatenate([array.ravel() for array in weights.values()])


def change(before: Weights, after: Weights) -> np.ndarray:
    return flat(after) - flat(before)


def record_gradient(weights: Weights, features: np.ndarray, label: int) -> np.ndarray:
    """Gradient of one record's cross-entropy in the two-layer tanh network, by plain autograd."""
    parts = [torch.tensor(array, requires_grad=True) for array in weights.values()]
    first, first_bias, second, second_bias = parts
    hidden = torch.tanh(torch.tensor(features, dtype=torch.float64) @ first.T + first_bias)
    logits = hidden @ second.T + second_bias
    (torch.logsumexp(logits, dim=0) - logits[label]).backward()
    return np.concatenate([part.grad.numpy().ravel() for part in parts if part.grad is not None])


def by_hand(weights: Weights, shard: Shard, schedule: Schedule, streams: Streams, round: int = 1) -> np.ndarray:
    """The round's weights, flat: sample, clip, sum, add noise, divide, SGD with momentum."""
    sampling = streams.generator(shard.name, round, "sampling")
    noise = streams.generator(shard.name, round, "noise")
    current, velocity = flat(weights), np.zeros(len(flat(weights)))
    for _ in range(schedule.steps):
        taken = sampling.random(len(shard)) < schedule.sampling_rate
        total = np.zeros_like(current)
        named = unflatten(current, weights)
        for row in np.flatnonzero(taken):
            gradient = record_gradient(named, shard.features[row], int(shard.labels[row]))
            # Opacus adds 1e-6 to the norm, which only ever clips a little more.
            total += gradient * min(1.0, schedule.clip_norm / (np.linalg.norm(gradient) + 1e-6))
        total += schedule.noise_multiplier * schedule.clip_norm * noise.standard_normal(len(current))
        velocity = schedule.momentum * velocity + total / schedule.expected_batch
        current = current - schedule.learning_rate * velocity
    return current


def unflatten(values: np.ndarray, like: Weights) -> Weights:
    parts = np.split(values, np.cumsum([array.size for array in like.values()])[:-1])
    return {name: part.reshape(array.shape) for part, (name, array) in zip(parts, like.items(), strict=True)}


@pytest.mark.parametrize("sampling_rate", [0.02, 0.3, 1.0])
def test_a_round_is_dp_sgd_written_out_by_hand(
    engine: OpacusEngine,
    weights: Weights,
    make_shard: MakeShard,
    make_schedule: MakeSchedule,
    streams: Streams,
    sampling_rate: float,
) -> None:
    shard, schedule = make_shard(), make_schedule(sampling_rate=sampling_rate)
    trained, executed = train(engine, weights, shard, schedule, streams)
    assert executed == schedule.steps
    np.testing.assert_allclose(flat(trained), by_hand(weights, shard, schedule, streams), rtol=0, atol=1e-12)


def test_physical_batches_change_nothing(
    weights: Weights,
    make_engine: MakeEngine,
    make_shard: MakeShard,
    make_schedule: MakeSchedule,
    streams: Streams,
) -> None:
    shard, schedule = make_shard(), make_schedule(sampling_rate=0.8)
    whole, _ = train(make_engine(), weights, shard, schedule, streams)
    for size in (1, 7, 16):
        split, executed = train(make_engine(max_physical_batch=size), weights, shard, schedule, streams)
        assert executed == schedule.steps
        np.testing.assert_allclose(flat(split), flat(whole), rtol=0, atol=1e-12)


@pytest.mark.parametrize("records", [0, 30])
def test_an_empty_sample_adds_noise_and_counts(
    engine: OpacusEngine,
    weights: Weights,
    make_shard: MakeShard,
    make_schedule: MakeSchedule,
    streams: Streams,
    records: int,
) -> None:
    schedule = make_schedule(sampling_rate=1e-9, steps=3, momentum=0.0)
    shard = make_shard(records)
    trained, executed = train(engine, weights, shard, schedule, streams)
    assert executed == 3
    draws = streams.generator(shard.name, 1, "noise").standard_normal((3, len(flat(weights)))).sum(axis=0)
    scale = schedule.noise_multiplier * schedule.clip_norm / schedule.expected_batch * schedule.learning_rate
    np.testing.assert_allclose(change(weights, trained), -scale * draws, rtol=0, atol=1e-12)


def test_the_divisor_is_the_public_number(
    engine: OpacusEngine, weights: Weights, make_shard: MakeShard, make_schedule: MakeSchedule, streams: Streams
) -> None:
    schedule = make_schedule(steps=1, noise_multiplier=0.0, sampling_rate=1.0)
    moves = [
        change(weights, train(engine, weights, make_shard(), replace(schedule, expected_batch=divisor), streams)[0])
        for divisor in (10.0, 25.0)
    ]
    np.testing.assert_allclose(moves[0] * 10.0, moves[1] * 25.0, rtol=1e-9)


def test_every_record_moves_the_sum_by_at_most_the_clip_norm(
    engine: OpacusEngine, weights: Weights, make_shard: MakeShard, make_schedule: MakeSchedule, streams: Streams
) -> None:
    shard = make_shard(12)
    shard.features[3] *= 1e4
    schedule = make_schedule(
        steps=1, noise_multiplier=0.0, sampling_rate=1.0, learning_rate=1.0, expected_batch=1.0, clip_norm=0.05
    )
    whole = change(weights, train(engine, weights, shard, schedule, streams)[0])
    for row in range(len(shard)):
        kept = np.arange(len(shard)) != row
        fewer = Shard(
            name=shard.name,
            features=shard.features[kept],
            labels=shard.labels[kept],
            individuals=shard.individuals[kept],
        )
        without = change(weights, train(engine, weights, fewer, schedule, streams)[0])
        assert np.linalg.norm(whole - without) <= schedule.clip_norm * (1 + 1e-9)
        assert np.linalg.norm(whole - without) >= schedule.clip_norm * 0.99


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_record_that_is_not_finite_contributes_zero_and_moves_no_other(
    make_engine: MakeEngine,
    weights: Weights,
    make_shard: MakeShard,
    make_schedule: MakeSchedule,
    streams: Streams,
    value: float,
) -> None:
    engine = make_engine(max_physical_batch=7)
    schedule = make_schedule(sampling_rate=1.0)
    shard = make_shard(20)
    kept = np.arange(20) != 4
    rest = Shard(
        name=shard.name, features=shard.features[kept], labels=shard.labels[kept], individuals=shard.individuals[kept]
    )
    expected, _ = train(engine, weights, rest, schedule, streams)
    assert engine.zeroed == 0
    shard.features[4, 2] = value
    trained, executed = train(engine, weights, shard, schedule, streams)
    assert executed == schedule.steps
    assert engine.zeroed == schedule.steps
    np.testing.assert_allclose(flat(trained), flat(expected), rtol=0, atol=1e-12)


@pytest.mark.parametrize("sampling_rate", [1e-9, 0.5])
def test_noise_has_the_declared_deviation_in_every_coordinate(
    engine: OpacusEngine,
    weights: Weights,
    make_shard: MakeShard,
    make_schedule: MakeSchedule,
    streams: Streams,
    sampling_rate: float,
) -> None:
    noisy = make_schedule(steps=1, momentum=0.0, learning_rate=1.0, expected_batch=1.0, sampling_rate=sampling_rate)
    silent = replace(noisy, noise_multiplier=0.0)
    draws = np.array(
        [
            flat(train(engine, weights, make_shard(10), noisy, streams, round)[0])
            - flat(train(engine, weights, make_shard(10), silent, streams, round)[0])
            for round in range(1, 301)
        ]
    )
    sigma = noisy.noise_multiplier * noisy.clip_norm
    # Over 300 draws a coordinate's deviation has a standard error of 4%, over all coordinates of 0.6%.
    assert np.std(draws) == pytest.approx(sigma, rel=0.03)
    assert np.std(draws, axis=0) == pytest.approx(sigma, rel=0.25)
    assert np.abs(draws.mean(axis=0)).max() < 5 * sigma / math.sqrt(300)


def test_same_streams_same_bytes_on_a_fresh_or_a_used_engine(
    make_engine: MakeEngine, make_shard: MakeShard, make_schedule: MakeSchedule, weights: Weights, streams: Streams
) -> None:
    used = make_engine(dtype="float32")
    train(used, weights, make_shard(seed=5), make_schedule(momentum=0.5), streams, 7)
    again, _ = train(used, weights, make_shard(), make_schedule(), streams)
    first, _ = train(make_engine(dtype="float32"), weights, make_shard(), make_schedule(), streams)
    assert {name: array.tobytes() for name, array in first.items()} == {n: a.tobytes() for n, a in again.items()}
    assert all(array.dtype == np.float32 for array in first.values())


def test_both_precisions_add_the_same_noise(
    make_engine: MakeEngine, make_shard: MakeShard, make_schedule: MakeSchedule, weights: Weights, streams: Streams
) -> None:
    double, _ = train(make_engine(), weights, make_shard(), make_schedule(), streams)
    single, _ = train(make_engine(dtype="float32"), weights, make_shard(), make_schedule(), streams)
    np.testing.assert_allclose(flat(single), flat(double), rtol=0, atol=1e-5)


def test_a_shard_in_read_only_memory_trains(
    engine: OpacusEngine, weights: Weights, make_shard: MakeShard, make_schedule: MakeSchedule, streams: Streams
) -> None:
    expected, _ = train(engine, weights, make_shard(), make_schedule(), streams)
    frozen = make_shard()
    frozen.features.setflags(write=False)
    frozen.labels.setflags(write=False)
    trained, _ = train(engine, weights, frozen, make_schedule(), streams)
    assert np.array_equal(flat(trained), flat(expected))


def test_momentum_starts_empty_in_each_round(
    engine: OpacusEngine, weights: Weights, make_shard: MakeShard, make_schedule: MakeSchedule, streams: Streams
) -> None:
    shard, schedule = make_shard(), make_schedule()
    first, _ = train(engine, weights, shard, schedule, streams, 1)
    second, _ = train(engine, first, shard, schedule, streams, 2)
    np.testing.assert_allclose(flat(second), by_hand(first, shard, schedule, streams, 2), rtol=0, atol=1e-12)


def test_the_given_weights_and_the_shard_are_left_as_they_were(
    engine: OpacusEngine, weights: Weights, make_shard: MakeShard, make_schedule: MakeSchedule, streams: Streams
) -> None:
    shard = make_shard()
    before = flat(weights).copy(), shard.fingerprint(b"key")
    first, _ = train(engine, weights, shard, make_schedule(), streams)
    kept = flat(first).copy()
    train(engine, first, shard, make_schedule(), streams, 2)
    assert np.array_equal(flat(weights), before[0])
    assert shard.fingerprint(b"key") == before[1]
    assert np.array_equal(flat(first), kept)


def test_training_moves_no_global_generator(
    make_engine: MakeEngine, weights: Weights, make_shard: MakeShard, make_schedule: MakeSchedule, streams: Streams
) -> None:
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    train(make_engine(), weights, make_shard(), make_schedule(), streams)
    assert states == (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())


def test_no_noise_and_no_clipping_is_plain_sgd(
    engine: OpacusEngine, weights: Weights, make_shard: MakeShard, make_schedule: MakeSchedule, streams: Streams
) -> None:
    shard = make_shard(1)
    schedule = make_schedule(
        noise_multiplier=0.0, clip_norm=math.inf, sampling_rate=1.0, expected_batch=1.0, steps=1, learning_rate=0.1
    )
    trained, _ = train(engine, weights, shard, schedule, streams)
    gradient = record_gradient(weights, shard.features[0], int(shard.labels[0]))
    np.testing.assert_allclose(change(weights, trained), -0.1 * gradient, rtol=0, atol=1e-12)


def test_a_round_that_broke_leaves_nothing_behind(
    make_engine: MakeEngine, weights: Weights, make_shard: MakeShard, make_schedule: MakeSchedule, streams: Streams
) -> None:
    engine, schedule = make_engine(max_physical_batch=8), make_schedule(sampling_rate=1.0)
    expected, _ = train(engine, weights, make_shard(), schedule, streams)
    broken = make_shard()
    broken.labels[20] = 99
    with pytest.raises(IndexError):
        train(engine, weights, broken, schedule, streams)
    again, _ = train(engine, weights, make_shard(), schedule, streams)
    assert np.array_equal(flat(again), flat(expected))


def test_weights_of_another_model_are_refused(
    engine: OpacusEngine, weights: Weights, make_shard: MakeShard, make_schedule: MakeSchedule, streams: Streams
) -> None:
    name = next(iter(weights))
    for wrong in (weights | {"extra": np.zeros(1)}, weights | {name: np.zeros((1, 1))}):
        with pytest.raises(ValueError, match=r"extra|shape"):
            train(engine, wrong, make_shard(), make_schedule(), streams)
