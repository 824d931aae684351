"""Pricing and checking files that lie around: ledgers, events files, exports of hashed ids."""

import json
import sys
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import cast, get_args

from accounting import (
    AtMost,
    Disjoint,
    Federation,
    HashedIds,
    InvalidValue,
    Ledger,
    LedgerError,
    Membership,
    Method,
    Relation,
    Unit,
    Unknown,
    account,
    overlap,
)
from scenarios._lifetime import budgets, lifetimes
from silos._public import not_covered

LEDGER = "ledger.db"
"""A run's or a silo's ledger, in its folder."""

HEADS = "ledger.heads"
"""How far a silo's ledger was at its last release, in the silo's folder."""

SCENARIO = "scenario.toml"
"""A run's resolved scenario, in its folder."""

DEFAULT_DELTA = 1e-5
"""The delta of an answer when neither delta nor epsilon is asked for and no run lies beside the ledger."""

FACTS = ("relation", "membership", "unit", "participation")
"""What a run fixes in the ledger of every silo, so that its price cannot be told under other terms later."""

PUBLIC = "public"
"""The fact that names the numbers a silo gives out outside every guarantee; absent where there are none."""

FIXED, REACTS = "fixed", "reacts"
"""Values of the fact ``participation``: where it reacts to releases, the declared maximum is the price."""

Json = dict[str, object]


def account_events(path: Path, *, method: str) -> Json:
    """The answer to an events file.

    Raises:
        InvalidValue: for a file that breaks the contract, naming file and place.
    """
    try:
        document = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidValue(f"{path}: cannot be read as JSON: {error}") from None
    try:
        return account(document, method=_method(method))
    except InvalidValue as error:
        raise InvalidValue(f"{path}: {error}") from None


def account_ledgers(
    paths: Sequence[Path],
    *,
    delta: float | None,
    epsilon: float | None,
    relation: str | None,
    membership: str | None,
    method: str,
) -> Json:
    """The answer to what ledgers hold.

    Args:
        paths: ledgers, or folders with one.
        delta, epsilon: at most one; without either, the delta of the runs in the folders, else `DEFAULT_DELTA`.
        relation: in place of what the ledgers fixed; needed where they fixed nothing.
        membership: likewise, and no narrower than what they fixed.
        method: ``auto``, ``pld`` or ``rdp``.

    Raises:
        InvalidValue: for terms that are missing or contradict each other.
        LedgerError: for a file that is no sound ledger.
    """
    with ExitStack() as stack:
        ledgers = [stack.enter_context(Ledger.open(_ledger_of(path), read_only=True)) for path in paths]
        for path, ledger in zip(paths, ledgers, strict=True):
            ledger.verify()
            _check_whole(path, ledger)
        wanted = _own_delta(paths, ledgers) if delta is None and epsilon is None else delta
        spent = [one for ledger in ledgers for one in lifetimes(ledger)]
        fixed, public = _fixed(ledgers), _public(ledgers)
        federation = Federation.from_ledger(
            ledgers,
            _membership(_term("membership", membership, fixed), fixed),
            _relation(_term("relation", relation, fixed), fixed),
            Unit.parse(fixed.get("unit", "record")),
            participation_reacts=fixed.get("participation", FIXED) == REACTS,
        )
    guarantee = federation.guarantee(delta=wanted, epsilon=epsilon, method=_method(method))
    guarantee = replace(guarantee, not_covered=(*guarantee.not_covered, *not_covered(public)))
    rungs = federation.ladder(guarantee.delta)
    return guarantee.to_json() | {"ladder": [rung.to_json() for rung in rungs], "lifetimes": spent}


def _ledger_of(path: Path) -> Path:
    """The ledger in a run's or a silo's folder; another path is the ledger's own."""
    file = path / LEDGER if path.is_dir() else path
    if not file.exists() and (inside := sorted(path.glob(f"*/*/{LEDGER}"))):
        raise LedgerError(f"{file}: no ledger there. Give folders that hold one each, such as {inside[0].parent}.")
    return file


def _check_whole(path: Path, ledger: Ledger) -> None:
    """Refuse the ledger in a silo's folder where it holds less than the silo released."""
    if not (path / HEADS).exists():
        return
    from silos._folder import SiloFolder  # reads arrays, which no other ledger needs

    if not SiloFolder(path).whole(ledger):
        raise LedgerError(f"{ledger.path}: does not hold all that its silo released; its price would be too small.")


def parse_membership(text: str) -> Membership:
    """A membership from ``disjoint``, ``at-most:M`` or ``unknown``.

    Raises:
        InvalidValue: for anything else.
    """
    kind, _, cap = text.partition(":")
    if kind == "at-most" and cap.isdigit() and int(cap) >= 1:
        return AtMost(int(cap))
    if text not in ("disjoint", "unknown"):
        raise InvalidValue(f"Expected membership={text!r} to be disjoint, at-most:M (M >= 1) or unknown.")
    return Disjoint() if text == "disjoint" else Unknown()


def membership_text(membership: Membership) -> str:
    """The inverse of `parse_membership`."""
    return f"at-most:{membership.silos}" if isinstance(membership, AtMost) else membership.kind


def export_ids(silo: str, ids: Path, out: Path, key_file: Path) -> None:
    """Write a silo's hashed ids from a list of ids, one a line, one for each record.

    Raises:
        InvalidValue: for a file that cannot be read or written, or a weak key.
    """
    try:
        lines = [line.strip() for line in ids.read_text("utf-8").splitlines() if line.strip()]
        key = key_file.read_bytes()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValue(f"Cannot read ids and key: {error}") from None
    HashedIds.of(silo, lines, key).write(out)


def check_overlap(files: Sequence[Path], membership: str) -> Json:
    """Whether a declared membership holds for exported files of hashed ids, with the exact, private counts."""
    found = overlap([HashedIds.read(file) for file in files])
    sets = sorted((sorted(silos), count) for silos, count in found.individuals.items())
    return {
        "membership": membership,
        "most_silos": found.most_silos,
        "most_records": found.most_records,
        "sets": [{"silos": silos, "individuals": count} for silos, count in sets],
        "violations": list(found.violations(parse_membership(membership))),
    }


def _own_delta(paths: Sequence[Path], ledgers: Sequence[Ledger]) -> float:
    """The delta that the runs in these folders were to meet, or that these silos' budgets have.

    Raises:
        InvalidValue: for runs of different deltas.
    """
    found = {budget.delta for ledger in ledgers for budget in budgets(ledger).values()}
    for path in paths:
        if (file := path / SCENARIO).is_file():
            try:
                found.add(float(tomllib.loads(file.read_text("utf-8"))["privacy"]["delta"]))
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise InvalidValue(f"{file}: holds no privacy.delta ({error}); give one with --delta.") from None
    if len(found) > 1:
        raise InvalidValue(f"The runs have different deltas, {sorted(found)}; give one with --delta.")
    return found.pop() if found else DEFAULT_DELTA


def _fixed(ledgers: Sequence[Ledger]) -> dict[str, str]:
    """The terms that the ledgers' silos fixed, the same in all of them."""
    terms: dict[str, str] = {}
    for ledger in ledgers:
        for silo in ledger.silos():
            for name in FACTS:
                value = ledger.fixed(silo, name)
                if value is not None and terms.setdefault(name, value) != value:
                    raise InvalidValue(
                        f"{ledger.path}: silo {silo!r} has {name} {value!r}, others have {terms[name]!r}. Ledgers kept "
                        "under different terms have no common price."
                    )
    return terms


def _public(ledgers: Sequence[Ledger]) -> frozenset[str]:
    """Every number that a silo of the ledgers gave out as public."""
    facts = [ledger.fixed(silo, PUBLIC) for ledger in ledgers for silo in ledger.silos()]
    return frozenset(name for fact in facts if fact is not None for name in fact.split())


def _term(name: str, given: str | None, fixed: Mapping[str, str]) -> str:
    value = given if given is not None else fixed.get(name)
    if value is None:
        raise InvalidValue(f"The ledgers fixed no {name}; give one with --{name}.")
    return value


def _membership(text: str, fixed: Mapping[str, str]) -> Membership:
    """The membership of this name, unless the ledgers were kept under a wider one."""
    membership = parse_membership(text)
    kept = fixed.get("membership")
    if kept is not None and parse_membership(kept).cap(sys.maxsize) > membership.cap(sys.maxsize):
        raise InvalidValue(
            f"The ledgers were kept under the membership {kept}: individuals may be in more silos than {text} allows, "
            f"and a price under it would be too small. Give {kept} or a wider one (disjoint < at-most:M < unknown)."
        )
    return membership


def _relation(text: str, fixed: Mapping[str, str]) -> Relation:
    if text not in list(Relation):
        raise InvalidValue(f"Expected relation={text!r} to be one of {', '.join(Relation)}.")
    if text == Relation.ADD_OR_REMOVE_ONE and fixed.get("relation", text) != text:
        raise InvalidValue(
            f"The ledgers were kept under {fixed['relation']}, where sizes are public: they say nothing under {text}."
        )
    return Relation(text)


def _method(text: str) -> Method:
    if text not in get_args(Method):
        raise InvalidValue(f"Expected method={text!r} to be one of {', '.join(get_args(Method))}.")
    return cast(Method, text)
