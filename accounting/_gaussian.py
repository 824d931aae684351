"""The Gaussian mechanism, plain and Poisson-sampled: what DP-SGD releases."""

import math
from dataclasses import dataclass
from typing import ClassVar

from accounting._gaussian_pairs import SampledPair, SampledReplacePair
from accounting._mechanism import Mechanism
from accounting._pairs import IDENTICAL, DiscretePair, Pair
from accounting._relations import Directions, Relation
from accounting._validate import check_in_range

_FAINTEST = 1e8
"""Noise multipliers above are priced at this one, an upper bound that is below 1e-8 a step."""

RAREST = 1e-100
"""Sampling rates between 0 and this one are priced at it, an upper bound."""


@dataclass(frozen=True, kw_only=True)
class SampledGaussian(Mechanism):
    """A sum over a Poisson sample of the shard, each term clipped to norm C, plus Gaussian noise: a DP-SGD step.

    Args:
        sampling_rate: probability q in [0, 1] with which each record enters a step, by independent coins.
        noise_multiplier: standard deviation of the noise over C, in [0, inf).
        by_individual: whether individuals are sampled instead of records, and the sum of all records of one is clipped
            as a whole; the price then holds for an individual with any number of records.
        steps: number of steps, an integer >= 0.

    | edge | price |
    |---|---|
    | q = 0, or no steps | nothing |
    | sigma = 0 | infinite below delta = 1 - (1-q)^steps |
    | q = 1 | the plain Gaussian |

    ```
    >>> from accounting._relations import Relation
    >>> step = SampledGaussian(sampling_rate=0.01, noise_multiplier=1.0)
    >>> round(step.pairs(Relation.ADD_OR_REMOVE_ONE).remove.profile(0.1), 6)
    7.3e-05

    ```

    References: Abadi and others 2016; Zhu, Dong, Wang 2022, Theorem 11.
    """

    name: ClassVar[str] = "sampled-gaussian"

    sampling_rate: float
    noise_multiplier: float
    by_individual: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_in_range(low=0, high=1, sampling_rate=self.sampling_rate)
        check_in_range(low=0, high=math.inf, high_open=True, noise_multiplier=self.noise_multiplier)

    def pairs(self, relation: Relation) -> Directions[Pair]:
        return gaussian_pairs(self.sampling_rate, self.noise_multiplier, relation)

    def covers(self, records: int) -> bool:
        return self.by_individual or super().covers(records)


@dataclass(frozen=True, kw_only=True)
class Gaussian(Mechanism):
    """A sum over the whole shard, each term clipped to norm C, plus Gaussian noise.

    Args:
        noise_multiplier: standard deviation of the noise over C, in [0, inf).
        by_individual: whether the sum of all records of one individual is clipped as a whole.
        steps: number of releases, an integer >= 0.

    Formal guarantees: sensitivity C under add-or-remove-one and zero-out, 2C under replace-one; the profile of
    `steps` releases is that of one with noise_multiplier / sqrt(steps) (Dong, Roth, Su 2022, Corollary 3.3).
    """

    name: ClassVar[str] = "gaussian"

    noise_multiplier: float
    by_individual: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_in_range(low=0, high=math.inf, high_open=True, noise_multiplier=self.noise_multiplier)

    def pairs(self, relation: Relation) -> Directions[Pair]:
        return gaussian_pairs(1.0, self.noise_multiplier, relation)

    def covers(self, records: int) -> bool:
        return self.by_individual or super().covers(records)


def gaussian_pairs(sampling_rate: float, noise_multiplier: float, relation: Relation) -> Directions[Pair]:
    """The pair of a Gaussian step on a sum of terms of norm at most 1.

    This is the one place for the relation's effect on sensitivity: under replace-one a sampled term turns from one end
    of the ball to the other, which without sampling is a shift of 2.
    """
    replaced = relation is Relation.REPLACE_ONE
    if sampling_rate == 0:
        return Directions(remove=IDENTICAL, add=IDENTICAL)
    if noise_multiplier == 0:
        q = float(sampling_rate)
        bare = DiscretePair((1 - q, q, 0.0), (1 - q, 0.0, q)) if replaced else DiscretePair((1 - q, q), (1.0, 0.0))
        return Directions(remove=bare, add=bare.reversed())
    sigma, rate = float(min(noise_multiplier, _FAINTEST)), float(max(sampling_rate, RAREST))
    if rate == 1:
        pair = SampledPair(sigma=sigma / 2 if replaced else sigma)
    elif replaced:
        pair = SampledReplacePair(sigma=sigma, sampling_rate=rate)
    else:
        pair = SampledPair(sigma=sigma, sampling_rate=rate)
    return Directions(remove=pair, add=pair.reversed())
