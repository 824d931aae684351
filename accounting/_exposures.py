"""Exposures: the silos whose releases one neighbour step may change together, and how to list them all.

Silos with equal releases are interchangeable, so that exposures that differ only in names are listed once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Groups: TypeAlias = Sequence[Sequence[str]]
"""Silos grouped by equal releases."""


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
    if size == 0:
        yield ()
    elif groups:
        head, rest = groups[0], groups[1:]
        room = sum(map(len, rest))
        for taken in range(min(len(head), size), max(0, size - room) - 1, -1):
            for others in subsets(rest, size - taken):
                yield (*head[:taken], *others)


def moves_within(groups: Groups, cap: int) -> Iterator[Exposure]:
    """All moves from at most `cap` silos to at most `cap`; where a silo is free, no place is left unused."""
    total = sum(map(len, groups))

    def roles(rest: Groups, leave: int, enter: int) -> Iterator[tuple[tuple[int, int, int], ...]]:
        if not rest:
            yield ()
            return
        size = len(rest[0])
        for stays in range(min(size, leave, enter), -1, -1):
            for leaves in range(min(size - stays, leave - stays), -1, -1):
                for enters in range(min(size - stays - leaves, enter - stays), -1, -1):
                    for others in roles(rest[1:], leave - stays - leaves, enter - stays - enters):
                        yield ((leaves, enters, stays), *others)

    for counts in roles(groups, cap, cap):
        leaves, enters, stays = (tuple(part) for part in zip(*counts, strict=True))
        before, after = sum(leaves) + sum(stays), sum(enters) + sum(stays)
        unused = total > sum(leaves) + sum(enters) + sum(stays) and min(before, after) < cap
        if min(before, after) == 0 or unused or leaves < enters:
            continue
        yield _exposure(groups, counts)


def _exposure(groups: Groups, counts: Sequence[tuple[int, int, int]]) -> Exposure:
    """The first silos of each group, dealt out by the counts of leaving, entering and staying."""
    dealt: tuple[list[str], list[str], list[str]] = ([], [], [])
    for group, parts in zip(groups, counts, strict=True):
        start = 0
        for silos, count in zip(dealt, parts, strict=True):
            silos.extend(group[start : start + count])
            start += count
    return Exposure(leaves=tuple(dealt[0]), enters=tuple(dealt[1]), stays=tuple(dealt[2]))
