"""Prepared shards in files: records as an engine takes them, in NumPy's NPZ.

| array         | shape                   | dtype                                     |
|---------------|-------------------------|-------------------------------------------|
| `features`    | (records, *input_shape) | float32                                   |
| `labels`      | (records,)              | int64 class numbers, or float32           |
| `individuals` | (records,)              | text: the id of each record's individual  |
"""

from io import BytesIO
from pathlib import Path

import numpy as np

from accounting import InvalidValue
from silos._errors import DataUnreadable
from silos._files import write_atomically
from silos._readers import read_npz
from silos._shard import Shard

_ARRAYS = ("features", "labels", "individuals")


def write_shard(path: Path, shard: Shard) -> None:
    """Write a shard; its name is not in the file."""
    buffer = BytesIO()
    np.savez(buffer, **{name: getattr(shard, name) for name in _ARRAYS})
    write_atomically(path, buffer.getvalue())


def read_shard(path: Path, name: str) -> Shard:
    """The inverse of `write_shard`.

    Args:
        path: the file.
        name: the shard's.

    Raises:
        DataUnreadable: where the file is absent or holds no shard.
    """
    columns = read_npz(path)
    if set(columns) != set(_ARRAYS):
        raise DataUnreadable(f"{path}: holds {', '.join(columns)}; a prepared shard has {', '.join(_ARRAYS)}.")
    if columns["individuals"].dtype.kind != "U":
        raise DataUnreadable(f"{path}: individuals are {columns['individuals'].dtype}; ids are text.")
    try:
        return Shard(name=name, **columns)  # pyright: ignore[reportArgumentType]  # the shard checks each array
    except InvalidValue as error:
        raise DataUnreadable(f"{path}: holds no shard: {error}") from None
