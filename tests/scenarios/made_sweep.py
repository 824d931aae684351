"""Sweeps made by hand: folders as a sweep leaves them, with results that are known and ledgers that are real."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from accounting import Disjoint, Federation, Ledger, Relation, SampledGaussian, Unit
from scenarios import load, results
from scenarios.spec._sweep import BASELINES
from scenarios.sweeps._runs import SweepRun, expand
from scenarios.sweeps._sweep import resolve
from scenarios.sweeps._table import ROWS

SIGMAS: Mapping[float, float] = {0.5: 2.9, 2.0: 1.3, 8.0: 0.55}
"""Noise of a run by its target epsilon; the epsilons it really has are in the guarantees."""

RATE, STEPS, ROUNDS, DELTA = 0.1, 5, 4, 1e-4

KEPT: Mapping[str, Mapping[float, float]] = {
    "fedavg": {0.5: 0.35, 2.0: 0.93, 8.0: 0.99, np.inf: 1.0},
    "fedavgm": {0.5: 0.55, 2.0: 0.89, 8.0: 0.97, np.inf: 1.02},
    "alone": {0.5: 0.05, 2.0: 0.41, 8.0: 0.8, np.inf: 0.9},
    "pooled": {0.5: 0.7, 2.0: 0.97, 8.0: 0.995, np.inf: 1.01},
    "no-privacy": {np.inf: 1.0},
    "majority": {np.inf: 0.0},
}
"""About what part of the gap between majority and no privacy a method keeps."""

NOTHING, EVERYTHING = 0.5, 0.8


def make_sweep(
    folder: Path,
    *,
    strategies: Sequence[str] = ("fedavg", "fedavgm"),
    baselines: Sequence[str] = BASELINES,
    epsilons: Sequence[float] = tuple(SIGMAS),
    over: Mapping[str, Sequence[int]] = {},
    seeds: int = 5,
    silos: Sequence[str] = ("Midwest", "Northeast", "South", "West"),
    metric: str = "auc",
    scenario: str = "cps-regions",
) -> pd.DataFrame:
    """Write a sweep's folder; the table that is in it.

    Args:
        folder: made here.
        strategies, baselines: some of `KEPT`.
        epsilons: some of `SIGMAS`, and inf.
        over: other swept keys; they change no result.
        seeds: of each.
        silos: their names; they hold 100 records, 150, 200, ...
        metric: what the task is judged by: auc or r2.
        scenario: whose name, data and silos the runs' files carry.
    """
    base = load(scenario, [f"training.rounds={ROUNDS}", "privacy.relation=zero-out", f"privacy.delta={DELTA}"])
    spec = resolve(base, {"epsilon": epsilons, "strategy": strategies, **over}, seeds, baselines)
    folder.mkdir(parents=True)
    (folder / "sweep.toml").write_text(spec.to_toml(), "utf-8")
    for run in expand(spec):
        path = folder / "runs" / run.name
        path.mkdir(parents=True)
        (path / "scenario.toml").write_text(run.scenario.to_toml(), "utf-8")
        spent = _charge(path, run.name, silos, SIGMAS[run.epsilon]) if run.epsilon in SIGMAS else np.inf
        rows = _rows(KEPT[run.method][run.epsilon], run, silos, metric)
        _write_rounds(path, rows, metric)
        rows.assign(epsilon_spent=spent, delta=DELTA).to_parquet(path / ROWS, index=False)
    return results(folder)


def federation(path: Path) -> Federation:
    """The releases of a run's ledger."""
    with Ledger.open(path / "ledger.db", read_only=True) as ledger:
        return Federation.from_ledger(ledger, Disjoint(), Relation.ZERO_OUT, Unit())


def _charge(path: Path, run: str, silos: Sequence[str], sigma: float) -> float:
    """A ledger of so many rounds and its guarantee; the epsilon of it."""
    law = SampledGaussian(sampling_rate=RATE, noise_multiplier=sigma, steps=STEPS)
    facts = {"relation": "zero-out", "membership": "disjoint", "unit": "record", "participation": "fixed"}
    with Ledger.open(path / "ledger.db", create=True) as ledger, ledger.batch():
        for silo in silos:
            for name, value in facts.items():
                ledger.fix(silo, name, value)
            ledger.declare(silo, run, ROUNDS, law)
            for number in range(1, ROUNDS + 1):
                key = {"silo": silo, "run": run, "round": number, "attempt": 0, "item": "update"}
                charge = ledger.charge(**key, mechanism=law, request="asked")
                ledger.release(charge, executed=STEPS, output="bytes")
    guarantee = federation(path).guarantee(delta=DELTA)
    (path / "guarantee.json").write_text(json.dumps(guarantee.to_json()), "utf-8")
    return guarantee.epsilon


def _rows(kept: float, run: SweepRun, silos: Sequence[str], metric: str) -> pd.DataFrame:
    seed = run.scenario.seed
    generator = np.random.default_rng(list(run.name.encode()))
    floor, ceiling = NOTHING + 0.002 * seed, EVERYTHING + 0.004 * seed
    value = floor + (ceiling - floor) * kept + (0 if kept in (0.0, 1.0) else generator.normal(0, 0.004))
    values = np.array([value, *(value + generator.normal(0, 0.01, len(silos)))])
    sizes = [100 + 50 * place for place in range(len(silos))]
    columns: dict[str, object] = {
        "run": run.name,
        "scenario": run.scenario.name,
        "method": run.method,
        "epsilon": run.epsilon,
        "seed": seed,
        "silo": ["all", *silos],
        "records": [sum(sizes), *sizes],
        metric: values,
    }
    more = {"rmse": 1.2 - values} if metric == "r2" else {"loss": 1.2 - values, "calibration_error": 0.2 - 0.2 * values}
    return pd.DataFrame(columns | dict(run.values) | more)


def _write_rounds(path: Path, rows: pd.DataFrame, metric: str) -> None:
    final = rows[metric].to_numpy()
    table = [
        (number, silo, metric, NOTHING + (last - NOTHING) * number / ROUNDS)
        for number in range(ROUNDS + 1)
        for silo, last in zip(rows["silo"], final, strict=True)
    ]
    pd.DataFrame(table, columns=["round", "silo", "metric", "value"]).to_csv(path / "metrics.csv", index=False)
    (path / "failures.csv").write_text("round,silo,reason\n", "utf-8")
    (path / "timings.json").write_text('{"seconds": 1.5}', "utf-8")
