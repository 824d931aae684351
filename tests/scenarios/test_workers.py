"""A run is the same bytes whatever processes trained it, and however often they died."""

import json
import os
import signal
from pathlib import Path

import pytest

from accounting import InvalidValue, Ledger
from scenarios import load, run
from scenarios._simulation import Progress

RESULTS = ("model.safetensors", "metrics.csv", "failures.csv", "guarantee.json", "report.html", "scenario.toml")
EVENTS = ["events.silos.south.late=[2]", "events.silos.west.offline=[1]"]


def content(folder: Path) -> dict[str, bytes]:
    """Everything a run came to; the ledger by its rows and heads."""
    with Ledger.open(folder / "ledger.db", read_only=True) as ledger:
        rows = {silo: repr(ledger.rows(silo)).encode() for silo in ledger.silos()}
        heads = {"heads": repr(ledger.heads()).encode()}
    return {name: (folder / name).read_bytes() for name in RESULTS} | rows | heads


def kill_a_worker(now: Progress) -> None:
    """Before each round but the first, as soon as a silo is asked."""
    if now.round and now.silo == "north":
        children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
        workers = [pid for pid in children if "silos._worker" in Path(f"/proc/{pid}/cmdline").read_text()]
        os.kill(int(workers[0]), signal.SIGKILL)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="finds workers in /proc")
@pytest.mark.parametrize("engine", ["fleet", pytest.param("opacus", marks=pytest.mark.slow)])
def test_one_process_and_two_workers_of_which_one_dies_give_the_same_bytes(
    scenario_file: Path, tmp_path: Path, engine: str
) -> None:
    changes = [f"training.engine={engine}", "training.rounds=2", "training.momentum=0.5", *EVENTS]
    run(load(scenario_file, changes), out=tmp_path / "one", workers=1)
    run(load(scenario_file, changes), out=tmp_path / "two", workers=2, progress=kill_a_worker)
    assert content(tmp_path / "one") == content(tmp_path / "two")
    timings = [json.loads((tmp_path / name / "timings.json").read_text()) for name in ("one", "two")]
    assert [each["workers"] for each in timings] == [1, 2]


def test_a_small_run_trains_in_its_own_process(scenario_file: Path, tmp_path: Path) -> None:
    run(load(scenario_file, ["training.rounds=1"]), out=tmp_path / "run")
    assert json.loads((tmp_path / "run" / "timings.json").read_text())["workers"] == 1


def test_no_workers_are_refused_before_anything_is_written(scenario_file: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="workers=0"):
        run(load(scenario_file), out=tmp_path / "run", workers=0)
    assert not (tmp_path / "run").exists()
