"""The few functions that accounting takes from scipy, with types, since scipy ships none."""

# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false

import numpy as np
from numpy.typing import NDArray
from scipy import fft as _fft
from scipy import special as _special

Array = NDArray[np.float64]


def normal_cdf(x: Array) -> Array:
    """Standard Gaussian distribution function, to full relative precision in the left tail."""
    return np.asarray(_special.ndtr(x), dtype=np.float64)


def log_normal_cdf(x: float) -> float:
    """Logarithm of `normal_cdf`, also where that underflows."""
    return float(_special.log_ndtr(x))


def normal_quantile(probability: float) -> float:
    """Inverse of `normal_cdf`."""
    return float(_special.ndtri(probability))


def fast_length(length: int) -> int:
    """The least length >= `length` whose real Fourier transform is fast."""
    return int(_fft.next_fast_len(length, real=True) or length)


def real_transform(values: Array) -> NDArray[np.complex128]:
    """Fourier transform of real values, at the frequencies 0 .. size // 2."""
    return np.asarray(_fft.rfft(values), dtype=np.complex128)


def inverse_real_transform(values: NDArray[np.complex128], size: int) -> Array:
    """Inverse of `real_transform`."""
    return np.asarray(_fft.irfft(values, size), dtype=np.float64)


def binomial_masses(count: int, rate: float) -> Array:
    """The mass of 0 .. count successes in `count` coins, for a rate in (0, 1)."""
    wins = np.arange(count + 1)
    choices = _special.gammaln(count + 1) - _special.gammaln(wins + 1) - _special.gammaln(count - wins + 1)
    logs = choices + wins * np.log(rate) + (count - wins) * np.log1p(-rate)
    return np.asarray(np.exp(logs), dtype=np.float64)


def binomial_above(most: int, count: int, rate: float) -> float:
    """The probability of more than `most` successes in `count` coins."""
    return float(_special.betainc(most + 1, count - most, rate)) if most < count else 0.0
