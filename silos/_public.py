"""Numbers that a scenario may declare public: a silo gives them out as they are, and no guarantee covers them.

Under add-or-remove-one each of them tells by itself whether a record was added or removed. Whoever declares one says
that everybody may know it; what is left of the guarantee holds for everything else that leaves, with these numbers
taken as known. Anything that is not named here has no way out but a charged release.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from silos._shard import Shard

PublicNumber: TypeAlias = Literal["records", "individuals", "held-out-records"]

PUBLIC_NUMBERS: Mapping[str, str] = {
    "records": "training records",
    "individuals": "individuals with training records",
    "held-out-records": "held-out records",
}
"""What each is the exact number of, in a silo."""


def public_numbers(shard: Shard, held_out: Shard | None) -> dict[str, int]:
    """Every such number of a silo. Which of them may leave is not decided here but at the gate.

    Args:
        shard: its training records.
        held_out: its held-out records, where it keeps some.
    """
    return {
        "records": len(shard),
        "individuals": shard.individual_count,
        "held-out-records": len(held_out) if held_out is not None else 0,
    }


def not_covered(names: frozenset[str]) -> tuple[str, ...]:
    """What a guarantee says of numbers that were declared public, one line each."""
    return tuple(
        f"the exact number of {PUBLIC_NUMBERS[name]} of each silo, declared public: it tells by itself whether one was "
        "added or removed, and is taken as known"
        for name in PUBLIC_NUMBERS
        if name in names
    )
