"""One run of a sweep, in whichever process: it starts, or goes on where it was killed, and leaves its rows."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from scenarios._account import SCENARIO
from scenarios._checkpoint import write_atomically
from scenarios._runner import run_prepared
from scenarios._simulation import Progress
from scenarios.data._dataset import Dataset, prepare
from scenarios.spec._load import load
from scenarios.spec._scenario import Scenario
from scenarios.sweeps._rows import majority_rows, rows_of
from scenarios.sweeps._runs import MAJORITY, SweepRun, expand
from scenarios.sweeps._table import ROWS, RUNS, SWEEP, to_csv

_KEPT = 2
"""Prepared datasets that a process keeps: the silos' and the pooled one of a seed."""


class Runs:
    """The runs of a sweep's folder; keeps what several of them need.

    Args:
        folder: the sweep's.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._runs = {run.name: run for run in expand(load(folder / SWEEP))}
        self._datasets: dict[bytes, Dataset] = {}

    def do(self, name: str, progress: Callable[[Progress], None] | None = None) -> None:
        """Do the run of this name, from wherever it was left; a run that is done stays as it is.

        Raises:
            SilodpError: where it cannot be done.
        """
        run, folder = self._runs[name], self._folder / RUNS / name
        if (folder / ROWS).exists():
            return
        dataset = self._dataset(run.scenario)
        if run.method == MAJORITY:
            rows = _majority(run, dataset, folder)
        else:
            if folder.exists() and not (folder / SCENARIO).exists():
                shutil.rmtree(folder)  # killed before it began: nothing was released
            result = run_prepared(
                run.scenario, dataset, out=folder, resume=folder.exists(), workers=1, progress=progress
            )
            rows = rows_of(run, dataset, result)
        write_atomically(folder / ROWS, rows.to_parquet(index=False))

    def _dataset(self, scenario: Scenario) -> Dataset:
        key = _read_by_prepare(scenario)
        if key not in self._datasets:
            while len(self._datasets) >= _KEPT:
                del self._datasets[next(iter(self._datasets))]
            self._datasets[key] = prepare(scenario)
        return self._datasets[key]


def _majority(run: SweepRun, dataset: Dataset, folder: Path) -> pd.DataFrame:
    folder.mkdir(parents=True, exist_ok=True)
    rows, metrics = majority_rows(run, dataset)
    write_atomically(folder / "metrics.csv", to_csv(metrics))
    return rows


def _read_by_prepare(scenario: Scenario) -> bytes:
    """All of a scenario that its dataset depends on."""
    read = {"data": ..., "silos": ..., "seed": ..., "evaluation": {"test_fraction"}, "privacy": {"unit"}}
    return json.dumps(scenario.model_dump(mode="json", include=read), sort_keys=True).encode()
