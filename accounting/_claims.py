"""Mechanisms known only by a claim: what someone proved about a release, not how it was made.

A claim is stated for one relation. Another relation is priced only where the claim implies it: two datasets
that differ by a replacement are two steps of add-or-remove-one (remove, then add) or of zero-out apart, so the claim
holds for a group of two; and a claim for replace-one covers zero-out, since the null record is one
of the records that may stand in. Nothing implies a claim for add-or-remove-one, where sizes are private.

| stated for        | add-or-remove-one | zero-out | replace-one |
|-------------------|-------------------|----------|-------------|
| add-or-remove-one | the claim         | group of two | group of two |
| zero-out          | refused           | the claim    | group of two |
| replace-one       | refused           | the claim    | the claim    |
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from accounting._bounded import FAINTEST_LOSS, BoundedPair
from accounting._errors import InvalidValue, Unsupported
from accounting._mechanism import Mechanism
from accounting._pairs import IDENTICAL, Pair, ResponsePair
from accounting._relations import Directions, Relation
from accounting._validate import check_count, check_in_range

_ROUNDING = 2e-15
"""Relative rounding of a sum of a few logarithms, generously."""


@dataclass(frozen=True, kw_only=True)
class Claim(Mechanism):
    """What all claims share: the relation they were stated for.

    Args:
        relation: the relation that the claim was proved for.
        records: the number of records of one unit up to which it was proved, >= 1.
        steps: number of executions, an integer >= 0.
    """

    relation: Relation = Relation.ADD_OR_REMOVE_ONE
    records: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(low=1, records=self.records)
        try:
            object.__setattr__(self, "relation", Relation(self.relation))
        except ValueError as error:
            raise InvalidValue(f"Expected relation={self.relation!r} in {[str(r) for r in Relation]}.") from error

    def covers(self, records: int) -> bool:
        return records <= self.records

    def group(self, relation: Relation) -> int:
        """How many steps of the stated relation one step of `relation` takes: 1 or 2.

        Raises:
            Unsupported: where no number of steps is enough.
        """
        if relation == self.relation or (self.relation, relation) == (Relation.REPLACE_ONE, Relation.ZERO_OUT):
            return 1
        if relation != Relation.ADD_OR_REMOVE_ONE:
            return 2
        raise Unsupported(
            f"{self.name} is stated for {self.relation}, which says nothing about {relation}: sizes were public. "
            f"State it with relation={str(relation)!r} if it was proved for that."
        )


@dataclass(frozen=True, kw_only=True)
class PureEpsilon(Claim):
    """An epsilon-DP release of unknown law (randomised response at epsilon dominates it; Kairouz, Oh, Viswanath 2015).

    Args:
        epsilon: the claim, in [0, inf).

    >>> PureEpsilon(epsilon=0.5).group(Relation.REPLACE_ONE)
    2
    """

    name: ClassVar[str] = "pure-epsilon"

    epsilon: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_in_range(low=0, high=math.inf, high_open=True, epsilon=self.epsilon)

    def pairs(self, relation: Relation) -> Directions[Pair]:
        pair = ResponsePair(self.group(relation) * self.epsilon)
        return Directions(remove=pair, add=pair)


@dataclass(frozen=True, kw_only=True)
class ApproximateEpsilon(Claim):
    """An (epsilon, delta)-DP release of unknown law.

    Dominated by randomised response at epsilon that with probability delta shows everything
    (Kairouz, Oh, Viswanath 2015, Theorem 3.1). A group of two is (2 epsilon, (1 + e^epsilon) delta)-DP
    (Dwork, Roth 2014, Theorem 2.2).

    Args:
        epsilon: in [0, inf).
        delta: in [0, 1].
    """

    name: ClassVar[str] = "approximate-epsilon"

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_in_range(low=0, high=math.inf, high_open=True, epsilon=self.epsilon)
        check_in_range(low=0, high=1, delta=self.delta)

    def pairs(self, relation: Relation) -> Directions[Pair]:
        pair = ResponsePair(self.epsilon, self.delta)
        if self.group(relation) == 2:
            exponential = math.exp(self.epsilon) if self.epsilon < 700 else math.inf
            delta = min(1.0, (1 + exponential) * self.delta) if self.delta > 0 else 0.0
            pair = ResponsePair(2 * self.epsilon, delta)
        return Directions(remove=pair, add=pair)


@dataclass(frozen=True, kw_only=True)
class Exponential(Claim):
    """A choice by the exponential mechanism, or any release whose losses lie in a range of width epsilon.

    Its Renyi divergence is exact over the choice of range. The pair envelops all ranges at once, for an adversary who
    may pick another in each step, so PLD can be above Renyi accounting here.

    Args:
        epsilon: width of the range, in [0, inf): 2 (sensitivity of the score) (weight of the score), half that where
            all scores move one way.

    References:
        McSherry, Talwar 2007; Dong, Durfee, Rogers 2020 (bounded range and its Renyi divergence); Cesar, Rogers 2021
        (its bound order * epsilon^2 / 8).
    """

    name: ClassVar[str] = "exponential"

    epsilon: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_in_range(low=0, high=math.inf, high_open=True, epsilon=self.epsilon)

    def pairs(self, relation: Relation) -> Directions[Pair]:
        width = self._width(relation)
        # A range [t - width, t] has profile p_t - e^x q_t, at most (1 - e^((x-width)/2))^2 / (1 - e^-width) over all t.
        pair = BoundedPair(limit=width, atom=0.0) if width > 0 else IDENTICAL
        return Directions(remove=pair, add=pair)

    def renyi(self, relation: Relation, orders: NDArray[np.float64]) -> Directions[NDArray[np.float64]]:
        width = self._width(relation)
        if width == 0:
            return Directions(remove=np.zeros_like(orders), add=np.zeros_like(orders))
        whole, part = -np.expm1(-orders * width), -np.expm1(-(orders - 1) * width)
        terms = np.array([np.log1p(-1 / orders), np.log(whole), np.full_like(orders, width), -np.log(part)])
        bottom = np.log(whole / orders / -math.expm1(-width))
        blur = _ROUNDING * (np.abs(terms).sum(axis=0) + (1 + np.abs(bottom)) / (orders - 1))
        exact = np.maximum(terms.sum(axis=0) + bottom / (orders - 1), 0.0)
        # Cancellation leaves nothing of a small width, where the bound of Cesar, Rogers 2021, is as good.
        values = np.minimum(exact + blur, orders * width**2 / 8)
        return Directions(remove=values, add=values)

    def _width(self, relation: Relation) -> float:
        return self.group(relation) * max(self.epsilon, FAINTEST_LOSS) if self.epsilon > 0 else 0.0


@dataclass(frozen=True, kw_only=True)
class ZeroConcentrated(Claim):
    """A (xi, rho)-zCDP release: Renyi divergence at most xi + rho * order at every order (Bun, Steinke 2016).

    No pair is known, so PLD refuses it and Renyi accounting prices it. A group of two is 4 rho where xi is 0
    (Bun, Steinke 2016, Proposition 1.9) and unknown otherwise.

    Args:
        rho: in [0, inf).
        xi: in [0, inf).
    """

    name: ClassVar[str] = "zcdp"

    rho: float
    xi: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_in_range(low=0, high=math.inf, high_open=True, rho=self.rho, xi=self.xi)

    def pairs(self, relation: Relation) -> Directions[Pair]:
        raise Unsupported(f"No dominating pair of {self.name} under {relation} is known; Renyi accounting prices it.")

    def renyi(self, relation: Relation, orders: NDArray[np.float64]) -> Directions[NDArray[np.float64]]:
        group = self.group(relation)
        if group > 1 and self.xi > 0:
            raise Unsupported(f"{self.name} with xi={self.xi} has no known price for a group of two ({relation}).")
        values = self.xi + group**2 * self.rho * orders
        return Directions(remove=values, add=values)


@dataclass(frozen=True, kw_only=True)
class NonPrivate(Mechanism):
    """A release without protection: epsilon is infinite at every delta below 1.

    Args:
        reason: why, for the guarantee's sentence.
    """

    name: ClassVar[str] = "non-private"

    reason: str = ""

    def pairs(self, relation: Relation) -> Directions[Pair]:  # noqa: ARG002
        return Directions(remove=ResponsePair(0.0, 1.0), add=ResponsePair(0.0, 1.0))
