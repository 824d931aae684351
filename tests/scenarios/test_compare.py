"""Comparisons: differences are paired by seed and by what was swept, and said no more surely than the seeds allow."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_sweep import make_sweep
from scipy.stats import t

from accounting import InvalidValue
from scenarios import compare, load, run
from scenarios.cli import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of two strategies and the baseline alone, at two epsilons."""
    path = tmp_path_factory.mktemp("made") / "sweep"
    make_sweep(path, epsilons=[0.5, 2.0], baselines=["alone"])
    return path


def differences(folder: Path, a: str, b: str, at: float, metric: str = "auc") -> np.ndarray:
    """Seed by seed, from the rows of the runs alone."""
    found = []
    for seed in range(1, 6):
        values = [
            pd.read_parquet(folder / "runs" / f"{method}-epsilon={at:g}-seed={seed}" / "rows.parquet")[metric][0]
            for method in (a, b)
        ]
        found.append(values[1] - values[0])
    return np.array(found)


def test_two_methods_of_a_sweep_are_compared_by_seed_and_epsilon(folder: Path) -> None:
    found = compare(f"{folder}:fedavg", f"{folder}:fedavgm")
    for at in (0.5, 2.0):
        expected = differences(folder, "fedavg", "fedavgm", at)
        row = found[(found["metric"] == "auc") & (found["epsilon"] == at)].iloc[0]
        assert row["difference"] == pytest.approx(expected.mean())
        assert row["b"] - row["a"] == pytest.approx(expected.mean())
        assert row["seeds"] == 5
        # As wide as Student's interval, but for the few values that five seeds have.
        half = t.ppf(0.975, 4) * expected.std(ddof=1) / np.sqrt(5)
        assert 0.5 * 2 * half < row["high"] - row["low"] <= 1.1 * 2 * half


def test_better_is_the_larger_metric_and_the_smaller_loss(folder: Path) -> None:
    found = compare(f"{folder}:fedavg", f"{folder}:alone").set_index(["metric", "epsilon"])
    for metric in ("auc", "loss", "calibration_error", "silo_worst"):
        assert found.loc[(metric, 2.0), "better"] == "a", metric
    assert found.loc[("auc", 2.0), "difference"] < 0 < found.loc[("loss", 2.0), "difference"]
    assert (
        compare(f"{folder}:alone", f"{folder}:fedavg").set_index(["metric", "epsilon"]).loc[("loss", 2.0), "better"]
        == "b"
    )


def test_a_thing_is_no_better_than_itself(folder: Path) -> None:
    found = compare(folder, folder)
    assert (found["difference"] == 0).all()
    assert set(found["better"]) == {""}
    assert set(found["method"]) == {"fedavg", "fedavgm", "alone"}


def test_only_seeds_that_both_have_are_paired(folder: Path, tmp_path: Path) -> None:
    part = tmp_path / "part"
    shutil.copytree(folder, part)
    for seed in (1, 2):
        (part / "runs" / f"fedavg-epsilon=2-seed={seed}" / "rows.parquet").unlink()
    found = compare(f"{folder}:fedavgm", f"{part}:fedavg").set_index(["metric", "epsilon"])
    assert found.loc[("auc", 2.0), "seeds"] == 3
    expected = -differences(folder, "fedavg", "fedavgm", 2.0)[2:]
    row = found.loc[("auc", 2.0)]
    assert (row["difference"], row["low"], row["high"]) == pytest.approx(
        (expected.mean(), expected.min(), expected.max())
    )
    assert row["better"] == ""


def test_two_runs_have_a_difference_and_no_interval(scenario_file: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    results = {
        epsilon: run(load(scenario_file, ["training.rounds=2", f"privacy.epsilon={epsilon}"]), out=tmp_path / epsilon)
        for epsilon in ("1.0", "8.0")
    }
    monkeypatch.setattr(
        sys,
        "argv",
        ["silodp", "compare", *(str(tmp_path / each) for each in results), "--csv", str(tmp_path / "c.csv")],
    )
    with pytest.raises(SystemExit) as stopped:
        main()
    assert not stopped.value.code
    assert "no interval, of one seed" in capsys.readouterr().out
    row = pd.read_csv(tmp_path / "c.csv").set_index("metric").loc["auc"]
    for name, result in zip(("a", "b"), results.values(), strict=True):
        rows = result.metrics
        assert row[name] == rows[(rows["silo"] == "all") & (rows["metric"] == "auc")]["value"].iloc[-1]
    assert np.isnan(row["low"])


def test_what_cannot_be_paired_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="has no method 'fedprox'; it has fedavg, fedavgm, alone"):
        compare(f"{folder}:fedprox", folder)
    make_sweep(tmp_path / "other", epsilons=[8.0], strategies=["fedavg"], baselines=[])
    with pytest.raises(InvalidValue, match=r"No run of .*; epsilon is 0\.5, 2\.0 in A and 8\.0 in B\."):
        compare(f"{folder}:fedavg", f"{tmp_path / 'other'}:fedavg")


@pytest.mark.slow
def test_a_sweep_is_reported_and_compared_by_commands(scenario_file: Path, tmp_path: Path) -> None:
    def silodp(*words: str) -> str:
        command = [sys.executable, "-m", "scenarios.cli", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    folder = tmp_path / "sweep"
    baselines = "no-privacy,alone,pooled,majority"
    silodp("sweep", str(scenario_file), "--over", "epsilon=1,4", "--baselines", baselines, "--out", str(folder))
    assert "report.html" in silodp("report", str(folder))
    text = (folder / "report" / "report.html").read_text("utf-8")
    kept = [json.loads(path.read_text()) for path in folder.glob("runs/fedavg-*/guarantee.json")]
    assert len(kept) == 2
    assert sum(one["sentence"] in text for one in kept) == 1
    assert "There is one seed" in text
    assert "better" in silodp("compare", f"{folder}:alone", f"{folder}:fedavg")
