"""Parcels: what processes hand each other, with its arrays in memory that both see.

A parcel is a pickle of everything but the arrays. These lie in a `SharedMemory`: written once, however many processes
are to read them, and read in place. Shards stay where they are: a number stands for each.
"""

import mmap
import os
import pickle
import tempfile
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import NamedTuple
from weakref import finalize

import numpy as np

from silos._shard import Shard

_Reduced = tuple[Callable[..., object], tuple[object, ...]]

_SOME_SEED = np.random.SeedSequence(0)
_ALIGNMENT = 64  # bytes of a cache line


class SharedMemory:
    """A file without a name that both sides map: nothing of it is left when both are gone, however they went.

    Args:
        descriptor: of a memory that another process made; None makes a new one.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self.descriptor = _unnamed() if descriptor is None else descriptor
        finalize(self, os.close, self.descriptor)
        self._view = memoryview(b"")
        self._end = 0
        self._written: dict[int, tuple[int, pickle.PickleBuffer]] = {}

    def clear(self) -> None:
        """Forget what was written: whatever is written next takes its place."""
        self._end = 0
        self._written.clear()

    def write(self, buffer: pickle.PickleBuffer) -> tuple[int, int]:
        """Write an array, or find where it was written since `clear`; returns where it begins and ends."""
        raw = buffer.raw()
        key = id(memoryview(buffer).obj)
        if key not in self._written:
            start = -(-self._end // _ALIGNMENT) * _ALIGNMENT
            self._end = start + raw.nbytes
            self.read(self._end)[start : self._end] = raw
            self._written[key] = (start, buffer)  # the buffer keeps its array alive, and with it the meaning of the key
        start, _ = self._written[key]
        return start, start + raw.nbytes

    def read(self, size: int) -> memoryview:
        """The first `size` bytes, in place."""
        if len(self._view) < size:
            length = os.fstat(self.descriptor).st_size
            if length < size:
                length = -(-max(size, 2 * length) // mmap.PAGESIZE) * mmap.PAGESIZE
                os.ftruncate(self.descriptor, length)
            # Arrays that lie in the old mapping keep it alive.
            self._view = memoryview(mmap.mmap(self.descriptor, length))
        return self._view[:size]


class Parcel(NamedTuple):
    """An object without its arrays.

    Attributes:
        pickled: the object.
        spans: where each of its arrays begins and ends in the memory.
    """

    pickled: bytes
    spans: list[tuple[int, int]]


def pack(value: object, memory: SharedMemory, numbers: Mapping[Shard, int]) -> Parcel:
    """Write an object's arrays into the memory, and the rest into a parcel.

    Args:
        value: anything that can be pickled.
        memory: where its arrays go.
        numbers: what stands for each shard in it.
    """
    file, buffers = BytesIO(), list[pickle.PickleBuffer]()
    _Packer(file, buffers.append, numbers).dump(value)
    return Parcel(file.getvalue(), [memory.write(buffer) for buffer in buffers])


def unpack(parcel: Parcel, memory: SharedMemory, shards: Mapping[int, Shard], *, in_place: bool) -> object:
    """The inverse of `pack`.

    Args:
        parcel: from the other process, which wrote into the memory.
        memory: where the arrays are.
        shards: what the numbers stand for.
        in_place: whether arrays stay in the memory, for as long as nothing else is written there, or are copied.
    """
    block = memory.read(max((end for _, end in parcel.spans), default=0))
    if not in_place:
        block = memoryview(bytearray(block))
    buffers = [block[start:end] for start, end in parcel.spans]
    return _Unpacker(BytesIO(parcel.pickled), buffers, shards).load()


def _reduced(generator: np.random.Generator) -> _Reduced:
    """A stream by its state. NumPy's own pickle takes ten times as long: it holds the seed too, to spawn others."""
    bits = generator.bit_generator
    if type(bits) is not np.random.SFC64:
        return NotImplemented
    state = bits.state
    return _stream, (state["state"]["state"].tobytes(), state["has_uint32"], state["uinteger"])


def _stream(words: bytes, has_uint32: int, uinteger: int) -> np.random.Generator:
    bits = np.random.SFC64(_SOME_SEED)
    bits.state = {
        "bit_generator": "SFC64",
        "state": {"state": np.frombuffer(words, np.uint64)},
        "has_uint32": has_uint32,
        "uinteger": uinteger,
    }
    return np.random.Generator(bits)


class _Packer(pickle.Pickler):
    def __init__(
        self, file: BytesIO, callback: Callable[[pickle.PickleBuffer], None], numbers: Mapping[Shard, int]
    ) -> None:
        super().__init__(file, protocol=5, buffer_callback=callback)
        self._numbers = numbers

    def persistent_id(self, obj: object) -> int | None:
        return self._numbers[obj] if isinstance(obj, Shard) else None

    def reducer_override(self, obj: object) -> _Reduced:
        if isinstance(obj, np.random.Generator):
            return _reduced(obj)
        if isinstance(obj, dict):  # weights out of a Flower record, whose class would load Flower on the other side
            return dict, (dict(obj),)
        return NotImplemented


class _Unpacker(pickle.Unpickler):
    def __init__(self, file: BytesIO, buffers: list[memoryview], shards: Mapping[int, Shard]) -> None:
        super().__init__(file, buffers=buffers)
        self._shards = shards

    def persistent_load(self, pid: int) -> Shard:
        return self._shards[pid]


def _unnamed() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("silodp")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
