"""Where an integral over Gaussian mixtures has its mass, and nodes to take it there."""

import math

import numpy as np

from accounting._pairs import Array

REACH = 9.5
"""Standard deviations beyond which a Gaussian's mass, 1e-21, is left out of an integral."""
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


def centres(tilt: float, means: Array, p: Array, q: Array) -> Array:
    """Where p^a q^(1-a) is locally a Gaussian, for the order a = tilt + 1 and for 2, and the means themselves."""
    above, below = means[p > 0][:, None], means[q > 0]
    return np.concatenate([((a + 1) * above - a * below).ravel() for a in (tilt, 1.0)] + [means])


def crossings(means: Array, weights: Array, sigma: float) -> Array:
    """Where neighbouring components of a mixture are equal."""
    m, w = means[weights > 0], np.log(weights[weights > 0])
    return (m[1:] + m[:-1]) / 2 + sigma**2 * (w[:-1] - w[1:]) / (m[1:] - m[:-1])


def panels(spots: Array, crossings: Array, sigma: float, width: float) -> tuple[Array, Array]:
    """Gauss-Legendre nodes and weights near the spots, where an integrand may have mass.

    Panels are sigma wide, and narrower about crossings, where a mixture changes over `width` from Gaussian to Gaussian.
    """
    half = math.ceil(REACH) + 1
    near = np.unique(np.floor(spots / sigma)[:, None] + np.arange(-half, half + 1, dtype=np.float64))
    edges = np.concatenate([near, near + 1]) * sigma
    if 4 * width < sigma:
        edges = np.concatenate([edges, (crossings[:, None] + 4 * width * np.arange(-12, 13)).ravel()])
    edges = np.unique(edges)
    middles, sizes = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    inside = np.isin(np.floor(middles / sigma), near)
    middles, sizes = middles[inside, None], sizes[inside, None]
    return (middles + sizes / 2 * _NODES).ravel(), (sizes / 2 * _WEIGHTS).ravel()
