"""The privacy loss distribution of a composition, and what it says of epsilon, delta and attacks.

Every answer is an upper bound. How tight it is follows from the grid: connecting the dots over an interval h adds at
most t (t+1) h^2 / 8 to each step's cumulant at tilt t, hence on average about (t+1) h^2 / 12 a step to epsilon, where t
is the tilt at which that epsilon is a large deviation of the loss. The interval is chosen from this, after an estimate
of both from cumulants, and again from the first answer where the estimate was poor.

Outside the window nothing is lost unseen. What lies above it, and what the transform then folds back amplified, is at
most 2e-5 delta by a Chernoff bound, which is added; what lies below folds back e^(-t * width) times smaller.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from accounting._classical import smallest
from accounting._gaussian_pairs import SampledPair
from accounting._grid import GridLoss, compose_on_grid
from accounting._pairs import Array, Pair
from accounting._parts import Parts, coalesced, greatest_loss
from accounting._validate import check_in_range
from accounting._windows import WIDEST_GAP, CumulantCurve, plan_window

_LEAST_ERROR = 1e-7
"""Error of epsilon that is always allowed."""
_DELTA_ACCURACY = 1e-3
"""Part of delta by which the grid may be too large."""
_LEAST_DELTA = 1e-280
_ATTEMPTS = 5
_FINER_FOR_ATOMS = 16.0
"""Factor by which the grid is finer where atoms show: at one of them delta errs with the interval, not its square."""
_FEW_STEPS = 1000
"""Steps up to which atoms of single steps show in the whole."""
_EQUAL = 8e-16
"""Part of delta up to which it and the mass at infinite loss, both rounded, are taken for equal."""


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
    | delta below the mass at infinite loss | inf |
    | delta equal to it, but for 8e-16 of itself by which both are rounded | the greatest finite loss |
    | delta = 1 | 0 |

    References: Sommer, Meiser, Mohammadi 2019; Koskela, Jälkö, Honkela 2020; Doroshenko and others 2022.
    """

    def __init__(self, parts: Sequence[tuple[Pair, int]]) -> None:
        self.parts = _condensed(parts)
        self._single = self.parts[0][0] if [count for _, count in self.parts] == [1] else None
        self._curve = CumulantCurve(self.parts)
        self.steps = sum(count for _, count in self.parts)
        self.greatest_loss = greatest_loss(self.parts)
        lumpy = self.steps <= _FEW_STEPS and any(pair.has_atoms for pair, _ in self.parts)
        self._finer = _FINER_FOR_ATOMS if lumpy else 1.0
        self._greatest_finite_loss = sum(count * pair.greatest_finite_loss for pair, count in self.parts)
        certain = any(pair.infinite_mass >= 1 for pair, _ in self.parts)
        log_finite = -math.inf if certain else sum(n * math.log1p(-pair.infinite_mass) for pair, n in self.parts)
        self.infinite_mass = -math.expm1(log_finite)
        if self._single is not None:
            self.infinite_mass = self._single.infinite_mass

    def chernoff_epsilon(self, delta: float) -> float:
        """A quick bound on `epsilon`, from cumulants alone: what Renyi accounting with a grid of tilts would say."""
        left = self._left(delta)
        if not self.parts or delta == 1:
            return 0.0
        if left <= _LEAST_DELTA:
            return self.greatest_loss if left < 0 else self._greatest_finite_loss
        return max(min(self._estimate(left)[0], self._greatest_finite_loss), 0.0)

    def _left(self, delta: float) -> float:
        """What of delta the mass at infinite loss leaves, which rounding blurs: 0 where they may be equal."""
        left = delta - self.infinite_mass
        return 0.0 if abs(left) <= _EQUAL * delta else left

    def _estimate(self, left: float) -> tuple[float, float]:
        return self._curve.least(lambda t, k: (_log_delta(0.0, t, k) - math.log(left)) / t)

    def epsilon(self, delta: float, *, accuracy: float = 3e-4) -> float:
        """The least epsilon >= 0 such that delta(epsilon) <= delta.

        Args:
            delta: in [0, 1].
            accuracy: part of epsilon by which the grid may be too large, about; more is quicker.

        Raises:
            InvalidValue: for delta outside [0, 1].
        """
        check_in_range(low=0, high=1, delta=delta)
        if not self.parts or delta == 1:
            return 0.0
        left = self._left(delta)
        if left <= _LEAST_DELTA:
            return self.greatest_loss if left < 0 else self._greatest_finite_loss
        estimate, slope = self._estimate(left)
        if self._single is not None:
            return smallest(self._single.profile, delta, 0.0, min(estimate + 1e-9, self._greatest_finite_loss))
        best, coarse = min(estimate, self._greatest_finite_loss), None
        low = 0.7 * best
        for _ in range(_ATTEMPTS):
            if not 0 < best < math.inf:
                break
            interval = self._interval(slope, max(accuracy * best, _LEAST_ERROR))
            grid = self._compose(best, low, left, interval, coarse)
            found = grid.epsilon(delta)
            if found is not None and found[0] == math.inf:
                break
            if found is None:
                best, low = min(best, grid.loss(0)), 0.0
            else:
                best, slope, low = min(best, found[0]), found[1], 0.7 * found[0]
                wanted = self._interval(slope, 2 * max(accuracy * best, _LEAST_ERROR))
                if _settled(grid, interval, wanted, best, left, coarse):
                    break
            coarse = grid.interval
        return max(best, 0.0)

    def delta(self, epsilon: float) -> float:
        """The hockey-stick divergence at epsilon >= 0."""
        check_in_range(low=0, high=math.inf, epsilon=epsilon)
        if not self.parts or epsilon >= self.greatest_loss:
            return self.infinite_mass
        if self._single is not None:
            return self._single.profile(epsilon)
        log_bound, slope = self._curve.least(lambda t, k: _log_delta(epsilon, t, k))
        best, coarse = min(self.infinite_mass + math.exp(min(log_bound, 0.0)), 1.0), None
        for _ in range(_ATTEMPTS):
            left = best - self.infinite_mass
            if left <= _LEAST_DELTA:
                break
            interval = self._interval(slope, _DELTA_ACCURACY / slope)
            grid = self._compose(epsilon, epsilon, left, interval, coarse)
            found, slope = grid.delta(epsilon)
            best = min(best, found)
            if slope == 0:
                break
            wanted = self._interval(slope, 2 * _DELTA_ACCURACY / slope)
            if found - self.infinite_mass > 0.02 * left and _settled(grid, interval, wanted, epsilon, left, coarse):
                break
            coarse = grid.interval
        return best

    def true_positive_rate(self, false_positive_rate: float) -> float:
        """The most that any test of this rate of false positives detects: 1 - f(rate), f the trade-off function.

        Args:
            false_positive_rate: in [0, 1]; at 0, only what is revealed for certain.

        References: Dong, Roth, Su 2022, Proposition 2.12.
        """
        check_in_range(low=0, high=1, false_positive_rate=false_positive_rate)
        rate = false_positive_rate
        if not self.parts or rate == 1:
            return rate
        if rate == 0:
            return self.infinite_mass
        rate = max(rate, _LEAST_DELTA)
        loss, slope = self._curve.least(lambda t, k: (k - math.log(rate)) / (t + 1))
        backwards = CumulantCurve(tuple((pair.reversed(), count) for pair, count in self.parts))
        depth, _ = backwards.least(lambda t, k: (k - math.log1p(-rate)) / t)
        left = min(rate * math.exp(min(max(loss, 0.0), 700.0)), 1.0)
        interval = self._interval(slope, _DELTA_ACCURACY / max(slope, 1.0))
        grid = self._compose(loss, min(-depth, loss), left, interval, None)
        return min(grid.true_positive_rate(rate), 1.0)

    def _interval(self, tilt: float, error: float) -> float:
        """The grid interval that adds `error` to the epsilon of a tilt, and little to the standard deviation."""
        interval = math.sqrt(min(12 * error / (tilt + 1), 0.05 * self._curve.variance()) / self.steps)
        return interval / self._finer

    def _compose(self, epsilon: float, low: float, left: float, interval: float, coarse: float | None) -> GridLoss:
        plan = plan_window(
            self.parts, self._curve, epsilon=epsilon, low=low, left=left, interval=interval, coarse=coarse
        )
        grid = compose_on_grid(self.parts, plan.window)
        return replace(grid, p_infinite=grid.p_infinite + plan.lost)


def _condensed(parts: Sequence[tuple[Pair, int]]) -> Parts:
    """Equal pairs counted together, and all plain Gaussians as one."""
    equal = coalesced(parts)
    squares = math.fsum(count * pair.squared_shift for pair, count in equal)
    if squares == 0:
        return equal
    return (*(part for part in equal if part[0].squared_shift == 0), (SampledPair(sigma=squares**-0.5), 1))


def _settled(grid: GridLoss, asked: float, wanted: float, epsilon: float, left: float, coarse: float | None) -> bool:
    """Whether a grid is as fine as wanted and its rounding harmless at the answer, or no better is to be had."""
    capped = grid.interval > 1.5 * asked
    harmless = grid.gap(epsilon, left) <= WIDEST_GAP + 3
    return (grid.interval <= wanted or capped) and (harmless or (capped and coarse is not None))
