"""The ledger: a silo's append-only, durable record of its releases.

A release is charged before anything is computed and marked as released before the reply leaves. A crash in
between leaves a charge that counts in full: a ledger can over-count, it can never under-count.

One file holds one hash chain per silo: all silos of a simulation, or the single silo of a deployment. The
head of a chain stands for all of it, so that a head kept elsewhere (every guarantee carries them) shows
a tail that was cut off or a file that was put back to an earlier state.

Guarantees, each checked by the tests:

- A charge is on disk before `Ledger.charge` returns, or before `Ledger.batch` ends.
- The same calls in the same order make the same heads, whatever crashed in between.
- `Ledger.verify` finds any row that was altered, removed or moved and, given heads kept elsewhere, a shorter ledger.
- Every read of charges replays the chain; a damaged one raises instead of giving a price.
"""

from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Self

from accounting._allowance import Allowance
from accounting._errors import LedgerConflict, LedgerCorrupt, LedgerError
from accounting._ledger_chain import Chain, Charge, Key
from accounting._ledger_exports import read_json
from accounting._ledger_files import LedgerFile
from accounting._ledger_log import replay
from accounting._ledger_reads import LedgerReads
from accounting._ledger_rows import Event, check_counts, check_names, check_text, encode_mechanism
from accounting._mechanism import Mechanism

Admit = Callable[[Sequence[Mechanism], Mechanism], None]
"""Looks at all charges so far and a proposed one; raises to refuse it. `Budget.check` is one."""


class Ledger(LedgerReads):
    """An open ledger. Made by `Ledger.open`; a context manager; for one thread."""

    @classmethod
    def open(cls, path: str | PathLike[str], *, create: bool = False, read_only: bool = False) -> Self:
        """Open a ledger.

        Args:
            path: the file; SQLite keeps two more beside it while it is open.
            create: make a new ledger where there is none.
            read_only: refuse every write; may be done while another process writes.

        Raises:
            LedgerError: when there is no ledger at the path, or it cannot be used; the message says why.
        """
        return cls(LedgerFile.open(Path(path), create=create, read_only=read_only))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @contextmanager
    def batch(self) -> Generator[None]:
        """Make everything inside durable at once, at the end; an error inside undoes all of it.

        Raises:
            LedgerError: when another process is writing, or the commit fails (nothing is kept then), or inside
                another batch.
        """
        with self._log.batch():
            yield

    def fix(self, silo: str, name: str, value: str) -> None:
        """Record a fact that may not change over the ledger's lifetime, such as a budget.

        Raises:
            LedgerConflict: when the silo fixed another value under this name.
        """
        check_names(silo=silo, name=name)
        check_text(value=value)
        with self._log.appending():
            chain = self._log.chain(silo)
            if chain.facts.get(name) != value:
                self._log.append(chain, chain.next_row(Event.FIXED, name, note=value))

    def declare(self, silo: str, run: str, rounds: int, mechanism: Mechanism, *, item: str = "update") -> None:
        """Declare that a run will charge this silo at most `rounds` times for `item`, by at most this mechanism.

        A run may declare several items, and several mechanisms for one item. Once it has declared anything, every
        charge must be covered: same item, same law, no more steps. Declaring the same again changes nothing.

        An `Allowance` is declared for one round, before the item it is for. What is declared of that item from then on
        must be within it, and be declared before the item's first charge; its charges cost nothing on top of the
        allowance's own.

        Args:
            silo, run: whose schedule.
            rounds: how many releases, attempts included, an integer >= 0.
            mechanism: the law of each.
            item: what is released.

        Raises:
            LedgerConflict: when the run declared otherwise, has charged the silo before it declared anything,
                declares more than its allowance affords, or declares a law under it after the item's first charge.
        """
        check_names(silo=silo, run=run, item=item)
        check_counts(rounds=rounds)
        text = encode_mechanism(mechanism)
        with self._log.appending():
            chain = self._log.chain(silo)
            if any(
                (each.item, each.rounds, each.mechanism) == (item, rounds, mechanism)
                for each in chain.declared.get(run, ())
            ):
                return
            self._check_afforded(chain, run, item, mechanism.repeated(mechanism.steps * rounds))
            row = chain.next_row(Event.DECLARED, item, run=run, rounds=rounds, mechanism=text)
            self._log.append(chain, row)

    def charge(
        self,
        *,
        silo: str,
        run: str,
        round: int,
        attempt: int,
        item: str,
        mechanism: Mechanism,
        request: str,
        admit: Admit | None = None,
    ) -> Charge:
        """Charge a silo for a release, before anything is computed.

        The same key with the same request is the same release: it is charged once, and the charge returned may be
        released or failed already. A new attempt is a new release.

        Args:
            silo, run, round, attempt, item: the key; round and attempt are integers >= 0.
            mechanism: the law of the release, with all its steps.
            request: hash of the request for it.
            admit: asked, with all charges of the silo as `charged` gives them, before a new one is made but for an
                allowance, which releases nothing; `Budget.check` fits.

        Raises:
            LedgerConflict: when the key is charged for another request or mechanism, or the run's declaration does not
                cover it.
            BudgetExhausted: from `admit`; nothing was written.
        """
        check_names(silo=silo, run=run, item=item, request=request)
        check_counts(round=round, attempt=attempt)
        text = encode_mechanism(mechanism)
        key = Key(run, round, attempt, item)
        with self._log.appending():
            chain = self._log.chain(silo)
            known = chain.charges.get(key)
            if known is not None and (known.request, known.mechanism) == (request, mechanism):
                return known
            if admit is not None and not isinstance(mechanism, Allowance):
                admit(chain.charged(), mechanism)
            row = chain.next_row(
                Event.CHARGED, item, run=run, round=round, attempt=attempt, mechanism=text, request=request
            )
            self._log.append(chain, row)
            return chain.charges[key]

    def release(self, charge: Charge, *, executed: int, output: str) -> Charge:
        """Record that a charged release goes out; to be called before the reply leaves.

        Args:
            charge: what `charge` returned.
            executed: steps by the optimiser's own count, at most the charged steps.
            output: hash of the released bytes.

        Raises:
            LedgerConflict: when more steps were executed than charged, the release failed, or it went out with other
                values. The reply must not leave then.
        """
        check_names(output=output)
        check_counts(executed=executed)
        with self._log.appending():
            chain, known = self._find(charge)
            if (known.state, known.executed, known.output) == (Event.RELEASED, executed, output):
                return known
            return self._end(chain, charge.key, Event.RELEASED, executed=executed, output=output)

    def fail(self, charge: Charge, reason: str) -> Charge:
        """Record that a charged release will not go out. It still counts in full; trying again is a new attempt.

        Raises:
            LedgerConflict: when it went out, or failed for another reason.
        """
        check_text(reason=reason)
        with self._log.appending():
            chain, known = self._find(charge)
            if (known.state, known.reason) == (Event.FAILED, reason):
                return known
            return self._end(chain, charge.key, Event.FAILED, note=reason)

    def follow(self, other: LedgerReads, silos: Collection[str] | None = None) -> None:
        """Append what another ledger holds of some silos beyond this one, row by row as it stands there.

        Args:
            other: whose rows; as long as the chains there begin with those here, or the other way round.
            silos: whose chains; None takes all.

        Raises:
            LedgerCorrupt: when the rows there do not go on from the rows here; nothing is appended then.
        """
        with self._log.appending():
            for row in list(other.all_rows()):
                if silos is None or row.silo in silos:
                    chain = self._log.chain(row.silo)
                    if row.sequence > chain.length:
                        self._log.take(chain, row)
                    elif row.sequence == chain.length and row.hash != chain.head:
                        raise LedgerCorrupt(f"{self.path}: silo {row.silo!r} has other rows than in {other.path}.")

    @classmethod
    def import_json(cls, source: str | PathLike[str], path: str | PathLike[str]) -> Self:
        """Make a new ledger from an export, with the same heads.

        Args:
            source: a file written by `export_json`.
            path: the new ledger; nothing may be there.

        Raises:
            LedgerCorrupt: when the rows do not form their chains; nothing is written then.
            LedgerError: when either file cannot be used.
        """
        rows = read_json(Path(source))
        replay(Path(source), rows)
        if Path(path).exists():
            raise LedgerError(f"{path}: something is there already; an import makes a new ledger.")
        file = LedgerFile.open(Path(path), create=True, read_only=False)
        try:
            with file.transaction():
                file.append(1, rows)
        except LedgerError:
            file.close()
            raise
        return cls(file)

    def _check_afforded(self, chain: Chain, run: str, item: str, whole: Mechanism) -> None:
        allowance = chain.allowances.get((run, item))
        if allowance is not None and not allowance.affords([*chain.declared_for(run, item), whole]):
            raise LedgerConflict(f"{self.path}: {item!r} of run {run!r} costs more than its allowance: {allowance!r}.")

    def _find(self, charge: Charge) -> tuple[Chain, Charge]:
        chain = self._log.chain(charge.silo)
        known = chain.charges.get(charge.key)
        if known is None or (known.request, known.mechanism) != (charge.request, charge.mechanism):
            raise LedgerConflict(f"{self.path}: silo {charge.silo!r} has no such charge for {charge.key}.")
        return chain, known

    def _end(
        self, chain: Chain, key: Key, event: Event, *, executed: int = 0, output: str = "", note: str = ""
    ) -> Charge:
        row = chain.next_row(
            event,
            key.item,
            run=key.run,
            round=key.round,
            attempt=key.attempt,
            executed=executed,
            output=output,
            note=note,
        )
        self._log.append(chain, row)
        return chain.charges[key]
