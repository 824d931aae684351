"""From a list of releases to the pairs that an accountant composes, direction by direction."""

from collections.abc import Sequence

from accounting._mechanism import Mechanism
from accounting._pairs import Pair
from accounting._relations import Directions, Relation

Parts = tuple[tuple[Pair, int], ...]
"""Distinct pairs, each with how many times it is composed."""


def directed_parts(releases: Sequence[Mechanism], relation: Relation) -> Directions[Parts]:
    """The pairs of all steps of all releases; equal ones are counted together and free ones left out.

    Raises:
        Unsupported: where a release has no known pair under the relation.
    """
    remove: list[tuple[Pair, int]] = []
    add: list[tuple[Pair, int]] = []
    for release in releases:
        pairs = release.pairs(relation)
        remove.append((pairs.remove, release.steps))
        add.append((pairs.add, release.steps))
    return Directions(remove=coalesced(remove), add=coalesced(add))


def coalesced(parts: Sequence[tuple[Pair, int]]) -> Parts:
    """Equal pairs counted together, in order of first appearance, without those that cost nothing."""
    counts: dict[Pair, int] = {}
    for pair, count in parts:
        if count > 0 and pair.greatest_loss > 0:
            counts[pair] = counts.get(pair, 0) + count
    return tuple(counts.items())


def greatest_loss(parts: Parts) -> float:
    """The supremum of the composed privacy loss: epsilon at delta = 0."""
    return sum(count * pair.greatest_loss for pair, count in parts)
