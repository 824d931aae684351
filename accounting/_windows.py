"""Where to cut a composed privacy loss, by Chernoff bounds from its cumulants.

A window of `width` above the loss `low`, at the tilt t, is sound and tight when

- E[e^(t (L - low)); L above it] is negligible against delta: so much the Fourier transform folds back into it;
- e^(-t * width) is negligible: by this much is smaller what folds back from below;
- delta is not much below e^(K(t) - t epsilon), to which the transform's rounding is relative.

The first costs at most E[e^(t'L)] e^(-(t' - t) top - t low) for any t' > t. The tilt of the narrowest window is taken.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from accounting._grid import Window, discretise
from accounting._pairs import Array, Pair, log_sum
from accounting._parts import Parts

_NEGLIGIBLE = 1e-5
"""Part of delta that each cut of a tail may cost."""
_DAMPING = 10.0
"""Logarithm of the part of delta that may fold back from below."""
WIDEST_GAP = 12.0
"""Most of ln of the Chernoff bound over delta: rounding grows by its exponential, from about 1e-14 a step."""
_LARGEST_GRID = 2**19
"""Grid points at most; beyond, the interval grows and the answer, still an upper bound, is less tight."""
_LARGEST_CURVE = 2**13
_SLACK = 0.01
"""Added to cumulants: more than what clamping low losses adds."""

_TILTS = [np.geomspace(1e-5, 8, 40)] + [np.geomspace(8 * 8.0**k, 64 * 8.0**k, 9)[1:] for k in range(6)]
"""Tilts in groups, the first of which is usually enough."""


@lru_cache(maxsize=8192)
def _cumulants(pair: Pair, group: int) -> Array:
    return pair.cumulants(_TILTS[group])


class CumulantCurve:
    """K(t) = ln E[exp(t L); L < inf] of a composition, at tilts from 1e-5 to 2e6, computed as far up as asked."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._groups: list[Array] = []

    def _group(self, group: int) -> Array:
        while len(self._groups) <= group:
            sums = (count * _cumulants(pair, len(self._groups)) for pair, count in self._parts)
            self._groups.append(sum(sums, np.zeros(_TILTS[len(self._groups)].size)))
        return self._groups[group]

    def known(self) -> tuple[Array, Array]:
        """Tilts and cumulants as far as computed."""
        return np.concatenate(_TILTS[: len(self._groups)]), np.concatenate(self._groups)

    def variance(self) -> float:
        """About the variance of the finite losses, from the curve's start."""
        tilt = _TILTS[0][0]
        finite = sum(count * math.log1p(-min(pair.infinite_mass, 0.999)) for pair, count in self._parts)
        return max(2 * float(self._group(0)[0] - finite) / (tilt * (tilt + 1)), 1e-12)

    def least(self, bound: Callable[[Array, Array], Array]) -> tuple[float, float]:
        """The least of a quasi-convex bound made from tilts and cumulants, and its tilt."""
        least, at = math.inf, float(_TILTS[0][0])
        for group, tilts in enumerate(_TILTS):
            bounds = bound(tilts, self._group(group))
            place = int(np.argmin(bounds))
            if bounds[place] >= least:
                break
            least, at = float(bounds[place]), float(tilts[place])
            if place < tilts.size - 1:
                break
        return least, at


@dataclass(frozen=True)
class Plan:
    """A window, and a bound on the mass lost above it."""

    window: Window
    lost: float


def plan_window(
    parts: Parts,
    curve: CumulantCurve,
    *,
    epsilon: float,
    low: float,
    left: float,
    interval: float,
    coarse: float | None,
) -> Plan:
    """The narrowest window that answers a question.

    Args:
        parts: what is composed.
        curve: its cumulants.
        epsilon: about where the answer lies.
        low: the least loss of interest.
        left: the delta of interest, without what is certain to be at infinite loss.
        interval: grid interval wanted; the one taken may be larger, to respect the largest grid.
        coarse: an interval used before: cumulants are then taken from a grid of this interval, which does better than
            the pairs' own where far tails dominate them, and the new grid refines it.
    """
    steps = sum(count for _, count in parts)
    tail = _NEGLIGIBLE * left / steps
    spans = [pair.loss_range(tail) for pair, _ in parts]
    widest = max(max(b - a for a, b in spans), 1e-300)
    interval = max(interval, widest / _LARGEST_GRID)
    unit = interval
    if coarse is None:
        tilts, cumulants = curve.known()
        cumulants = cumulants + steps * tilts * (tilts + 1) * interval**2 / 8
    else:
        unit = max(coarse, interval) * math.ceil(widest / max(coarse, interval) / _LARGEST_CURVE)
        interval = unit / math.floor(unit / interval)
        tilts, cumulants = _grid_cumulants(parts, spans, unit)
    tilt, highest, width = _narrowest(tilts, cumulants + _SLACK, epsilon, low, left)
    floor = -(20 + math.log(steps)) / tilt
    spans = tuple((max(a, min(unit * math.floor(floor / unit), b)), b) for a, b in spans)
    bottom = sum(count * math.floor(a / interval) for (_, count), (a, _) in zip(parts, spans, strict=True))
    top = sum(count * (math.ceil(b / interval) + 1) for (_, count), (_, b) in zip(parts, spans, strict=True))
    lost = _NEGLIGIBLE * left if highest < top * interval else 0.0
    top = min(top, math.ceil(min(max(highest, low) / interval, top)) + 2)
    lowest = max(bottom, top - math.ceil(min(width / interval, top - bottom)))
    lowest = min(lowest, math.floor(low / interval), top - 1)
    size = top - lowest + 1
    if size > 1.01 * _LARGEST_GRID:
        return plan_window(
            parts,
            curve,
            epsilon=epsilon,
            low=low,
            left=left,
            interval=interval * size / _LARGEST_GRID,
            coarse=coarse,
        )
    return Plan(Window(interval=interval, low=lowest, size=size, tilt=tilt, spans=spans), lost)


def _narrowest(tilts: Array, cumulants: Array, epsilon: float, low: float, left: float) -> tuple[float, float, float]:
    """Tilt, greatest loss and width of the narrowest window."""
    gap = tilts[None, :] - tilts[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        tops = (cumulants[None, :] - tilts[:, None] * low - math.log(_NEGLIGIBLE * left)) / gap
    highest = np.min(np.where(gap > 0, tops, np.inf), axis=1)
    widths = np.maximum(highest - low, (_DAMPING - math.log(left)) / tilts)
    gaps = cumulants - tilts * epsilon - math.log(left)
    gaps = np.where(np.isfinite(highest), gaps, np.inf)
    allowed = gaps <= max(WIDEST_GAP, float(gaps.min()))
    best = int(np.argmin(np.where(allowed, widths, np.inf)))
    return float(tilts[best]), float(highest[best]), float(widths[best])


def _grid_cumulants(parts: Parts, spans: list[tuple[float, float]], interval: float) -> tuple[Array, Array]:
    """Cumulants of the parts laid on a grid, at all tilts; no grid that refines it has greater ones."""
    tilts = np.concatenate(_TILTS)
    total = np.zeros_like(tilts)
    for (pair, count), span in zip(parts, spans, strict=True):
        first, grid, _ = discretise(pair, interval, span)
        losses = interval * (first + np.arange(grid.size))
        total += count * log_sum(tilts[:, None] * losses, grid)
    return tilts, total
