"""Dominating pairs made of Gaussians of one width: mixtures whose privacy loss grows with the output.

Widths and means are relative to the sensitivity. The three families differ in their mixtures only:

| release, relation | P | Q |
|---|---|---|
| sampled Gaussian, add-or-remove or zero-out | (1-q) N(0) + q N(1) | N(0) |
| sampled Gaussian, replace-one | (1-q) N(0) + q N(1) | (1-q) N(0) + q N(-1) |
| any further mixture, such as a Binomial number of records | sum_i p_i N(m_i) | sum_i q_i N(m_i) |

The first two invert their loss in closed form; the last does so by Newton's method, which halves
a bracket wherever it would leave it.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from accounting._errors import InvalidValue
from accounting._pairs import Array, LossMasses, Pair, log_excess, log_sum
from accounting._quadrature import REACH, centres, crossings, panels
from accounting._special import log_normal_cdf, normal_cdf, normal_quantile
from accounting._validate import check_in_range

_LEAST_SUITABLE_SIGMA = 0.05
_LONGEST_LATTICE = 4096
_MOST_HALVINGS = 100
_NEAR = 1e-14
"""Part of an output and of the noise by which the inverse of a loss may be off."""


@dataclass(frozen=True, kw_only=True)
class _ShiftedGaussians(Pair):
    """P and Q are mixtures over the same means of N(mean, sigma^2); the loss grows with the output x.

    Args:
        sigma: standard deviation, in (0, inf).
        swapped: whether the pair stands for (Q, P).
    """

    sigma: float
    swapped: bool = False

    def __post_init__(self) -> None:
        check_in_range(low=0, high=math.inf, low_open=True, high_open=True, sigma=self.sigma)

    @abstractmethod
    def _mixtures(self) -> tuple[Array, Array, Array]:
        """Means, increasing, and the weights of P and of Q, before swapping."""

    @abstractmethod
    def _loss(self, x: Array) -> Array:
        """ln(dP/dQ) at x, before swapping."""

    @abstractmethod
    def _inverse(self, losses: Array) -> Array:
        """The x of each loss, before swapping; -inf below the infimum of the loss and inf above its supremum."""

    @property
    def suits_pld(self) -> bool:
        return self.sigma >= _LEAST_SUITABLE_SIGMA

    @property
    def greatest_loss(self) -> float:
        _, p, q = self._mixtures()
        # Far out only the outermost mean counts: on the left where swapped, on the right where not.
        upper, lower = (q[0], p[0]) if self.swapped else (p[-1], q[-1])
        return math.log(upper) - math.log(lower) if lower > 0 else math.inf

    def loss_range(self, tail: float) -> tuple[float, float]:
        means, p, q = self._mixtures()
        used = means[(q if self.swapped else p) > 0]
        reach = self.sigma * -normal_quantile(max(tail, 1e-300))
        low, high = self._loss(np.array([used[0] - reach, used[-1] + reach]))
        return (-float(high), -float(low)) if self.swapped else (float(low), float(high))

    def masses(self, edges: Array) -> LossMasses:
        x = self._inverse(-edges[::-1] if self.swapped else edges)
        means, p, q = self._mixtures()
        parts = [_bin_masses((x - mean) / self.sigma) for mean in means]
        p_masses = sum((w * part for w, part in zip(p, parts, strict=True) if w > 0), np.zeros(edges.size + 1))
        q_masses = sum((w * part for w, part in zip(q, parts, strict=True) if w > 0), np.zeros(edges.size + 1))
        if self.swapped:
            return LossMasses(p=q_masses[::-1], q=p_masses[::-1])
        return LossMasses(p=p_masses, q=q_masses)

    def cumulants(self, tilts: Array) -> Array:
        answer = np.empty_like(tilts)
        groups = np.maximum(np.ceil(np.log2(np.maximum(tilts, 1e-300)) / 3 - 1e-9), 1)
        for group in np.unique(groups):
            members = groups == group
            answer[members] = self._cumulants(tilts[members])
        return answer

    def _cumulants(self, tilts: Array) -> Array:
        """ln(1 + E_Q[excess]), by a trapezoid rule over a lattice that is shared by all tilts where it is not too long.

        The rule is exponentially accurate, since the integrand is analytic in a strip that ends at the zeros of the
        mixtures, at imaginary part pi sigma^2 / (spread of the means) or more (Trefethen, Weideman 2014, Theorem 5.1).
        """
        means, p, q = self._mixtures()
        if self.swapped:
            p, q = q, p
        width = self.sigma**2 / float(means[-1] - means[0])
        step, reach = min(0.6 * self.sigma, 0.4 * width), REACH * self.sigma
        spots = centres(float(tilts.max()), means, p, q)
        low, high = math.floor((spots.min() - reach) / step), math.ceil((spots.max() + reach) / step)
        if high - low < _LONGEST_LATTICE:
            x = step * np.arange(low, high + 1, dtype=np.float64)
            weights = np.full(x.size, step)
        elif tilts.size > 1:
            return np.concatenate([self._cumulants(tilt[None]) for tilt in tilts])
        else:
            changes = np.concatenate([crossings(means, p, self.sigma), crossings(means, q, self.sigma)])
            x, weights = panels(np.concatenate([spots, changes]), changes, self.sigma, width)
        losses = -self._loss(x) if self.swapped else self._loss(x)
        scaled = (x[:, None] - means[q > 0]) / self.sigma
        log_q = log_sum(-0.5 * scaled**2, q[q > 0])
        weights = weights / (self.sigma * math.sqrt(2 * math.pi))
        return np.logaddexp(0.0, log_sum(log_excess(tilts[:, None], losses[None, :]) + log_q, weights))


def _bin_masses(x: Array) -> Array:
    """Standard Gaussian mass below, between and above increasing points, each to full relative precision."""
    padded = np.concatenate([[-np.inf], x, [np.inf]])
    tails = normal_cdf(-np.abs(padded))
    right, straddling = padded[:-1] >= 0, (padded[:-1] < 0) & (padded[1:] >= 0)
    between = np.where(right, tails[:-1] - tails[1:], tails[1:] - tails[:-1])
    return np.maximum(np.where(straddling, 1.0 - tails[:-1] - tails[1:], between), 0.0)


def _sampled_loss(z: Array, q: float) -> Array:
    """ln(1 - q + q e^z)."""
    if q == 1:
        return z
    small = np.log1p(q * np.expm1(np.minimum(z, 1)))
    return np.where(z <= 1, small, np.logaddexp(math.log1p(-q), math.log(q) + z))


def _log_expm1(x: Array) -> Array:
    """ln(e^x - 1) for x >= 0."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.where(x > 1, x + np.log1p(-np.exp(-np.maximum(x, 1))), np.log(np.expm1(np.minimum(x, 1))))


@dataclass(frozen=True, kw_only=True)
class SampledPair(_ShiftedGaussians):
    """(1-q) N(0, sigma^2) + q N(1, sigma^2) against N(0, sigma^2): one Poisson-sampled Gaussian step.

    Dominates removal; its reverse dominates addition (Zhu, Dong, Wang 2022, Theorem 11; Mironov, Talwar, Zhang 2019).

    Args:
        sampling_rate: q in (0, 1]; 1 is the plain Gaussian.
    """

    sampling_rate: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_in_range(low=0, high=1, low_open=True, sampling_rate=self.sampling_rate)

    def _mixtures(self) -> tuple[Array, Array, Array]:
        q = self.sampling_rate
        return np.array([0.0, 1.0]), np.array([1 - q, q]), np.array([1.0, 0.0])

    def _loss(self, x: Array) -> Array:
        return _sampled_loss((x - 0.5) / self.sigma**2, self.sampling_rate)

    def _inverse(self, losses: Array) -> Array:
        q = self.sampling_rate
        if q == 1:
            return self.sigma**2 * losses + 0.5
        with np.errstate(divide="ignore", invalid="ignore"):
            small = np.log1p(np.maximum(np.expm1(np.minimum(losses, 1)) / q, -1))
            large = losses + np.log1p(-(1 - q) * np.exp(-np.maximum(losses, 1))) - math.log(q)
        return self.sigma**2 * np.where(losses <= 1, small, large) + 0.5

    def cumulants(self, tilts: Array) -> Array:
        if self.sampling_rate == 1:
            return tilts * (tilts + 1) / (2 * self.sigma**2)
        return super().cumulants(tilts)

    @property
    def squared_shift(self) -> float:
        return self.sigma**-2 if self.sampling_rate == 1 else 0.0

    def profile(self, epsilon: float) -> float:
        if self.sampling_rate < 1:
            return super().profile(epsilon)
        # Balle, Wang 2018, Theorem 8, by logarithms: e^epsilon overflows where sigma is small.
        x = self.sigma * epsilon
        log_p, log_q = (log_normal_cdf(sign / (2 * self.sigma) - x) for sign in (1, -1))
        return math.exp(log_p) * max(-math.expm1(min(epsilon + log_q - log_p, 0.0)), 0.0)

    def reversed(self) -> "SampledPair":
        return self if self.sampling_rate == 1 else replace(self, swapped=not self.swapped)


@dataclass(frozen=True, kw_only=True)
class SampledReplacePair(_ShiftedGaussians):
    """(1-q) N(0, sigma^2) + q N(1, sigma^2) against (1-q) N(0, sigma^2) + q N(-1, sigma^2).

    One Poisson-sampled step under replace-one: the unit's gradient turns from one end of the clipping ball to the
    other (Lebeda, Regehr, Kamath, Steinke 2024). Its own mirror image, hence its own reverse.

    Args:
        sampling_rate: q in (0, 1]; 1 is the plain Gaussian of sensitivity 2.
    """

    sampling_rate: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_in_range(low=0, high=1, low_open=True, sampling_rate=self.sampling_rate)

    def _mixtures(self) -> tuple[Array, Array, Array]:
        q = self.sampling_rate
        return np.array([-1.0, 0.0, 1.0]), np.array([0.0, 1 - q, q]), np.array([q, 1 - q, 0.0])

    def _loss(self, x: Array) -> Array:
        up, down = ((sign * x - 0.5) / self.sigma**2 for sign in (1, -1))
        return _sampled_loss(up, self.sampling_rate) - _sampled_loss(down, self.sampling_rate)

    def _inverse(self, losses: Array) -> Array:
        # With e^w = e^(loss/2 + x/sigma^2) the loss equation becomes sinh(w) = sinh(loss/2) (1-q)/q e^(1/2 sigma^2).
        q, half = self.sampling_rate, np.abs(losses) / 2
        if q == 1:
            return self.sigma**2 * losses / 2
        log_sinh = half + _log_expm1(2 * half) - 2 * half - math.log(2)
        log_ratio = log_sinh + math.log1p(-q) - math.log(q) + 0.5 / self.sigma**2
        w = np.where(log_ratio > 20, log_ratio + math.log(2), np.arcsinh(np.exp(np.minimum(log_ratio, 20))))
        return np.sign(losses) * self.sigma**2 * (half + w)

    def cumulants(self, tilts: Array) -> Array:
        if self.sampling_rate == 1:
            return 2 * tilts * (tilts + 1) / self.sigma**2
        return super().cumulants(tilts)

    def reversed(self) -> "SampledReplacePair":
        return self


@dataclass(frozen=True, kw_only=True)
class MixturePair(_ShiftedGaussians):
    """sum_i p_i N(m_i, sigma^2) against sum_i q_i N(m_i, sigma^2), with p_i / q_i increasing.

    Args:
        means: at least two, increasing.
        p, q: weights, each summing to 1.
    """

    means: tuple[float, ...]
    p: tuple[float, ...]
    q: tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not len(self.means) == len(self.p) == len(self.q) >= 2:
            raise InvalidValue("Expected means, p and q of one length, at least 2.")
        if any(b <= a for a, b in pairwise(self.means)) or min(self.p + self.q) < 0:
            raise InvalidValue("Expected increasing means and no negative weight.")
        if max(abs(math.fsum(self.p) - 1), abs(math.fsum(self.q) - 1)) > 1e-9:
            raise InvalidValue("Expected weights p and q that each sum to 1.")
        ratios = [(a, b) for a, b in zip(self.p, self.q, strict=True) if a > 0 or b > 0]
        if any(a * d > c * b * (1 + 1e-12) for (a, b), (c, d) in pairwise(ratios)):
            raise InvalidValue("Expected p / q to increase with the mean.")

    def _mixtures(self) -> tuple[Array, Array, Array]:
        return np.array(self.means), np.array(self.p), np.array(self.q)

    def _exponents(self, x: Array) -> Array:
        means = np.array(self.means)
        return (x[:, None] * means - means**2 / 2) / self.sigma**2

    def _loss(self, x: Array) -> Array:
        exponents = self._exponents(x)
        return _log_mixture(exponents, self.p) - _log_mixture(exponents, self.q)

    def _slope(self, x: Array) -> Array:
        """Derivative of the loss: the gap between the two posterior means of the component."""
        exponents = self._exponents(x)
        means = np.array(self.means) / self.sigma**2
        p, q = (np.exp(exponents - _log_mixture(exponents, law)[:, None]) * law for law in (self.p, self.q))
        return (p - q) @ means

    def _inverse(self, losses: Array) -> Array:
        reach = 38 * self.sigma
        grid = np.linspace(self.means[0] - reach, self.means[-1] + reach, 4001)
        table = np.maximum.accumulate(self._loss(grid))
        inside = (losses > table[0]) & (losses < table[-1])
        place = np.clip(np.searchsorted(table, losses), 1, grid.size - 1)
        low, high = grid[place - 1], grid[place]
        x = np.interp(losses, table, grid)
        left = np.flatnonzero(inside)
        for _ in range(_MOST_HALVINGS):
            if left.size == 0:
                break
            excess, before = self._loss(x[left]) - losses[left], x[left]
            low[left], high[left] = np.where(excess < 0, before, low[left]), np.where(excess < 0, high[left], before)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                newton = before - excess / self._slope(before)
            trusted = (newton > low[left]) & (newton < high[left])
            x[left] = np.where(trusted, newton, (low[left] + high[left]) / 2)
            left = left[np.abs(x[left] - before) > _NEAR * (self.sigma + np.abs(before))]
        return np.where(inside, x, np.where(losses <= table[0], -np.inf, np.inf))

    def reversed(self) -> "MixturePair":
        return replace(self, swapped=not self.swapped)


def _log_mixture(exponents: Array, weights: tuple[float, ...]) -> Array:
    used = np.array(weights) > 0
    return log_sum(exponents[:, used], np.array(weights)[used])
