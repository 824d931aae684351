"""Disks that are full, folders that cannot be written, files that are something else, and other processes."""

import os
import resource
import shutil
import sqlite3
import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from accounting import _ledger_files
from accounting._errors import LedgerCorrupt, LedgerError
from accounting._gaussian import SampledGaussian
from accounting._ledger import Ledger

UPDATE = SampledGaussian(sampling_rate=0.01, noise_multiplier=1.1, steps=20)
NOBODY = 65534


def charge(ledger: Ledger, round: int = 0, request: str = "r"):
    return ledger.charge(
        silo="north", run="a", round=round, attempt=0, item="update", mechanism=UPDATE, request=request
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with Ledger.open(tmp_path / "ledger.db", create=True) as ledger:
        charge(ledger)
    return tmp_path / "ledger.db"


@contextmanager
def _unprivileged() -> Iterator[None]:
    """File permissions bind everyone but root."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.fixture
def shared_folder(path: Path) -> Iterator[Path]:
    """A folder that anyone may enter and read, with a ledger in it."""
    folder = Path(tempfile.mkdtemp())
    shutil.copy(path, folder / "ledger.db")
    (folder / "ledger.db").chmod(0o444)
    folder.chmod(0o555)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_a_missing_ledger_is_not_made_by_accident(tmp_path: Path):
    for read_only in (False, True):
        with pytest.raises(LedgerError, match="no ledger there"):
            Ledger.open(tmp_path / "ledger.db", read_only=read_only)
    with pytest.raises(LedgerError, match="created read-only"):
        Ledger.open(tmp_path / "ledger.db", create=True, read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_creating_an_existing_ledger_opens_it(path: Path):
    with Ledger.open(path, create=True) as ledger:
        assert ledger.releases("north") == [UPDATE]


def test_a_ledger_in_a_missing_folder_is_a_clear_error(tmp_path: Path):
    with pytest.raises(LedgerError, match="see that its folder exists"):
        Ledger.open(tmp_path / "missing" / "ledger.db", create=True)


def test_a_read_only_ledger_refuses_to_be_written(path: Path):
    with Ledger.open(path, read_only=True) as ledger:
        with pytest.raises(LedgerError, match="opened read-only"):
            charge(ledger, 1)
        assert ledger.releases("north") == [UPDATE]


def test_a_folder_that_cannot_be_written_can_be_read(shared_folder: Path):
    with _unprivileged():
        with Ledger.open(shared_folder / "ledger.db", read_only=True) as ledger:
            assert ledger.releases("north") == [UPDATE]
            assert ledger.verify() == ledger.heads()
        with pytest.raises(LedgerError, match=r"cannot be (written|opened)"):
            Ledger.open(shared_folder / "ledger.db")
        with pytest.raises(LedgerError, match=r"cannot be (written|opened)"):
            Ledger.open(shared_folder / "new.db", create=True)


def test_rows_in_the_log_of_a_folder_that_cannot_be_written_are_not_overlooked(path: Path, shared_folder: Path):
    with Ledger.open(path) as ledger:
        charge(ledger, 1)
        shared_folder.chmod(0o755)
        for name in ("ledger.db", "ledger.db-wal"):
            (shared_folder / name).unlink(missing_ok=True)
            shutil.copy(path.with_name(name), shared_folder / name)
            (shared_folder / name).chmod(0o444)
    shared_folder.chmod(0o555)
    with _unprivileged(), suppress(LedgerError), Ledger.open(shared_folder / "ledger.db", read_only=True) as ledger:
        assert ledger.releases("north") == [UPDATE, UPDATE]


@pytest.mark.parametrize("content", [b"id,age\n1,60\n" * 200, b"SQLite format 3\0" + b"\0" * 5000])
def test_a_file_that_is_no_database_is_a_clear_error(tmp_path: Path, content: bytes):
    (tmp_path / "ledger.db").write_bytes(content)
    for create, read_only in ((False, False), (True, False), (False, True)):
        with pytest.raises(LedgerError, match=r"ledger\.db: not a ledger"):
            Ledger.open(tmp_path / "ledger.db", create=create, read_only=read_only)
    assert (tmp_path / "ledger.db").read_bytes() == content


def test_another_database_is_left_alone(tmp_path: Path):
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection, connection:
        connection.execute("CREATE TABLE rows (silo)")
    before = (tmp_path / "other.db").read_bytes()
    for create, read_only in ((False, False), (True, False), (False, True)):
        with pytest.raises(LedgerError, match="a database, but not a ledger"):
            Ledger.open(tmp_path / "other.db", create=create, read_only=read_only)
    assert (tmp_path / "other.db").read_bytes() == before


def test_an_unfinished_ledger_is_finished_by_creating_it(tmp_path: Path):
    (tmp_path / "ledger.db").touch()
    with pytest.raises(LedgerError, match="create it again"):
        Ledger.open(tmp_path / "ledger.db")
    with Ledger.open(tmp_path / "ledger.db", create=True) as ledger:
        charge(ledger)


@pytest.mark.parametrize("version", [0, 2])
def test_another_schema_version_is_refused(path: Path, version: int):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"PRAGMA user_version = {version}")
    for read_only in (False, True):
        with pytest.raises(LedgerError, match=f"version {version} of the ledger's schema; this silodp reads version 1"):
            Ledger.open(path, read_only=read_only)


def test_a_destroyed_page_is_found(path: Path):
    with Ledger.open(path) as ledger, ledger.batch():
        for round in range(1, 300):
            charge(ledger, round)
    content = bytearray(path.read_bytes())
    content[20 * 4096 : 22 * 4096] = b"\xa5" * 8192
    path.write_bytes(content)
    with Ledger.open(path) as ledger:
        for use in (ledger.verify, lambda: ledger.releases("north"), lambda: charge(ledger, 300)):
            with pytest.raises(LedgerCorrupt, match=r"ledger\.db"):
                use()


def test_damage_outside_the_rows_is_found(path: Path):
    content = bytearray(path.read_bytes())
    content[36:40] = (5).to_bytes(4, "big")  # The number of free pages (SQLite file format, section 1.3.9).
    path.write_bytes(content)
    with Ledger.open(path) as ledger:
        assert ledger.releases("north") == [UPDATE]
        with pytest.raises(LedgerCorrupt, match="the file is damaged"):
            ledger.verify()


def test_a_file_cut_short_is_found(path: Path):
    with Ledger.open(path) as ledger, ledger.batch():
        for round in range(1, 300):
            charge(ledger, round)
    os.truncate(path, 12 * 4096)
    with pytest.raises(LedgerCorrupt, match=r"ledger\.db"), Ledger.open(path) as ledger:
        ledger.verify()


@contextmanager
def _full_disk(path: Path) -> Iterator[None]:
    """No file may grow beyond what the ledger's largest file is now."""
    largest = max(each.stat().st_size for each in path.parent.iterdir())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest + 3000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def _charge_both(ledger: Ledger) -> None:
    with ledger.batch():
        charge(ledger, 1)
        charge(ledger, 2, request="r" * 50_000)


def test_a_charge_on_a_full_disk_fails_before_release_and_the_ledger_lives_on(path: Path):
    with Ledger.open(path) as ledger:
        released = ledger.release(charge(ledger), executed=20, output="hash")
        head = ledger.head("north")
        with _full_disk(path):
            with pytest.raises(LedgerError, match="disk"):
                charge(ledger, 1, request="r" * 50_000)
            with pytest.raises(LedgerError, match="disk"):
                _charge_both(ledger)
            assert ledger.releases("north") == [UPDATE]
            assert ledger.head("north") == head
        assert charge(ledger) == released
        charge(ledger, 1)
        assert ledger.verify({"north": head}) == ledger.heads()
    with Ledger.open(path) as ledger:
        assert ledger.releases("north") == [UPDATE, UPDATE]


def test_a_page_limit_is_a_full_disk(path: Path):
    with Ledger.open(path) as ledger:
        connection = ledger._file._connection
        connection.execute("PRAGMA max_page_count = 1")
        with pytest.raises(LedgerError, match="the disk is full"):
            deque(charge(ledger, round) for round in range(1, 100))
        kept = len(ledger.releases("north"))
        connection.execute("PRAGMA max_page_count = 1000000")
        charge(ledger, kept)
        assert ledger.verify() == ledger.heads()
        assert len(ledger.releases("north")) == kept + 1


def test_a_second_writer_is_told_so(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_ledger_files, "_BUSY_SECONDS", 0.01)
    with Ledger.open(path) as first, Ledger.open(path) as second:
        with first.batch():
            charge(first, 1)
            for write in (lambda: charge(second, 2), lambda: second.batch().__enter__()):
                with pytest.raises(LedgerError, match="another process is writing"):
                    write()
        charge(second, 2)
        assert len(first.releases("north")) == 3


def test_readers_see_whole_batches_while_a_run_writes(path: Path):
    with Ledger.open(path) as writer, Ledger.open(path, read_only=True) as first, Ledger.open(path) as second:
        for batch in range(5):
            with writer.batch():
                for round in range(10):
                    charge(writer, 1 + 10 * batch + round)
                    assert len(first.releases("north")) == len(second.releases("north")) == 1 + 10 * batch
            for reader in (first, second):
                assert len(reader.releases("north")) == 11 + 10 * batch
                assert reader.verify() == writer.heads()


def test_a_closed_ledger_is_a_clear_error(path: Path):
    ledger = Ledger.open(path)
    ledger.close()
    ledger.close()
    for use in (lambda: ledger.releases("north"), lambda: charge(ledger, 1), ledger.verify):
        with pytest.raises(LedgerError, match="closed"):
            use()
