"""In which precision an engine computes."""

from typing import Literal

import torch

from accounting import InvalidValue

Precision = Literal["float32", "float64"]

_DTYPES = {"float32": torch.float32, "float64": torch.float64}


def torch_dtype(dtype: Precision) -> torch.dtype:
    """Torch's name of a precision.

    Raises:
        InvalidValue: for any other.
    """
    if dtype not in _DTYPES:
        raise InvalidValue(f"Expected dtype={dtype!r} to be one of {', '.join(_DTYPES)}.")
    return _DTYPES[dtype]
