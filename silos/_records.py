"""Weights and Flower records, and hashes of weights."""

from collections.abc import Mapping
from hashlib import blake2b

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from silos._models import Weights


def to_record(weights: Mapping[str, NDArray[np.generic]]) -> ArrayRecord:
    """Weights as a Flower record."""
    return ArrayRecord({name: Array(np.ascontiguousarray(array)) for name, array in weights.items()})


def from_record(record: ArrayRecord) -> Weights:
    """The inverse of `to_record`."""
    return {name: array.numpy() for name, array in record.items()}


def hash_weights(weights: Mapping[str, NDArray[np.generic]]) -> str:
    """A hash of names, dtypes, shapes and values, as 64 hexadecimal digits."""
    digest = blake2b(digest_size=32)
    for name, array in weights.items():
        digest.update(f"{len(name)} {name} {array.dtype.str} {array.shape};".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
