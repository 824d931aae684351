"""A sweep as a whole: the table is what the runs say alone, and no kill changes it or counts a run twice."""

import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.metrics import log_loss, mean_squared_error

from accounting import Ledger
from scenarios import load, prepare, results, run, sweep
from scenarios._errors import RunError
from scenarios.cli import main
from scenarios.sweeps import _sweep
from scenarios.sweeps import _workers as _sweep_workers
from scenarios.sweeps._one import Runs
from scenarios.sweeps._runs import expand
from scenarios.sweeps._workers import Told

TABLES = ("results.csv", "results.parquet")


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are done in this process: starting others takes seconds."""

    def work(folder: Path, names: Sequence[str], *, tell: Callable[[Told], None], **_: object) -> None:
        runs = Runs(folder)
        for name in names:
            runs.do(name)
            tell(Told(run=name, part=1))

    monkeypatch.setattr(_sweep, "work", work)


def charges(folder: Path) -> dict[str, list[str]]:
    """What each run's ledger holds."""
    found = {}
    for path in sorted(folder.glob("runs/*/ledger.db")):
        with Ledger.open(path, read_only=True) as ledger:
            ledger.verify()
            found[path.parent.name] = [repr(row) for silo in ledger.silos() for row in ledger.rows(silo)]
    return found


@pytest.mark.usefixtures("in_process")
def test_the_table_holds_what_each_run_says_alone(scenario_file: Path, tmp_path: Path) -> None:
    over = {"epsilon": [3], "training.clip_norm": [0.5]}
    table = sweep(scenario_file, over=over, baselines=["no-privacy", "pooled"], out=tmp_path / "sweep")
    assert list(table.columns[:8]) == [
        *("run", "scenario", "method", "epsilon", "seed", "training.clip_norm", "silo", "records")
    ]
    assert len(table) == 3 * 4
    assert not table.duplicated(["run", "silo"]).any()
    alone = run(load(scenario_file, ["privacy.epsilon=3", "training.clip_norm=0.5"]), out=tmp_path / "alone")
    rows = table[table["run"] == "fedavg-epsilon=3-clip_norm=0.5-seed=3"].set_index("silo")
    last = alone.metrics[alone.metrics["round"] == 4]
    for silo, metric, value in last[["silo", "metric", "value"]].itertuples(index=False):
        assert rows.loc[silo, metric] == value
    assert rows["epsilon_spent"].to_dict() == alone.guarantee.per_silo | {"all": alone.guarantee.epsilon}
    shards = prepare(alone.scenario).shards
    assert rows["records"].drop("all").to_dict() == {name: len(shard) for name, shard in shards.items()}
    pooled = table[(table["method"] == "pooled") & (table["epsilon"] == 3)]
    assert pooled["epsilon_spent"].between(0.998 * 3, 3).all()
    assert set(pooled["silo"]) == {"all", "north", "south", "west"}
    pd.testing.assert_frame_equal(table, results(tmp_path / "sweep"))
    pd.testing.assert_frame_equal(table, pd.read_parquet(tmp_path / "sweep/results.parquet"))
    written = pd.read_csv(tmp_path / "sweep/results.csv")
    pd.testing.assert_frame_equal(table, written, check_dtype=False, rtol=1e-12, atol=0)


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("regression", [False, True])
def test_majority_is_the_dummy_model_of_scikit_learn(scenario_file: Path, tmp_path: Path, regression: bool) -> None:
    label = [
        "data.task=regression",
        "data.label={column='dose', low=-3, high=3}",
        "data.features={age={low=0,high=90}}",
    ]
    scenario = load(scenario_file, label if regression else [])
    table = sweep(scenario, baselines=["majority"], out=tmp_path / "sweep").query("method == 'majority'")
    data = prepare(scenario)
    labels = np.concatenate([shard.labels for shard in data.shards.values()])
    dummy = DummyRegressor() if regression else DummyClassifier()
    dummy.fit(np.zeros((len(labels), 1)), labels)
    for silo, row in table.set_index("silo").iterrows():
        held = data.test_labels[(data.test_silos == silo) | (silo == "all")]
        inputs = np.zeros((len(held), 1))
        if regression:
            error = mean_squared_error(held, dummy.predict(inputs)) ** 0.5 * data.label_scale
            assert row["rmse"] == pytest.approx(error, rel=1e-6)
        else:
            assert row["accuracy"] == dummy.score(inputs, held)
            assert row["loss"] == pytest.approx(log_loss(held, dummy.predict_proba(inputs), labels=[0, 1]))
            assert row["auc"] == 0.5
    assert table["epsilon_spent"].eq(np.inf).all()


@pytest.mark.usefixtures("in_process")
def test_a_folder_of_anything_else_is_refused(scenario_file: Path, tmp_path: Path, monkeypatch) -> None:
    folder = tmp_path / "sweep"
    sweep(scenario_file, baselines=["majority"], out=folder)
    before = {name: (folder / name).read_bytes() for name in TABLES}
    with pytest.raises(RunError, match="another sweep"):
        sweep(scenario_file, seeds=2, out=folder)
    with pytest.raises(RunError, match="not empty"):
        sweep(scenario_file, out=scenario_file.parent)
    with pytest.raises(RunError, match="no sweep"):
        results(tmp_path)
    monkeypatch.setattr(_sweep, "_PATIENCE", 0.0)
    with _sweep._held(folder), pytest.raises(RunError, match="going on"):
        sweep(scenario_file, baselines=["majority"], out=folder)
    assert {name: (folder / name).read_bytes() for name in TABLES} == before


def test_runs_that_fail_are_told_and_a_killed_worker_costs_nothing(
    scenario_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers: list[subprocess.Popen[bytes]] = []

    class Recorded(subprocess.Popen):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            workers.append(self)

    def kill_the_first(now: _sweep.SweepProgress) -> None:
        if len(workers) == 1 and 0 < now.parts[now.run] < 1:
            workers[0].send_signal(signal.SIGKILL)

    monkeypatch.setattr(_sweep_workers.subprocess, "Popen", Recorded)
    scenario = _sweep.resolve(load(scenario_file), {"model.kind": ["linear", "nowhere:model"]}, 1, ["majority"])
    failed = _sweep.run_sweep(scenario, tmp_path / "killed", jobs=1, progress=kill_the_first)
    assert [worker.returncode for worker in workers] == [-signal.SIGKILL, 0]
    assert list(failed) == ["fedavg-kind=nowhere-model-seed=3"]
    assert "nowhere" in failed["fedavg-kind=nowhere-model-seed=3"]
    listed = pd.read_csv(tmp_path / "killed/failures.csv")
    assert listed["run"].tolist() == list(failed)

    monkeypatch.setattr(
        _sweep,
        "work",
        lambda folder, names, **_: [
            Runs(folder).do(name) for name in names if not name.startswith("fedavg-kind=nowhere")
        ],
    )
    _sweep.run_sweep(scenario, tmp_path / "whole")
    for name in TABLES:
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert charges(tmp_path / "killed") == charges(tmp_path / "whole")
    assert len(charges(tmp_path / "whole")) == 1


@pytest.mark.usefixtures("in_process")
def test_the_command_line_says_what_the_section_does(scenario_file: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    words = ["silodp", "sweep", str(scenario_file), "--over", "epsilon=1", "--seeds", "2", "--baselines", "majority"]
    monkeypatch.setattr("sys.argv", [*words, "--out", str(tmp_path / "told"), "--set", "training.rounds=1"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert not stopped.value.code, capsys.readouterr().err
    section = '\n[sweep]\nseeds = 2\nbaselines = ["majority"]\nover = { epsilon = [1] }\n'
    scenario_file.write_text(scenario_file.read_text("utf-8").replace("rounds = 4", "rounds = 1") + section, "utf-8")
    sweep(scenario_file, out=tmp_path / "written")
    assert [run.name for run in expand(load(scenario_file))] == results(tmp_path / "told")["run"].unique().tolist()
    for name in (*TABLES, "sweep.toml"):
        assert (tmp_path / "told" / name).read_bytes() == (tmp_path / "written" / name).read_bytes()
