"""From composed Renyi divergences to (epsilon, delta), over one grid of orders.

Divergences of one order add up under composition, also where a release is chosen after seeing earlier ones (Mironov
2017, Proposition 1). Every order proves its own (epsilon, delta); the best of the grid is taken.

References: Mironov 2017; Canonne, Kamath, Steinke 2020, Proposition 12.
"""

import math
import warnings

import numpy as np
from numpy.typing import NDArray

from accounting._validate import check_in_range

Array = NDArray[np.float64]

ORDERS: Array = np.unique(
    np.concatenate(
        [
            1 + np.geomspace(1e-3, 0.1, 9),
            np.round(np.arange(1.1, 11, 0.1), 1),
            np.arange(11.0, 64.0),
            np.geomspace(64, 1024, 25).round(),
        ]
    )
)
"""Orders at which divergences are composed: ascending from above 1 to 1024, fractional below 11 and whole above."""
ORDERS.setflags(write=False)


class OrderGridWarning(UserWarning):
    """The best order is the grid's first or last, so that an order beyond it may well prove less."""


def epsilon_from_renyi(orders: Array, values: Array, delta: float) -> float:
    """The least epsilon >= 0 that some order proves at this delta.

    Args:
        orders: Renyi orders above 1, ascending.
        values: the composed divergence at each, in [0, inf].
        delta: in [0, 1].

    | edge | answer |
    |---|---|
    | delta = 1, or no divergence at any order | 0 |
    | delta = 0 | inf, unless there is no divergence |

    ```
    >>> orders = np.array([2.0, 8.0, 16.0, 32.0])
    >>> round(epsilon_from_renyi(orders, orders / 10, 1e-5), 4)
    2.0141

    ```
    """
    check_in_range(low=0, high=1, delta=delta)
    if delta == 1 or not np.any(values):
        return 0.0
    if delta == 0:
        return math.inf
    bounds = values + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
    best = int(np.argmin(bounds))
    epsilon = float(bounds[best])
    if 0 < epsilon < math.inf and orders.size > 1 and best in (0, orders.size - 1):
        warnings.warn(
            f"The best Renyi order, {orders[best]:g}, is at the edge of the grid: epsilon={epsilon:g} holds "
            "and is looser than it need be.",
            OrderGridWarning,
            stacklevel=2,
        )
    return max(epsilon, 0.0)


def delta_from_renyi(orders: Array, values: Array, epsilon: float) -> float:
    """The least delta that some order proves at this epsilon >= 0; arguments as in `epsilon_from_renyi`."""
    check_in_range(low=0, high=math.inf, epsilon=epsilon)
    if epsilon == math.inf or not np.any(values):
        return 0.0 if np.any(np.isfinite(values)) else 1.0
    exponents = (orders - 1) * (values - epsilon + np.log1p(-1 / orders)) - np.log(orders)
    return math.exp(min(float(np.min(exponents)), 0.0))
