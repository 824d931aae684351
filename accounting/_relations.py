"""Neighbouring relations and units: what one neighbour step changes.

A relation says how two datasets may differ; a unit says in what. Both stand in every guarantee,
because an epsilon without them says nothing (Desfontaines, Pejó 2020).
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from accounting._errors import InvalidValue
from accounting._validate import check_count

T = TypeVar("T")


class Relation(StrEnum):
    """How neighbouring datasets differ."""

    ADD_OR_REMOVE_ONE = "add-or-remove-one"
    """One unit is present or absent; sizes are private."""

    ZERO_OUT = "zero-out"
    """One unit's records are replaced by records that contribute nothing; sizes are public."""

    REPLACE_ONE = "replace-one"
    """One unit's records are replaced by arbitrary others; sizes are public."""


@dataclass(frozen=True, kw_only=True)
class Unit:
    """What is protected: a record, or an individual with a capped number of records.

    Args:
        individual: whether the unit is an individual instead of a single record.
        records: the public cap k on the records of one individual in one silo; 1 for a record.
    """

    individual: bool = False
    records: int = 1

    def __post_init__(self) -> None:
        check_count(low=1, records=self.records)

    def __str__(self) -> str:
        if not self.individual:
            return "record"
        plural = "" if self.records == 1 else "s"
        return f"individual with at most {self.records} record{plural} per silo"

    @classmethod
    def parse(cls, text: str) -> "Unit":
        """The inverse of `str`.

        Raises:
            InvalidValue: for any other text.
        """
        match = re.fullmatch(r"individual with at most (\d+) records? per silo", text)
        if match is None and text != "record":
            allowed = "'record' or 'individual with at most k records per silo'"
            raise InvalidValue(f"Expected unit={text!r} to be {allowed}.")
        return cls() if match is None else cls(individual=True, records=int(match[1]))


class Directions(NamedTuple, Generic[T]):
    """One quantity in each direction of a relation; they stay apart until the very end.

    Args:
        remove: from the dataset with the unit to the one without it (or with its substitute).
        add: the other way round.
    """

    remove: T
    add: T
