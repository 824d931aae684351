"""The privacy loss distribution of a composition, and what it says of epsilon, delta and attacks.

Every answer is an upper bound. How tight it is follows from the grid: connecting the dots over an interval h adds at
most t (t+1) h^2 / 8 to each step's cumulant at tilt t, hence on average about (t+1) h^2 / 12 a step to epsilon, where t
is the tilt at which that epsilon is a large deviation of the loss. The interval is chosen from this, after an estimate
of both from cumulants, and again from the first answer where the estimate was poor.

The window is cut above where a Chernoff bound on what is lost is 1e-4 delta, which is added. It needs no room below
epsilon beyond what the tilt damps: what wraps round the bottom reappears e^(-t * width) times smaller.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from accounting._grid import GridLoss, Window, compose_on_grid
from accounting._pairs import Array, Pair
from accounting._parts import coalesced, greatest_loss
from accounting._validate import check_in_range

_ACCURACY = 3e-4
"""Part of epsilon by which the grid may be too large."""
_LEAST_ERROR = 1e-7
"""Error of epsilon that is always allowed."""
_DELTA_ACCURACY = 3e-3
"""Part of delta by which the grid may be too large."""
_NEGLIGIBLE = 1e-4
"""Part of delta that each cut of a tail may cost."""
_LARGEST_GRID = 2**20
"""Grid points at most; beyond, the interval grows and the answer, still an upper bound, is less tight."""
_LEAST_DELTA = 1e-280
_ATTEMPTS = 5

_TILTS = [np.geomspace(1e-5, 8, 36)] + [np.geomspace(8 * 8.0**k, 64 * 8.0**k, 9) for k in range(6)]
"""Tilts in groups, the first of which is usually enough."""


@lru_cache(maxsize=8192)
def _cumulants(pair: Pair, group: int) -> Array:
    return pair.cumulants(_TILTS[group])


def _log_delta(epsilon: float, tilts: Array, cumulants: Array) -> Array:
    """ln of the bound on delta(epsilon) from each cumulant (Canonne, Kamath, Steinke 2020, Proposition 12)."""
    return cumulants - tilts * epsilon + tilts * np.log(tilts) - (tilts + 1) * np.log1p(tilts)


class LossDistribution:
    """The composed privacy loss of `parts`, in one direction.

    Args:
        parts: dominating pairs, each with how many times it is composed.

    | edge | answer |
    |---|---|
    | nothing composed, or only pairs with P = Q | epsilon 0 at any delta |
    | delta = 0 | the greatest loss, exactly; inf where unbounded |
    | delta at or below the mass at infinite loss | inf |
    | delta = 1 | 0 |

    References: Sommer, Meiser, Mohammadi 2019; Koskela, Jälkö, Honkela 2020; Doroshenko and others 2022.
    """

    def __init__(self, parts: Sequence[tuple[Pair, int]]) -> None:
        self.parts = coalesced([pair.repeated(count) for pair, count in coalesced(parts)])
        self.steps = sum(count for _, count in self.parts)
        self.greatest_loss = greatest_loss(self.parts)
        certain = any(pair.infinite_mass >= 1 for pair, _ in self.parts)
        finite = 0.0 if certain else math.exp(sum(n * math.log1p(-pair.infinite_mass) for pair, n in self.parts))
        self.infinite_mass = 1.0 - finite

    def epsilon(self, delta: float) -> float:
        """The least epsilon >= 0 such that delta(epsilon) <= delta.

        Raises:
            InvalidValue: for delta outside [0, 1].
        """
        check_in_range(low=0, high=1, delta=delta)
        if not self.parts or delta == 1:
            return 0.0
        left = delta - self.infinite_mass
        if left <= _LEAST_DELTA:
            return self.greatest_loss
        estimate, tilt = self._least(lambda t, k: (_log_delta(0.0, t, k) - math.log(left)) / t)
        if estimate <= 0:
            return 0.0
        best, slope, low = min(estimate, self.greatest_loss), tilt, 0.7 * estimate
        grid = None
        for _ in range(_ATTEMPTS):
            interval = self._interval(slope, max(_ACCURACY * best, _LEAST_ERROR))
            grid = self._compose(interval, tilt, left, low, grid)
            found = grid.epsilon(delta)
            if found is None:
                best, low = min(best, max(grid.loss(0), 0.0)), 0.0
            else:
                best, slope, low = min(best, found[0]), found[1], 0.7 * found[0]
                wanted = self._interval(slope, max(2 * _ACCURACY * best, _LEAST_ERROR))
                if wanted >= grid.interval or grid.interval > interval:
                    break
            if best <= 0:
                return 0.0
        return best

    def delta(self, epsilon: float) -> float:
        """The hockey-stick divergence at epsilon >= 0."""
        check_in_range(low=0, high=math.inf, epsilon=epsilon)
        if not self.parts or epsilon >= self.greatest_loss:
            return self.infinite_mass
        log_bound, tilt = self._least(lambda t, k: _log_delta(epsilon, t, k))
        best, slope, grid = min(self.infinite_mass + math.exp(min(log_bound, 0.0)), 1.0), tilt, None
        for _ in range(_ATTEMPTS):
            left = best - self.infinite_mass
            if left <= _LEAST_DELTA:
                break
            interval = self._interval(slope, _DELTA_ACCURACY / slope)
            grid = self._compose(interval, tilt, left, epsilon, grid)
            found, slope = grid.delta(epsilon)
            enough = found > 0.01 * left and self._interval(slope, 2 * _DELTA_ACCURACY / slope) >= grid.interval
            best = min(best, found)
            if enough or grid.interval > interval:
                break
        return best

    def true_positive_rate(self, false_positive_rate: float) -> float:
        """The most that any test of this rate of false positives detects: 1 - f(rate), f the trade-off function.

        Args:
            false_positive_rate: in [0, 1]; at 0, only what is revealed for certain.

        References: Dong, Roth, Su 2022, Proposition 2.12.
        """
        check_in_range(low=0, high=1, false_positive_rate=false_positive_rate)
        if not self.parts or false_positive_rate == 1:
            return false_positive_rate
        if false_positive_rate <= _LEAST_DELTA:
            return min(self.infinite_mass + _LEAST_DELTA, 1.0) if false_positive_rate > 0 else self.infinite_mass
        surprise = -math.log(false_positive_rate)
        loss, tilt = self._least(lambda t, k: (k + surprise) / (t + 1))
        tilt = max(tilt, self._least_tilt())
        left = min(max(false_positive_rate * math.exp(min(loss, 700)), false_positive_rate), 1.0)
        grid = self._compose(self._interval(tilt, _DELTA_ACCURACY / tilt), tilt, left, -math.inf, None)
        return min(grid.true_positive_rate(false_positive_rate), 1.0)

    def _interval(self, tilt: float, error: float) -> float:
        """The grid interval that adds `error` to the epsilon of a tilt."""
        return math.sqrt(12 * error / (self.steps * (tilt + 1)))

    def _compose(self, interval: float, tilt: float, left: float, low: float, coarse: GridLoss | None) -> GridLoss:
        """The composition, resolved from the loss `low` upwards as far as delta = `left` asks.

        Args:
            coarse: an earlier answer, whose grid the new one then refines, and which bounds what lies far out.
        """
        tilt = max(tilt, self._least_tilt())
        spans = self._spans(tilt, left, coarse)
        if coarse is not None:
            interval = coarse.interval / math.ceil(coarse.interval / interval)
        interval = max(interval, max(high - low for low, high in spans) / _LARGEST_GRID)
        counts = [count for _, count in self.parts]
        bottom = sum(count * math.floor(a / interval) for count, (a, _) in zip(counts, spans, strict=True))
        top = sum(count * (math.ceil(b / interval) + 1) for count, (_, b) in zip(counts, spans, strict=True))
        cut = math.ceil(self._highest(interval, left, tilt, coarse) / interval) + 1
        lost = _NEGLIGIBLE * left if cut < top else 0.0
        top = min(cut, top)
        damped = math.ceil((10.0 - math.log(left)) / (tilt * interval))
        lowest = -abs(top) if math.isinf(low) else math.floor(low / interval)
        lowest = max(min(lowest, top - damped), bottom)
        size = top - lowest + 1
        if size > 1.01 * _LARGEST_GRID:
            return self._compose(interval * size / _LARGEST_GRID, tilt, left, low, None)
        window = Window(interval=interval, low=lowest, size=size, tilt=tilt, spans=spans)
        grid = compose_on_grid(self.parts, window)
        return replace(grid, p_infinite=grid.p_infinite + lost)

    def _spans(self, tilt: float, left: float, coarse: GridLoss | None) -> tuple[tuple[float, float], ...]:
        """Where to resolve a single step of each part.

        Below, where the tilt leaves nothing; on a refined grid as on the coarse one, so that it dominates the refined.
        """
        tail = _NEGLIGIBLE * left / self.steps
        ranges = [pair.loss_range(tail) for pair, _ in self.parts]
        if coarse is not None:
            floors = [coarse.interval * math.floor(a / coarse.interval) for a, _ in coarse.window.spans]
        else:
            least = -(20 + math.log(self.steps)) / tilt
            floors = [max(low, min(least, high)) for low, high in ranges]
        return tuple((a, max(a, high)) for a, (_, high) in zip(floors, ranges, strict=True))

    def _highest(self, interval: float, left: float, tilt: float, coarse: GridLoss | None) -> float:
        """A loss above which the finite mass of the composition is at most _NEGLIGIBLE * left.

        By Chernoff; or since P(L > w + 1/t) <= delta(w) / (1 - e^(-1/t)), with the delta of a coarser grid.
        """
        lost = _NEGLIGIBLE * left
        highest, _ = self._least(
            lambda t, k: (k + self.steps * t * (t + 1) * interval**2 / 8 - math.log(lost) + 0.01) / t
        )
        if coarse is None:
            return highest
        found = coarse.epsilon(-math.expm1(-1 / tilt) * lost)
        return min(highest, (coarse.loss(0) if found is None else found[0]) + 1 / tilt)

    def _least_tilt(self) -> float:
        """A tilt of two standard deviations of the loss: less would ask for a wide window and gain nothing."""
        tilts, cumulants = _TILTS[0], self._composed_cumulants(0)
        variance = 2 * (cumulants[0] - math.log1p(-min(self.infinite_mass, 0.5))) / (tilts[0] * (tilts[0] + 1))
        return 2 / math.sqrt(max(variance, 1e-30))

    def _composed_cumulants(self, group: int) -> Array:
        return sum((count * _cumulants(pair, group) for pair, count in self.parts), np.zeros(_TILTS[group].size))

    def _least(self, bound: Callable[[Array, Array], Array]) -> tuple[float, float]:
        """The least of a quasi-convex bound made from tilts and cumulants, and its tilt."""
        least, at = math.inf, float(_TILTS[0][0])
        for group, tilts in enumerate(_TILTS):
            bounds = bound(tilts, self._composed_cumulants(group))
            place = int(np.argmin(bounds))
            if bounds[place] >= least:
                break
            least, at = float(bounds[place]), float(tilts[place])
            if place < tilts.size - 1:
                break
        return least, at
