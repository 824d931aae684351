"""The chain that one silo's rows form, and what the rows amount to.

A `Chain` replays rows in order and refuses any that does not follow from those before. Writing goes through the
same rules, so that whatever can be written can be read back, and nothing else can.
"""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from accounting._allowance import Allowance
from accounting._errors import LedgerConflict, LedgerCorrupt
from accounting._ledger_rows import GENESIS, Event, Row, decode_mechanism
from accounting._mechanism import Mechanism

_ROUNDING = 1e-6
"""Part of an epsilon by which two machines may differ."""


class Key(NamedTuple):
    """What identifies a release within its silo."""

    run: str
    round: int
    attempt: int
    item: str

    def __str__(self) -> str:
        return f"{self.item!r} of run {self.run!r}, round {self.round}, attempt {self.attempt}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Charge:
    """One release as the ledger knows it: a snapshot, not a handle that changes.

    Args:
        silo: the silo that pays.
        key: run, round, attempt and item.
        mechanism: the law it was charged for, at its full steps.
        request: hash of the request.
        state: ``charged``, ``released`` or ``failed``.
        executed: steps executed, once released.
        output: hash of the released bytes, once released.
        reason: why it failed, once failed.
        allowed: whether an allowance of its run pays for it.
    """

    silo: str
    key: Key
    mechanism: Mechanism
    request: str
    state: Event = Event.CHARGED
    executed: int | None = None
    output: str | None = None
    reason: str | None = None
    allowed: bool = False

    def priced(self) -> Mechanism:
        """What it costs: the executed steps if it was released, else all of them.

        A release under an allowance costs nothing on top of it; an allowance costs all of itself, whatever came of it.
        """
        if self.allowed:
            return self.mechanism.repeated(0)
        if self.executed is None or isinstance(self.mechanism, Allowance) or self.executed == self.mechanism.steps:
            return self.mechanism
        return self.mechanism.repeated(self.executed)


@dataclass(kw_only=True)
class Declaration:
    """A run's promise of at most `rounds` releases of one item by one mechanism, and how many were charged."""

    item: str
    mechanism: Mechanism
    rounds: int
    used: int = 0

    def same_law(self, mechanism: Mechanism) -> bool:
        """Whether the two differ in their steps at most."""
        return mechanism == self.mechanism or mechanism.repeated(self.mechanism.steps) == self.mechanism

    def covers(self, charge: Charge) -> bool:
        """Whether the charge is for this item and law, and within the steps of one round."""
        within = self.item == charge.key.item and charge.mechanism.steps <= self.mechanism.steps
        return within and self.same_law(charge.mechanism)

    def whole(self) -> Mechanism:
        """All that it promised."""
        return self.mechanism.repeated(self.mechanism.steps * self.rounds)


@dataclass(kw_only=True)
class Chain:
    """One silo's rows, replayed.

    Args:
        silo: whose rows.
        length: how many rows so far.
        head: hash of the last of them.
        facts: the fixed facts by name.
        declared: what each run declared.
        charges: the releases by key, in the order in which they were charged.
        allowances: the declared allowances by run and item.
        paid: those that were charged.
    """

    silo: str
    length: int = 0
    head: str = GENESIS
    facts: dict[str, str] = field(default_factory=dict[str, str])
    declared: dict[str, list[Declaration]] = field(default_factory=dict[str, list[Declaration]])
    charges: dict[Key, Charge] = field(default_factory=dict[Key, Charge])
    allowances: dict[tuple[str, str], Allowance] = field(default_factory=dict[tuple[str, str], Allowance])
    paid: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def runs(self) -> set[str]:
        """The runs that declared or charged anything."""
        return {key.run for key in self.charges} | set(self.declared)

    def charged(self, run: str | None = None) -> list[Mechanism]:
        """Every release by its own law, allowances left out; of all runs, or of one."""
        return [
            each.mechanism
            for each in self.charges.values()
            if run in (None, each.key.run) and not isinstance(each.mechanism, Allowance)
        ]

    def next_row(
        self,
        event: Event,
        item: str,
        *,
        run: str = "",
        round: int = 0,
        attempt: int = 0,
        rounds: int = 0,
        mechanism: str = "",
        request: str = "",
        executed: int = 0,
        output: str = "",
        note: str = "",
    ) -> Row:
        """The row that would follow, to be handed to `extend`; the fields are those of `Row`."""
        start = (self.silo, self.length + 1, event.value, item, self.head)
        return Row(*start, run, round, attempt, rounds, mechanism, request, executed, output, note)

    def extend(self, unsealed: Row) -> Row:
        """Seal a row made by `next_row` and take it.

        Raises:
            LedgerConflict: when the rows so far forbid it; the chain is then as before.
        """
        row = Row(*unsealed[:-1], unsealed.digest())
        self._apply(row)
        return row

    def accept(self, row: Row) -> None:
        """Take a stored row as the next one.

        Raises:
            LedgerCorrupt: when it was altered, does not follow, or says what cannot be.
        """
        place = f"Row {row.sequence} of silo {self.silo!r}"
        if not row.well_formed():
            raise LedgerCorrupt(f"{place} is no event of a ledger; it was altered.")
        if row.sequence != self.length + 1:
            raise LedgerCorrupt(f"{place} stands where row {self.length + 1} should; a row is missing or moved.")
        if row.previous != self.head:
            raise LedgerCorrupt(f"{place} does not follow the row before it; one of them was altered or moved.")
        if row.hash != row.digest():
            raise LedgerCorrupt(f"{place} does not match its own hash; it was altered.")
        try:
            self._apply(row)
        except LedgerConflict as error:
            raise LedgerCorrupt(f"{place} says what no ledger would write: {error}") from error

    def check_afforded(self) -> None:
        """Price what was declared under each allowance anew; not done with each row, as it takes an accountant.

        Raises:
            LedgerCorrupt: when it costs more than the allowance, by more than rounding on another machine.
        """
        for (run, item), allowance in self.allowances.items():
            if not allowance.affords(self.declared_for(run, item), slack=_ROUNDING):
                raise LedgerCorrupt(
                    f"Silo {self.silo!r}: {item!r} of run {run!r} costs more than its allowance: {allowance!r}."
                )

    def declared_for(self, run: str, item: str) -> list[Mechanism]:
        """All that the run declared for one item."""
        return [each.whole() for each in self.declared.get(run, ()) if each.item == item]

    def _apply(self, row: Row) -> None:
        match row.event:
            case Event.FIXED:
                self._fix(row)
            case Event.DECLARED:
                self._declare(row)
            case Event.CHARGED:
                self._charge(row)
            case _:
                self._end(row)
        self.length, self.head = row.sequence, row.hash

    def _fix(self, row: Row) -> None:
        if row.item in self.facts:
            raise LedgerConflict(f"Silo {self.silo!r} fixed its {row.item!r} already, for the ledger's lifetime.")
        self.facts[row.item] = row.note

    def _declare(self, row: Row) -> None:
        run, mechanism = row.run, decode_mechanism(row.mechanism)
        if run not in self.declared and any(key.run == run for key in self.charges):
            raise LedgerConflict(
                f"Run {run!r} has charged silo {self.silo!r} already; declare before the first charge."
            )
        declarations = self.declared.get(run, [])
        if any(each.item == row.item and each.same_law(mechanism) for each in declarations):
            raise LedgerConflict(f"Run {run!r} declared {row.item!r} by this mechanism to silo {self.silo!r} already.")
        if (run, row.item) in self.allowances and any((key.run, key.item) == (run, row.item) for key in self.charges):
            raise LedgerConflict(
                f"Run {run!r} has charged {row.item!r} under an allowance to silo {self.silo!r} already; an allowance "
                "bounds only laws that were declared before the first charge of its item."
            )
        declaration = Declaration(item=row.item, mechanism=mechanism, rounds=row.rounds)
        if isinstance(mechanism, Allowance):
            self._take_allowance(run, mechanism, declaration)
        self.declared[run] = [*declarations, declaration]

    def _take_allowance(self, run: str, allowance: Allowance, declaration: Declaration) -> None:
        """An allowance is declared once and before its item, so that it pays for all of it or for none."""
        known = self.declared.get(run, [])
        late = any(each.item == allowance.item for each in known) or declaration.item == allowance.item
        if late or (run, allowance.item) in self.allowances or (declaration.rounds, allowance.steps) != (1, 1):
            raise LedgerConflict(
                f"Run {run!r} may declare one allowance for {allowance.item!r} to silo {self.silo!r}, for one round, "
                "before it declares that item."
            )
        self.allowances[run, allowance.item] = allowance

    def _charge(self, row: Row) -> None:
        key = Key(row.run, row.round, row.attempt, row.item)
        if key in self.charges:
            raise LedgerConflict(f"Silo {self.silo!r} was charged for {key} already, by another request.")
        charge = Charge(silo=self.silo, key=key, mechanism=decode_mechanism(row.mechanism), request=row.request)
        if row.run in self.declared:
            self._use_declaration(charge)
        if isinstance(charge.mechanism, Allowance):
            self._pay(charge.key.run, charge.mechanism)
        if (allowance := self.allowances.get((row.run, row.item))) is not None:
            if (row.run, allowance.item) not in self.paid:
                raise LedgerConflict(f"Silo {self.silo!r}: {key} comes before the allowance that is to pay for it.")
            charge = replace(charge, allowed=True)
        self.charges[key] = charge

    def _pay(self, run: str, allowance: Allowance) -> None:
        if self.allowances.get((run, allowance.item)) != allowance:
            raise LedgerConflict(f"Run {run!r} did not declare the allowance {allowance!r} to silo {self.silo!r}.")
        self.paid.add((run, allowance.item))

    def _use_declaration(self, charge: Charge) -> None:
        declaration = next((each for each in self.declared[charge.key.run] if each.covers(charge)), None)
        if declaration is None:
            raise LedgerConflict(
                f"Silo {self.silo!r}: {charge.key} is not what its run declared: {charge.mechanism!r}."
            )
        if declaration.used == declaration.rounds:
            raise LedgerConflict(
                f"Silo {self.silo!r}: {charge.key} exceeds the {declaration.rounds} that its run declared."
            )
        declaration.used += 1

    def _end(self, row: Row) -> None:
        key = Key(row.run, row.round, row.attempt, row.item)
        charge = self.charges.get(key)
        if charge is None:
            raise LedgerConflict(f"Silo {self.silo!r} was never charged for {key}.")
        if charge.state is not Event.CHARGED:
            raise LedgerConflict(f"Silo {self.silo!r}: {key} is {charge.state} already, otherwise than asked now.")
        if row.event == Event.FAILED:
            self.charges[key] = replace(charge, state=Event.FAILED, reason=row.note)
            return
        if row.executed > charge.mechanism.steps:
            raise LedgerConflict(
                f"Silo {self.silo!r}: {key} executed {row.executed} steps and was charged for {charge.mechanism.steps}."
            )
        self.charges[key] = replace(charge, state=Event.RELEASED, executed=row.executed, output=row.output)
