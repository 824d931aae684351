"""Dominating pairs: the two laws between which an adversary must decide.

A pair (P, Q) dominates a mechanism when no neighbouring datasets have output laws that are easier to tell apart,
at any epsilon (Zhu, Dong, Wang 2022, Definition 7). Its **privacy loss** is ln(dP/dQ) at an output drawn from P.
A pair knows its own loss exactly, in every form that an accountant may ask for: masses in bins for PLD,
cumulants for Renyi, the hockey-stick divergence for one step. It knows nothing of composition.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accounting._errors import InvalidValue
from accounting._validate import check_in_range

Array = NDArray[np.float64]


class LossMasses(NamedTuple):
    """Mass of each law by privacy loss, for edges e_0 < ... < e_n.

    Args:
        p, q: n + 2 masses of P and Q: at finite losses up to e_0, in each bin (e_i, e_i+1], at finite losses above e_n.
        p_infinite: P-mass where Q has none, at loss +inf.
        q_infinite: Q-mass where P has none, at loss -inf.
    """

    p: Array
    q: Array
    p_infinite: float = 0.0
    q_infinite: float = 0.0


class Pair(ABC):
    """A dominating pair (P, Q); hashable, so that equal ones are priced once."""

    @property
    @abstractmethod
    def greatest_loss(self) -> float:
        """The supremum of the privacy loss; inf where it is unbounded, and 0 only where P = Q."""

    @property
    def infinite_mass(self) -> float:
        """P-mass at infinite loss."""
        return 0.0

    @property
    def greatest_finite_loss(self) -> float:
        """The supremum of the finite privacy losses, at least 0; inf where they are unbounded."""
        return self.greatest_loss

    @property
    def suits_pld(self) -> bool:
        """Whether a PLD over a grid is known to be tight for this pair."""
        return True

    @property
    def has_atoms(self) -> bool:
        """Whether single losses carry mass, which a grid blurs in proportion to its interval, not to its square."""
        return False

    @abstractmethod
    def loss_range(self, tail: float) -> tuple[float, float]:
        """Finite losses (low, high) with P-mass at most `tail` below low, and at finite losses above high."""

    @abstractmethod
    def masses(self, edges: Array) -> LossMasses:
        """Both laws in the bins between increasing `edges`, each mass to full relative precision."""

    @abstractmethod
    def cumulants(self, tilts: Array) -> Array:
        """ln E_P[exp(t L); L < inf] at each tilt t > 0, to full relative precision near 0."""

    @abstractmethod
    def reversed(self) -> "Pair":
        """The pair (Q, P)."""

    def renyi(self, orders: Array) -> Array:
        """Renyi divergence of P from Q at each order > 1, in nats (Mironov 2017); inf where P has mass that Q lacks."""
        if self.infinite_mass > 0:
            return np.full_like(orders, np.inf)
        return self.cumulants(orders - 1) / (orders - 1)

    @property
    def squared_shift(self) -> float:
        """mu^2 where the pair is N(mu, 1) against N(0, 1), else 0: such pairs compose to one by adding it.

        References: Dong, Roth, Su 2022, Corollary 3.3.
        """
        return 0.0

    def profile(self, epsilon: float) -> float:
        """Hockey-stick divergence sup_S P(S) - e^epsilon Q(S): the exact delta of one step in this direction."""
        masses = self.masses(np.array([epsilon]))
        above = masses.p[-1] - math.exp(min(epsilon, 700.0)) * masses.q[-1]
        return float(min(max(above, 0.0) + masses.p_infinite, 1.0))


def log_sum(exponents: Array, weights: Array) -> Array:
    """ln sum_i weights_i exp(exponents_i) along the last axis; -inf for an empty sum."""
    if exponents.shape[-1] == 0:
        return np.full(exponents.shape[:-1], -np.inf)
    exponents = np.where(weights > 0, exponents, -np.inf)
    top = np.maximum(np.max(exponents, axis=-1), -1e300)
    with np.errstate(divide="ignore"):
        return top + np.log(np.exp(exponents - top[..., None]) @ weights)


_SERIES_BELOW = 0.02


def log_excess(tilts: Array, losses: Array) -> Array:
    """ln(r^a - 1 - a (r - 1)) for the likelihood ratio r = exp(loss) and the order a = tilt + 1.

    Its mean under Q is exp((a - 1) D_a) - 1 because r has mean 1. It is never negative, so nothing cancels in
    that mean, however close to 0 the divergence is.

    Args:
        tilts: t > 0, broadcast against losses.
        losses: finite.
    """
    order = tilts + 1.0
    powered = order * losses
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        large = powered + np.log1p(tilts * np.exp(-powered) - order * np.exp(-tilts * losses))
        small = np.log(np.expm1(np.minimum(powered, 1.0)) - order * np.expm1(np.minimum(losses, 1.0)))
        answer = np.where(powered > 1.0, large, small)
        tiny = np.maximum(np.abs(powered), np.abs(losses)) < _SERIES_BELOW
        near, order = np.broadcast_to(losses, tiny.shape)[tiny], np.broadcast_to(order, tiny.shape)[tiny]
        answer[tiny] = 2.0 * np.log(np.abs(near)) + np.log(
            order * (order * _exp_remainder(order * near) - _exp_remainder(near))
        )
    return answer


def _exp_remainder(x: Array) -> Array:
    """(e^x - 1 - x) / x^2 for |x| < 0.02."""
    return np.asarray(np.polyval([1 / 40320, 1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2], x), dtype=np.float64)


class _Atoms(Pair):
    """Two laws on finitely many atoms."""

    @abstractmethod
    def _finite(self) -> tuple[Array, Array, Array]:
        """Loss, P-mass and Q-mass of each atom that both laws have."""

    @property
    @abstractmethod
    def _exact(self) -> bool:
        """Whether the Q-masses of finite losses sum to 1 and are exact enough to take cumulants from."""

    @property
    def has_atoms(self) -> bool:
        return True

    @property
    def greatest_loss(self) -> float:
        return math.inf if self.infinite_mass > 0 else self.greatest_finite_loss

    @property
    def greatest_finite_loss(self) -> float:
        return max(float(np.max(self._finite()[0], initial=0.0)), 0.0)

    def loss_range(self, tail: float) -> tuple[float, float]:
        losses, p, _ = self._finite()
        if losses.size == 0:
            return 0.0, 0.0
        ascending = np.argsort(losses)
        losses, p = losses[ascending], p[ascending]
        low = int(np.searchsorted(np.cumsum(p), tail, side="right"))
        high = losses.size - 1 - int(np.searchsorted(np.cumsum(p[::-1]), tail, side="right"))
        return float(losses[min(low, losses.size - 1)]), float(losses[max(high, 0)])

    def masses(self, edges: Array) -> LossMasses:
        losses, p, q = self._finite()
        bins = np.searchsorted(edges, losses, side="left")
        size = edges.size + 1
        return LossMasses(
            p=np.bincount(bins, weights=p, minlength=size).astype(np.float64),
            q=np.bincount(bins, weights=q, minlength=size).astype(np.float64),
            p_infinite=self.infinite_mass,
            q_infinite=self.reversed().infinite_mass,
        )

    def cumulants(self, tilts: Array) -> Array:
        losses, p, q = self._finite()
        if not self._exact:
            return log_sum(tilts[:, None] * losses, p)
        return np.logaddexp(0.0, log_sum(log_excess(tilts[:, None], losses), q))


@dataclass(frozen=True)
class DiscretePair(_Atoms):
    """Two laws on finitely many atoms, given by their masses.

    Args:
        p, q: mass of each atom under P and under Q; each sums to 1.

    ```
    >>> round(DiscretePair((0.75, 0.25), (0.25, 0.75)).greatest_loss, 6)
    1.098612

    ```
    """

    p: tuple[float, ...]
    q: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.p) != len(self.q) or min(self.p + self.q) < 0:
            raise InvalidValue("Expected p and q of one length, with no negative mass.")
        for name, law in (("p", self.p), ("q", self.q)):
            if abs(math.fsum(law) - 1.0) > 1e-9:
                raise InvalidValue(f"Expected the masses {name} to sum to 1, not {math.fsum(law)}.")

    def _finite(self) -> tuple[Array, Array, Array]:
        p, q = np.asarray(self.p, dtype=float), np.asarray(self.q, dtype=float)
        shared = (p > 0) & (q > 0)
        p, q = p[shared], q[shared]
        near = np.abs(p - q) < 0.1 * q
        return np.where(near, np.log1p(np.where(near, p - q, 0.0) / q), np.log(p) - np.log(q)), p, q

    @property
    def _exact(self) -> bool:
        return min(self.p + self.q) > 0

    @property
    def infinite_mass(self) -> float:
        return math.fsum(p for p, q in zip(self.p, self.q, strict=True) if q == 0)

    def reversed(self) -> "DiscretePair":
        return DiscretePair(self.q, self.p)


_LEAST_SUITABLE_RESPONSE = 1e-6
_LARGEST_EXACT_RESPONSE = 30.0


@dataclass(frozen=True)
class ResponsePair(_Atoms):
    """Randomised response that shows the truth with some probability: the worst (epsilon, delta)-DP release.

    Its greatest finite loss is exactly epsilon, which masses would round, and lose where e^-epsilon underflows.

    Args:
        epsilon: in [0, inf).
        revealed: the probability in [0, 1] that the truth is shown: the P-mass at loss inf, and Q-mass at -inf.

    References: Kairouz, Oh, Viswanath 2015, Theorem 3.1.

    ```
    >>> ResponsePair(0.5, revealed=1e-6).greatest_finite_loss
    0.5

    ```
    """

    epsilon: float
    revealed: float = 0.0

    def __post_init__(self) -> None:
        check_in_range(low=0, high=math.inf, high_open=True, epsilon=self.epsilon)
        check_in_range(low=0, high=1, revealed=self.revealed)

    def _finite(self) -> tuple[Array, Array, Array]:
        if self.revealed == 1:
            return np.zeros(0), np.zeros(0), np.zeros(0)
        yes = (1 - self.revealed) / (1 + math.exp(-self.epsilon))
        no = yes * math.exp(-self.epsilon)
        return np.array([self.epsilon, -self.epsilon]), np.array([yes, no]), np.array([no, yes])

    @property
    def _exact(self) -> bool:
        return self.revealed == 0 and self.epsilon < _LARGEST_EXACT_RESPONSE

    @property
    def infinite_mass(self) -> float:
        return self.revealed

    @property
    def suits_pld(self) -> bool:
        """Not where rounding two masses near 1/2 moves a step's mean loss by a visible part of epsilon^2.

        Where the truth may be shown, Renyi divergences are infinite, and the steps are too few for this to add up.
        """
        return self.epsilon == 0 or self.epsilon >= _LEAST_SUITABLE_RESPONSE or self.revealed > 0

    def reversed(self) -> "ResponsePair":
        return self


IDENTICAL = DiscretePair((1.0,), (1.0,))
"""P = Q: what costs nothing."""
