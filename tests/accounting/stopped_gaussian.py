"""A Gaussian run whose stopping time reacts to its releases, against the epsilon that its executed count would claim.

Each step releases N(mu, 1) or N(0, 1). After n steps the privacy loss under the first law is a random walk with
increments N(mu^2 / 2, mu^2), and a run *planned* with n steps has exactly the (epsilon_n, delta) of Gaussian shift
mu sqrt(n). Let the server stop at a time tau that looks at the releases, and let the sentence quote
(epsilon_tau, delta). Were it true of the transcripts that carry it, the excess

    sum over n of (P[A_n] - e^epsilon_n Q[A_n])  for the best events A_n within {tau = n},
    which is E_P (1 - e^(epsilon_tau - loss_tau))_+

would be at most delta, as it is for every constant tau. Here it is computed by walking the law of the loss over a mesh.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

Array = NDArray[np.float64]


def gaussian_delta(shift: Array, epsilon: Array) -> Array:
    """Closed form of one Gaussian step (Balle, Wang 2018, Theorem 8)."""
    lower = norm.logcdf(-shift / 2 - epsilon / shift)
    return norm.cdf(shift / 2 - epsilon / shift) - np.exp(epsilon + lower)


def claimed_epsilons(mu: float, limit: int, delta: float) -> Array:
    """The exact epsilon >= 0 at delta of each count 1..limit, by bisection."""
    shift = mu * np.sqrt(np.arange(1, limit + 1))
    low, high = np.zeros(limit), np.full(limit, 100.0)
    for _ in range(60):
        middle = (low + high) / 2
        covered = gaussian_delta(shift, middle) <= delta
        low, high = np.where(covered, low, middle), np.where(covered, middle, high)
    return high


class _Walk:
    """The mesh of losses, one step's kernel, and what stopping at each count is worth."""

    def __init__(self, mu: float, limit: int, delta: float, mesh: float) -> None:
        drift, spread = limit * mu**2 / 2, mu * np.sqrt(limit)
        low, high = int(-6 * spread / mesh), int((drift + 9 * spread) / mesh)
        self.losses: Array = np.arange(low, high + 1) * mesh
        self.origin = -low
        reach = int(8 * mu / mesh)
        kernel = norm.pdf(np.arange(-reach, reach + 1) * mesh, mu**2 / 2, mu)
        self.kernel: Array = kernel / kernel.sum()
        self.claims: Array = claimed_epsilons(mu, limit, delta)

    def worth(self, count: int) -> Array:
        """Excess of stopping now, at each loss."""
        return np.maximum(0.0, -np.expm1(np.minimum(0.0, self.claims[count - 1] - self.losses)))


def first_crossing_excess(mu: float, limit: int, delta: float, *, mesh: float) -> float:
    """Stop at the first count whose own claim the loss has passed, else at the limit."""
    walk = _Walk(mu, limit, delta, mesh)
    running = np.zeros_like(walk.losses)
    running[walk.origin] = 1.0
    excess = 0.0
    for count in range(1, limit + 1):
        running = np.convolve(running, walk.kernel, mode="same")
        worth = walk.worth(count)
        excess += float(running @ worth)
        running[worth > 0] = 0.0
    return excess


def best_rule_excess(mu: float, limit: int, delta: float, *, mesh: float) -> float:
    """The largest excess over all stopping rules, by backward induction (Snell's envelope)."""
    walk = _Walk(mu, limit, delta, mesh)
    value = walk.worth(limit)
    for count in range(limit - 1, 0, -1):
        value = np.maximum(walk.worth(count), _expected_next(value, walk.kernel))
    return float(_expected_next(value, walk.kernel)[walk.origin])


def _expected_next(value: Array, kernel: Array) -> Array:
    padded = np.pad(value, len(kernel) // 2, mode="edge")
    return np.convolve(padded, kernel[::-1], mode="valid")
