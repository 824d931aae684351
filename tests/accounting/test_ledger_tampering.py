"""A ledger that somebody edited, by hand and with every trigger dropped."""

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from accounting._errors import LedgerCorrupt, LedgerError
from accounting._gaussian import Gaussian, SampledGaussian
from accounting._ledger import Ledger
from accounting._ledger_rows import Row

UPDATE = SampledGaussian(sampling_rate=0.01, noise_multiplier=1.1, steps=20)
CHEAPER = '{"mechanism":"sampled-gaussian","noise_multiplier":9.0,"sampling_rate":0.01,"steps":20}'


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    path = tmp_path_factory.mktemp("tampering") / "ledger.db"
    with Ledger.open(path, create=True) as ledger:
        for silo in ("north", "south"):
            ledger.fix(silo, "budget", "one")
            ledger.declare(silo, "a", 4, UPDATE)
            ledger.declare(silo, "a", 1, Gaussian(noise_multiplier=2), item="count")
            for round in range(4):
                made = ledger.charge(
                    silo=silo, run="a", round=round, attempt=0, item="update", mechanism=UPDATE, request=f"r{round}"
                )
                if round == 2:
                    ledger.fail(made, "why")
                else:
                    ledger.release(made, executed=10 + round, output=f"o{round}")
        return path, ledger.heads()


def _altered(value: object, choice: random.Random) -> object:
    if isinstance(value, int):
        return choice.choice([value + 1, value - 1, str(value), float(value) + 0.5, None, 2**40])
    return choice.choice([str(value)[:-1], f"{value}x", 0, b"\xff", None, CHEAPER, "0" * 64])


def _alter(connection: sqlite3.Connection, places: list[int], choice: random.Random) -> str:
    place, column = choice.choice(places), choice.choice(Row._fields)
    (before,) = connection.execute(f"SELECT {column} FROM rows WHERE place = ?", (place,)).fetchone()
    after = next(value for value in iter(lambda: _altered(before, choice), object()) if value != before)
    connection.execute(f"UPDATE rows SET {column} = ? WHERE place = ?", (after, place))
    return f"{column} of {place}: {before!r} -> {after!r}"


def _delete(connection: sqlite3.Connection, places: list[int], choice: random.Random) -> str:
    gone = choice.sample(places, choice.randint(1, 3))
    connection.executemany("DELETE FROM rows WHERE place = ?", [(place,) for place in gone])
    return f"deleted {gone}"


def _swap(connection: sqlite3.Connection, places: list[int], choice: random.Random) -> str:
    silo = choice.choice(["north", "south"])
    own = [place for (place,) in connection.execute("SELECT place FROM rows WHERE silo = ?", (silo,))]
    first, second = choice.sample(own, 2)
    for source, target in ((first, -1), (second, first), (-1, second)):
        connection.execute("UPDATE rows SET place = ? WHERE place = ?", (target, source))
    return f"swapped {first} and {second}, out of {len(places)}"


def _cut_tail(connection: sqlite3.Connection, places: list[int], choice: random.Random) -> str:
    last = choice.choice(places[:-1])
    connection.execute("DELETE FROM rows WHERE place > ?", (last,))
    return f"cut after {last}"


def _copy(connection: sqlite3.Connection, places: list[int], choice: random.Random) -> str:
    place = choice.choice(places)
    columns = ", ".join(Row._fields)
    connection.execute(f"INSERT INTO rows ({columns}) SELECT {columns} FROM rows WHERE place = ?", (place,))
    return f"copied {place} to the end"


def _edit(source: Path, target: Path, edit, choice: random.Random) -> str:
    shutil.copy(source, target)
    with closing(sqlite3.connect(target)) as connection, connection:
        connection.execute("DROP TRIGGER rows_are_never_altered")
        connection.execute("DROP TRIGGER rows_are_never_deleted")
        columns = ", ".join(f"{name}" for name in Row._fields)
        connection.execute("ALTER TABLE rows RENAME TO old")
        connection.execute(f"CREATE TABLE rows (place INTEGER PRIMARY KEY, {columns})")
        connection.execute("INSERT INTO rows SELECT * FROM old")
        connection.execute("DROP TABLE old")
        places = [place for (place,) in connection.execute("SELECT place FROM rows ORDER BY place")]
        return edit(connection, places, choice)


EDITS = [_alter, _alter, _delete, _swap, _cut_tail, _copy]


def _is_found(path: Path, heads: dict[str, str]) -> bool:
    with Ledger.open(path, read_only=True) as ledger:
        try:
            ledger.verify(heads)
        except LedgerCorrupt:
            return True
        return False


def test_a_hundred_random_edits_are_all_found(original: tuple[Path, dict[str, str]], tmp_path: Path):
    path, heads = original
    choice = random.Random(20240607)
    for number in range(102):
        target = tmp_path / f"{number}.db"
        what = _edit(path, target, EDITS[number % len(EDITS)], choice)
        assert _is_found(target, heads), what


def test_no_edit_inside_a_chain_can_be_read_or_written_over(original: tuple[Path, dict[str, str]], tmp_path: Path):
    path, _ = original
    choice = random.Random(7)
    for number in range(24):
        target = tmp_path / f"{number}.db"
        _edit(path, target, [_alter, _swap, _copy][number % 3], choice)
        with Ledger.open(target) as ledger:
            for use in (
                lambda ledger=ledger: ledger.releases("north"),
                lambda ledger=ledger: ledger.declare("north", "b", 1, UPDATE),
                lambda ledger=ledger, number=number: ledger.export_json(tmp_path / f"{number}.json"),
            ):
                with pytest.raises(LedgerCorrupt):
                    use()


def test_the_rebuilt_but_unedited_file_verifies(original: tuple[Path, dict[str, str]], tmp_path: Path):
    path, heads = original
    _edit(path, tmp_path / "same.db", lambda *_: "", random.Random(0))
    with Ledger.open(tmp_path / "same.db") as ledger:
        assert ledger.verify(heads) == heads


def test_a_clean_cut_needs_a_head_kept_elsewhere(original: tuple[Path, dict[str, str]], tmp_path: Path):
    path, heads = original
    _edit(
        path, tmp_path / "cut.db", lambda connection, *_: connection.execute("DELETE FROM rows WHERE place > 7"), None
    )
    with Ledger.open(tmp_path / "cut.db") as ledger:
        assert ledger.verify().keys() == {"north"}
        with pytest.raises(LedgerCorrupt, match="'north' has no row with the hash"):
            ledger.verify(heads)


def test_a_ledger_that_has_grown_holds_its_earlier_heads(original: tuple[Path, dict[str, str]], tmp_path: Path):
    path, heads = original
    shutil.copy(path, tmp_path / "grown.db")
    with Ledger.open(tmp_path / "grown.db") as ledger:
        ledger.fix("north", "shard", "two")
        assert ledger.verify(heads) != heads
        assert ledger.verify({"east": "0" * 64}) == ledger.heads()
    with Ledger.open(path) as ledger, pytest.raises(LedgerCorrupt, match="no row with the hash"):
        ledger.verify({"north": heads["south"], "south": heads["north"]})


def test_a_forged_but_well_hashed_history_is_found(original: tuple[Path, dict[str, str]], tmp_path: Path):
    path, _ = original
    with Ledger.open(path) as ledger:
        rows = ledger.rows("north")
    forgeries: dict[str, list[Row]] = {
        "never charged": [rows[0], rows[4]],
        "executed 21 steps": [*rows[:4], rows[4]._replace(executed=21)],
        "already, by another request": [*rows[:4], rows[3]],
        "not what its run declared": [*rows[:3], rows[3]._replace(mechanism=CHEAPER)],
        "fixed its": [rows[0], rows[0]],
        "Expected the description of a mechanism": [*rows[:3], rows[3]._replace(mechanism="{")],
        "4 of silo 'north' is no event": [*rows[:3], rows[3]._replace(executed=3)],
        "5 of silo 'north' is no event": [*rows[:4], rows[4]._replace(event="gone")],
    }
    for number, (message, forged) in enumerate(forgeries.items()):
        target = tmp_path / f"{number}.db"
        Ledger.open(target, create=True).close()
        _insert(target, _sealed(forged))
        with Ledger.open(target) as ledger, pytest.raises(LedgerCorrupt, match=message):
            ledger.verify()


def test_rows_of_two_histories_do_not_join(original: tuple[Path, dict[str, str]], tmp_path: Path):
    with Ledger.open(original[0]) as ledger:
        rows = ledger.rows("north")
    other = _sealed([rows[0]._replace(note="two"), *rows[1:]])
    skipping = rows[1]._replace(sequence=3)
    joined = {
        "row 2 .* does not follow the row before it": [rows[0], *other[1:]],
        "row 3 .* stands where row 2 should": [rows[0], skipping._replace(hash=skipping.digest())],
    }
    for number, (message, forged) in enumerate(joined.items()):
        target = tmp_path / f"{number}.db"
        Ledger.open(target, create=True).close()
        _insert(target, forged)
        with Ledger.open(target) as ledger, pytest.raises(LedgerCorrupt, match=f"(?i){message}"):
            ledger.verify()


def _sealed(rows: list[Row]) -> list[Row]:
    previous, sealed = "0" * 64, list[Row]()
    for sequence, row in enumerate(rows, start=1):
        row = row._replace(sequence=sequence, previous=previous)
        previous = row.digest()
        sealed.append(row._replace(hash=previous))
    return sealed


def _insert(path: Path, rows: list[Row]) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for place, row in enumerate(rows, start=1):
            connection.execute(f"INSERT INTO rows VALUES ({', '.join('?' * 16)})", (place, *row))


@pytest.mark.parametrize("statement", ["UPDATE rows SET executed = 1", "DELETE FROM rows"])
def test_sqlite_itself_refuses_to_alter_or_delete_rows(original: tuple[Path, dict[str, str]], statement: str):
    with (
        closing(sqlite3.connect(original[0])) as connection,
        pytest.raises(sqlite3.IntegrityError, match="append-only"),
    ):
        connection.execute(statement)


@pytest.mark.parametrize("again", [False, True])
def test_a_row_removed_or_replaced_under_an_open_ledger_is_noticed(
    original: tuple[Path, dict[str, str]], tmp_path: Path, again: bool
):
    path = tmp_path / "open.db"
    shutil.copy(original[0], path)
    with Ledger.open(path) as ledger:
        ledger.releases("north")
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("DROP TRIGGER rows_are_never_deleted")
            connection.execute("DELETE FROM rows WHERE place = (SELECT max(place) FROM rows)")
        if again:
            with Ledger.open(path) as other:
                other.fix("north", "shard", "one")
        with pytest.raises(LedgerError, match="gone or altered"):
            ledger.fix("north", "shard", "two")
