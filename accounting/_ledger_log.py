"""A ledger file and its chains in memory, kept in step.

The file is the truth. The chains are what its rows amount to, replayed once and then followed; whenever a
transaction fails they are forgotten and replayed from the file at the next look.
"""

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path

from accounting._errors import LedgerCorrupt, LedgerError
from accounting._ledger_chain import Chain
from accounting._ledger_files import LedgerFile
from accounting._ledger_rows import GENESIS, Row


class Log:
    """The rows of an open file, as chains by silo.

    Args:
        file: the open file; the log closes nothing.
    """

    def __init__(self, file: LedgerFile) -> None:
        self.file = file
        self._chains: dict[str, Chain] = {}
        self._last: tuple[int, Row] | None = None
        self._seen_changes: int | None = None
        self._pending: list[Row] = []
        self._writing = False

    @contextmanager
    def batch(self) -> Generator[None]:
        """Hold the file for writing; what is appended inside becomes durable at the end, or not at all.

        Raises:
            LedgerError: when another process is writing, or the commit fails, or inside another batch.
        """
        if self._writing:
            raise LedgerError(f"{self.file.path}: a batch cannot be opened inside another.")
        committed = False
        try:
            with self.file.transaction():
                self._writing = True
                yield
                self._flush()
            committed = True
        finally:
            self._writing = False
            if self._pending and not committed:
                self._forget()
            self._pending.clear()

    @contextmanager
    def appending(self) -> Generator[None]:
        """The open batch, or one of its own."""
        if self._writing:
            yield
        else:
            with self.batch():
                yield

    def append(self, chain: Chain, unsealed: Row) -> None:
        """Add a row, made by the chain's `next_row`, to the open batch.

        Raises:
            LedgerConflict: when the rows so far forbid it; nothing is added then.
        """
        self._pending.append(chain.extend(unsealed))

    def take(self, chain: Chain, row: Row) -> None:
        """Add a row that another ledger sealed to the open batch.

        Raises:
            LedgerCorrupt: naming this file, when the row does not follow here.
        """
        try:
            chain.accept(row)
        except LedgerCorrupt as error:
            raise LedgerCorrupt(f"{self.file.path}: {error}") from error
        self._pending.append(row)

    def chains(self) -> dict[str, Chain]:
        """The chains that have rows, by silo, sorted, after a look at the file."""
        self._follow()
        return {silo: self._chains[silo] for silo in sorted(self._chains) if self._chains[silo].length}

    def chain(self, silo: str) -> Chain:
        """The chain of one silo, empty if it has no rows, after a look at the file."""
        self._follow()
        if silo not in self._chains:
            self._chains[silo] = Chain(silo=silo)
        return self._chains[silo]

    def rows(self) -> Generator[Row]:
        """Every row as it is stored, and then those of the open batch."""
        for _, row in self.file.after(0):
            yield row
        yield from self._pending

    def verify(self, heads: Mapping[str, str]) -> dict[str, str]:
        """Replay everything afresh and look for the given heads; see `Ledger.verify`."""
        self.file.check_pages()
        missing = {silo: head for silo, head in heads.items() if head != GENESIS}
        chains: dict[str, Chain] = {}
        for row in self.rows():
            accept(self.file.path, chains, row)
            if missing.get(row.silo) == row.hash:
                del missing[row.silo]
        check_afforded(self.file.path, chains)
        if missing:
            silo, head = min(missing.items())
            raise LedgerCorrupt(
                f"{self.file.path}: silo {silo!r} has no row with the hash {head}; rows were cut off, or the file "
                "was replaced by an earlier or another one."
            )
        return {silo: chains[silo].head for silo in sorted(chains)}

    def _flush(self) -> None:
        if self._pending:
            first = 1 if self._last is None else self._last[0] + 1
            self.file.append(first, self._pending)
            self._last = (first + len(self._pending) - 1, self._pending[-1])

    def _follow(self) -> None:
        """Take the rows that another connection appended since the last look."""
        if self._pending or (changes := self.file.changes()) == self._seen_changes:
            return
        known = self._last
        try:
            for place, row in self.file.after(0 if known is None else known[0] - 1):
                if known is None:
                    accept(self.file.path, self._chains, row)
                elif (place, row) != known:
                    break
                self._last, known = (place, row), None
            if known is not None:
                raise LedgerCorrupt(f"{self.file.path}: rows that were there before are gone or altered.")
        except LedgerError:
            self._forget()
            raise
        self._seen_changes = changes

    def _forget(self) -> None:
        self._chains.clear()
        self._last = self._seen_changes = None


def accept(path: Path, chains: dict[str, Chain], row: Row) -> None:
    """Take a stored row into the chain of its silo.

    Raises:
        LedgerCorrupt: naming the file, when it does not follow.
    """
    try:
        chains.setdefault(row.silo, Chain(silo=row.silo)).accept(row)
    except LedgerCorrupt as error:
        raise LedgerCorrupt(f"{path}: {error}") from error


def replay(path: Path, rows: Iterable[Row]) -> dict[str, Chain]:
    """The chains that these rows form, with what they declared under allowances priced anew.

    Raises:
        LedgerCorrupt: naming the file and the first row that is wrong.
    """
    chains: dict[str, Chain] = {}
    for row in rows:
        accept(path, chains, row)
    check_afforded(path, chains)
    return chains


def check_afforded(path: Path, chains: Mapping[str, Chain]) -> None:
    """Price anew what the chains declared under allowances.

    Raises:
        LedgerCorrupt: naming the file, when a declaration costs more than its allowance.
    """
    for chain in chains.values():
        try:
            chain.check_afforded()
        except LedgerCorrupt as error:
            raise LedgerCorrupt(f"{path}: {error}") from error
