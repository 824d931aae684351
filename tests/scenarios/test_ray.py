"""A run on Ray is the run in this process: model, metrics, guarantee and ledgers alike, also after it was stopped."""

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from accounting import Ledger
from scenarios import load, run
from scenarios._errors import RunError
from scenarios._runner import GridName
from scenarios._simulation import Progress

RESULTS = ("model.safetensors", "metrics.csv", "failures.csv", "guarantee.json", "report.html")
CHANGES = (
    "training.rounds=3",
    'privacy.relation="add-or-remove-one"',
    "privacy.size_epsilon=0.3",
    "evaluation.silo_metrics=true",
    "evaluation.metric_epsilon=1.0",
    "events.silos.south.crash_after_charge=[2]",
    "events.silos.north.late=[3]",
    "privacy.silos.west.epsilon=2.0",
    "privacy.silos.west.budget=1.5",
)


def content(folder: Path) -> dict[str, bytes]:
    with Ledger.open(folder / "ledger.db", read_only=True) as ledger:
        rows = {silo: repr(ledger.rows(silo)).encode() for silo in ledger.silos()}
    return {name: (folder / name).read_bytes() for name in RESULTS} | rows


def run_on_ray(file: Path, out: Path, *options: str) -> None:
    """In a process of its own, as Ray warns of much and leaves threads behind."""
    changes = [part for change in CHANGES for part in ("--set", change)]
    command = [sys.executable, "-m", "scenarios.cli", "run", str(file), *changes, "--out", str(out), "--grid", "ray"]
    done = subprocess.run([*command, *options], check=False, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra ray")
def test_a_run_on_ray_gives_the_bytes_of_one_in_process_also_when_it_was_stopped(
    scenario_file: Path, tmp_path: Path
) -> None:
    here, there, kept = tmp_path / "here", tmp_path / "there", tmp_path / "kept"

    def keep(now: Progress) -> None:
        if now.round == 1 and now.silo is None:
            kept.mkdir()
            for name in ("ledger.db", "ledger.db-wal", "checkpoint.safetensors"):
                shutil.copy(here / name, kept)

    run(load(scenario_file, CHANGES), out=here, workers=1, progress=keep)
    expected = content(here)
    assert expected["failures.csv"].count(b"\n") > 2

    run_on_ray(scenario_file, there)
    assert content(there) == expected
    owned: dict[str, object] = {}
    for file in sorted((there / "ledgers").glob("*.db")):
        with Ledger.open(file, read_only=True) as own:
            owned |= {silo: repr(own.rows(silo)).encode() for silo in own.silos()}
    assert owned == {silo: rows for silo, rows in expected.items() if silo not in RESULTS}

    # As a driver leaves it that was killed in round 2: the silos' own ledgers are ahead of the run's.
    for path in there.glob("ledger.db*"):
        path.unlink()
    shutil.copytree(kept, there, dirs_exist_ok=True)
    run_on_ray(scenario_file, there, "--resume")
    assert content(there) == expected


@pytest.mark.parametrize(
    ("grid", "address", "workers", "message"),
    [
        ("ray", None, 2, "workers=2"),
        ("in-process", "auto", None, "ray, which alone has an address"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    scenario_file: Path, tmp_path: Path, grid: GridName, address: str | None, workers: int | None, message: str
) -> None:
    with pytest.raises(RunError, match=message):
        run(load(scenario_file), out=tmp_path / "run", grid=grid, ray_address=address, workers=workers)
    assert not (tmp_path / "run").exists()
