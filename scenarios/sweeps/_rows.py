"""The rows of one run of a sweep; `scenarios.sweeps._table` says what is in them."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy.special import logit

from scenarios._checkpoint import WHOLE, MetricRow
from scenarios._evaluate import metric_rows
from scenarios._runner import RunResult
from scenarios.data._dataset import POOLED, Dataset
from scenarios.sweeps._runs import SweepRun

_LEAST = 0.5
"""Records that a class without any counts as, so that the loss of predicting by frequency is finite."""


def rows_of(run: SweepRun, dataset: Dataset, result: RunResult) -> pd.DataFrame:
    """The rows of a run that is done."""
    guarantee = result.guarantee
    pooled = run.scenario.silos.pooled
    spent = {silo: guarantee.per_silo[POOLED if pooled else silo] for silo in dataset.records}
    return _rows(run, dataset, spent | {WHOLE: guarantee.epsilon}, guarantee.delta, result.metrics)


def majority_rows(run: SweepRun, dataset: Dataset) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows of predicting what is most frequent, or the mean, of all training records; and its metrics."""
    labels = np.concatenate([shard.labels for shard in dataset.shards.values()])
    if dataset.task == "regression":
        constant = np.array([labels.mean(dtype=np.float64)])
    else:
        classes = max(2, dataset.outputs)
        counts = np.maximum(np.bincount(labels.astype(np.intp), minlength=classes), _LEAST)
        shares = counts / counts.sum()
        constant = logit(shares[1:]) if dataset.task == "binary" else np.log(shares)
    outputs = np.tile(constant, (len(dataset.test_labels), 1))
    rounds = run.scenario.training.rounds
    metrics = pd.DataFrame(metric_rows(dataset, rounds, outputs, by_silo=True), columns=list(MetricRow._fields))
    spent = dict.fromkeys([*dataset.records, WHOLE], np.inf)
    return _rows(run, dataset, spent, run.scenario.privacy.delta, metrics), metrics


def _rows(
    run: SweepRun, dataset: Dataset, spent: Mapping[str, float], delta: float, metrics: pd.DataFrame
) -> pd.DataFrame:
    silos = [WHOLE, *dataset.records]
    records = {WHOLE: sum(dataset.records.values())} | dataset.records
    table = pd.DataFrame(
        {
            "run": run.name,
            "scenario": run.scenario.name,
            "method": run.method,
            "epsilon": run.epsilon,
            "seed": run.scenario.seed,
            **run.values,
            "silo": silos,
            "records": [records[silo] for silo in silos],
            "epsilon_spent": [spent[silo] for silo in silos],
            "delta": delta,
        }
    )
    last: dict[str, dict[str, float]] = {}
    for round, silo, metric, value in metrics.itertuples(index=False):
        if round == metrics["round"].max():
            last.setdefault(metric, {})[silo] = value
    for metric, values in last.items():
        table[metric] = [values.get(silo, np.nan) for silo in silos]
    return table
