"""Drift: what moves a silo's weights in a step beside the gradients of its records.

After clipping, noise and division, a step adds ``pull * (w - anchor) + correction`` to the gradient. FedProx and Ditto
pull the weights w to an anchor (Li et al. 2020, 2021); SCAFFOLD corrects for what other silos hold (Karimireddy et al.
2020). Anchor and correction come from the server, which makes them of what silos have released already: they are public
to the release that they shape, so that its law is the one without them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from silos._schedule import Schedule
from silos._weights import Weights

Arrays = Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Drift:
    """The drift as engines add it: ``pull * w + offset``.

    Args:
        pull: strength, >= 0.
        offset: as long as the weights; names and shapes are theirs.
    """

    pull: float
    offset: Weights

    @classmethod
    def of(cls, schedule: Schedule, start: Arrays, anchor: Arrays | None, correction: Arrays | None) -> Self | None:
        """The drift of a round; None where there is none.

        Args:
            schedule: whose pull.
            start: the weights that the round starts from; also the anchor, where none is given.
            anchor, correction: from the server.
        """
        pull, anchor = schedule.pull, anchor or start
        if pull == 0 and correction is None:
            return None
        offset: Weights = {name: np.multiply(array, -pull) for name, array in anchor.items()}
        if correction is not None:
            offset = {name: np.add(array, correction[name]) for name, array in offset.items()}
        return cls(pull=pull, offset=offset)
