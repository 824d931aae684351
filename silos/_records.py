"""Weights and Flower records, and hashes of weights."""

import math
from collections.abc import Mapping
from functools import cache, cached_property, lru_cache
from hashlib import blake2b
from io import BytesIO
from typing import TypeVar, cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from numpy.lib.format import read_array_header_1_0, read_array_header_2_0, read_magic
from numpy.typing import NDArray

from accounting import InvalidValue
from silos._weights import Weights

_HEADERS = {(1, 0): read_array_header_1_0, (2, 0): read_array_header_2_0}


Record = TypeVar("Record", ArrayRecord, ConfigRecord, MetricRecord, RecordDict)


class HeldArray(Array):
    """An `Array` that keeps its NumPy value and makes Flower's bytes only if it leaves the process.

    Between silos and server of one process nothing needs to be written down and read back, which would cost more than
    all the rest of a round.
    """

    def __init__(self, value: NDArray[np.generic]) -> None:
        # Flower's arrays refuse attributes that are set one by one.
        own = self.__dict__
        own["dtype"], own["shape"], own["stype"] = _name(value.dtype), value.shape, "numpy.ndarray"
        own["_held"] = value

    @property
    def held(self) -> NDArray[np.generic]:
        """The value itself, not to be written to."""
        return self.__dict__["_held"]

    def numpy(self) -> NDArray[np.generic]:
        """A copy of the value, as Flower's own arrays give."""
        return self.held.copy()

    def __reduce__(self) -> tuple[type[Array], tuple[str, tuple[int, ...], str, bytes]]:
        return Array, (self.dtype, tuple(self.shape), self.stype, self.data)

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


class Received(Weights):
    """Weights out of a record. Nobody writes to them, so that what is asked of all of them is computed once."""

    def is_of(self, arrays: Weights) -> bool:
        """Whether they are these very arrays."""
        return list(self) == list(arrays) and all(self[name] is array for name, array in arrays.items())

    @cached_property
    def hash(self) -> str:
        """See `hash_weights`."""
        return _hash(self)

    @cached_property
    def unfit(self) -> str | None:
        """See `first_unfit`."""
        return _first_unfit(self)


def to_record(weights: Mapping[str, NDArray[np.generic]]) -> ArrayRecord:
    """Weights as a Flower record. The arrays are held, not copied."""
    return filled(ArrayRecord(), {name: HeldArray(array) for name, array in weights.items()})


def filled(record: Record, items: Mapping[str, object]) -> Record:
    """The record with items put into it.

    Flower looks at the type of each item that is put into a record, which takes longer than all the rest of a round.
    Here nobody does: the caller knows that the record may hold them.
    """
    record.__dict__["_data"].update(items)
    return record


def from_record(record: ArrayRecord) -> Weights:
    """The inverse of `to_record`; the arrays are not to be written to.

    Raises:
        InvalidValue: for an array that is not what its record says; nothing of its size was allocated.
    """
    arrays = {
        name: array.held if isinstance(array, HeldArray) else _unpacked(name, array) for name, array in record.items()
    }
    # All silos of a round get one and the same record.
    known = record.__dict__.get("_received")
    if not isinstance(known, Received) or not known.is_of(arrays):
        known = record.__dict__["_received"] = Received(arrays)
    return known


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
    return weights.hash if isinstance(weights, Received) else _hash(weights)


def first_unfit(weights: Mapping[str, NDArray[np.generic]]) -> str | None:
    """The first weight that holds anything but finite floats, if any."""
    return weights.unfit if isinstance(weights, Received) else _first_unfit(weights)


def _hash(weights: Mapping[str, NDArray[np.generic]]) -> str:
    digest = blake2b(digest_size=32)
    for name, array in weights.items():
        digest.update(_heading(name, array.dtype, array.shape))
        digest.update(array.data if array.flags.c_contiguous else np.ascontiguousarray(array).data)
    return digest.hexdigest()


@lru_cache(maxsize=4096)
def _heading(name: str, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> bytes:
    return f"{len(name)} {name} {dtype.str} {shape};".encode()


def _first_unfit(weights: Mapping[str, NDArray[np.generic]]) -> str | None:
    return next((name for name, array in weights.items() if array.dtype.kind != "f" or not _finite(array)), None)


def _finite(array: NDArray[np.generic]) -> bool:
    # A nan or an infinity makes the sum of squares one; so may finite numbers, and then all are looked at.
    floats = cast("NDArray[np.float64]", array)
    return math.isfinite(np.vdot(floats, floats)) or bool(np.isfinite(array).all())
