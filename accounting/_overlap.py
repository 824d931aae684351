"""Overlap: does the declared membership hold, and how to make it hold, without showing an id.

Each silo turns its ids into keyed hashes with a secret key that the silos share and the server does not hold, and
exports one file. Whoever runs the comparison sees hashes only; without the key nobody can test a guess.

The exact counts are private: they depend on who is in which silo. They stay with whoever runs the comparison. What
may be published is the declared membership, and that it held or was enforced.

```
>>> from accounting._membership import Disjoint
>>> key = bytes(range(32))
>>> north = HashedIds.of("north", ["ann", "bob", "bob"], key)
>>> south = HashedIds.of("south", ["bob", "eve"], key)
>>> found = overlap([north, south])
>>> found.most_silos, found.most_records
(2, 2)
>>> found.violations(Disjoint())
('1 individual is in more than 1 silo: 1 in north, south.',)

```

References: keyed BLAKE2b, Aumasson and others 2013 (RFC 7693).
"""

import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from accounting._errors import InvalidValue
from accounting._membership import Membership, Sets
from accounting._relations import Unit
from accounting._validate import check_count

T = TypeVar("T")

_FORMAT = "silodp-ids"
_VERSION = 1
_SHORTEST_KEY, _LONGEST_KEY = 16, 64
_FEWEST_DISTINCT_BYTES = 8


def hash_ids(ids: Iterable[str], key: bytes) -> list[str]:
    """The keyed hash of each id, in their order, as 64 hexadecimal digits.

    Ids are compared after Unicode normalisation (NFC) and without spaces around them, because an overlap that is
    overlooked is priced too low. Spelling and case are for the silos to agree on.

    Args:
        ids: ids of individuals, not empty; repeated where an individual has several records.
        key: a secret of 16 to 64 bytes, such as ``secrets.token_bytes(32)``, the same in all silos.

    Raises:
        InvalidValue: for an empty id, or a key that is too short, too long, or made of few distinct bytes.
    """
    _check_key(key)
    return [_hash(key, b"ids", _normalised(each)) for each in ids]


@dataclass(frozen=True, kw_only=True)
class HashedIds:
    """What one silo exports: how many records stand behind each hashed id.

    Args:
        silo: name of the silo.
        key_check: the same for all silos that used the same key; says nothing about the key.
        records: number of records by hashed id.
    """

    silo: str
    key_check: str
    records: Mapping[str, int]

    @classmethod
    def of(cls, silo: str, ids: Iterable[str], key: bytes) -> Self:
        """Hash the ids of a silo's records; see `hash_ids`."""
        hashes = hash_ids(ids, key)
        return cls(silo=silo, key_check=_hash(key, b"key", ""), records=dict(sorted(Counter(hashes).items())))

    def write(self, path: str | PathLike[str]) -> None:
        """Write as JSON lines, a header and then one individual a line, in the order of the hashes.

        Raises:
            InvalidValue: when the file cannot be written.
        """
        header = {
            "format": _FORMAT,
            "version": _VERSION,
            "silo": self.silo,
            "key_check": self.key_check,
            "individuals": len(self.records),
        }
        lines = [header, *({"id": each, "records": count} for each, count in sorted(self.records.items()))]
        try:
            Path(path).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        except OSError as error:
            raise InvalidValue(f"{path}: cannot be written ({error.strerror}).") from error

    @classmethod
    def read(cls, path: str | PathLike[str]) -> Self:
        """Read what `write` wrote.

        Raises:
            InvalidValue: when the file cannot be read, naming the line that is not what it should be.
        """
        header, *lines = _read_lines(path)
        if header.get("format") != _FORMAT or header.get("version") != _VERSION:
            raise InvalidValue(f"{path}, line 1: not a file of hashed ids, version {_VERSION}.")
        silo, key_check = header.get("silo"), header.get("key_check")
        if not isinstance(silo, str) or not isinstance(key_check, str):
            raise InvalidValue(f"{path}, line 1: names no silo or no key check.")
        records: dict[str, int] = {}
        for place, line in enumerate(lines, start=2):
            hashed, count = line.get("id"), line.get("records")
            if not isinstance(hashed, str) or not isinstance(count, int) or count < 1 or hashed in records:
                raise InvalidValue(f"{path}, line {place}: expected a new hashed id and its number of records.")
            records[hashed] = count
        if header.get("individuals") != len(records):
            raise InvalidValue(
                f"{path}: holds {len(records)} individuals, not the {header.get('individuals')} it names."
            )
        return cls(silo=silo, key_check=key_check, records=records)


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Who is where, in numbers. Private: for whoever ran the comparison only.

    Args:
        individuals: number of individuals by the set of silos that they are in.
        most_records: the largest number of records of one individual in one silo.
    """

    individuals: Mapping[frozenset[str], int]
    most_records: int

    @property
    def most_silos(self) -> int:
        """The largest number of silos of one individual."""
        return max(map(len, self.individuals), default=0)

    def violations(self, membership: Membership, unit: Unit | None = None) -> tuple[str, ...]:
        """What a declared membership and cap on records leave uncovered; empty when both hold.

        Args:
            membership: as declared.
            unit: where it is an individual, its cap on records is checked too.
        """
        outside = {silos: count for silos, count in self.individuals.items() if not _allows(membership, silos)}
        found: list[str] = []
        if outside:
            total = sum(outside.values())
            sets = "; ".join(f"{outside[silos]} in {', '.join(sorted(silos))}" for silos in sorted(outside, key=sorted))
            subject = "1 individual is" if total == 1 else f"{total} individuals are"
            found.append(f"{subject} {_broken(membership, self.most_silos)}: {sets}.")
        if unit is not None and unit.individual and self.most_records > unit.records:
            found.append(f"An individual has {self.most_records} records in one silo; the cap is {unit.records}.")
        return tuple(found)


def overlap(silos: Sequence[HashedIds]) -> Overlap:
    """Compare the hashed ids of silos.

    Raises:
        InvalidValue: when two have one name, or were hashed with different keys (nothing would match then).
    """
    names = [each.silo for each in silos]
    if len(set(names)) < len(names):
        raise InvalidValue(f"Expected silos={names} to have different names.")
    for each in silos[1:]:
        if each.key_check != silos[0].key_check:
            raise InvalidValue(f"Silos {names[0]!r} and {each.silo!r} hashed their ids with different keys.")
    members: dict[str, list[str]] = {}
    for each in silos:
        for hashed in each.records:
            members.setdefault(hashed, []).append(each.silo)
    return Overlap(
        individuals=dict(Counter(map(frozenset, members.values()))),
        most_records=max((count for each in silos for count in each.records.values()), default=0),
    )


def enforce_cap(
    ids: Mapping[str, Sequence[str]], key: bytes, *, silos: int | None = None, records: int | None = None
) -> dict[str, NDArray[np.bool_]]:
    """Which records to keep so that no individual exceeds the caps, by a rule that looks at ids only.

    An individual in more than `silos` silos stays in those that come first by a keyed hash of individual and silo; of
    more than `records` records in a silo those stay that come first by a keyed hash of individual, silo and the how-
    many-eth record of the individual it is. What happens to one individual depends on no other, so a neighbouring
    dataset differs after the caps in the same individual only.

    Args:
        ids: per silo the individual of each record.
        key: see `hash_ids`.
        silos: the cap on silos per individual, >= 1; None for no cap.
        records: the cap on records per individual and silo, >= 1; None for no cap.

    Returns:
        Per silo, for each record, whether it stays.
    """
    _check_key(key)
    for name, cap in (("silos", silos), ("records", records)):
        if cap is not None:
            check_count(low=1, **{name: cap})
    where: dict[str, dict[str, list[int]]] = {}
    for silo, individuals in ids.items():
        for place, each in enumerate(individuals):
            where.setdefault(_normalised(each), {}).setdefault(silo, []).append(place)
    kept = {silo: np.zeros(len(individuals), dtype=np.bool_) for silo, individuals in ids.items()}
    for individual, places in where.items():
        for silo in _first(places, silos, key, individual):
            order = _first(range(len(places[silo])), records, key, individual, silo)
            kept[silo][[places[silo][each] for each in order]] = True
    return kept


def _first(choices: Iterable[T], cap: int | None, key: bytes, *context: str) -> list[T]:
    choices = list(choices)
    if cap is None or len(choices) <= cap:
        return choices
    return sorted(choices, key=lambda each: _hash(key, b"cap", *context, str(each)))[:cap]


def _hash(key: bytes, purpose: bytes, *parts: str) -> str:
    hashed = blake2b(key=key, digest_size=32, person=b"silodp-" + purpose)
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        hashed.update(len(encoded).to_bytes(8, "big") + encoded)
    return hashed.hexdigest()


def _normalised(individual: str) -> str:
    text = unicodedata.normalize("NFC", individual).strip()
    if not text:
        raise InvalidValue(f"Expected the id {individual!r} to name an individual.")
    return text


def _check_key(key: bytes) -> None:
    if not _SHORTEST_KEY <= len(key) <= _LONGEST_KEY:
        raise InvalidValue(
            f"Expected a key of {_SHORTEST_KEY} to {_LONGEST_KEY} bytes, not {len(key)}; make one with "
            "secrets.token_bytes(32)."
        )
    if len(set(key)) < _FEWEST_DISTINCT_BYTES:
        raise InvalidValue(
            f"The key has {len(set(key))} distinct bytes and can be guessed; use secrets.token_bytes(32)."
        )


def _allows(membership: Membership, silos: frozenset[str]) -> bool:
    if isinstance(membership, Sets):
        return any(silos <= declared for declared in membership.declared)
    return len(silos) <= membership.cap(len(silos))


def _broken(membership: Membership, silos: int) -> str:
    if isinstance(membership, Sets):
        return "in no declared set"
    cap = membership.cap(silos)
    return f"in more than {cap} silo{'' if cap == 1 else 's'}"


def _read_lines(path: str | PathLike[str]) -> list[dict[str, object]]:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InvalidValue(f"{path}: cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise InvalidValue(f"{path}: not a file of hashed ids ({error}).") from error
    return [_read_line(path, place, line) for place, line in enumerate(lines or [""], start=1)]


def _read_line(path: str | PathLike[str], place: int, line: str) -> dict[str, object]:
    try:
        value: object = json.loads(line)
    except ValueError as error:
        raise InvalidValue(f"{path}, line {place}: not JSON ({error}).") from error
    if not isinstance(value, dict):
        raise InvalidValue(f"{path}, line {place}: expected a JSON object.")
    return cast("dict[str, object]", value)
