"""The worst curve of several compositions, as one pair that dominates each of them.

At every epsilon take the largest delta; the largest of convex curves is one again, and every convex curve belongs to a
pair (Zhu, Dong, Wang 2022, Proposition 8). It is read off at some points and connected by straight lines in
e^epsilon, which lie above it (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022).
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from accounting._errors import Unsupported
from accounting._grid import Window, compose_on_grid
from accounting._pairs import DiscretePair, Pair
from accounting._parts import Parts
from accounting._pld import LossDistribution

Array = NDArray[np.float64]

POINTS = 2**12
"""How many points of the curve are read off on either side of epsilon = 0."""

MAX_CURVES = 300
"""How many different compositions a worst curve is made of at most."""

_TAIL = 1e-13
"""Mass of each composition beyond the points; it counts as infinite loss."""


def worst_curve(candidates: Sequence[Parts]) -> Parts:
    """Parts that dominate each candidate: one of them, if it contains the others, else the pair of the worst curve.

    Raises:
        Unsupported: for more than `MAX_CURVES` candidates, none of which contains another.
    """
    largest = _largest(candidates)
    if len(largest) > MAX_CURVES:
        raise Unsupported(f"The worst curve is read off for up to {MAX_CURVES} compositions.")
    return largest[0] if len(largest) == 1 else ((_connected(tuple(largest)), 1),)


def _largest(candidates: Sequence[Parts]) -> list[Parts]:
    """The candidates of which no other composes at least as much of every pair."""
    distinct = {parts: dict(parts) for parts in candidates}
    sharing: dict[Pair, list[Parts]] = {}
    for parts in distinct:
        for pair, _ in parts:
            sharing.setdefault(pair, []).append(parts)

    def contained(parts: Parts) -> bool:
        others = sharing[parts[0][0]] if parts else [other for other in distinct if other]
        return any(
            other != parts and all(distinct[other].get(pair, 0) >= count for pair, count in parts) for other in others
        )

    return [parts for parts in distinct if not contained(parts)]


@lru_cache(maxsize=64)
def _connected(candidates: tuple[Parts, ...]) -> DiscretePair:
    """Read off the candidates' curves and connect the largest points."""
    backwards = [tuple((pair.reversed(), count) for pair, count in parts) for parts in candidates]
    ends = (LossDistribution(parts).epsilon(_TAIL) for parts in (*candidates, *backwards))
    losses = np.linspace(0.0, max(min(max(ends), 300.0), 1e-6), POINTS + 1)
    above = np.max([_curve(parts, losses) for parts in candidates], axis=0)
    below = np.max([_curve(parts, losses) for parts in backwards], axis=0)
    return _pair_of(losses, above, below)


def _curve(parts: Parts, losses: Array) -> Array:
    """One composition's delta at losses from 0 upwards, one interval apart; never too small."""
    steps = sum(count for _, count in parts)
    spans = tuple(pair.loss_range(_TAIL / steps) for pair, _ in parts)
    window = Window(interval=float(losses[1]), low=-POINTS, size=2 * POINTS + 1, tilt=0.0, spans=spans)
    grid = compose_on_grid(parts, window)
    p, end = grid.p[POINTS:], POINTS + 1
    beyond = float(p[end:].sum()) + grid.p_infinite + _TAIL
    p = p[:end]
    above, q_above = (np.append(np.cumsum(mass[:0:-1])[::-1], 0.0) for mass in (p, p * np.exp(-losses)))
    return beyond + np.maximum(above - np.exp(losses) * q_above, 0.0)


def _pair_of(losses: Array, above: Array, below: Array) -> DiscretePair:
    """The pair whose curve connects the points.

    With H(a) = sup_S P(S) - a Q(S), Q has mass H'(a+) - H'(a-) at likelihood ratio a, and P a times that. What is used
    of H is H(a) - max(0, 1 - a), so that nothing cancels; below a = 1 it is a R(1/a), with R the curve of (Q, P).

    Args:
        losses: from 0 upwards.
        above: the curve of (P, Q) at each.
        below: the curve of (Q, P) at each.
    """
    middle = max(above[0], below[0])
    small = np.exp(-losses[:0:-1])
    ratios = np.concatenate([small, np.exp(losses)])
    curve = np.concatenate([small * below[:0:-1], [middle], above[1:]])
    slopes = np.diff(curve) / np.diff(ratios)
    q_only, p_only = curve[0] / ratios[0], curve[-1]
    q = np.diff(np.concatenate([[q_only], slopes, [0.0]]))
    q[losses.size - 1] += 1.0
    q = np.maximum(q, 0.0)
    p, q = np.concatenate([q * ratios, [0.0, p_only]]), np.concatenate([q, [q_only, 0.0]])
    return DiscretePair(p=tuple((p / p.sum()).tolist()), q=tuple((q / q.sum()).tolist()))
