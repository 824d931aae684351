"""Weights and Flower records, and hashes of weights."""

import math
from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from io import BytesIO

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.lib.format import read_array_header_1_0, read_array_header_2_0, read_magic
from numpy.typing import NDArray

from accounting import InvalidValue
from silos._weights import Weights

_HEADERS = {(1, 0): read_array_header_1_0, (2, 0): read_array_header_2_0}


class HeldArray(Array):
    """An `Array` that keeps its NumPy value and makes Flower's bytes only if it leaves the process.

    Between silos and server of one process nothing needs to be written down and read back, which would cost more than
    all the rest of a round.
    """

    def __init__(self, value: NDArray[np.generic]) -> None:
        self.__dict__.update(dtype=_name(value.dtype), shape=value.shape, stype="numpy.ndarray", _held=value)

    @property
    def held(self) -> NDArray[np.generic]:
        """The value itself, not to be written to."""
        return self.__dict__["_held"]

    def numpy(self) -> NDArray[np.generic]:
        """A copy of the value, as Flower's own arrays give."""
        return self.held.copy()

    def __getattr__(self, name: str) -> bytes:
        if name != "data":
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}.")
        buffer = BytesIO()
        np.save(buffer, self.held, allow_pickle=False)
        self.__dict__["data"] = buffer.getvalue()
        return self.__dict__["data"]


@cache
def _name(dtype: np.dtype[np.generic]) -> str:
    return str(dtype)


# Flower writes the class's name into what it sends, and the other side looks it up among its own classes.
HeldArray.__qualname__ = Array.__qualname__


def to_record(weights: Mapping[str, NDArray[np.generic]]) -> ArrayRecord:
    """Weights as a Flower record. The arrays are held, not copied."""
    record = ArrayRecord()
    for name, array in weights.items():
        record[name] = HeldArray(array)
    return record


def from_record(record: ArrayRecord) -> Weights:
    """The inverse of `to_record`; the arrays are not to be written to.

    Raises:
        InvalidValue: for an array that is not what its record says; nothing of its size was allocated.
    """
    return {
        name: array.held if isinstance(array, HeldArray) else _unpacked(name, array) for name, array in record.items()
    }


def _unpacked(name: str, array: Array) -> NDArray[np.generic]:
    stream = BytesIO(array.data)
    try:
        read_header = _HEADERS[read_magic(stream)]
        shape, _, dtype = read_header(stream)
    except (ValueError, KeyError, EOFError) as error:
        raise InvalidValue(f"Array {name!r} holds no array of NumPy: {error}.") from error
    expected = math.prod(shape) * dtype.itemsize
    if (tuple(array.shape), array.dtype) != (shape, str(dtype)) or len(array.data) - stream.tell() != expected:
        raise InvalidValue(
            f"Array {name!r} says that it is {array.dtype} of shape {tuple(array.shape)}; it holds "
            f"{len(array.data) - stream.tell()} bytes of {dtype} of shape {shape}."
        )
    return array.numpy()


def hash_weights(weights: Mapping[str, NDArray[np.generic]]) -> str:
    """A hash of names, dtypes, shapes and values, as 64 hexadecimal digits."""
    digest = blake2b(digest_size=32)
    for name, array in weights.items():
        digest.update(f"{len(name)} {name} {array.dtype.str} {array.shape};".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
