"""A deployed silo lives on disk: what was released once is released the same again, and a crash costs once."""

import fcntl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from lying import FEATURES, Server, make_shard, make_silo, released

import silos.app
from accounting import LAW_CHAIN, NOISE, TEST_NOISE, Disjoint, Federation, Ledger, LedgerError, Relation
from scenarios._account import account_ledgers
from scenarios.deployment._status import spent
from silos import build_model, weights_of
from silos._folder import SiloFolder
from silos._law import LAW
from silos._shard_files import write_shard

SEED = '\n[insecure_test_seed]\nrun = "rehearsal"\nkey = "' + 64 * "5" + '"\n'


def seeded(text: str) -> str:
    return text + SEED


def amend(server: Server, change: Callable[[str], str]) -> None:
    """Change the law in its file."""
    path = server.folder / LAW
    path.write_text(change(path.read_text()))


def reason(server: Server, **changes: object) -> str:
    """Why a request is declined."""
    reply = server.send(server.content(**changes))
    assert reply.has_error()
    return str(reply.error.reason).split(":")[0]


def test_the_same_request_again_gets_the_same_bytes_at_no_charge(tmp_path: Path) -> None:
    server = make_silo(tmp_path / "north")
    first = server.send(server.content())
    before = server.state()
    assert released(server.send(server.content())) == released(first)
    assert server.state() == before


def test_noise_is_shared_by_no_two_silos_rounds_or_runs(tmp_path: Path) -> None:
    one, other = make_silo(tmp_path / "one"), make_silo(tmp_path / "other")
    replies = [one.send(one.content()), other.send(other.content()), one.send(one.content(round=2))]
    again = make_silo(tmp_path / "again", lambda text: text.replace("epsilon = 6.0", "epsilon = 60.0"))
    replies += [again.send(again.content(), run=run) for run in (1, 2)]
    assert len({released(reply) for reply in replies}) == len(replies)


def test_a_crash_between_charge_and_release_costs_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = make_silo(tmp_path / "north")

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SiloFolder, "keep", crash)
        with pytest.raises(KeyboardInterrupt):
            server.send(server.content())
    with server.ledger() as ledger:
        assert [charge.output for charge in ledger.charges("north")] == [None]
    reply = server.send(server.content())
    with server.ledger() as ledger:
        assert [charge.output for charge in ledger.charges("north")] == [released(reply)]
    assert released(server.send(server.content())) == released(reply)


def test_bytes_that_were_deleted_are_not_made_again(tmp_path: Path) -> None:
    server = make_silo(tmp_path / "north")
    server.send(server.content())
    (kept,) = (server.folder / "released").iterdir()
    kept.write_bytes(kept.read_bytes()[:-1] + b"\xff")
    assert reason(server) == "declined (replay)"
    kept.unlink()
    assert reason(server) == "declined (replay)"
    assert server.send(server.content(attempt=1)).has_content()


def test_a_second_run_is_declined_where_the_first_left_too_little(tmp_path: Path) -> None:
    server = make_silo(tmp_path / "north", lambda text: text.replace("epsilon = 6.0", "epsilon = 4.0"))
    for number in (1, 2, 3, 4):
        assert server.send(server.content(round=number), run=1).has_content()
    before = server.state()
    reply = server.send(server.content(), run=2)
    assert str(reply.error.reason).startswith("declined (budget)")
    assert "remain" in str(reply.error.reason)
    assert server.state() == before
    assert server.send(server.content(rounds=1, steps=1), run=3).has_content()


@pytest.mark.parametrize(
    ("written", "instead", "expected"),
    [
        ("epsilon = 6.0", "epsilon = 9.0", "declined (law)"),
        ('name = "north"', 'name = "south"', "declined (law)"),
        ("epsilon = 6.0", "epsilon = 5.0", "declined (law)"),
        ('relation = "add-or-remove-one"', 'relation = "zero-out"', "declined (law)"),
        ('server = "the tests"', 'membership = "unknown"', "declined (law)"),
        ("rounds = 4\n", "rounds = 4\n" + SEED, "declined (law)"),
        ("noise_multiplier = 1.5", "noise_multiplier = 2.0", "declined (noise)"),
        ("rounds = 4", "rounds = 1", "declined (rounds)"),
        ("rounds = 4", "rounds = ?", "failed"),
    ],
)
def test_a_law_may_become_stricter_and_its_terms_stay(
    written: str, instead: str, expected: str, tmp_path: Path
) -> None:
    server = make_silo(tmp_path / "north")
    server.send(server.content())
    before = server.state()
    amend(server, lambda text: text.replace(written, instead))
    assert reason(server, round=2) == expected
    assert server.state() == before


@pytest.mark.parametrize("kept", [None, 0, 1])
def test_a_ledger_that_lost_what_was_released_is_declined(
    kept: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silos.app, "_open", silos.app._open.__wrapped__)  # as in a new process
    server = make_silo(tmp_path / "north")
    for number in (1, 2):
        server.send(server.content(round=number))
        with server.ledger() as ledger:
            ledger.export_json(tmp_path / f"{number}.json")
    for file in server.folder.glob("ledger.db*"):
        file.unlink()
    if kept == 0:
        Ledger.open(server.folder / "ledger.db", create=True).close()
    elif kept == 1:
        Ledger.import_json(tmp_path / "1.json", server.folder / "ledger.db").close()
    assert reason(server, round=3) == reason(server) == "declined (law)"
    assert spent(server.folder).startswith("unknown: ")
    with pytest.raises(LedgerError, match=r"no ledger there|does not hold all that its silo released"):
        account_ledgers([server.folder], delta=1e-5, epsilon=None, relation=None, membership=None, method="auto")
    for file in server.folder.glob("ledger.db*"):
        file.unlink()
    Ledger.import_json(tmp_path / "2.json", server.folder / "ledger.db").close()
    assert server.send(server.content(round=3)).has_content()


def test_records_that_changed_are_declined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = make_silo(tmp_path / "north")
    server.send(server.content())
    write_shard(server.folder / "shard.npz", make_shard(seed=1))
    monkeypatch.setattr(silos.app, "_open", silos.app._open.__wrapped__)  # as in a new process
    assert reason(server, round=2) == "declined (data)"


def test_a_test_seed_gives_the_same_bytes_and_voids_the_guarantee(tmp_path: Path) -> None:
    one, other = make_silo(tmp_path / "one", seeded), make_silo(tmp_path / "other", seeded)
    replies = [each.send(each.content(), run=run) for run, each in enumerate((one, other), start=5)]
    assert released(replies[0]) == released(replies[1])
    with one.ledger() as ledger, other.ledger() as again:
        assert ledger.head("north") == again.head("north")
        assert ledger.fixed("north" + LAW_CHAIN, NOISE) == TEST_NOISE
        assert ledger.runs() == ["rehearsal"]
        guarantee = Federation.from_ledger(ledger, Disjoint(), Relation.ADD_OR_REMOVE_ONE).guarantee(delta=1e-5)
    assert guarantee.epsilon == float("inf")
    assert "insecure test seed" in guarantee.void
    assert "not private" in guarantee.sentence()
    assert set(guarantee.heads) == {"north", "north" + LAW_CHAIN}
    amend(one, lambda text: text.replace(SEED.strip(), "").split("[insecure_test_seed]")[0])
    assert reason(one, round=2) == "declined (law)"


def test_without_a_test_seed_the_same_ledger_has_a_guarantee(tmp_path: Path) -> None:
    server = make_silo(tmp_path / "north")
    server.send(server.content())
    with server.ledger() as ledger:
        guarantee = Federation.from_ledger(ledger, Disjoint(), Relation.ADD_OR_REMOVE_ONE).guarantee(delta=1e-5)
    assert guarantee.epsilon < 6.0
    assert list(guarantee.per_silo) == ["north"]


def test_the_ledger_says_who_asked(tmp_path: Path) -> None:
    server = make_silo(tmp_path / "north")
    server.config["scenario"] = "hospitals\n"
    server.send(server.content(), run=11)
    with server.ledger() as ledger:
        told = ledger.fixed("north" + LAW_CHAIN, "run 11") or ""
    assert all(part in told for part in ('"server": "the tests"', '"flower run": "11"', "hospitals"))


@pytest.mark.parametrize("name", ["", "two\nlines", "\x00"])
def test_a_run_without_a_printable_name_is_declined(name: str, tmp_path: Path) -> None:
    server = make_silo(tmp_path / "north")
    server.config["run"] = name or " \t"
    assert reason(server) == "declined (run)"
    assert not (server.folder / "ledger.db").exists()


def test_a_folder_is_held_by_one_process_and_let_go_when_it_ends(tmp_path: Path) -> None:
    folder = SiloFolder(tmp_path)
    program = f"""
import fcntl, os, sys
held = os.open({str(tmp_path / "lock")!r}, os.O_RDWR | os.O_CREAT)
try:
    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.exit(3)
"""
    with folder.locked():
        assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 3
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
    with (tmp_path / "lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)


SENDER = """
import sys
from pathlib import Path
sys.path[:0] = {path!r}
from lying import Server, released
server = Server(Path(sys.argv[1]))
print(released(server.send(server.content())))
"""


@pytest.mark.slow
def test_two_processes_asked_the_same_at_once_release_the_same_and_charge_once(tmp_path: Path) -> None:
    server = make_silo(tmp_path / "north")
    program = SENDER.format(path=[str(Path(__file__).parent), *sys.path])
    command = [sys.executable, "-W", "ignore", "-c", program, str(server.folder)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = {process.communicate()[0] for process in started}
    assert [process.returncode for process in started] == [0, 0]
    assert len(answers) == 1
    with Ledger.open(server.folder / "ledger.db", read_only=True) as ledger:
        assert len(ledger.charges("north")) == 1


def test_each_allowed_model_is_told_by_its_weights_and_two_that_look_alike_are_no_law(tmp_path: Path) -> None:
    mlp = '[[models]]\nkind = "mlp"\nhidden = [3]\n'
    server = make_silo(tmp_path / "north", lambda text: text.replace("[budget]", f"{mlp}\n[budget]"))
    other = build_model("mlp", input_shape=(FEATURES,), outputs=1, hidden=(3,), seed=1)
    assert server.send(server.content()).has_content()
    assert server.send(server.content(weights_of(other), round=2)).has_content()
    third = build_model("mlp", input_shape=(FEATURES,), outputs=1, hidden=(4,), seed=1)
    reply = server.send(server.content(weights_of(third), round=3))
    assert str(reply.error.reason).startswith("declined (model)")
    alike = mlp + mlp + 'activation = "relu"\n'
    server = make_silo(tmp_path / "alike", lambda text: text.replace("[budget]", f"{alike}\n[budget]"))
    assert reason(server) == "failed"
