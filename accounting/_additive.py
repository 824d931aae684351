"""Noise added to one number, such as a count: Laplace, discrete Laplace, discrete Gaussian.

How far the number moves is a property of the query under the relation, not of the noise: a count of records moves by
1 when a record comes or goes and by 0 when one is replaced; a count of correct answers moves by 1 either way.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from accounting._bounded import FAINTEST_LOSS, BoundedPair, SampledBoundedPair
from accounting._errors import Unsupported
from accounting._gaussian import RAREST
from accounting._integer_gaussian import IntegerGaussianPair
from accounting._mechanism import Mechanism
from accounting._pairs import IDENTICAL, DiscretePair, Pair
from accounting._relations import Directions, Relation
from accounting._validate import check_count, check_in_range

EXPOSED = DiscretePair((1.0, 0.0), (0.0, 1.0))
"""P and Q share no outcome: no noise at all."""


@dataclass(frozen=True, kw_only=True)
class Laplace(Mechanism):
    """One number plus Laplace noise of density e^(-|x| / scale) / (2 scale).

    A vector is covered where one unit moves a single coordinate, as in a histogram of records.

    Args:
        scale: in [0, inf), in the units of the number.
        sensitivity: largest move under add-or-remove-one and zero-out, in [0, inf).
        replace_sensitivity: largest move under replace-one, in [0, inf); None is twice the sensitivity.
        records: the number of records of one unit up to which the sensitivities hold, >= 1.
        steps: number of releases, an integer >= 0.

    ```
    >>> Laplace(scale=10.0).pairs(Relation.ADD_OR_REMOVE_ONE).remove.greatest_loss
    0.1

    ```

    References: Dwork, McSherry, Nissim, Smith 2006; Mironov 2017, Proposition 6.
    """

    name: ClassVar[str] = "laplace"

    scale: float
    sensitivity: float = 1.0
    replace_sensitivity: float | None = None
    records: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_in_range(low=0, high=math.inf, high_open=True, scale=self.scale, sensitivity=self.sensitivity)
        if self.replace_sensitivity is not None:
            check_in_range(low=0, high=math.inf, high_open=True, replace_sensitivity=self.replace_sensitivity)
        check_count(low=1, records=self.records)

    def pairs(self, relation: Relation) -> Directions[Pair]:
        pair = _laplace_pair(_move(relation, self.sensitivity, self.replace_sensitivity), self.scale)
        return Directions(remove=pair, add=pair)

    def covers(self, records: int) -> bool:
        return records <= self.records


@dataclass(frozen=True, kw_only=True)
class SampledLaplace(Mechanism):
    """The sum of one bounded number over a Poisson sample of records, plus Laplace noise.

    Args:
        sampling_rate: probability in [0, 1] with which each record enters, by independent coins.
        scale: of the noise, in [0, inf), in the units of the number.
        sensitivity: bound on one record's number, in [0, inf).
        steps: number of releases, an integer >= 0.

    Supports add-or-remove-one and zero-out (Zhu, Dong, Wang 2022, Theorem 11).
    """

    name: ClassVar[str] = "sampled-laplace"

    sampling_rate: float
    scale: float
    sensitivity: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_in_range(low=0, high=1, sampling_rate=self.sampling_rate)
        check_in_range(low=0, high=math.inf, high_open=True, scale=self.scale, sensitivity=self.sensitivity)

    def pairs(self, relation: Relation) -> Directions[Pair]:
        if relation is Relation.REPLACE_ONE:
            raise Unsupported(f"No dominating pair of {self.name} under {relation} is known to us; use zero-out.")
        rate, base = max(float(self.sampling_rate), RAREST), _laplace_pair(self.sensitivity, self.scale)
        if self.sampling_rate == 0 or base == IDENTICAL:
            return Directions(remove=IDENTICAL, add=IDENTICAL)
        if isinstance(base, BoundedPair) and rate < 1:
            sampled = SampledBoundedPair(base, rate)
            return Directions(remove=sampled, add=sampled.reversed())
        if rate < 1:
            bare = DiscretePair((1 - rate, rate), (1.0, 0.0))
            return Directions(remove=bare, add=bare.reversed())
        return Directions(remove=base, add=base)


@dataclass(frozen=True, kw_only=True)
class IntegerNoise(Mechanism):
    """An integer plus integer noise.

    Args:
        scale: of the noise, in [0, 1e5].
        sensitivity: largest move under add-or-remove-one and zero-out, an integer in [0, 1e6].
        replace_sensitivity: largest move under replace-one; None is twice the sensitivity. A count of records is 0.
        records: the number of records of one unit up to which the sensitivities hold, >= 1.
        steps: number of releases, an integer >= 0.
    """

    scale: float
    sensitivity: int = 1
    replace_sensitivity: int | None = None
    records: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_in_range(low=0, high=1e5, scale=self.scale)
        check_count(sensitivity=self.sensitivity)
        if self.replace_sensitivity is not None:
            check_count(replace_sensitivity=self.replace_sensitivity)
        check_in_range(low=0, high=1e6, sensitivity=self.sensitivity, replace_sensitivity=self.replace_sensitivity or 0)
        check_count(low=1, records=self.records)

    def move(self, relation: Relation) -> int:
        """How far the integer moves when one unit changes."""
        return int(_move(relation, self.sensitivity, self.replace_sensitivity))

    def covers(self, records: int) -> bool:
        return records <= self.records


@dataclass(frozen=True, kw_only=True)
class DiscreteLaplace(IntegerNoise):
    """An integer plus two-sided geometric noise: mass proportional to e^(-|x| / scale) on the integers.

    Args: as for `IntegerNoise`.

    Exact on a computer, which floating-point Laplace noise is not (Ghosh, Roughgarden, Sundararajan 2012).
    """

    name: ClassVar[str] = "discrete-laplace"

    def pairs(self, relation: Relation) -> Directions[Pair]:
        move = self.move(relation)
        pair = IDENTICAL if move == 0 else EXPOSED if self.scale == 0 else _geometric_pair(move, 1 / self.scale)
        return Directions(remove=pair, add=pair.reversed())


@dataclass(frozen=True, kw_only=True)
class DiscreteGaussian(IntegerNoise):
    """An integer plus discrete Gaussian noise: mass proportional to e^(-x^2 / (2 scale^2)) on the integers.

    Args: as for `IntegerNoise`.

    Exact on a computer (Canonne, Kamath, Steinke 2020).
    """

    name: ClassVar[str] = "discrete-gaussian"

    def pairs(self, relation: Relation) -> Directions[Pair]:
        move = self.move(relation)
        if move == 0 or self.scale == 0:
            pair = IDENTICAL if move == 0 else EXPOSED
            return Directions(remove=pair, add=pair)
        pair = IntegerGaussianPair(scale=float(self.scale), shift=move)
        return Directions(remove=pair, add=pair)


def _move(relation: Relation, sensitivity: float, replace_sensitivity: float | None) -> float:
    if relation is not Relation.REPLACE_ONE:
        return sensitivity
    return 2 * sensitivity if replace_sensitivity is None else replace_sensitivity


def _laplace_pair(move: float, scale: float) -> Pair:
    if move == 0:
        return IDENTICAL
    if scale == 0 or math.isinf(move / scale):
        return EXPOSED
    return BoundedPair(limit=max(move / scale, FAINTEST_LOSS), atom=0.5)


def _geometric_pair(move: int, rate: float) -> DiscretePair:
    """Noise 0 against noise shifted by `move`: outcomes up to 0, and from `move` up, each share one loss."""
    side = 1 / (1 + math.exp(-rate))
    between = side * -math.expm1(-rate) * np.exp(-rate * np.arange(1, move))
    p = (side, *(float(mass) for mass in between), side * math.exp(-rate * move))
    return DiscretePair(p, p[::-1])
