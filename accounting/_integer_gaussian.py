"""The dominating pair of discrete Gaussian noise."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from accounting._pairs import Array, LossMasses, Pair, log_sum

_REACH = 38.7
"""Standard deviations beyond which a mass is below the smallest float."""


class _Atoms(NamedTuple):
    losses: Array
    p: Array
    q: Array


@dataclass(frozen=True, kw_only=True)
class IntegerGaussianPair(Pair):
    """Discrete Gaussian noise about 0 against the same about -shift; its own reverse, by symmetry.

    Args:
        scale: sigma > 0 of the mass proportional to e^(-x^2 / (2 sigma^2)).
        shift: an integer >= 1.

    References: Canonne, Kamath, Steinke 2020, Theorem 4 and Proposition 5.
    """

    scale: float
    shift: int

    @property
    def greatest_loss(self) -> float:
        return math.inf

    @property
    def suits_pld(self) -> bool:
        return self.scale >= 0.05 * self.shift

    def loss_range(self, tail: float) -> tuple[float, float]:
        atoms = _atoms(self.scale, self.shift)
        low = np.searchsorted(np.cumsum(atoms.p), tail, side="right")
        high = atoms.p.size - 1 - np.searchsorted(np.cumsum(atoms.p[::-1]), tail, side="right")
        return float(atoms.losses[low]), float(atoms.losses[max(high, 0)])

    def masses(self, edges: Array) -> LossMasses:
        atoms = _atoms(self.scale, self.shift)
        bins = np.searchsorted(edges, atoms.losses, side="left")
        size = edges.size + 1
        return LossMasses(
            p=np.bincount(bins, weights=atoms.p, minlength=size).astype(np.float64),
            q=np.bincount(bins, weights=atoms.q, minlength=size).astype(np.float64),
        )

    def cumulants(self, tilts: Array) -> Array:
        smooth = tilts * (tilts + 1) * self.shift**2 / (2 * self.scale**2)
        if self.scale > 3:  # The correction is below 1e-76.
            return smooth
        return np.maximum(smooth + _log_theta(tilts * self.shift, self.scale) - _log_theta(np.zeros(1), self.scale), 0)

    def reversed(self) -> "IntegerGaussianPair":
        return self


@lru_cache(maxsize=8)
def _atoms(scale: float, shift: int) -> _Atoms:
    reach = math.ceil(_REACH * scale) + 1
    x = np.arange(-reach - shift, reach + 1, dtype=np.float64)
    norm = float(_log_theta(np.zeros(1), scale)[0])
    p = np.exp(-(x**2) / (2 * scale**2) - norm)
    q = np.exp(-((x + shift) ** 2) / (2 * scale**2) - norm)
    return _Atoms(shift * (shift + 2 * x) / (2 * scale**2), p, q)


def _log_theta(centres: Array, scale: float) -> Array:
    """ln of the sum over integers x of e^(-(x - c)^2 / (2 scale^2)), which has period 1 in c."""
    if scale > 3:
        return np.full_like(centres, math.log(scale) + 0.5 * math.log(2 * math.pi))
    reach = math.ceil(_REACH * scale) + 2
    x = np.arange(-reach, reach + 1)
    offsets = (centres - np.rint(centres))[:, None] - x
    return log_sum(-(offsets**2) / (2 * scale**2), np.ones(x.size))
