"""Membership: which individuals may be in which silos, as declared before round 1.

A membership does not look at data. It says which *exposures* one neighbour step may cause: the silos whose
releases may change together. The price of a federation is the worst exposure, so a family that only happened to
occur (which is private) must never be used; declare one and enforce it as a contribution bound.

| membership | an individual may be in | worst exposure under add-or-remove-one and zero-out |
|---|---|---|
| `Disjoint()` | one silo | the worst silo |
| `Sets(sets=...)` | a declared set, or part of one | the worst declared set, composed |
| `AtMost(silos=m)` | any m silos | the worst m-subset, composed |
| `Unknown()` | any number of silos | all silos composed |

Each line bounds the lines above it. Silos with equal releases are interchangeable; they arrive grouped, so that
exposures that differ only in names are enumerated once.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar, cast

from accounting._errors import InvalidValue
from accounting._exposures import Exposure, Groups, moves_within, subsets
from accounting._validate import check_count


@dataclass(frozen=True)
class Membership(ABC):
    """Which sets of silos one individual may be in."""

    kind: ClassVar[str]

    @property
    def combinatorial(self) -> bool:
        """Whether the number of sets can grow faster than the number of silos."""
        return False

    @abstractmethod
    def sets(self, groups: Groups) -> Iterator[tuple[str, ...]]:
        """The largest sets an individual may be in, each distinct combination of equal silos once."""

    @abstractmethod
    def cap(self, silos: int) -> int:
        """The largest number of silos that one individual may be in, out of `silos`."""

    def moves(self, groups: Groups) -> Iterator[Exposure]:
        """Every exposure of an individual who may also move, unordered and without dominated ones."""
        return moves_within(groups, self.cap(sum(map(len, groups))))

    @abstractmethod
    def sentence(self) -> str:
        """The declaration as an assumption of a guarantee."""

    def named(self) -> frozenset[str]:
        """The silos that the declaration names."""
        return frozenset()

    def check(self, silos: Sequence[str]) -> None:  # noqa: B027
        """Refuse a membership that does not fit these silos.

        Raises:
            InvalidValue: naming the silo.
        """

    def to_json(self) -> dict[str, object]:
        """The membership as an events file holds it."""
        return {"kind": self.kind}


@dataclass(frozen=True)
class Disjoint(Membership):
    """Each individual is in one silo."""

    kind = "disjoint"

    def sets(self, groups: Groups) -> Iterator[tuple[str, ...]]:
        """One silo of each group."""
        return ((group[0],) for group in groups)

    def cap(self, silos: int) -> int:
        """One."""
        return min(silos, 1)

    def sentence(self) -> str:
        """As declared."""
        return "The unit is in one silo only."


@dataclass(frozen=True)
class Sets(Membership):
    """Each individual is in silos of one declared set.

    Args:
        sets: the declared family, as sequences of silo names; every silo must be in one, or nobody in it is covered.
    """

    declared: tuple[frozenset[str], ...]
    kind = "sets"

    def __init__(self, sets: Sequence[Sequence[str] | frozenset[str]]) -> None:
        for index, names in enumerate(sets):
            if not names or isinstance(names, str):
                raise InvalidValue(f"Expected sets[{index}]={names!r} to be a non-empty list of silos.")
        object.__setattr__(self, "declared", tuple(dict.fromkeys(frozenset(names) for names in sets)))

    def check(self, silos: Sequence[str]) -> None:
        """Refuse sets that name an unknown silo or leave one out."""
        named = self.named()
        for silo in sorted(named - set(silos)):
            raise InvalidValue(f"sets: silo {silo!r} has no releases; known: {', '.join(silos)}.")
        for silo in silos:
            if silo not in named:
                raise InvalidValue(f"sets: silo {silo!r} is in no declared set; add [{silo!r}] if it stands alone.")

    def sets(self, groups: Groups) -> Iterator[tuple[str, ...]]:
        """The declared sets that are not part of another."""
        group_of = {silo: index for index, group in enumerate(groups) for silo in group}
        distinct: dict[tuple[int, ...], tuple[str, ...]] = {}
        for names in self.declared:
            if not any(names < other for other in self.declared):
                ordered = tuple(sorted(names, key=lambda silo: (group_of[silo], silo)))
                distinct.setdefault(tuple(group_of[silo] for silo in ordered), ordered)
        return iter(distinct.values())

    def cap(self, silos: int) -> int:
        """The size of the largest declared set."""
        return min(silos, max(map(len, self.declared), default=0))

    def sentence(self) -> str:
        """With the declared sets."""
        listed = "; ".join(", ".join(sorted(names)) for names in self.declared)
        return f"The unit is in silos of one declared set only ({listed})."

    def named(self) -> frozenset[str]:
        """Every silo of a declared set."""
        return frozenset[str]().union(*self.declared)

    def moves(self, groups: Groups) -> Iterator[Exposure]:
        """From any part of one declared set to any part of another, or of the same."""
        order = [silo for group in groups for silo in group]
        for index, before in enumerate(self.declared):
            for after in self.declared[index:]:
                shared = [silo for silo in order if silo in before and silo in after]
                left = tuple(silo for silo in order if silo in before - after)
                entered = tuple(silo for silo in order if silo in after - before)
                for roles in product("lek", repeat=len(shared)):
                    leaves, enters, stays = (
                        tuple(silo for silo, role in zip(shared, roles, strict=True) if role == wanted)
                        for wanted in "lek"
                    )
                    exposure = Exposure(leaves=left + leaves, enters=entered + enters, stays=stays)
                    if stays or (exposure.leaves and exposure.enters):
                        yield exposure

    def to_json(self) -> dict[str, object]:
        """With the declared family, sorted."""
        return {"kind": self.kind, "sets": [sorted(names) for names in self.declared]}


@dataclass(frozen=True)
class AtMost(Membership):
    """Each individual is in at most m silos, no matter which.

    Args:
        silos: the public cap m, an integer >= 1.
    """

    silos: int
    kind = "at-most"

    def __post_init__(self) -> None:
        check_count(low=1, silos=self.silos)

    @property
    def combinatorial(self) -> bool:
        """Yes: all m-subsets."""
        return self.silos > 1

    def sets(self, groups: Groups) -> Iterator[tuple[str, ...]]:
        """All m-subsets, equal ones once."""
        return subsets(groups, self.cap(sum(map(len, groups))))

    def cap(self, silos: int) -> int:
        """The declared cap."""
        return min(silos, self.silos)

    def sentence(self) -> str:
        """With the cap."""
        return f"The unit is in at most {self.silos} silo{'s' * (self.silos > 1)}."

    def to_json(self) -> dict[str, object]:
        """With the cap."""
        return {"kind": self.kind, "silos": self.silos}


@dataclass(frozen=True)
class Unknown(Membership):
    """Nothing is known: an individual may be in every silo."""

    kind = "unknown"

    def sets(self, groups: Groups) -> Iterator[tuple[str, ...]]:
        """All silos at once."""
        everything = tuple(silo for group in groups for silo in group)
        return iter([everything] if everything else [])

    def cap(self, silos: int) -> int:
        """All of them."""
        return silos

    def sentence(self) -> str:
        """As declared."""
        return "Nothing is assumed about which silos hold the unit."


def membership_from_json(values: Mapping[str, object]) -> Membership:
    """The inverse of `Membership.to_json`.

    Raises:
        InvalidValue: naming the key, its value and what is allowed.
    """
    fields: dict[object, set[str]] = {"disjoint": set(), "sets": {"sets"}, "at-most": {"silos"}, "unknown": set()}
    kind = values.get("kind")
    if not isinstance(kind, str) or kind not in fields:
        raise InvalidValue(f"kind = {kind!r}: expected one of {', '.join(map(str, fields))}.")
    for key in fields[kind] - set(values):
        raise InvalidValue(f"{key}: missing.")
    for key in sorted(set(values) - fields[kind] - {"kind"}):
        raise InvalidValue(f"{key}: unknown key of membership {kind!r}.")
    if kind == "sets":
        return Sets(_string_lists(values["sets"]))
    if kind == "at-most":
        silos = values["silos"]
        if not isinstance(silos, int) or isinstance(silos, bool) or silos < 1:
            raise InvalidValue(f"silos = {silos!r}: expected an integer >= 1.")
        return AtMost(silos)
    return Disjoint() if kind == "disjoint" else Unknown()


def _string_lists(values: object) -> list[list[str]]:
    if not isinstance(values, list) or not values:
        raise InvalidValue(f"sets = {values!r}: expected a non-empty list of lists of silo names.")
    for index, names in enumerate(cast(list[object], values)):
        strings = isinstance(names, list) and all(isinstance(name, str) for name in cast(list[object], names))
        if not strings or not names:
            raise InvalidValue(f"sets[{index}] = {names!r}: expected a non-empty list of silo names.")
    return cast(list[list[str]], values)
