"""The file of a ledger: SQLite, write-ahead log, every commit on disk before it returns.

Everything about SQLite is here: how the file is opened, what its table is, and what its errors mean to
whoever holds a ledger. What the rows mean is not.
"""

import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self, cast

from accounting._errors import LedgerCorrupt, LedgerError
from accounting._ledger_rows import Row

SCHEMA_VERSION = 1

_APPLICATION_ID = 0x51D0D901
_BUSY_SECONDS = 2.0
_COLUMNS = ", ".join(Row._fields)
_SCHEMA = f"""
CREATE TABLE rows (
    place INTEGER PRIMARY KEY,
    {", ".join(f"{name} {'TEXT' if kind is str else 'INTEGER'} NOT NULL" for name, kind in Row.__annotations__.items())}
);
CREATE TRIGGER rows_are_never_altered BEFORE UPDATE ON rows BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END;
CREATE TRIGGER rows_are_never_deleted BEFORE DELETE ON rows BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END;
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""
_INSERT = f"INSERT INTO rows (place, {_COLUMNS}) VALUES (?{', ?' * len(Row._fields)})"
_SELECT = f"SELECT place, {_COLUMNS} FROM rows WHERE place > ? ORDER BY place"


class LedgerFile:
    """An open ledger file: rows in one order, appended in transactions.

    Use `open`; one thread only.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, *, read_only: bool) -> None:
        self.path = path
        self.read_only = read_only
        self._connection = connection

    @classmethod
    def open(cls, path: Path, *, create: bool, read_only: bool) -> Self:
        """Open a ledger file, or create it.

        Raises:
            LedgerError: naming the path and what is wrong with it.
        """
        if read_only and create:
            raise LedgerError(f"{path}: a ledger cannot be created read-only.")
        if not create and not path.is_file():
            raise LedgerError(f"{path}: no ledger there.")
        with _explained(path):
            if read_only:
                return cls(path, _connect_read_only(path), read_only=True)
            connection = _connect(path, "rwc" if create else "rw")
            try:
                _prepare(path, connection, create=create)
            except BaseException:
                connection.close()
                raise
            return cls(path, connection, read_only=False)

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        with _explained(self.path):
            self._connection.close()

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Hold the file for writing; commit at the end, or roll everything back on an error.

        Raises:
            LedgerError: when another process is writing, or the commit cannot be made durable.
        """
        if self.read_only:
            raise LedgerError(f"{self.path}: opened read-only.")
        with _explained(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
        committed = False
        try:
            yield
            with _explained(self.path):
                self._connection.execute("COMMIT")
            committed = True
        finally:
            if not committed and self._connection.in_transaction:
                with _explained(self.path):
                    self._connection.execute("ROLLBACK")

    def append(self, place: int, rows: Sequence[Row]) -> None:
        """Write rows at `place` and after, inside a transaction."""
        with _explained(self.path):
            self._connection.executemany(_INSERT, [(place + offset, *row) for offset, row in enumerate(rows)])

    def after(self, place: int) -> Generator[tuple[int, Row]]:
        """The rows that stand after `place`, each with its own place, as one consistent state of the file."""
        with _explained(self.path):
            for values in self._connection.execute(_SELECT, (place,)):
                yield values[0], Row(*values[1:])

    def changes(self) -> int:
        """A number that differs once another connection has committed to the file."""
        with _explained(self.path):
            return cast("int", self._connection.execute("PRAGMA data_version").fetchone()[0])

    def check_pages(self) -> None:
        """Have SQLite check the structure of the file.

        Raises:
            LedgerCorrupt: naming the first fault.
        """
        with _explained(self.path):
            answer = cast("str", self._connection.execute("PRAGMA integrity_check(1)").fetchone()[0])
        if answer != "ok":
            raise LedgerCorrupt(f"{self.path}: the file is damaged: {answer}.")


def _connect(path: Path, mode: str, *, immutable: bool = False) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}{'&immutable=1' if immutable else ''}"
    return sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)


def _connect_read_only(path: Path) -> sqlite3.Connection:
    """Read beside a writer; from a folder that cannot be written, read the file as one that nobody writes."""
    try:
        return _identified(path, _connect(path, "ro"))
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF not in _UNWRITABLE or _has_log(path):
            raise
    return _identified(path, _connect(path, "ro", immutable=True))


def _identified(path: Path, connection: sqlite3.Connection) -> sqlite3.Connection:
    try:
        _check_identity(path, connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _has_log(path: Path) -> bool:
    """Whether rows may stand in the write-ahead log alone."""
    log = path.with_name(path.name + "-wal")
    return log.exists() and log.stat().st_size > 0


def _prepare(path: Path, connection: sqlite3.Connection, *, create: bool) -> None:
    # Before anything is written: a foreign database must stay as it is.
    if not (create and _is_blank(connection)):
        _check_identity(path, connection)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    if create:
        connection.execute("BEGIN IMMEDIATE")
        if _is_blank(connection):
            for statement in _SCHEMA.split(";\n"):
                connection.execute(statement)
        connection.execute("COMMIT")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return cast("int", connection.execute(f"PRAGMA {name}").fetchone()[0])


def _is_blank(connection: sqlite3.Connection) -> bool:
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    return tables == 0 and _pragma(connection, "application_id") == 0


def _check_identity(path: Path, connection: sqlite3.Connection) -> None:
    if _is_blank(connection):
        raise LedgerError(f"{path}: empty; the ledger was never finished, create it again.")
    if _pragma(connection, "application_id") & 0xFFFFFFFF != _APPLICATION_ID:
        raise LedgerError(f"{path}: a database, but not a ledger.")
    if (version := _pragma(connection, "user_version")) != SCHEMA_VERSION:
        raise LedgerError(
            f"{path}: written in version {version} of the ledger's schema; this silodp reads version {SCHEMA_VERSION}."
        )


_UNWRITABLE = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}
_MEANINGS = {
    sqlite3.SQLITE_BUSY: "another process is writing to this ledger; try again when it is done",
    sqlite3.SQLITE_LOCKED: "another process is writing to this ledger; try again when it is done",
    sqlite3.SQLITE_FULL: "the disk is full; nothing of this write was kept",
    sqlite3.SQLITE_READONLY: "the file or its folder cannot be written",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened; see that its folder exists and can be written",
    sqlite3.SQLITE_IOERR: "the disk refused to read or write; nothing of this write was kept",
    sqlite3.SQLITE_NOTADB: "not a ledger, or its first page is destroyed",
}


@contextmanager
def _explained(path: Path) -> Generator[None]:
    """Turn SQLite's errors into the ledger's own."""
    try:
        yield
    except sqlite3.Error as error:
        # Misuse of the driver, such as a closed connection, has no code.
        code = getattr(error, "sqlite_errorcode", None)
        primary = code & 0xFF if code is not None else sqlite3.SQLITE_ERROR
        if primary == sqlite3.SQLITE_CORRUPT or "decode to UTF-8" in str(error):
            raise LedgerCorrupt(f"{path}: the file is damaged ({error}).") from error
        raise LedgerError(f"{path}: {_MEANINGS.get(primary, 'the ledger cannot be used')} ({error}).") from error
