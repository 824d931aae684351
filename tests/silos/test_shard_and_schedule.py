"""What a shard and a schedule accept, and what identifies them."""

import math
from collections.abc import Callable
from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from accounting import InvalidValue, SampledGaussian
from silos import Schedule, Shard, loss


def test_a_schedule_survives_the_wire(make_schedule: Callable[..., Schedule]) -> None:
    schedule = make_schedule(clip_norm=0.1, weight=1 / 3)
    assert Schedule.from_config(schedule.to_config()) == schedule


def test_a_schedule_is_priced_by_its_rate_noise_and_steps_alone(make_schedule: Callable[..., Schedule]) -> None:
    schedule = make_schedule(sampling_rate=0.25, noise_multiplier=1.5, steps=7)
    assert schedule.mechanism() == SampledGaussian(sampling_rate=0.25, noise_multiplier=1.5, steps=7)
    assert replace(schedule, clip_norm=9.0, expected_batch=2.0, learning_rate=3.0).mechanism() == schedule.mechanism()


@pytest.mark.parametrize("field", [field.name for field in fields(Schedule) if field.type is not bool])
@pytest.mark.parametrize("value", [-1, math.nan])
def test_a_number_out_of_range_is_refused_by_name(
    make_schedule: Callable[..., Schedule], field: str, value: float
) -> None:
    with pytest.raises(InvalidValue, match=f"{field}={value}"):
        make_schedule(**{field: value})


def test_no_clipping_is_allowed_only_without_noise(make_schedule: Callable[..., Schedule]) -> None:
    assert make_schedule(clip_norm=math.inf, noise_multiplier=0.0).clip_norm == math.inf
    with pytest.raises(InvalidValue, match="clip_norm=inf"):
        make_schedule(clip_norm=math.inf)


def test_a_fingerprint_sees_every_value_and_its_key(make_shard: Callable[..., Shard]) -> None:
    shard = make_shard()
    changed = make_shard()
    changed.features[3, 1] += 1e-6
    relabelled = make_shard()
    relabelled.labels[0] = (relabelled.labels[0] + 1) % 3
    renamed = make_shard(name="south")
    owned = replace(shard, individuals=np.roll(shard.individuals, 1))
    shards = [shard, changed, relabelled, renamed, owned, make_shard(39)]
    prints = [each.fingerprint(b"secret") for each in shards] + [shard.fingerprint(b"other")]
    assert len(set(prints)) == len(prints)
    assert make_shard().fingerprint(b"secret") == prints[0]


def test_a_shard_of_unequal_columns_is_refused(make_shard: Callable[..., Shard]) -> None:
    shard = make_shard(4)
    for change in (
        {"labels": shard.labels[:3]},
        {"individuals": shard.individuals[:3]},
        {"features": shard.features.astype(np.float64)},
        {"features": shard.features[:, 0]},
        {"labels": shard.labels.astype(np.int32)},
        {"name": ""},
    ):
        with pytest.raises(InvalidValue, match=next(iter(change))):
            replace(shard, **change)


def test_losses_add_over_records() -> None:
    outputs = torch.tensor([[0.3], [-1.2], [2.0]], dtype=torch.float64)
    labels = torch.tensor([1.0, 0.0, 0.0])
    logistic = sum(math.log1p(math.exp(-z if y else z)) for z, y in zip([0.3, -1.2, 2.0], [1, 0, 0], strict=True))
    assert float(loss("binary")(outputs, labels)) == pytest.approx(logistic, rel=1e-12)
    assert float(loss("regression")(outputs, labels)) == pytest.approx(0.7**2 + 1.2**2 + 2.0**2, rel=1e-12)
    logits = torch.tensor([[1.0, 2.0, 0.5], [0.0, 0.0, 0.0]], dtype=torch.float64)
    entropy = math.log(math.e + math.e**2 + math.e**0.5) - 2.0 + math.log(3)
    assert float(loss("multiclass")(logits, torch.tensor([1, 2]))) == pytest.approx(entropy, rel=1e-12)


def test_an_unknown_task_is_refused() -> None:
    with pytest.raises(InvalidValue, match="binary, multiclass, regression"):
        loss("ranking")  # type: ignore[arg-type]
