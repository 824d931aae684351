"""A shard: the records of one silo's individuals, fixed before round 1."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from accounting import InvalidValue


@dataclass(frozen=True, kw_only=True, eq=False)
class Shard:
    """Records of one silo; the row number is a record's identity inside the silo.

    Args:
        name: the silo's name, unique in the federation.
        features: float32, shape (records, *input_shape). Values that are not finite are allowed: such a record
            contributes nothing to training.
        labels: shape (records,); int64 class numbers, or float32 for a binary task or a regression.
        individuals: shape (records,); the id of the individual that owns each record.

    A shard without records is allowed: under add-or-remove-one it neighbours a shard of one.
    """

    name: str
    features: NDArray[np.float32]
    labels: NDArray[np.int64] | NDArray[np.float32]
    individuals: NDArray[np.str_]

    def __post_init__(self) -> None:
        if not self.name:
            raise InvalidValue("Expected name='' to be a silo's name of at least one character.")
        if self.features.ndim < 2:
            raise InvalidValue(f"Expected features of shape {self.features.shape} to have a record and a feature axis.")
        for field, dtypes in (("features", ("float32",)), ("labels", ("int64", "float32"))):
            dtype = getattr(self, field).dtype
            if dtype not in dtypes:
                raise InvalidValue(f"Expected {field} of dtype {dtype} to be {' or '.join(dtypes)}.")
        for field in ("labels", "individuals"):
            shape = getattr(self, field).shape
            if shape != (len(self),):
                raise InvalidValue(f"Expected {field} of shape {shape} to have shape ({len(self)},), one a record.")

    def __len__(self) -> int:
        return len(self.features)

    @cached_property
    def owners(self) -> NDArray[np.intp]:
        """For each record the number of its individual, counted from 0 in the order of ids; shape (records,)."""
        return np.unique(self.individuals, return_inverse=True)[1]

    @property
    def individual_count(self) -> int:
        """How many individuals own records."""
        return int(self.owners.max(initial=-1)) + 1

    @cached_property
    def by_owner(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Row numbers sorted by owner, and where each owner's rows start among them, one more at the end."""
        order = np.argsort(self.owners, kind="stable")
        return order, np.searchsorted(self.owners[order], np.arange(self.individual_count + 1))

    def fingerprint(self, key: bytes) -> str:
        """A keyed hash of everything in the shard, as 64 hexadecimal digits.

        It says whether the shard changed between two runs. It stays inside the silo: even keyed, it is computed from
        private records and no mechanism priced it.

        Args:
            key: the silo's secret, 1 to 64 bytes.
        """
        if not 1 <= len(key) <= 64:
            raise InvalidValue(f"Expected key of {len(key)} bytes to have 1 to 64 bytes.")
        digest = blake2b(key=key, digest_size=32)
        for part in self._parts():
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
        return digest.hexdigest()

    def _parts(self) -> Iterator[bytes]:
        yield self.name.encode()
        for array in (self.features, self.labels):
            yield f"{array.dtype.str}{array.shape}".encode()
            yield np.ascontiguousarray(array).tobytes()
        yield from (individual.encode() for individual in self.individuals.tolist())
