"""Pairs whose privacy loss is bounded: Laplace noise, the exponential mechanism, and a Poisson sample of either."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from accounting._pairs import Array, LossMasses, Pair, log_excess, log_sum

FAINTEST_LOSS = 1e-20
"""Limits between 0 and this one are priced at it, an upper bound."""

_WIDEST_LOSS = 1000.0

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


class LossNodes(NamedTuple):
    """A quadrature of a pair: losses with the mass of each law there."""

    losses: Array
    p: Array
    q: Array


@dataclass(frozen=True)
class BoundedPair(Pair):
    """Losses between -limit and limit: P has density proportional to e^(loss/2) inside, and atoms at both ends.

    Swapping P and Q changes nothing. Laplace noise of scale b and a shift s is limit = s/b, atom = 1/2; the
    exponential mechanism's envelope is atom = 0.

    Args:
        limit: the greatest loss, > 0.
        atom: P-mass at the greatest loss; at the least loss it is atom * e^-limit.
    """

    limit: float
    atom: float

    @property
    def _inside(self) -> float:
        """Scale of the continuous part: P-mass inside is this times (1 - e^-limit)."""
        return self.atom + (1.0 - 2.0 * self.atom) / -math.expm1(-self.limit)

    @property
    def greatest_loss(self) -> float:
        return self.limit

    @property
    def suits_pld(self) -> bool:
        return self.limit <= _WIDEST_LOSS

    @property
    def has_atoms(self) -> bool:
        return self.atom > 0

    def loss_range(self, tail: float) -> tuple[float, float]:  # noqa: ARG002
        return -self.limit, self.limit

    def masses(self, edges: Array) -> LossMasses:
        ends = np.clip(np.concatenate([[-np.inf], edges, [np.inf]]), -self.limit, self.limit)
        low, high = ends[:-1], ends[1:]
        p = self._inside * np.exp((high - self.limit) / 2) * -np.expm1((low - high) / 2)
        q = self._inside * np.exp((-low - self.limit) / 2) * -np.expm1((low - high) / 2)
        top, bottom = np.searchsorted(edges, [self.limit, -self.limit], side="left")
        rare = self.atom * math.exp(-self.limit)
        p[top] += self.atom
        q[top] += rare
        p[bottom] += rare
        q[bottom] += self.atom
        return LossMasses(p, q)

    def cumulants(self, tilts: Array) -> Array:
        spread = 2 * tilts + 1
        rest = -np.expm1(-spread * self.limit)
        excess = self._inside * rest / spread - self.atom * rest + 2 * self.atom - 1
        closed = tilts * self.limit + np.log1p(excess)
        small = np.logaddexp(0.0, _log_mean_excess(self.nodes, tilts))
        return np.where(tilts * self.limit > 0.1, closed, small)

    def reversed(self) -> "BoundedPair":
        return self

    @cached_property
    def nodes(self) -> LossNodes:
        """Gauss-Legendre on panels that shrink towards both ends, where high orders put their weight."""
        graded = self.limit * (1 - 0.5 ** np.arange(1, 24))
        even = np.linspace(-self.limit, self.limit, 3 + min(int(2 * self.limit), 500))
        panels = np.unique(np.concatenate([-graded, graded, even]))
        centre, half = (panels[1:] + panels[:-1])[:, None] / 2, np.diff(panels)[:, None] / 2
        losses = (centre + half * _NODES).ravel()
        weights = (half * _WEIGHTS).ravel() * self._inside / 2
        inside = LossNodes(
            losses, weights * np.exp((losses - self.limit) / 2), weights * np.exp((-losses - self.limit) / 2)
        )
        rare = self.atom * math.exp(-self.limit)
        return LossNodes(
            np.concatenate([inside.losses, [self.limit, -self.limit]]),
            np.concatenate([inside.p, [self.atom, rare]]),
            np.concatenate([inside.q, [rare, self.atom]]),
        )


@dataclass(frozen=True)
class SampledBoundedPair(Pair):
    """The pair of a mechanism that runs on a Poisson sample: ((1-r) Q + r P, Q), or the same swapped.

    Args:
        base: the pair (P, Q) of the mechanism on the whole shard.
        rate: the sampling rate r, in (0, 1).
        swapped: whether the mixture is the second law (add) instead of the first (remove).

    References:
        Zhu, Dong, Wang 2022, Theorem 11.
    """

    base: BoundedPair
    rate: float
    swapped: bool = False

    def _loss(self, base_loss: Array) -> Array:
        return np.logaddexp(math.log1p(-self.rate), math.log(self.rate) + base_loss)

    def _base_loss(self, loss: Array) -> Array:
        """The inverse of `_loss`; -inf below its range."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            near = np.log1p(np.expm1(loss) / self.rate)
            far = loss + np.log1p(-(1 - self.rate) * np.exp(-loss)) - math.log(self.rate)
        return np.nan_to_num(np.where(loss > 1, far, near), nan=-np.inf, posinf=np.inf, neginf=-np.inf)

    @property
    def greatest_loss(self) -> float:
        return self.loss_range(0.0)[1]

    @property
    def suits_pld(self) -> bool:
        return self.base.suits_pld

    def loss_range(self, tail: float) -> tuple[float, float]:  # noqa: ARG002
        low, high = (float(end) for end in self._loss(np.array([-self.base.limit, self.base.limit])))
        return (-high, -low) if self.swapped else (low, high)

    def masses(self, edges: Array) -> LossMasses:
        # A swapped loss in (a, b] is an unswapped one in [-b, -a): the edges move down by one representable step.
        unswapped = np.nextafter(-edges[::-1], -np.inf) if self.swapped else edges
        base = self.base.masses(self._base_loss(unswapped))
        mixture = (1 - self.rate) * base.q + self.rate * base.p
        return LossMasses(base.q[::-1], mixture[::-1]) if self.swapped else LossMasses(mixture, base.q)

    def cumulants(self, tilts: Array) -> Array:
        base = self.base.nodes
        losses, mixture = self._loss(base.losses), (1 - self.rate) * base.q + self.rate * base.p
        nodes = LossNodes(-losses, base.q, mixture) if self.swapped else LossNodes(losses, mixture, base.q)
        return np.logaddexp(0.0, _log_mean_excess(nodes, tilts))

    def reversed(self) -> "SampledBoundedPair":
        return SampledBoundedPair(self.base, self.rate, swapped=not self.swapped)


def _log_mean_excess(nodes: LossNodes, tilts: Array) -> Array:
    return log_sum(log_excess(tilts[:, None], nodes.losses), nodes.q)
