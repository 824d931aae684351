"""Pairs put together from simpler ones, for batches of a fixed or capped size.

In a batch of fixed size a record that leaves makes room for another, so two terms of the sum change at once. Call the
batch without one place the base; the place holds the record x with probability q, or else another record y.
Given base and y, and centred at the sum with y, the outputs are

    P = (1-q) N(0) + q N(u),   Q = (1-q) N(0) + q N(v),   u = x - y,   v = x' - y,

where x' is the substitute (0 under zero-out) and every term has norm at most 1. By advanced joint convexity (Balle,
Barthe, Gaboardi 2018, Theorem 2), H_gamma(P, Q) = q H(N(u), (1-beta) N(0) + beta N(v)) for gamma >= 1 and the right
beta. That depends on the distances from u to 0 and to v only, grows with both, and is largest where both lie on one
side of u (Choquette-Choo, Ganesh, Steinke, Thakurta 2024). Hence, at every gamma >= 1:

| change | bounds | worst case (u, v) |
|---|---|---|
| replace-one, either way | abs(u) <= 2, abs(u - v) <= 2 | (2, 0) |
| zero-out, remove | abs(u) <= 2, abs(u - v) <= 1 | (2, 1) |
| zero-out, add | abs(u) <= 1, abs(u - v) <= 1 | (1, 0) |

For gamma < 1 the other direction's worst case binds, since H_gamma(P, Q) = 1 - gamma + gamma H_1/gamma(Q, P). The pair
that attains both at once joins the positive losses of one with the negated positive losses of the other.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from accounting._pairs import Array, LossMasses, Pair, log_excess, log_sum
from accounting._special import normal_cdf, normal_quantile

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_REACH = 9.5


@dataclass(frozen=True, kw_only=True)
class Half:
    """The positive losses of (1-q) N(0) + q N(u) against (1-q) N(0) + q N(v), where (u, v) is (u, 0) or (2, 1).

    There the loss grows with the output x, from 0 at (u + v) / 2.

    Args:
        sigma: standard deviation > 0 of each Gaussian.
        rate: q in (0, 1].
        u, v: the means.
    """

    sigma: float
    rate: float
    u: float
    v: float

    @property
    def start(self) -> float:
        """Where the loss is 0."""
        return (self.u + self.v) / 2

    def log_ratio(self, mean: float, x: Array) -> Array:
        """ln of the density of (1-q) N(0) + q N(mean) over that of N(0)."""
        exponent = (mean * x - mean**2 / 2) / self.sigma**2
        with np.errstate(over="ignore"):
            small = np.log1p(self.rate * np.expm1(np.minimum(exponent, 1.0)))
        if self.rate == 1:
            return exponent
        return np.where(exponent > 1, np.logaddexp(math.log1p(-self.rate), math.log(self.rate) + exponent), small)

    def loss(self, x: Array) -> Array:
        return self.log_ratio(self.u, x) - self.log_ratio(self.v, x)

    def inverse(self, losses: Array) -> Array:
        """The x of each loss >= 0."""
        if self.v == 0:
            with np.errstate(over="ignore"):
                near = np.log1p(np.expm1(np.minimum(losses, 1.0)) / self.rate)
                far = losses - math.log(self.rate) + np.log1p(-(1 - self.rate) * np.exp(-losses))
            return self.start + self.sigma**2 * np.where(losses > 1, far, near) / self.u
        # With z = e^((x - 3/2) / sigma^2) and k = q e^(1/sigma^2) / (1-q), the loss l solves k z^2 - e^l k z = e^l - 1.
        weight = 4 * (1 - self.rate) / self.rate * math.exp(-1 / self.sigma**2)
        root = np.sqrt(1 + weight * np.exp(-losses) * -np.expm1(-losses))
        return self.start + self.sigma**2 * (losses + np.log1p((root - 1) / 2))

    def masses(self, points: Array) -> tuple[Array, Array]:
        """Mass of each law between consecutive increasing points x, and above the last."""
        apart = [_upper_masses((points - mean) / self.sigma) for mean in (0.0, self.u, self.v)]
        return (
            (1 - self.rate) * apart[0] + self.rate * apart[1],
            (1 - self.rate) * apart[0] + self.rate * apart[2],
        )

    def log_mean_excess(self, tilt: float, *, negated: bool) -> float:
        """ln of the part of E_Q[excess] on positive losses; `negated` swaps P and Q, which turns the losses' sign."""
        x, weights = self._nodes(tilt)
        law = self.u if negated else self.v
        log_density = (
            self.log_ratio(law, x) - x**2 / (2 * self.sigma**2) - math.log(self.sigma * math.sqrt(2 * math.pi))
        )
        losses = -self.loss(x) if negated else self.loss(x)
        return float(log_sum(log_excess(np.array(tilt), losses) + log_density, weights))

    def _nodes(self, tilt: float) -> tuple[Array, Array]:
        """Gauss-Legendre panels about every place where an integrand of order tilt + 1 may have mass.

        Away from where two components of a mixture cross, the integrand is a Gaussian of width sigma; about a crossing
        it turns within sigma^2.
        """
        coarse, fine = self.sigma / 2, min(self.sigma / 2, 2 * self.sigma**2 / self.u)
        order = tilt + 1
        peaks = [0.0, self.start, self.u, self.v, order * self.u, order * self.u - tilt * self.v]
        crossings = [self.start]
        if 0 < self.rate < 1:
            odds = math.log1p(-self.rate) - math.log(self.rate)
            crossings += [mean / 2 + self.sigma**2 * odds / mean for mean in (self.u, self.v) if mean > 0]
        reach = math.ceil(_REACH * self.sigma / coarse)
        places = np.concatenate(
            [
                np.add.outer(peaks + crossings, coarse * np.arange(-reach, reach + 1)).ravel(),
                np.add.outer(crossings, fine * np.arange(-20, 21)).ravel(),
            ]
        )
        ends = np.unique(places[places >= self.start])
        widths = np.diff(ends)
        inside = (widths > 0) & (widths <= coarse * 1.001)
        low, width = ends[:-1][inside, None], widths[inside, None]
        return (low + width * (1 + _NODES) / 2).ravel(), (width * _WEIGHTS / 2).ravel()


@dataclass(frozen=True, kw_only=True)
class JoinedPair(Pair):
    """Positive losses from one half, negative ones from another's swapped, and the remaining mass at loss 0.

    Args:
        above, below: halves of equal total variation, so that the mass at 0 is the same under P and Q.
    """

    above: Half
    below: Half

    @property
    def greatest_loss(self) -> float:
        return math.inf

    @property
    def suits_pld(self) -> bool:
        return self.above.sigma >= 0.05 * self.above.u

    @cached_property
    def _at_zero(self) -> float:
        p, q = self.above.masses(np.array([self.above.start])), self.below.masses(np.array([self.below.start]))
        return max(0.0, 1.0 - float(p[0][-1]) - float(q[1][-1]))

    def loss_range(self, tail: float) -> tuple[float, float]:
        reach = self.above.sigma * -normal_quantile(max(tail, 1e-300))
        high = self.above.loss(np.array([max(self.above.u + reach, self.above.start)]))
        low = self.below.loss(np.array([max(self.below.v + reach, self.below.start)]))
        return -float(low[0]), float(high[0])

    def masses(self, edges: Array) -> LossMasses:
        p, q = np.zeros(edges.size + 1), np.zeros(edges.size + 1)
        first = int(np.searchsorted(edges, 0.0, side="left"))
        p[first] = q[first] = self._at_zero
        for half, flipped in ((self.above, False), (self.below, True)):
            sided = -edges[:first][::-1] if flipped else edges[first:]
            points = half.inverse(np.concatenate([[0.0], sided]))
            numerator, denominator = half.masses(points)
            if flipped:
                p[: first + 1] += denominator[::-1]
                q[: first + 1] += numerator[::-1]
            else:
                p[first:] += numerator
                q[first:] += denominator
        return LossMasses(p, q)

    def cumulants(self, tilts: Array) -> Array:
        def excess(tilt: float) -> float:
            parts = self.above.log_mean_excess(tilt, negated=False), self.below.log_mean_excess(tilt, negated=True)
            return float(np.logaddexp(*parts))

        return np.logaddexp(0.0, np.array([excess(float(tilt)) for tilt in tilts]))

    def reversed(self) -> "JoinedPair":
        return JoinedPair(above=self.below, below=self.above)


@dataclass(frozen=True)
class ChoicePair(Pair):
    """One of several pairs, drawn by coins that do not depend on the data and are shown to the adversary.

    Args:
        parts: (probability, pair), the probabilities summing to 1.

    Dominates whenever the branch taken has one law under both datasets (joint convexity of every divergence).
    """

    parts: tuple[tuple[float, Pair], ...]

    @property
    def greatest_loss(self) -> float:
        return max(pair.greatest_loss for _, pair in self.parts)

    @property
    def infinite_mass(self) -> float:
        return math.fsum(weight * pair.infinite_mass for weight, pair in self.parts)

    @property
    def greatest_finite_loss(self) -> float:
        return max(pair.greatest_finite_loss for _, pair in self.parts)

    @property
    def suits_pld(self) -> bool:
        return all(pair.suits_pld for _, pair in self.parts)

    @property
    def has_atoms(self) -> bool:
        return any(pair.has_atoms for _, pair in self.parts)

    def loss_range(self, tail: float) -> tuple[float, float]:
        lows, highs = zip(*(pair.loss_range(tail) for _, pair in self.parts), strict=True)
        return min(lows), max(highs)

    def masses(self, edges: Array) -> LossMasses:
        shares = [(weight, pair.masses(edges)) for weight, pair in self.parts]
        return LossMasses(
            p=np.sum([weight * share.p for weight, share in shares], axis=0),
            q=np.sum([weight * share.q for weight, share in shares], axis=0),
            p_infinite=math.fsum(weight * share.p_infinite for weight, share in shares),
            q_infinite=math.fsum(weight * share.q_infinite for weight, share in shares),
        )

    def cumulants(self, tilts: Array) -> Array:
        each = np.array([pair.cumulants(tilts) for _, pair in self.parts])
        weights = np.array([weight for weight, _ in self.parts])[:, None]
        with np.errstate(over="ignore"):
            near = np.log1p(np.sum(weights * np.expm1(np.minimum(each, 1.0)), axis=0))
        return np.where(np.max(each, axis=0) < 1, near, log_sum(each.T, weights[:, 0]))

    def reversed(self) -> "ChoicePair":
        return ChoicePair(tuple((weight, pair.reversed()) for weight, pair in self.parts))


def _upper_masses(x: Array) -> Array:
    """Standard Gaussian mass between consecutive increasing points and above the last."""
    tails = normal_cdf(-np.abs(x))
    above = np.where(x >= 0, tails, 1 - tails)
    right = x[:-1] >= 0
    left = x[1:] < 0
    between = np.where(right, tails[:-1] - tails[1:], np.where(left, tails[1:] - tails[:-1], above[:-1] - above[1:]))
    return np.maximum(np.append(between, above[-1]), 0.0)
