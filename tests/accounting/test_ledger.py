"""What a ledger promises to whoever charges, releases and reads."""

import hashlib
import json
from contextlib import suppress
from pathlib import Path

import pytest

from accounting._errors import BudgetExhausted, InvalidValue, LedgerConflict, LedgerCorrupt, LedgerError
from accounting._gaussian import Gaussian, SampledGaussian
from accounting._ledger import Ledger
from accounting._ledger_chain import Charge
from accounting._mechanism import Mechanism

UPDATE = SampledGaussian(sampling_rate=0.01, noise_multiplier=1.1, steps=20)
COUNT = Gaussian(noise_multiplier=4)


@pytest.fixture
def ledger(tmp_path: Path):
    with Ledger.open(tmp_path / "ledger.db", create=True) as opened:
        yield opened


def charge(
    ledger: Ledger, *, silo: str = "north", run: str = "a", round: int = 0, attempt: int = 0, request: str = "r", **rest
) -> Charge:
    return ledger.charge(
        silo=silo,
        run=run,
        round=round,
        attempt=attempt,
        item=rest.get("item", "update"),
        mechanism=rest.get("mechanism", UPDATE),
        request=request,
        admit=rest.get("admit"),
    )


def test_a_charge_counts_in_full_until_it_is_released(ledger: Ledger):
    made = charge(ledger)
    assert ledger.releases("north") == [UPDATE]
    ledger.release(made, executed=7, output="hash")
    assert ledger.releases("north") == [UPDATE.repeated(7)]
    assert ledger.charged("north") == [UPDATE]


def test_a_failed_charge_counts_in_full(ledger: Ledger):
    ledger.fail(charge(ledger), "out of memory")
    assert ledger.releases("north") == ledger.charged("north") == [UPDATE]


def test_a_silo_without_rows_released_nothing(ledger: Ledger):
    charge(ledger)
    assert ledger.releases("south") == ledger.charged("south") == ledger.declared("south") == []
    assert ledger.silos() == ["north"]
    assert ledger.head("south") == "0" * 64


def test_a_charge_is_seen_by_another_connection_as_soon_as_it_returns(ledger: Ledger):
    with Ledger.open(ledger.path, read_only=True) as other:
        for round in range(3):
            charge(ledger, round=round)
            assert len(other.releases("north")) == round + 1


def test_the_same_request_again_is_the_same_release(ledger: Ledger):
    made = charge(ledger)
    assert charge(ledger) == made
    released = ledger.release(made, executed=20, output="hash")
    assert ledger.release(made, executed=20, output="hash") == charge(ledger) == released
    assert len(ledger.rows("north")) == 2
    assert ledger.find("north", "a", 0, 0, "update") == released
    assert ledger.find("north", "a", 1, 0, "update") is None


def test_a_failure_told_again_is_the_same_failure(ledger: Ledger):
    made = charge(ledger)
    failed = ledger.fail(made, "why")
    assert ledger.fail(made, "why") == charge(ledger) == failed
    assert (failed.state, failed.reason) == ("failed", "why")


@pytest.mark.parametrize("other", [{"request": "s"}, {"mechanism": UPDATE.repeated(19)}])
def test_another_request_under_the_same_key_is_refused(ledger: Ledger, other: dict[str, object]):
    charge(ledger)
    with pytest.raises(LedgerConflict, match="round 0, attempt 0 already"):
        charge(ledger, **other)
    assert ledger.charged("north") == [UPDATE]


def test_another_attempt_is_another_release(ledger: Ledger):
    charge(ledger)
    charge(ledger, attempt=1, request="s")
    assert ledger.releases("north") == [UPDATE, UPDATE]


def test_more_steps_than_charged_are_refused_and_still_count_as_charged(ledger: Ledger):
    made = charge(ledger)
    with pytest.raises(LedgerConflict, match="executed 21 steps and was charged for 20"):
        ledger.release(made, executed=21, output="hash")
    assert ledger.releases("north") == [UPDATE]


def test_a_release_has_one_end(ledger: Ledger):
    released, failed = charge(ledger), charge(ledger, round=1)
    ledger.release(released, executed=20, output="hash")
    ledger.fail(failed, "why")
    for attempt in (
        lambda: ledger.release(released, executed=19, output="hash"),
        lambda: ledger.release(released, executed=20, output="other"),
        lambda: ledger.fail(released, "why"),
        lambda: ledger.release(failed, executed=20, output="hash"),
        lambda: ledger.fail(failed, "another reason"),
    ):
        with pytest.raises(LedgerConflict, match="already, otherwise than asked now"):
            attempt()


def test_a_charge_of_another_ledger_cannot_be_released(ledger: Ledger, tmp_path: Path):
    with Ledger.open(tmp_path / "other.db", create=True) as other:
        with pytest.raises(LedgerConflict, match="no such charge"):
            other.release(charge(ledger), executed=20, output="hash")
        charge(other, request="s")
        with pytest.raises(LedgerConflict, match="no such charge"):
            other.release(charge(ledger), executed=20, output="hash")


def test_releases_are_those_of_the_run_asked_for(ledger: Ledger):
    charge(ledger)
    charge(ledger, run="b", mechanism=COUNT, item="count")
    charge(ledger, silo="south")
    assert ledger.releases("north") == [UPDATE, COUNT]
    assert ledger.releases("north", "b") == [COUNT]
    assert ledger.runs() == ["a", "b"]


def test_the_declared_maximum_is_the_whole_schedule_whatever_was_executed(ledger: Ledger):
    ledger.declare("north", "a", 30, UPDATE)
    ledger.declare("north", "a", 1, COUNT, item="count")
    charge(ledger)
    assert ledger.declared("north") == [UPDATE.repeated(600), COUNT]
    assert ledger.releases("north") == [UPDATE]


def test_more_charges_than_declared_are_refused(ledger: Ledger):
    ledger.declare("north", "a", 2, UPDATE)
    charge(ledger, round=0)
    charge(ledger, round=1)
    charge(ledger, round=1)
    with pytest.raises(LedgerConflict, match="exceeds the 2 that its run declared"):
        charge(ledger, round=2)
    with pytest.raises(LedgerConflict, match="exceeds"):
        charge(ledger, round=1, attempt=1)


@pytest.mark.parametrize(
    "other",
    [
        {"mechanism": UPDATE.repeated(21)},
        {"mechanism": SampledGaussian(sampling_rate=0.01, noise_multiplier=1.0, steps=20)},
        {"mechanism": COUNT},
        {"item": "count"},
    ],
)
def test_what_a_run_did_not_declare_is_refused(ledger: Ledger, other: dict[str, object]):
    ledger.declare("north", "a", 2, UPDATE)
    with pytest.raises(LedgerConflict, match="not what its run declared"):
        charge(ledger, **other)
    charge(ledger, mechanism=UPDATE.repeated(3))
    charge(ledger, silo="south", **other)
    charge(ledger, run="b", **other)


def test_one_item_may_be_declared_by_several_mechanisms(ledger: Ledger):
    ledger.declare("north", "a", 1, UPDATE)
    ledger.declare("north", "a", 1, COUNT)
    charge(ledger, round=0, mechanism=COUNT)
    charge(ledger, round=1, mechanism=UPDATE)
    with pytest.raises(LedgerConflict, match="exceeds"):
        charge(ledger, round=2, mechanism=COUNT)


def test_declaring_the_same_again_changes_nothing_and_otherwise_is_refused(ledger: Ledger):
    ledger.declare("north", "a", 2, UPDATE)
    head = ledger.head("north")
    ledger.declare("north", "a", 2, UPDATE)
    assert ledger.head("north") == head
    for rounds, steps in ((3, 20), (2, 21)):
        with pytest.raises(LedgerConflict, match="declared 'update'"):
            ledger.declare("north", "a", rounds, UPDATE.repeated(steps))


def test_a_schedule_is_declared_before_the_first_charge(ledger: Ledger):
    charge(ledger)
    with pytest.raises(LedgerConflict, match="before the first charge"):
        ledger.declare("north", "a", 2, UPDATE)


def test_the_maximum_of_a_run_that_declared_nothing_is_not_known(ledger: Ledger):
    ledger.declare("north", "b", 2, UPDATE)
    charge(ledger)
    with pytest.raises(LedgerError, match="'a' declared no schedule"):
        ledger.declared("north")
    assert ledger.declared("north", "b") == [UPDATE.repeated(40)]


def test_a_fixed_fact_stays(ledger: Ledger):
    assert ledger.fixed("north", "budget") is None
    ledger.fix("north", "budget", "one")
    ledger.fix("north", "budget", "one")
    assert ledger.fixed("north", "budget") == "one"
    assert len(ledger.rows("north")) == 1
    with pytest.raises(LedgerConflict, match="fixed its 'budget' already"):
        ledger.fix("north", "budget", "two")


def test_a_refused_charge_leaves_no_row_and_admission_sees_full_charges(ledger: Ledger):
    seen: list[tuple[list[Mechanism], Mechanism]] = []

    def admit(releases, proposed):
        seen.append((list(releases), proposed))
        if len(releases) == 1:
            raise BudgetExhausted("no", requested=2.0, remaining=1.0)

    made = charge(ledger, admit=admit)
    ledger.release(made, executed=3, output="hash")
    with pytest.raises(BudgetExhausted):
        charge(ledger, round=1, mechanism=COUNT, admit=admit)
    assert seen == [([], UPDATE), ([UPDATE], COUNT)]
    assert ledger.charged("north") == [UPDATE]
    assert charge(ledger, admit=admit).state == "released"


def test_an_error_inside_a_batch_undoes_all_of_it(ledger: Ledger):
    charge(ledger)
    head = ledger.head("north")
    with suppress(KeyError), ledger.batch():
        ledger.release(charge(ledger, round=1), executed=20, output="hash")
        charge(ledger, silo="south")
        raise KeyError
    assert ledger.heads() == {"north": head}
    assert ledger.releases("north") == [UPDATE]
    charge(ledger, round=1)
    assert len(ledger.rows("north")) == 2
    assert ledger.verify() == ledger.heads()


def test_a_refusal_caught_inside_a_batch_leaves_the_rest(ledger: Ledger):
    with ledger.batch():
        made = charge(ledger)
        with pytest.raises(LedgerConflict):
            charge(ledger, request="s")
        ledger.release(made, executed=1, output="hash")
        assert len(ledger.rows("north")) == 2
    assert ledger.releases("north") == [UPDATE.repeated(1)]


def test_nothing_of_a_batch_is_durable_before_its_end(ledger: Ledger):
    with Ledger.open(ledger.path, read_only=True) as other:
        with ledger.batch():
            charge(ledger)
            assert ledger.releases("north") == [UPDATE]
            assert other.releases("north") == []
        assert other.releases("north") == [UPDATE]


def test_a_batch_cannot_be_opened_inside_another(ledger: Ledger):
    with pytest.raises(LedgerError, match="inside another"), ledger.batch(), ledger.batch():
        pass
    charge(ledger)


def _history(ledger: Ledger, *, in_batches: bool, interrupted: bool) -> None:
    ledger.declare("north", "a", 5, UPDATE)
    for round in range(5):
        if interrupted:
            with suppress(KeyError), ledger.batch():
                charge(ledger, round=round)
                raise KeyError
            charge(ledger, round=round)
        if in_batches:
            with ledger.batch():
                ledger.release(charge(ledger, round=round), executed=round, output="hash")
        else:
            ledger.release(charge(ledger, round=round), executed=round, output="hash")


def test_the_same_calls_make_the_same_head(tmp_path: Path):
    heads: set[str] = set()
    for in_batches in (False, True):
        for interrupted in (False, True):
            with Ledger.open(tmp_path / f"{in_batches}{interrupted}.db", create=True) as ledger:
                _history(ledger, in_batches=in_batches, interrupted=interrupted)
                heads.add(ledger.head("north"))
    assert len(heads) == 1


def test_a_head_depends_on_its_own_silo_only(ledger: Ledger, tmp_path: Path):
    with Ledger.open(tmp_path / "other.db", create=True) as other:
        charge(other, silo="south")
        charge(other)
        charge(ledger)
        assert other.head("north") == ledger.head("north")
        assert other.head("south") != ledger.head("north")


def test_the_hash_is_reproducible_from_the_documented_encoding(ledger: Ledger):
    charge(ledger, mechanism=COUNT)
    (row,) = ledger.rows("north")
    fields = ["silodp-ledger-1", "north", 1, "charged", "update", "0" * 64, "a", 0, 0, 0]
    law = json.dumps(COUNT.to_json(), separators=(",", ":"), sort_keys=True)
    text = json.dumps([*fields, law, "r", 0, "", ""], separators=(",", ":"))
    assert row.hash == hashlib.sha256(text.encode()).hexdigest() == ledger.head("north")


def test_reads_are_pure(ledger: Ledger):
    ledger.declare("north", "a", 3, UPDATE)
    ledger.release(charge(ledger), executed=20, output="hash")
    before = ledger.path.read_bytes(), ledger.path.with_name("ledger.db-wal").read_bytes()
    for _ in range(2):
        assert ledger.releases("north") == [UPDATE]
        assert ledger.declared("north") == [UPDATE.repeated(60)]
        assert ledger.verify() == ledger.heads()
        ledger.releases("north").clear()
    assert (ledger.path.read_bytes(), ledger.path.with_name("ledger.db-wal").read_bytes()) == before


def test_two_connections_take_turns_on_one_chain(ledger: Ledger):
    with Ledger.open(ledger.path) as other:
        for round in range(0, 6, 2):
            charge(ledger, round=round)
            charge(other, round=round + 1)
        assert charge(other, round=0) == charge(ledger, round=0)
        assert ledger.releases("north") == other.releases("north") == [UPDATE] * 6
        assert ledger.verify() == other.heads()


@pytest.mark.parametrize(
    "field", [{"silo": ""}, {"run": "a\nb"}, {"request": "\ud800"}, {"round": -1}, {"attempt": 2**63}, {"round": True}]
)
def test_a_field_that_a_row_cannot_hold_is_named(ledger: Ledger, field: dict[str, object]):
    with pytest.raises(InvalidValue, match=next(iter(field))):
        charge(ledger, **field)
    assert ledger.silos() == []


def test_a_reason_that_a_row_cannot_hold_is_refused(ledger: Ledger):
    made = charge(ledger)
    with pytest.raises(InvalidValue, match="reason"):
        ledger.fail(made, "\ud800")
    assert ledger.fail(made, "two\nlines").reason == "two\nlines"


def test_an_exported_ledger_read_back_has_the_same_heads_and_price(ledger: Ledger, tmp_path: Path):
    ledger.declare("north", "a", 3, UPDATE)
    ledger.fix("south", "budget", "né")
    ledger.release(charge(ledger), executed=0, output="hash")
    ledger.fail(charge(ledger, round=1), "why")
    ledger.export_json(tmp_path / "ledger.json")
    with Ledger.import_json(tmp_path / "ledger.json", tmp_path / "copy.db") as copy:
        assert copy.verify(ledger.heads()) == ledger.heads()
        assert copy.releases("north") == ledger.releases("north")
        assert charge(copy, round=2).state == "charged"


def test_an_altered_export_is_refused_and_nothing_is_written(ledger: Ledger, tmp_path: Path):
    ledger.release(charge(ledger), executed=20, output="hash")
    ledger.export_json(tmp_path / "ledger.json")
    document = json.loads((tmp_path / "ledger.json").read_text())
    good = json.dumps(document["rows"])
    for bad in (
        good.replace('"executed": 20', '"executed": 1'),
        good.replace('"executed": 20', '"executed": "20"'),
        good.replace('"executed": 20', '"executed": 20, "more": 1'),
        json.dumps(document["rows"][1:]),
        json.dumps(document["rows"][::-1]),
        "3",
        "[3]",
    ):
        (tmp_path / "bad.json").write_text(json.dumps(document | {"rows": json.loads(bad)}))
        with pytest.raises(LedgerCorrupt, match=r"bad\.json"):
            Ledger.import_json(tmp_path / "bad.json", tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "silodp-ledger", "version": 2, "rows": []}', "\xff"])
def test_a_file_that_is_no_export_is_refused(tmp_path: Path, text: str):
    (tmp_path / "bad.json").write_text(text, encoding="latin-1")
    for name in ("bad.json", "missing.json"):
        with pytest.raises(LedgerError, match=name):
            Ledger.import_json(tmp_path / name, tmp_path / "copy.db")


def test_an_import_overwrites_nothing(ledger: Ledger, tmp_path: Path):
    ledger.export_json(tmp_path / "ledger.json")
    with pytest.raises(LedgerError, match="there already"):
        Ledger.import_json(tmp_path / "ledger.json", ledger.path)


def test_the_csv_export_has_every_row_and_field(ledger: Ledger, tmp_path: Path):
    ledger.release(charge(ledger, silo="south, west"), executed=20, output="hash")
    charge(ledger)
    ledger.export_csv(tmp_path / "ledger.csv")
    header, *lines = (tmp_path / "ledger.csv").read_text().splitlines()
    assert header.startswith("silo,sequence,event,item,previous,run,round,attempt,")
    assert [line.split(",")[0] for line in lines] == ["north", '"south', '"south']
    with pytest.raises(LedgerError, match="cannot be written"):
        ledger.export_csv(tmp_path / "missing" / "ledger.csv")
