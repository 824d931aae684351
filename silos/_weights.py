"""Weights: trainable parameters as named arrays."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from accounting import InvalidValue

Weights = dict[str, NDArray[np.generic]]
"""Trainable parameters by name."""

ITEM = "update"
"""The ledger's word for the release of trained weights."""


def check_same_layout(expected: Mapping[str, tuple[int, ...]], weights: Mapping[str, NDArray[np.generic]]) -> None:
    """Refuse weights whose names or shapes are not the expected ones.

    Raises:
        InvalidValue: naming the first difference.
    """
    if odd := sorted(set(expected) ^ set(weights)):
        raise InvalidValue(f"Weight {odd[0]!r} is missing or unknown; the model has {', '.join(expected)}.")
    for name, shape in expected.items():
        if weights[name].shape != shape:
            raise InvalidValue(f"Expected weight {name!r} of shape {weights[name].shape} to have shape {shape}.")
