"""The rows of a ledger: one event each, sealed by a hash.

Nothing is ever changed: a release that was charged and later went out is two rows.

| event    | says                                                                   | with                        |
|----------|------------------------------------------------------------------------|-----------------------------|
| fixed    | a fact for the ledger's lifetime, such as a budget                     | note                        |
| declared | a run will make at most so many releases of one mechanism              | run, rounds, mechanism      |
| charged  | a release may be computed from now on; it counts in full               | key, mechanism, request     |
| released | it went out; it counts at the steps that were executed                 | key, executed, output       |
| failed   | it will not go out; it still counts in full                            | key, note                   |

The key of a release is its run, round, attempt and item.

A row's hash is the SHA-256 of a canonical encoding of all its other fields, among them its sequence number
and the hash of the row before. Rows hold no time of day, so that the same calls make the same hashes.
"""

import hashlib
import json
from enum import StrEnum
from functools import lru_cache
from json.encoder import encode_basestring_ascii as _quote
from typing import NamedTuple, cast

from accounting._errors import InvalidValue, LedgerCorrupt
from accounting._mechanism import Mechanism, mechanism_from_json
from accounting._validate import check_count

GENESIS = "0" * 64
"""The hash before a silo's first row, and the head of a silo without rows."""

_LARGEST_INTEGER = 2**63 - 1
_ENCODER = json.JSONEncoder(separators=(",", ":"), sort_keys=True, ensure_ascii=True)
_ENCODING = "silodp-ledger-1"


class Event(StrEnum):
    """What a row says happened."""

    FIXED = "fixed"
    DECLARED = "declared"
    CHARGED = "charged"
    RELEASED = "released"
    FAILED = "failed"


class Row(NamedTuple):
    """One row as it is stored; a field that its event does not use is empty or 0.

    Args:
        silo: whose chain it is in.
        sequence: its place in the chain, from 1.
        event: one of `Event`.
        item: what is released (such as ``update``), or the name of the fact.
        previous: hash of the row before, `GENESIS` for the first.
        run, round, attempt: the rest of the release's key.
        rounds: how many releases of `mechanism` a run declared.
        mechanism: canonical JSON of the mechanism, the same for every relation.
        request: hash of the request that asked for the release.
        executed: steps by the optimiser's own count.
        output: hash of the released bytes.
        note: the fact, or the reason of a failure.
        hash: SHA-256 of all the above, in hexadecimal.
    """

    silo: str
    sequence: int
    event: str
    item: str
    previous: str
    run: str = ""
    round: int = 0
    attempt: int = 0
    rounds: int = 0
    mechanism: str = ""
    request: str = ""
    executed: int = 0
    output: str = ""
    note: str = ""
    hash: str = ""

    def digest(self) -> str:
        """The hash that the row should carry."""
        # What `_ENCODER` would write of these strings and integers, in a fifth of the time.
        fields = [_quote(value) if isinstance(value, str) else int.__repr__(value) for value in self[:-1]]
        return hashlib.sha256(f'["{_ENCODING}",{",".join(fields)}]'.encode()).hexdigest()

    def well_formed(self) -> bool:
        """Whether each field has its type, and only fields of its event are used."""
        if any(type(value) is not kind for value, kind in zip(self, _TYPES, strict=True)):
            return False
        unused = _UNUSED.get(self.event)
        return unused is not None and not any(self[place] for place in unused)

    def used(self) -> dict[str, str | int]:
        """The fields that its event uses, by name."""
        return {
            name: value for name, value in zip(Row._fields, self, strict=True) if name in _ALWAYS | _USED[self.event]
        }


_INTEGERS = {"sequence", "round", "attempt", "rounds", "executed"}
_TYPES = tuple(int if name in _INTEGERS else str for name in Row._fields)
_ALWAYS = {"silo", "sequence", "event", "item", "previous", "hash"}
_KEY = {"run", "round", "attempt"}
_USED: dict[str, set[str]] = {
    Event.FIXED: {"note"},
    Event.DECLARED: {"run", "rounds", "mechanism"},
    Event.CHARGED: _KEY | {"mechanism", "request"},
    Event.RELEASED: _KEY | {"executed", "output"},
    Event.FAILED: _KEY | {"note"},
}
_UNUSED = {
    event: tuple(place for place, name in enumerate(Row._fields) if name not in _ALWAYS | used)
    for event, used in _USED.items()
}


def encode_mechanism(mechanism: Mechanism) -> str:
    """Canonical JSON of a mechanism: sorted keys, no spaces, ASCII, the shortest floats that read back the same.

    Raises:
        InvalidValue: when the text would not read back as the same mechanism.
    """
    return _encode_mechanism(repr(mechanism), mechanism)


@lru_cache(maxsize=4096)
def _encode_mechanism(described: str, mechanism: Mechanism) -> str:
    del described  # tells apart what is equal and written differently: 1, 1.0 and True
    try:
        text = _ENCODER.encode(mechanism.to_json())
    except (TypeError, ValueError) as error:
        raise InvalidValue(f"A ledger cannot hold {mechanism!r}: {error}.") from error
    if decode_mechanism(text) != mechanism:
        raise InvalidValue(f"A ledger cannot hold {mechanism!r}: it would read back as {decode_mechanism(text)!r}.")
    return text


@lru_cache(maxsize=4096)
def decode_mechanism(text: str) -> Mechanism:
    """The inverse of `encode_mechanism`.

    Raises:
        Unsupported: for a mechanism that this version does not know.
        LedgerCorrupt: for text that describes none.
    """
    try:
        values: object = json.loads(text)
        if not isinstance(values, dict):
            raise InvalidValue("not an object")
        return mechanism_from_json(cast("dict[str, object]", values))
    except ValueError as error:
        raise LedgerCorrupt(f"Expected the description of a mechanism, found {text[:200]!r}: {error}") from error


def check_names(**names: str) -> None:
    """Refuse what is not printable text on one line, not empty."""
    for name, value in names.items():
        if not value or not value.isprintable():
            raise InvalidValue(f"Expected {name}={value!r} to be printable text on one line.")


def check_text(**texts: str) -> None:
    """Refuse text that SQLite cannot hold."""
    for name, value in texts.items():
        if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
            raise InvalidValue(f"Expected {name}={value!r} to be text that UTF-8 can hold, without NUL.")


def check_counts(**integers: int) -> None:
    """Refuse what is not an integer from 0 to the largest that SQLite can hold."""
    check_count(**integers)
    for name, value in integers.items():
        if value > _LARGEST_INTEGER:
            raise InvalidValue(f"Expected {name}={value} to be at most {_LARGEST_INTEGER}.")
