"""A study: one scenario's results in a folder, of a sweep or of a single run, and the run folders behind them."""

import json
import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from accounting import Guarantee
from scenarios._account import LEDGER
from scenarios._checkpoint import WHOLE
from scenarios._errors import RunError, reading
from scenarios._noisy_metrics import PREFIX
from scenarios._outcome import HEADLINE
from scenarios._runner import SCENARIO
from scenarios.reports._frames import column, where
from scenarios.reports._summary import per_run
from scenarios.spec._load import load
from scenarios.spec._sweep import BASELINES
from scenarios.sweeps._runs import expand
from scenarios.sweeps._sweep import FAILURES
from scenarios.sweeps._sweep import results as results_of_sweep
from scenarios.sweeps._table import RUNS, SWEEP

_JUDGES = (*HEADLINE.values(), *(PREFIX + name for name in HEADLINE.values()))
"""What a study is judged by: the first of these that it has; a binary task has an accuracy too."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Study:
    """One scenario's results.

    Attributes:
        name: of the scenario.
        folder: of the sweep or the run.
        results: a row per run and silo; see `scenarios.reports._summary`.
        metric: the one that it is judged by.
    """

    name: str
    folder: Path
    results: pd.DataFrame
    metric: str

    @cached_property
    def runs(self) -> pd.DataFrame:
        """Measures of each run, and its ``seconds``."""
        runs = per_run(self.results, self.metric)
        return runs.assign(seconds=[_seconds(self.path(run)) for run in runs["run"]])

    @cached_property
    def contenders(self) -> pd.DataFrame:
        """The runs of strategies, with a finite epsilon: what the server saw of a private federation."""
        strategy = ~column(self.runs, "method").isin(BASELINES)
        return where(self.runs, strategy & (self.runs["epsilon"] != float("inf")))

    def at(self, label: str, epsilon: float | None = None) -> pd.DataFrame:
        """The runs of a label, at one epsilon or at all."""
        chosen = self.runs["label"] == label
        return where(self.runs, chosen if epsilon is None else chosen & (self.runs["epsilon"] == epsilon))

    def path(self, run: str) -> Path:
        """The folder of a run."""
        return self.folder / RUNS / run if (self.folder / SWEEP).exists() else self.folder

    def by_round(self, run: str) -> pd.DataFrame:
        """The run's metrics by round: columns round, silo, metric, value; empty where none were kept."""
        path = self.path(run) / "metrics.csv"
        with reading(path):
            return pd.read_csv(path) if path.exists() else pd.DataFrame(columns=["round", "silo", "metric", "value"])

    def failures(self, run: str) -> int:
        """Silo-rounds of the run that failed."""
        path = self.path(run) / FAILURES
        with reading(path):
            return len(pd.read_csv(path)) if path.exists() else 0

    def guarantee(self, run: str) -> Guarantee | None:
        """What the run alone gave away; None of a run that kept no guarantee, such as a majority's."""
        path = self.path(run) / "guarantee.json"
        return _guarantee(path) if path.exists() else None

    @cached_property
    def seeded_silos(self) -> bool:
        """Whether silos of one name hold other individuals under another seed."""
        silos = self.scenario["silos"]
        return "partition" in silos and "seed" not in silos

    @cached_property
    def scenario(self) -> dict:
        """The scenario of the first run, as its TOML says."""
        kept = (self.path(run) for run in self.runs["run"])
        return _scenario(next((folder for folder in kept if (folder / SCENARIO).exists()), self.folder))

    @property
    def seeds(self) -> int:
        """How many seeds a method has at most."""
        return max(column(group, "seed").nunique() for _, group in self.runs.groupby("label"))

    def counted(self) -> str:
        """How much there is of it, in words."""
        silos = len(set(column(self.results, "silo")) - {WHOLE})
        counts = {"silo": silos, "run": len(self.runs), "seed": self.seeds}
        return ", ".join(f"{count} {noun}{'s' * (count != 1)}" for noun, count in counts.items())

    def specification(self) -> tuple[str, str]:
        """The file that says what was run, and its text."""
        name = SWEEP if (self.folder / SWEEP).exists() else SCENARIO
        path = self.folder / name
        return name, path.read_text("utf-8") if path.exists() else ""

    @cached_property
    def broken(self) -> int:
        """Runs of the sweep that failed."""
        path = self.folder / FAILURES
        with reading(path):
            return len(pd.read_csv(path)) if (self.folder / SWEEP).exists() and path.exists() else 0

    @cached_property
    def unfinished(self) -> list[Path]:
        """Folders of private runs of the federation that charged silos and are not in the results."""
        if not (self.folder / SWEEP).exists():
            return []
        known = set(column(self.results, "run"))
        left = [run for run in expand(load(self.folder / SWEEP)) if run.name not in known]
        private = [self.path(run.name) for run in left if run.method not in BASELINES and not math.isinf(run.epsilon)]
        return [folder for folder in private if (folder / LEDGER).exists()]


def read_studies(folders: Sequence[Path]) -> list[Study]:
    """The studies in folders, each of a sweep or of one run.

    Raises:
        RunError: for a folder that is neither, or has no finished run.
    """
    return [study for folder in folders for study in _studies(folder)]


def _studies(folder: Path) -> list[Study]:
    results = read_results(folder)
    found = []
    for name, rows in results.groupby("scenario", sort=False):
        own = rows.dropna(axis="columns", how="all").reset_index(drop=True)
        known = [metric for metric in _JUDGES if metric in own]
        if not known:
            raise RunError(f"{folder}: no run of {name} was evaluated; there is nothing to report.")
        found.append(Study(name=str(name), folder=folder, results=own, metric=known[0]))
    return found


def read_results(folder: Path) -> pd.DataFrame:
    """The table of results of a sweep's folder, or of a run's, with one row per run and silo.

    Raises:
        RunError: for a folder that is neither, or has no finished run.
    """
    results = results_of_sweep(folder) if (folder / SWEEP).exists() else _of_one_run(folder)
    if results.empty:
        raise RunError(f"{folder}: no run of the sweep is done yet; there is nothing to report.")
    spent = column(results, "epsilon").fillna(column(results, "epsilon_spent"))
    return results.assign(epsilon=spent.fillna(float("inf")))


def _of_one_run(folder: Path) -> pd.DataFrame:
    scenario, metrics = _scenario(folder), folder / "metrics.csv"
    if not metrics.exists():
        raise RunError(f"{folder}: holds no finished run. Go on with it by silodp run --resume.")
    guarantee = _guarantee(folder / "guarantee.json")
    with reading(metrics):
        rows = pd.read_csv(metrics)
        last = rows[rows["round"] == rows["round"].max()].pivot_table(index="silo", columns="metric", values="value")
    own = dict(guarantee.per_silo) | {WHOLE: guarantee.epsilon}
    with reading(folder / SCENARIO):
        return last.reset_index().assign(
            run=folder.name,
            scenario=scenario["name"],
            method=scenario["training"]["strategy"]["name"],
            epsilon=float(scenario["privacy"].get("epsilon", "nan")),
            seed=scenario["seed"],
            records=0,
            epsilon_spent=lambda table: table["silo"].map(own),
            delta=guarantee.delta,
        )


def _scenario(folder: Path) -> dict:
    try:
        return tomllib.loads((folder / SCENARIO).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{folder}: holds neither a sweep nor a run: {error}") from None


def _guarantee(path: Path) -> Guarantee:
    with reading(path):
        return Guarantee.from_json(json.loads(path.read_text("utf-8")))


def _seconds(folder: Path) -> float:
    path = folder / "timings.json"
    with reading(path):
        return float(json.loads(path.read_text("utf-8"))["seconds"]) if path.exists() else float("nan")
