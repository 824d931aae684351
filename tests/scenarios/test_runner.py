"""A run as a whole: executed equals planned, the same seed gives the same bytes, and a killed run goes on."""

import json
import math
import re
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from accounting import Ledger, LedgerCorrupt, LedgerError, epsilon
from scenarios import ScenarioError, load, run
from scenarios._errors import RunError
from scenarios._simulation import Progress
from scenarios.data._dataset import is_held_out
from silos import Declined

RESULTS = ("model.safetensors", "metrics.csv", "metrics.parquet", "failures.csv", "guarantee.json", "report.html")
METRICS = ["evaluation.silo_metrics=true", "evaluation.metric_epsilon=1.0"]


def content(folder: Path) -> dict[str, bytes]:
    """Everything a run came to; the ledger by its rows, since SQLite's pages may lie differently."""
    with Ledger.open(folder / "ledger.db", read_only=True) as ledger:
        rows = {silo: repr(ledger.rows(silo)).encode() for silo in ledger.silos()}
    return {name: (folder / name).read_bytes() for name in RESULTS} | rows


def test_executed_steps_in_every_ledger_equal_the_plan(scenario_file: Path, tmp_path: Path) -> None:
    result = run(load(scenario_file), out=tmp_path / "run")
    with Ledger.open(tmp_path / "run" / "ledger.db", read_only=True) as ledger:
        ledger.verify(result.guarantee.heads)
        for part in result.plan.silos:
            releases = ledger.releases(part.silo)
            assert sum(release.steps for release in releases) == part.steps == 12
            assert len(releases) == 4
    assert set(result.guarantee.per_silo) == {"north", "south", "west"}


def test_the_guarantee_meets_the_target_and_is_not_far_below_it(scenario_file: Path, tmp_path: Path) -> None:
    guarantee = run(load(scenario_file), out=tmp_path / "run").guarantee
    assert 0.998 * 2.0 <= guarantee.epsilon <= 2.0
    assert "individual with at most 1 record" in guarantee.sentence()


def test_the_guarantee_is_the_worst_silos_whole_composition(scenario_file: Path, tmp_path: Path) -> None:
    # Silos of different noise: the federation costs what the noisiest budget costs, over all of its rounds at once.
    scenario = load(scenario_file, ["privacy.silos.west.epsilon=5.0", "privacy.silos.north.noise_multiplier=1.5"])
    result = run(scenario, out=tmp_path / "run")
    with Ledger.open(result.folder / "ledger.db", read_only=True) as ledger:
        west = epsilon(ledger.releases("west"), relation=scenario.privacy.relation, delta=1e-3).epsilon
        one_round = epsilon(ledger.releases("west")[:1], relation=scenario.privacy.relation, delta=1e-3).epsilon
    assert result.guarantee.epsilon == west
    assert result.guarantee.worst == ("west",)
    assert one_round < west / 1.5
    assert len(set(result.guarantee.per_silo.values())) == 3


def test_the_same_command_twice_gives_the_same_bytes(scenario_file: Path, tmp_path: Path) -> None:
    first = run(load(scenario_file), out=tmp_path / "first")
    run(load(scenario_file), out=tmp_path / "second")
    assert content(tmp_path / "first") == content(tmp_path / "second")
    other = run(load(scenario_file, seed=4), out=tmp_path / "third")
    assert any(not np.array_equal(first.model[name], other.model[name]) for name in first.model)


def test_a_changed_scenario_draws_other_noise_under_the_same_seed(scenario_file: Path, tmp_path: Path) -> None:
    # Equal noise under two learning rates would make the updates proportional, noise and all.
    one_step = ["training.rounds=1", "training.local_steps=1"]
    updates = []
    for rate in (1e-3, 2e-3):
        scenario = load(scenario_file, [*one_step, f"training.learning_rate={rate}"])
        result = run(scenario, out=tmp_path / str(rate))
        start = load_file(run_start(scenario, tmp_path / f"{rate}-start"))
        updates.append(np.concatenate([(result.model[name] - start[name]).ravel() / rate for name in start]))
    assert abs(np.corrcoef(*updates)[0, 1]) < 0.9


def run_start(scenario, folder: Path) -> Path:
    """The untrained model, by a run whose learning rate moves nothing."""
    still = scenario.model_copy(update={"training": scenario.training.model_copy(update={"learning_rate": 1e-30})})
    return run(still, out=folder).folder / "model.safetensors"


KILLED = """
import os, signal, sys
from scenarios import load, run

def kill(now):
    if now.round == int(sys.argv[3]) and now.silo == sys.argv[4]:
        os.kill(os.getpid(), signal.SIGKILL)

run(load(sys.argv[1], sys.argv[5:]), out=sys.argv[2], progress=kill)
"""


@pytest.mark.parametrize(
    ("strategy", "round", "silo"), [("fedavg", 0, "north"), ("fedavgm", 2, "south"), ("fedadam", 3, "west")]
)
def test_a_killed_run_resumes_to_the_same_bytes(
    scenario_file: Path, tmp_path: Path, strategy: str, round: int, silo: str
) -> None:
    override = f'training.strategy.name="{strategy}"'
    run(load(scenario_file, [override]), out=tmp_path / "whole")
    arguments = [str(scenario_file), str(tmp_path / "killed"), str(round), silo, override]
    killed = subprocess.run([sys.executable, "-c", KILLED, *arguments], check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    run(load(scenario_file, [override]), out=tmp_path / "killed", resume=True)
    assert content(tmp_path / "whole") == content(tmp_path / "killed")


def test_a_round_that_was_charged_but_not_checkpointed_is_charged_once(scenario_file: Path, tmp_path: Path) -> None:
    run(load(scenario_file), out=tmp_path / "whole")
    (tmp_path / "whole" / "checkpoint.safetensors").unlink()
    before = content(tmp_path / "whole")
    run(load(scenario_file), out=tmp_path / "whole", resume=True)
    assert content(tmp_path / "whole") == before


def test_a_run_whose_ledger_lost_rounds_does_not_resume(scenario_file: Path, tmp_path: Path) -> None:
    # Whatever rounds came after would be priced alone: a guarantee that is too small.
    folder, cut = tmp_path / "run", tmp_path / "cut.db"

    def copy_after_two_rounds(now: Progress) -> None:
        if now.round == 2 and now.silo is None:
            with sqlite3.connect(folder / "ledger.db") as whole, sqlite3.connect(cut) as copy:
                whole.backup(copy)

    run(load(scenario_file), out=folder, progress=copy_after_two_rounds)
    (folder / "ledger.db").unlink()
    with pytest.raises(LedgerError, match="no ledger"):
        run(load(scenario_file), out=folder, resume=True)
    (folder / "ledger.db").touch()
    with pytest.raises(LedgerError, match=r"empty.*saw 4 rounds: put back"):
        run(load(scenario_file), out=folder, resume=True)
    (folder / "ledger.db").unlink()
    cut.rename(folder / "ledger.db")
    with pytest.raises(LedgerCorrupt):
        run(load(scenario_file), out=folder, resume=True)


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("held_out", [True, False])
def test_a_shard_that_changed_under_its_ledger_is_refused_with_the_reason(
    scenario_file: Path, tmp_path: Path, kept: bool, held_out: bool
) -> None:
    folder, scenario = tmp_path / "run", load(scenario_file, [*METRICS, "training.rounds=1"])
    run(scenario, out=folder)
    if not kept:
        (folder / "checkpoint.safetensors").unlink()
    with Ledger.open(folder / "ledger.db", read_only=True) as ledger:
        before = ledger.heads()
    table = pd.read_csv(scenario_file.parent / "people.csv")
    moved = [is_held_out(one, seed=scenario.seed, fraction=0.2) is held_out for one in table["id"]]
    table.loc[moved, "dose"] += 0.001
    table.to_csv(scenario_file.parent / "people.csv", index=False)
    with pytest.raises(Declined, match=rf"{'held-out ' * held_out}shard of silo 'north'.*2411\.03299"):
        run(load(scenario_file, [*METRICS, "training.rounds=1"]), out=folder, resume=True)
    with Ledger.open(folder / "ledger.db", read_only=True) as ledger:
        assert ledger.heads() == before


def test_resume_refuses_another_scenario(scenario_file: Path, tmp_path: Path) -> None:
    run(load(scenario_file), out=tmp_path / "run")
    before = content(tmp_path / "run")
    with pytest.raises(RunError, match="another scenario"):
        run(load(scenario_file, ["training.learning_rate=0.1"]), out=tmp_path / "run", resume=True)
    (tmp_path / "mangled").mkdir()
    (tmp_path / "mangled" / "scenario.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(RunError, match="another scenario"):
        run(load(scenario_file), out=tmp_path / "mangled", resume=True)
    with pytest.raises(RunError, match="not empty"):
        run(load(scenario_file), out=tmp_path / "run")
    with pytest.raises(RunError, match="no run to resume"):
        run(load(scenario_file), out=tmp_path / "nowhere", resume=True)
    assert content(tmp_path / "run") == before
    assert not (tmp_path / "nowhere").exists()


def test_a_folder_in_use_is_refused_before_the_data_are_read(scenario_file: Path, tmp_path: Path) -> None:
    scenario = load(scenario_file, ["data.source=csv:absent.csv"])
    (tmp_path / "notes.txt").touch()
    with pytest.raises(RunError, match="not empty"):
        run(scenario, out=tmp_path)
    with pytest.raises(RunError, match="is a file"):
        run(scenario, out=tmp_path / "notes.txt")


def test_no_noise_is_an_infinite_epsilon_and_says_so(scenario_file: Path, tmp_path: Path) -> None:
    result = run(load(scenario_file, ["privacy.epsilon=inf"]), out=tmp_path / "run")
    assert math.isinf(result.guarantee.epsilon)
    assert "no guarantee" in result.guarantee.sentence()
    assert json.loads((tmp_path / "run" / "guarantee.json").read_text())["epsilon"] == "inf"


def test_a_scenario_that_cannot_run_writes_nothing(scenario_file: Path, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="expected_batch = 100 is more"):
        run(load(scenario_file, ["training.expected_batch=100"]), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_report_needs_no_network(scenario_file: Path, tmp_path: Path) -> None:
    run(load(scenario_file), out=tmp_path / "run")
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert page.count("<svg") == 2
    for outside in ("src=", "@import"):
        assert outside not in page
    links = re.findall(r"""href="([^"]*)|url\(([^)]*)""", page)
    assert links
    assert all("".join(link).startswith(("#", "data:")) for link in links)
