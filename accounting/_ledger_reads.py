"""What a ledger says: every question that leaves it as it is."""

from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path

from accounting._errors import LedgerError
from accounting._ledger_chain import Charge, Key
from accounting._ledger_exports import write_csv, write_json
from accounting._ledger_files import LedgerFile
from accounting._ledger_log import Log
from accounting._ledger_rows import Row
from accounting._mechanism import Mechanism


class LedgerReads:
    """The questions to an open ledger; `Ledger` adds what is written.

    Args:
        file: the open file.
    """

    def __init__(self, file: LedgerFile) -> None:
        self._file = file
        self._log = Log(file)

    @property
    def path(self) -> Path:
        """Where the ledger is."""
        return self._file.path

    def fixed(self, silo: str, name: str) -> str | None:
        """The fact that the silo fixed under this name, if any."""
        return self._log.chain(silo).facts.get(name)

    def find(self, silo: str, run: str, round: int, attempt: int, item: str) -> Charge | None:
        """The charge under this key, if there is one."""
        return self._log.chain(silo).charges.get(Key(run, round, attempt, item))

    def releases(self, silo: str, run: str | None = None) -> list[Mechanism]:
        """What the silo gave away, in the order of the charges: released rows at their executed steps, others in full.

        Only a price where neither stopping nor participation reacted to releases; else `declared` is.

        Args:
            silo: a silo without rows has released nothing.
            run: one run only; all runs when None.
        """
        return [charge.priced() for charge in self.charges(silo, run)]

    def charges(self, silo: str, run: str | None = None) -> list[Charge]:
        """Every charge of the silo with its key and what came of it, in the order of the charges."""
        return [each for each in self._log.chain(silo).charges.values() if run in (None, each.key.run)]

    def charged(self, silo: str, run: str | None = None) -> list[Mechanism]:
        """What a budget counts: every release by its own law, with all its steps whatever came of it.

        A filter allows laws that react to releases. So what an allowance pays for is in it, and the allowance is not:
        this is what a filter adds up, and no price. `releases` is.
        """
        return self._log.chain(silo).charged(run)

    def declared(self, silo: str, run: str | None = None) -> list[Mechanism]:
        """The most that the runs can give away by their own declarations, whatever they execute.

        Raises:
            LedgerError: when a run charged the silo without having declared anything, so that its maximum is unknown.
        """
        chain = self._log.chain(silo)
        declared = chain.declared
        if open_ended := {charge.key.run for charge in self.charges(silo, run)} - set(declared):
            raise LedgerError(f"{self.path}: run {min(open_ended)!r} declared no schedule to silo {silo!r}.")
        return [
            each.whole()
            for name, declarations in declared.items()
            if run in (None, name)
            for each in declarations
            if (name, each.item) not in chain.allowances
        ]

    def silos(self) -> list[str]:
        """The silos that have rows, sorted."""
        return list(self._log.chains())

    def runs(self) -> list[str]:
        """The runs that declared or charged anything, sorted."""
        return sorted({run for chain in self._log.chains().values() for run in chain.runs()})

    def head(self, silo: str) -> str:
        """Hash of the silo's last row; 64 zeros for a silo without rows."""
        return self._log.chain(silo).head

    def heads(self) -> dict[str, str]:
        """The head of each silo, to be kept elsewhere and handed to `verify` later."""
        return {silo: chain.head for silo, chain in self._log.chains().items()}

    def rows(self, silo: str) -> list[Row]:
        """The silo's rows as they are stored."""
        return [row for row in self._log.rows() if row.silo == silo]

    def all_rows(self) -> Iterator[Row]:
        """The rows of all silos as they are stored, in the order in which they were appended."""
        return self._log.rows()

    def verify(self, heads: Mapping[str, str] | None = None) -> dict[str, str]:
        """Check the whole file: its structure, each row's hash, their order, and that they tell a possible history.

        Args:
            heads: heads by silo, kept elsewhere. Each must be the hash of a row of its silo: a chain may have grown
                since, it may not have become shorter or different. Without them a tail cut off cleanly cannot be seen.

        Returns:
            The heads as they are now.

        Raises:
            LedgerCorrupt: naming the first row that is wrong.
        """
        return self._log.verify(heads or {})

    def export_json(self, path: str | PathLike[str]) -> None:
        """Write all rows as JSON, silo by silo; `import_json` reads it back."""
        write_json(Path(path), self._sorted_rows())

    def export_csv(self, path: str | PathLike[str]) -> None:
        """Write all rows as CSV, silo by silo, for reading by people and spreadsheets."""
        write_csv(Path(path), self._sorted_rows())

    def _sorted_rows(self) -> list[Row]:
        self.verify()
        return sorted(self._log.rows(), key=lambda row: (row.silo, row.sequence))
