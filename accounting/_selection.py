"""Repeat-and-select: a silo runs a computation a random number of times and releases the best result alone.

Licensed only where all of this holds (Papernot, Steinke 2022): the silo does it alone, the number of runs
is drawn from the stated law and stays hidden, the score is computed inside the run and paid for there, and
nothing but the winner leaves. Runs that the server sees are ordinary releases, each at its own price.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from accounting._errors import InvalidValue, Unsupported
from accounting._mechanism import Mechanism, mechanism_from_json
from accounting._pairs import Pair
from accounting._rdp import ORDERS, delta_from_renyi
from accounting._relations import Directions, Relation
from accounting._validate import check_in_range

Array = NDArray[np.float64]

_LAWS = ("poisson", "geometric", "logarithmic")


@dataclass(frozen=True, kw_only=True)
class RepeatAndSelect(Mechanism):
    """The best of a random number of runs, the other runs hidden.

    Args:
        run: everything that a single run computes, scoring included, in any order.
        mean_runs: mean of the law of the number of runs, in [1, inf).
        runs: the law: "poisson", "geometric", "logarithmic", or a truncated negative binomial by its shape, in (0, inf)
            (geometric is shape 1, logarithmic is the limit at 0).
        steps: number of selections, an integer >= 0.

    References:
        Papernot, Steinke 2022, Theorem 2 (truncated negative binomial) and Theorem 6 (Poisson).
    """

    name: ClassVar[str] = "repeat-and-select"

    run: tuple[Mechanism, ...]
    mean_runs: float
    runs: Literal["poisson", "geometric", "logarithmic"] | float = "geometric"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "run", tuple(_as_mechanism(part) for part in self.run))
        check_in_range(low=1, high=math.inf, high_open=True, mean_runs=self.mean_runs)
        if isinstance(self.runs, str):
            if self.runs not in _LAWS:
                raise InvalidValue(f"Expected runs={self.runs!r} in {_LAWS}, or a shape.")
        else:
            check_in_range(low=0, low_open=True, high=math.inf, high_open=True, runs=self.runs)

    def pairs(self, relation: Relation) -> Directions[Pair]:
        raise Unsupported(f"No dominating pair of {self.name} under {relation} is known; Renyi accounting prices it.")

    def renyi(self, relation: Relation, orders: Array) -> Directions[Array]:
        grid = np.union1d(ORDERS, orders)
        single = self._one_run(relation, grid)
        values = self._poisson(grid, single) if self.runs == "poisson" else self._negative_binomial(grid, single)
        # Renyi divergence grows with the order, so a larger order's bound holds at the smaller ones.
        values = np.minimum.accumulate(values[::-1])[::-1][np.searchsorted(grid, orders)]
        return Directions(remove=values, add=values)

    def covers(self, records: int) -> bool:
        return all(part.covers(records) for part in self.run)

    def to_json(self) -> dict[str, object]:
        return super().to_json() | {"run": [part.to_json() for part in self.run]}

    def _one_run(self, relation: Relation, orders: Array) -> Array:
        """Renyi divergence of one run, the larger of both directions: the theorems use both at once."""
        total = np.zeros_like(orders)
        for part in self.run:
            each = part.renyi(relation, orders)
            total = total + part.steps * np.maximum(each.remove, each.add)
        return total

    def _poisson(self, orders: Array, single: Array) -> Array:
        thresholds = np.log1p(1 / (orders - 1))
        deltas = np.array([delta_from_renyi(orders, single, float(epsilon)) for epsilon in thresholds])
        return single + self.mean_runs * deltas + math.log(self.mean_runs) / (orders - 1)

    def _negative_binomial(self, orders: Array, single: Array) -> Array:
        shape = {"geometric": 1.0, "logarithmic": 0.0}[self.runs] if isinstance(self.runs, str) else self.runs
        stop = _stopping_probability(shape, self.mean_runs)
        constant = (1 + shape) * np.min((1 - 1 / orders) * single - math.log(stop) / orders)
        return single + math.log(self.mean_runs) / (orders - 1) + constant


def _as_mechanism(part: Mechanism | Mapping[str, object]) -> Mechanism:
    return part if isinstance(part, Mechanism) else mechanism_from_json(part)


def _stopping_probability(shape: float, mean: float) -> float:
    """The parameter gamma of the truncated negative binomial with this shape and mean (Definition 1 there)."""

    def excess(log_gamma: float) -> float:
        odds = math.expm1(-log_gamma)
        if shape == 0:
            return math.log(odds / -log_gamma / mean)
        return math.log(shape * odds / -math.expm1(shape * log_gamma) / mean)

    if mean == 1:
        return 1.0
    low, high = -1.0, 0.0
    while excess(low) < 0:
        low *= 2
    while (middle := (low + high) / 2) < high and high - low > 1e-15 * -low:
        low, high = (middle, high) if excess(middle) >= 0 else (low, middle)
    return math.exp(low)  # The smaller parameter has the larger mean and the larger price.
