"""Weights: trainable parameters as named arrays."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from accounting import InvalidValue

Weights = dict[str, NDArray[np.generic]]
"""Trainable parameters by name."""

Layout = Mapping[str, tuple[int, ...]]
"""Shape of each weight, by name."""

ITEM = "update"
"""The ledger's word for the release of trained weights."""


def layout_of(weights: Mapping[str, NDArray[np.generic]]) -> Layout:
    """The weights' names and shapes."""
    return {name: array.shape for name, array in weights.items()}


def check_same_layout(expected: Layout, weights: Mapping[str, NDArray[np.generic]]) -> None:
    """Refuse weights whose names or shapes are not the expected ones.

    Raises:
        InvalidValue: naming the first difference.
    """
    check_layout(expected, layout_of(weights))


def check_layout(expected: Layout, found: Layout) -> None:
    """Refuse names or shapes that are not the expected ones.

    Raises:
        InvalidValue: naming the first difference.
    """
    if odd := sorted(set(expected) ^ set(found)):
        raise InvalidValue(f"Weight {odd[0]!r} is missing or unknown; the model has {', '.join(expected)}.")
    for name, shape in expected.items():
        if found[name] != shape:
            raise InvalidValue(f"Expected weight {name!r} of shape {found[name]} to have shape {shape}.")
