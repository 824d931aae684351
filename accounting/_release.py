"""A release within a federation: a mechanism and the round it belongs to."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from accounting._mechanism import Mechanism
from accounting._validate import check_count


@dataclass(frozen=True, kw_only=True)
class Release:
    """One release of one silo.

    The round changes no price of the whole. It is there for the comparison methods that compose round by round.

    Args:
        mechanism: the law of the release.
        round: an integer >= 0, or None where it is not known.
    """

    mechanism: Mechanism
    round: int | None = None

    def __post_init__(self) -> None:
        if self.round is not None:
            check_count(round=self.round)


Law: TypeAlias = tuple[tuple[Mechanism, int], ...]
"""What a silo released, apart from order: distinct single steps and how often. Equal laws have equal prices."""


def law_of(releases: Sequence[Release]) -> Law:
    """Coalesce releases into distinct single steps with their counts, in an order of their own."""
    counts: Counter[Mechanism] = Counter()
    for mechanism, times in Counter(release.mechanism for release in releases).items():
        if mechanism.steps:
            counts[mechanism.repeated(1)] += mechanism.steps * times
    return tuple(sorted(counts.items(), key=repr))
