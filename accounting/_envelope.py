"""The worst curve of several compositions, as one pair that dominates each of them.

At every epsilon take the largest delta; the largest of convex curves is one again, and every convex curve belongs to a
pair (Zhu, Dong, Wang 2022, Proposition 8). It is read off at some points and connected by straight lines in
e^epsilon, which lie above it (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022).
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from accounting._grid import Window, compose_on_grid
from accounting._pairs import DiscretePair
from accounting._parts import Parts
from accounting._pld import LossDistribution

Array = NDArray[np.float64]

POINTS = 2**12
"""How many points of the curve are read off on either side of epsilon = 0."""

_TAIL = 1e-13
"""Mass of each composition beyond the points; it counts as infinite loss."""


def contained(parts: Parts, other: Parts) -> bool:
    """Whether `other` composes at least what `parts` does, and so is at least as bad."""
    counts = dict(other)
    return all(counts.get(pair, 0) >= count for pair, count in parts)


def worst_curve(candidates: Sequence[Parts]) -> Parts:
    """Parts that dominate each candidate: one of them, if it contains the others, else the pair of the worst curve."""
    for parts in candidates:
        if all(contained(other, parts) for other in candidates):
            return parts
    return ((_connected(tuple(candidates)), 1),)


@lru_cache(maxsize=64)
def _connected(candidates: tuple[Parts, ...]) -> DiscretePair:
    """Read off the candidates' curves and connect the largest points."""
    reversed_candidates = [tuple((pair.reversed(), count) for pair, count in parts) for parts in candidates]
    ends = (LossDistribution(parts).epsilon(_TAIL) for parts in (*candidates, *reversed_candidates))
    losses = np.linspace(-1.0, 1.0, 2 * POINTS + 1) * max(min(max(ends), 300.0), 1e-6)
    curves = [_curve(parts, losses) for parts in candidates]
    return _pair_of(losses, np.max(curves, axis=0))


def _curve(parts: Parts, losses: Array) -> Array:
    """One composition's curve at the likelihood ratios a = exp(losses), less what every curve has.

    It is H(a) - max(0, 1 - a) for H(a) = sup_S P(S) - a Q(S). Kept apart from the known part, nothing cancels.
    """
    steps = sum(count for _, count in parts)
    spans = tuple(pair.loss_range(_TAIL / steps) for pair, _ in parts)
    interval = float(losses[1] - losses[0])
    grid = compose_on_grid(parts, Window(interval=interval, low=-POINTS, size=losses.size, tilt=0.0, spans=spans))
    p, beyond = grid.p[: losses.size], float(grid.p[losses.size :].sum()) + grid.p_infinite + _TAIL
    q = p * np.exp(-losses)
    ratios = np.exp(losses)
    above, q_above = (np.append(np.cumsum(mass[:0:-1])[::-1], 0.0) for mass in (p, q))
    q_only = max(1.0 - float(q.sum()), 0.0)
    high = beyond + above - ratios * q_above
    low = ratios * (q_only + np.cumsum(q)) - np.cumsum(p)
    return np.maximum(np.where(losses >= 0, high, low), 0.0)


def _pair_of(losses: Array, curve: Array) -> DiscretePair:
    """The pair whose curve connects the points, where Q has mass H'(a+) - H'(a-) at ratio a, and P a times that."""
    ratios = np.exp(losses)
    slopes = np.diff(curve) / np.diff(ratios)
    q_only, p_only = curve[0] / ratios[0], curve[-1]
    q = np.diff(np.concatenate([[q_only], slopes, [0.0]]))
    q[losses.size // 2] += 1.0
    q = np.maximum(q, 0.0)
    p, q = np.concatenate([q * ratios, [0.0, p_only]]), np.concatenate([q, [q_only, 0.0]])
    return DiscretePair(p=tuple((p / p.sum()).tolist()), q=tuple((q / q.sum()).tolist()))
