"""A schedule: the public numbers that the server asks of one silo in one round."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Self

from accounting import InvalidValue, MultiRecordSampledGaussian, SampledGaussian
from accounting._validate import check_count, check_in_range

if TYPE_CHECKING:
    from flwr.app import ConfigRecord

LEAST_CLIP = 1e-30
"""Of a clip norm. Below about 1e-38 single precision rounds gradients and noise to a grid as coarse as the norm."""

_ALLOWED: Mapping[object, type | tuple[type, ...]] = {bool: bool, int: int, float: (int, float)}


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """What one silo does in one round. Every field is public: none may depend on what a shard holds.

    Args:
        sampling_rate: probability of each record (or individual, see `by_individual`) to be in a step's sample, in
            (0, 1].
        steps: DP-SGD steps, an integer >= 1.
        noise_multiplier: noise standard deviation over `clip_norm`, >= 0; 0 is training without privacy.
        clip_norm: largest L2 norm of one record's gradient (or of the sum over one individual's), at least 1e-30;
            infinite only where `noise_multiplier` is 0.
        expected_batch: divisor of the noisy gradient sum, > 0, as a public number of records (or individuals). Never
            the realised batch.
        learning_rate: of the silo's SGD, > 0.
        momentum: of the silo's SGD, in [0, 1); its buffer starts empty in each round.
        pull: strength with which each step pulls the weights to the request's anchor, >= 0; times the learning rate at
            most 1, where a step without gradients takes them to the anchor.
        weight: weight of the silo's model in the average, > 0; only ratios between silos matter.
        records: public cap on the records of one individual in the shard, which the release is priced for, >= 1.
        by_individual: sample individuals instead of records, take all records of each, sum their gradients and clip the
            sum.
    """

    sampling_rate: float
    steps: int
    noise_multiplier: float
    clip_norm: float
    expected_batch: float
    learning_rate: float
    momentum: float = 0.0
    pull: float = 0.0
    weight: float = 1.0
    records: int = 1
    by_individual: bool = False

    def __post_init__(self) -> None:
        check_in_range(low=0, high=1, low_open=True, sampling_rate=self.sampling_rate)
        check_count(low=1, steps=self.steps, records=self.records)
        check_in_range(low=0, high=math.inf, high_open=True, noise_multiplier=self.noise_multiplier)
        check_in_range(low=LEAST_CLIP, high=math.inf, high_open=self.noise_multiplier > 0, clip_norm=self.clip_norm)
        check_in_range(
            low=0,
            high=math.inf,
            low_open=True,
            high_open=True,
            expected_batch=self.expected_batch,
            learning_rate=self.learning_rate,
            weight=self.weight,
        )
        check_in_range(low=0, high=1, high_open=True, momentum=self.momentum)
        check_in_range(low=0, high=1 / self.learning_rate, pull=self.pull)

    def mechanism(self) -> SampledGaussian | MultiRecordSampledGaussian:
        """The law of the round's release: the model after `steps` sampled Gaussian steps.

        Records that are sampled by coins of their own may meet in a step, up to `records` of one individual; those of
        a sampled individual are clipped as one.
        """
        rate, sigma, steps = self.sampling_rate, self.noise_multiplier, self.steps
        if self.records > 1 and not self.by_individual:
            return MultiRecordSampledGaussian(
                sampling_rate=rate, noise_multiplier=sigma, records=self.records, steps=steps
            )
        return SampledGaussian(
            sampling_rate=rate, noise_multiplier=sigma, by_individual=self.by_individual, steps=steps
        )

    def to_config(self) -> "ConfigRecord":
        """The schedule as a Flower record."""
        return _config(self).copy()

    @classmethod
    def from_config(cls, values: Mapping[str, object]) -> Self:
        """The inverse of `to_config`.

        Raises:
            InvalidValue: for a field that is missing, unknown, of another type or out of range.
        """
        known = _kinds()
        if odd := values.keys() ^ known.keys():
            raise InvalidValue(f"Field {min(odd)!r} of a schedule is missing or unknown; it has {', '.join(known)}.")
        for name, value in values.items():
            if not isinstance(value, _ALLOWED[known[name]]) or isinstance(value, bool) != (known[name] is bool):
                kind = "true or false" if known[name] is bool else "a number"
                raise InvalidValue(f"Expected {name}={value!r} of a schedule to be {kind}.")
        return _schedule(**values)  # pyright: ignore  # types were checked above; there is no subclass


@cache
def _kinds() -> dict[str, object]:
    return {field.name: field.type for field in fields(Schedule)}


@lru_cache(maxsize=4096, typed=True)
def _schedule(**values: float) -> Schedule:
    return Schedule(**values)  # pyright: ignore[reportArgumentType]  # the caller checked types, field by field


@lru_cache(maxsize=4096)
def _config(schedule: Schedule) -> "ConfigRecord":
    from flwr.app import ConfigRecord  # takes half a second, and a plan needs none

    # Flower looks at every value that is put into a record, and a run has the same few schedules in every round.
    return ConfigRecord(asdict(schedule))
