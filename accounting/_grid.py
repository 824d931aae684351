"""Composition of privacy losses over one grid, rounded towards more privacy loss.

Each pair is laid on the grid by connecting the dots (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022): the mass of
each bin is split between its two edges so that both its P- and its Q-mass are kept. The hockey-stick divergence is then
exact at the grid's points and never too small between. Losses are tilted, p_j e^(t l_j) / M, before the Fourier
transform and tilted back after, so that its rounding is relative to the tail that matters and not to the bulk. What
remains of it is bounded and added:

- transforms: each output is a sum of inputs that passed at most log2(size) butterflies, each of relative error at most
  7 u (Higham 2002, section 24.1), so it errs by at most 7 u log2(size) times the input's sum; and powers of it;
- logarithms and powers: a few u for each step composed.

Losses above the window are the caller's to bound; those below it wrap round to its top, which only ever adds.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from accounting._pairs import Array, Pair
from accounting._parts import Parts
from accounting._special import fast_length, inverse_real_transform, real_transform

_UNIT = 2.0**-53
_LEAST_Q = 1e-290
_SLACK = 1e-9
"""Part of an interval by which an end of a span may miss the grid point that it names."""
_LEAST_LOG_MASS = -690.0
_FAINTEST = -100.0
"""Logarithm of the frequencies left out; what they held is in the bound. Floats too small to be normal are slow."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """Where and how finely a composed loss is resolved.

    Args:
        interval: distance h between grid points.
        low: index of the lowest grid point, whose loss is low * interval.
        size: least number of grid points.
        tilt: t >= 0.
        spans: for each part, the losses (a, b) between which a single step is resolved, before rounding outwards to
            grid points. Mass below counts as loss a, mass above as infinite loss.
    """

    interval: float
    low: int
    size: int
    tilt: float
    spans: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class GridLoss:
    """A privacy loss on the grid points (low + i) * interval: a law that dominates the true one.

    Args:
        window: the grid.
        p: P-mass at each point.
        p_infinite: P-mass at infinite loss.
        log_scale: ln E[e^(tilt * loss)] over finite losses, to which rounding is relative.
    """

    window: Window
    p: Array
    p_infinite: float
    log_scale: float

    @property
    def interval(self) -> float:
        """Distance between grid points."""
        return self.window.interval

    @cached_property
    def _above(self) -> Array:
        """P-mass at finite losses above each grid point."""
        return np.append(np.cumsum(self.p[:0:-1])[::-1], 0.0)

    @cached_property
    def _decay(self) -> Array:
        return np.exp(-self.interval * np.arange(1, self.p.size))

    def _q_above(self, index: int) -> float:
        """Q-mass at losses above a grid point, times exp(its loss)."""
        return float(self.p[index + 1 :] @ self._decay[: self.p.size - 1 - index])

    def gap(self, epsilon: float, delta: float) -> float:
        """ln of the Chernoff bound on delta at this tilt over delta itself: by its exponential rounding has grown."""
        return self.log_scale - self.window.tilt * epsilon - math.log(delta)

    def loss(self, index: int) -> float:
        """The loss at the grid point of an index into p."""
        return (self.window.low + index) * self.interval

    def delta_at(self, index: int) -> float:
        """Hockey-stick divergence at a grid point."""
        return self.p_infinite + max(float(self._above[index]) - self._q_above(index), 0.0)

    def delta(self, epsilon: float) -> tuple[float, float]:
        """The divergence at any epsilon not below the lowest grid point, and -d ln(delta) / d epsilon there."""
        index = math.floor(epsilon / self.interval) - self.window.low
        if index >= self.p.size - 1:
            return self.p_infinite, 0.0
        q_above = math.exp(min(epsilon - self.loss(index), 700.0)) * self._q_above(index)
        delta = self.p_infinite + max(float(self._above[index]) - q_above, 0.0)
        return delta, q_above / delta if delta > 0 else 0.0

    def epsilon(self, delta: float) -> tuple[float, float] | None:
        """The least epsilon whose divergence is at most delta, exactly, and -d ln(delta) / d epsilon there.

        None where that epsilon lies below the lowest grid point.
        """
        if delta <= self.p_infinite:
            return math.inf, 0.0
        if self.delta_at(0) <= delta:
            return None
        low, high = 0, self.p.size - 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.delta_at(middle) > delta else (low, middle)
        q_above = self._q_above(low)
        excess = self.p_infinite + float(self._above[low]) - delta
        if excess <= q_above:
            return self.loss(low), q_above / delta
        if q_above == 0:
            return self.loss(high), 0.0
        return self.loss(low) + min(math.log(excess / q_above), self.interval), excess / delta

    def true_positive_rate(self, false_positive_rate: float) -> float:
        """The least delta(epsilon) + e^epsilon * false_positive_rate over grid points, which bounds the power."""
        log_rate = math.log(false_positive_rate)
        low, high = 0, self.p.size - 1
        while high - low > 1:
            middle = (low + high) // 2
            q_above = self._q_above(middle)
            more = q_above > 0 and math.log(q_above) - self.loss(middle) > log_rate
            low, high = (middle, high) if more else (low, middle)
        return min(self.delta_at(i) + math.exp(min(self.loss(i) + log_rate, 0.0)) for i in (low, high))


def discretise(pair: Pair, interval: float, span: tuple[float, float]) -> tuple[int, Array, float]:
    """A pair's loss on the grid: index of the first grid point, P-mass at each, P-mass at infinity."""
    first = math.floor(span[0] / interval + _SLACK)
    last = max(math.ceil(span[1] / interval - _SLACK), first + 1)
    edges = interval * np.arange(first, last + 1, dtype=np.float64)
    masses = pair.masses(edges)
    p, q = masses.p[1:-1], masses.q[1:-1]
    with np.errstate(divide="ignore"):
        q_at_lower_edge = np.where(q > _LEAST_Q, np.exp(np.log(q) + edges[:-1]), 0.0)
    upper = np.clip((p - q_at_lower_edge) / -math.expm1(-interval), 0.0, p)
    grid = np.zeros(edges.size)
    grid[0] = float(masses.p[0])
    grid[:-1] += p - upper
    grid[1:] += upper
    return first, grid, float(masses.p[-1]) + masses.p_infinite


def compose_on_grid(parts: Parts, window: Window) -> GridLoss:
    """All parts composed; each distinct pair is transformed once and raised to its count."""
    size = fast_length(window.size)
    transform_error = 7 * _UNIT * math.log2(size)
    half = size // 2 + 1
    log_scale, log_finite, steps = 0.0, 0.0, 0
    log_modulus, log_bound, phase = np.zeros(half), np.zeros(half), np.zeros(half)
    for (pair, count), span in zip(parts, window.spans, strict=True):
        first, grid, p_infinite = discretise(pair, window.interval, span)
        tilted, log_mass = _tilt(grid, first, window)
        folded = _fold(tilted, first, size)
        spectrum = real_transform(folded)
        modulus = np.abs(spectrum)
        with np.errstate(divide="ignore"):
            log_modulus += count * np.log(modulus)
        log_bound += count * np.log(modulus + transform_error)
        phase += count * np.angle(spectrum)
        log_scale += count * (log_mass + 8 * _UNIT * (1 + abs(log_mass)))
        log_finite += count * math.log1p(-min(p_infinite, 1.0)) if p_infinite < 1 else -math.inf
        steps += count
    modulus = np.where(log_modulus > _FAINTEST, np.exp(np.maximum(log_modulus, _FAINTEST)), 0.0)
    composed = inverse_real_transform(modulus * np.exp(1j * phase), size)
    spread = np.exp(log_bound) - modulus + 10 * _UNIT * (steps + 1) * np.exp(log_bound)
    error = 2 * float(spread.sum() + transform_error * modulus.sum()) / size
    composed = np.maximum(np.roll(composed, -(window.low % size)), 0.0) + error
    losses = window.interval * (window.low + np.arange(size))
    p = np.exp(np.clip(np.log(composed) + log_scale - window.tilt * losses, _LEAST_LOG_MASS, 0.0))
    return GridLoss(window, p, -math.expm1(log_finite), log_scale)


def _tilt(grid: Array, first: int, window: Window) -> tuple[Array, float]:
    """The grid's masses times e^(tilt * loss), scaled to sum to 1, and the logarithm of the scale."""
    with np.errstate(divide="ignore"):
        exponents = np.log(grid) + window.tilt * window.interval * (first + np.arange(grid.size))
    top = float(exponents.max())
    tilted = np.exp(exponents - top)
    total = float(tilted.sum())
    return tilted / total, top + math.log(total)


def _fold(values: Array, first: int, size: int) -> Array:
    """Values at consecutive indices from `first`, added up modulo `size`."""
    start = first % size
    padded = np.zeros(-(-(start + values.size) // size) * size)
    padded[start : start + values.size] = values
    return padded.reshape(-1, size).sum(axis=0)
