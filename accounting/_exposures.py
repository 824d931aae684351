"""Exposures: the silos whose releases one neighbour step may change together, and how to list them all.

Silos with equal releases are interchangeable, so that exposures that differ only in names are listed once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

Groups: TypeAlias = Sequence[Sequence[str]]
"""Silos grouped by equal releases."""

DEEPEST = 40
"""Sets of more silos than this, of more than this many kinds, are too many to list."""


@dataclass(frozen=True, kw_only=True)
class Exposure:
    """What one neighbour step may change: the individual leaves some silos, enters some, is replaced in some.

    Read the other way round it is the reverse step, so one exposure stands for both orders of a pair of datasets.

    Args:
        leaves: silos that hold the individual before the step only.
        enters: silos that hold the individual after the step only.
        stays: silos that hold the individual before and after, with other records.
    """

    leaves: tuple[str, ...] = ()
    enters: tuple[str, ...] = ()
    stays: tuple[str, ...] = ()

    @property
    def silos(self) -> tuple[str, ...]:
        """Every silo whose releases may change."""
        return self.leaves + self.enters + self.stays


def subsets(groups: Groups, size: int) -> Iterator[tuple[str, ...]]:
    """All subsets of one size, choosing within a group its first silos."""
    rooms = list(accumulate((len(group) for group in reversed(groups)), initial=0))[::-1]

    def chosen(start: int, missing: int) -> Iterator[tuple[str, ...]]:
        if missing == 0:
            yield ()
        for index in range(start, len(groups) if missing else start):
            if rooms[index] < missing:
                return
            for taken in range(min(len(groups[index]), missing), 0, -1):
                for others in chosen(index + 1, missing - taken):
                    yield (*groups[index][:taken], *others)

    if size == rooms[0]:
        yield tuple(silo for group in groups for silo in group)
    else:
        yield from chosen(0, size)


def moves_within(groups: Groups, cap: int) -> Iterator[Exposure]:
    """All moves from at most `cap` silos to at most `cap`; where a silo is free, no place is left unused."""
    total = sum(map(len, groups))
    order = {silo: index for index, group in enumerate(groups) for silo in group}
    for stay in range(cap, -1, -1):
        most = cap - stay
        for leave in range(most, -1, -1):
            enter = min(most, total - stay - leave)
            if not _is_largest(stay, leave, enter, cap, total):
                continue
            for stays in subsets(groups, stay):
                free = _without(groups, stays) if leave else ()
                for leaves in subsets(free, leave):
                    for enters in subsets(_without(free, leaves) if enter else (), enter):
                        if leave > enter or [order[silo] for silo in leaves] <= [order[silo] for silo in enters]:
                            yield Exposure(leaves=leaves, enters=enters, stays=stays)


def _is_largest(stay: int, leave: int, enter: int, cap: int, total: int) -> bool:
    """Whether the individual is somewhere before and after, more before than after, and nothing could be added."""
    somewhere = stay + enter > 0 and leave >= enter
    full = leave == enter == cap - stay or stay + leave + enter == total
    return somewhere and full


def _without(groups: Groups, silos: Sequence[str]) -> Groups:
    taken = set(silos)
    return [[silo for silo in group if silo not in taken] for group in groups]
