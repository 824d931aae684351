"""Composition theorems for (epsilon, delta) pairs, kept as named comparison methods.

They know a step only by its pair, so that each is looser than composing what the steps really are. All take the
steps' pairs as given and say what the whole is.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np


def basic(epsilons: Sequence[float]) -> float:
    """Epsilons add, and deltas add (Dwork, Roth 2014, Theorem 3.16)."""
    return math.fsum(epsilons)


def advanced(epsilons: Sequence[float], slack: float) -> float:
    """Advanced composition: the deltas add, plus a slack (Dwork, Rothblum, Vadhan 2010, Theorem III.3).

    Args:
        epsilons: of each step, chosen in advance; their proof sums over unequal ones just as well.
        slack: the part of delta spent on composing, in [0, 1].

    >>> round(advanced([0.1] * 100, 1e-5), 4)
    5.8502
    """
    if slack <= 0:
        return math.inf if any(epsilons) else 0.0
    drift = math.fsum(epsilon * _expm1(epsilon) for epsilon in epsilons)
    spread = math.fsum(epsilon**2 for epsilon in epsilons)
    return drift + math.sqrt(2 * math.log(1 / slack) * spread)


def optimal(epsilon: float, steps_delta: float, steps: int, delta: float) -> float:
    """The best that holds for all mechanisms with equal pairs (Kairouz, Oh, Viswanath 2015, Theorem 3.3).

    The worst such mechanism is randomised response that tells the truth openly with probability `steps_delta`.

    Args:
        epsilon, steps_delta: of each of the `steps` steps.
        delta: of the whole, above 1 - (1 - steps_delta)^steps or the answer is infinite.

    >>> round(optimal(0.1, 0.0, 100, 1e-5), 4)
    4.3068
    """
    if math.isinf(epsilon):
        return math.inf
    heads = np.arange(steps + 1)
    losses = (2 * heads - steps) * epsilon
    choices = np.concatenate([[0.0], np.cumsum(np.log((steps - heads[1:] + 1) / heads[1:]))])
    weights = np.exp(choices - steps * math.log1p(math.exp(-epsilon)) - (steps - heads) * epsilon)
    leaked = -math.expm1(steps * math.log1p(-steps_delta)) if steps_delta < 1 else 1.0
    if leaked > delta:
        return math.inf

    def profile(total: float) -> float:
        above = losses > total
        return leaked + (1 - leaked) * float(weights[above] @ -np.expm1(total - losses[above]))

    return smallest(profile, delta, 0.0, steps * epsilon)


def smallest(profile: Callable[[float], float], delta: float, low: float, high: float) -> float:
    """The smallest epsilon in [low, high] with profile(epsilon) <= delta, rounded up; `high` must satisfy it."""
    if profile(low) <= delta:
        return low
    while high - low > 1e-12 * max(1.0, high):
        middle = (low + high) / 2
        if profile(middle) <= delta:
            high = middle
        else:
            low = middle
    return high


def _expm1(value: float) -> float:
    return math.expm1(value) if value < 700 else math.inf
