"""A step's sample: whom it takes, by coins of records or of individuals.

Where individuals are sampled, a step takes all records of each, and the sum of their gradients is clipped as a whole:
the individual's rate is that of its coin. Records sampled by coins of their own and clipped by individual would have
the rate 1 - (1 - q)^k instead.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from silos._shard import Shard
from silos._streams import poisson_sample


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """The rows of one step.

    Args:
        rows: row numbers in the shard, those of an individual one after the other.
        owners: the individual of each row, where individuals are clipped; None where records are.
    """

    rows: NDArray[np.intp]
    owners: NDArray[np.intp] | None = None

    def chunks(self, size: int) -> Iterator[tuple[int, int]]:
        """Ranges of at most `size` rows; an individual's rows stay together, in a longer range where it has more."""
        if 0 < len(self.rows) <= size:
            yield 0, len(self.rows)
            return
        ends = np.arange(1, len(self.rows) + 1)
        if self.owners is not None:
            ends = np.flatnonzero(np.diff(self.owners, append=-1)) + 1
        start = 0
        while start < len(self.rows):
            fitting = int(np.searchsorted(ends, start + size, side="right")) - 1
            end = int(ends[fitting]) if fitting >= 0 and ends[fitting] > start else int(ends[ends > start][0])
            yield start, end
            start = end


def sample_records(shard: Shard, sampling_rate: float, generator: np.random.Generator) -> Sample:
    """Each record by a coin of its own."""
    return Sample(rows=poisson_sample(len(shard), sampling_rate, generator))


def sample_individuals(shard: Shard, sampling_rate: float, generator: np.random.Generator) -> Sample:
    """Each individual by a coin of its own, with all its records."""
    taken = poisson_sample(shard.individual_count, sampling_rate, generator)
    order, starts = shard.by_owner
    rows = np.concatenate([order[starts[one] : starts[one + 1]] for one in taken]) if len(taken) else order[:0]
    return Sample(rows=rows, owners=shard.owners[rows])
