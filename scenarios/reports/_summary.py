"""What a table of results says, in numbers: utility of each run, means over seeds, and how sure they are.

A table of results has a row per run and silo: columns ``run, scenario, method, epsilon, seed``, one per other swept key
(dotted), ``silo`` (``all`` is the federation), ``records, epsilon_spent, delta``, and one per metric. Here a row of it
becomes measures of a run (`per_run`), and those become estimates over seeds (`over_seeds`).

How sure. Runs of other seeds split, initialise and sample afresh over the same data, so that seeds are what is
resampled, and an interval speaks of other seeds, not of other data. Five seeds are few: a plain percentile bootstrap
interval of a mean covers it in about 5 of 6 cases then, not in 19 of 20. `estimate` widens the percentiles to those
at which the interval is as wide as Student's (Hesterberg 2015, "What Teachers Should Know About the Bootstrap",
section 5.3.2, the expanded percentile interval); of five values of a normal law it covers the mean in 92 of 100
cases. Below `LEAST_SEEDS` no interval within the data can cover that often
(between the least and greatest of n values lies the median in 1 - 2^(1-n) of cases): then it is the range, and is
called so; of one seed there is neither.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm, t

from scenarios._checkpoint import WHOLE
from scenarios._noisy_metrics import PREFIX
from scenarios.reports._frames import column, where
from scenarios.spec._sweep import BASELINES
from scenarios.sweeps._runs import MAJORITY, NO_PRIVACY

LEAST_SEEDS = 5
"""Fewer seeds than this have a range in place of an interval."""

RESAMPLES = 10_000

MEASURES = ("utility", "silo_mean", "silo_worst", "silo_spread")
"""Measures of a run beside its metrics; see `per_run`."""

_SMALLER = ("loss", "calibration_error", "rmse", "mae", "silo_spread", "seconds")
_METRICS = {
    "auc": "AUC",
    "r2": "R²",
    "rmse": "RMSE",
    "mae": "MAE",
    "silo_mean": "mean silo",
    "silo_worst": "worst silo",
    "silo_spread": "spread of silos",
}
_PLAIN = {"run", "folder", "scenario", "method", "epsilon", "seed", "silo", "records", "epsilon_spent", "delta"}


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean over seeds.

    Attributes:
        mean: nan where no seed has a value.
        low, high: of the 95% interval, or the range of fewer than `LEAST_SEEDS` seeds; nan of one seed.
        seeds: how many values it is the mean of.
        lost: how many had none (nan or infinite), such as runs that diverged.
    """

    mean: float
    low: float
    high: float
    seeds: int
    lost: int = 0

    @property
    def certain(self) -> bool:
        """Whether there is a 95% interval and it leaves 0 out."""
        return self.seeds >= LEAST_SEEDS and (self.low > 0 or self.high < 0)


def estimate(values: Iterable[float]) -> Estimate:
    """The mean of one value per seed, and how sure it is; the same for the same values, in any order."""
    given = np.sort(np.asarray(list(values), dtype=np.float64))
    known = given[np.isfinite(given)]
    lost = len(given) - len(known)
    if len(known) < 2:
        mean = float(known[0]) if len(known) else np.nan
        return Estimate(mean=mean, low=np.nan, high=np.nan, seeds=len(known), lost=lost)
    low, high = _expanded_interval(known) if len(known) >= LEAST_SEEDS else (known[0], known[-1])
    return Estimate(mean=float(known.mean()), low=float(low), high=float(high), seeds=len(known), lost=lost)


def _expanded_interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """The expanded percentile bootstrap interval of the mean, by draws that are always the same."""
    seeds = len(values)
    tail = float(norm.cdf(-np.sqrt(seeds / (seeds - 1)) * t.ppf(0.975, seeds - 1)))
    means = values[np.random.default_rng(0).integers(seeds, size=(RESAMPLES, seeds))].mean(axis=1)
    low, high = np.quantile(means, (tail, 1 - tail))
    return float(low), float(high)


def said_of_seeds(seeds: int) -> str:
    """What is drawn around a mean over so many seeds, in words."""
    if seeds <= 1:
        return "no interval, of one seed"
    if seeds < LEAST_SEEDS:
        return f"the range of {seeds} seeds"
    return f"95% bootstrap intervals over {seeds} seeds"


def smaller_is_better(metric: str) -> bool:
    """Whether less of this metric or measure is better."""
    return metric.removeprefix(PREFIX) in _SMALLER


def metric_words(metric: str) -> str:
    """A metric's name for readers."""
    plain = metric.removeprefix(PREFIX)
    name = _METRICS.get(plain, plain.replace("_", " "))
    return f"{name} by the silos' own noisy counts" if metric.startswith(PREFIX) else name


def settings_of(results: pd.DataFrame) -> list[str]:
    """The columns of swept keys other than method, epsilon and seed: their names are dotted."""
    return [name for name in results.columns if "." in name]


def metrics_of(results: pd.DataFrame) -> list[str]:
    """The columns that are metrics."""
    return [name for name in results.columns if "." not in name and name not in _PLAIN]


def labels(results: pd.DataFrame) -> pd.Series:
    """What each row's method is called: its name, and its settings where there are any."""
    return column(results, "method").astype(str) + setting_words(results)


def setting_words(results: pd.DataFrame) -> pd.Series:
    """The swept keys of each row other than method, epsilon and seed, as in ``, local steps 5``."""
    said = pd.Series("", index=results.index)
    for key in settings_of(results):
        values, word = column(results, key), key.rsplit(".", 1)[-1].replace("_", " ")
        said = said + values.map(lambda value, word=word: "" if pd.isna(value) else f", {word} {_short(value)}")
    return said


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def per_run(results: pd.DataFrame, metric: str) -> pd.DataFrame:
    """One row per run: the federation's row, and what its silos' rows amount to.

    Args:
        results: of one scenario.
        metric: the one that silos and the non-private gap are measured by.

    Returns:
        The rows of silo ``all`` with these columns more: ``label`` and ``settings``, in words; ``silo_mean``,
        ``silo_worst`` and ``silo_spread``, the mean, worst value and standard deviation of `metric` over silos that
        have one; and ``utility``, the part of the gap from majority (0) to no privacy (1) of the same seed and
        settings, nan where there is no gap.
    """
    runs = where(results, results["silo"] == WHOLE).set_index("run", drop=False).rename_axis(None)
    by_silo = where(results, results["silo"] != WHOLE).pivot_table(index="run", columns="silo", values=metric)
    by_silo = by_silo.reindex(runs.index)
    worst = by_silo.max(axis=1) if smaller_is_better(metric) else by_silo.min(axis=1)
    return runs.assign(
        label=labels(runs),
        settings=setting_words(runs),
        silo_mean=by_silo.mean(axis=1),
        silo_worst=worst,
        silo_spread=by_silo.std(axis=1, ddof=0),
        utility=_utility(runs, metric),
    )


def _utility(runs: pd.DataFrame, metric: str) -> pd.Series:
    floor, ceiling = (_same_seed(runs, method, metric) for method in (MAJORITY, NO_PRIVACY))
    gap = ceiling - floor
    opens = gap < 0 if smaller_is_better(metric) else gap > 0
    return (column(runs, metric) - floor) / gap.where(opens)


def reference_runs(runs: pd.DataFrame, method: str) -> pd.DataFrame:
    """The runs of a baseline; of no privacy, where it was not run, those of the only strategy at epsilon inf."""
    found = where(runs, runs["method"] == method)
    if len(found) or method != NO_PRIVACY:
        return found
    infinite = where(runs, (runs["epsilon"] == np.inf) & ~column(runs, "method").isin(BASELINES))
    return infinite if column(infinite, "method").nunique() == 1 else found


def _same_seed(runs: pd.DataFrame, method: str, metric: str) -> pd.Series:
    """The baseline's metric for each run: of the same seed, and the same settings where the baseline has them."""
    baseline = reference_runs(runs, method)
    keys = ["seed", *(key for key in settings_of(runs) if len(baseline) and column(baseline, key).notna().all())]
    known = baseline.groupby(keys, as_index=False).agg(**{"baseline": (metric, "mean")})
    return column(runs[keys].merge(known, how="left", on=keys).set_axis(runs.index), "baseline")


def over_seeds(runs: pd.DataFrame, measures: Sequence[str]) -> pd.DataFrame:
    """One row per method and epsilon: for each measure the mean, ``_low`` and ``_high`` over seeds.

    Args:
        runs: from `per_run`.
        measures: numeric columns of it.

    Returns:
        Columns ``label, method, epsilon``, those of the measures, and ``seeds`` and ``lost`` of the first measure;
        sorted by method as they come, then epsilon.
    """
    rows: list[Mapping[str, object]] = []
    for key, group in runs.groupby(["label", "method", "epsilon"], sort=False):
        label, method, epsilon = cast(tuple[str, str, float], key)
        found = {measure: estimate(group[measure]) for measure in measures}
        row: dict[str, object] = {"label": label, "method": method, "epsilon": epsilon}
        for measure, each in found.items():
            row |= {measure: each.mean, f"{measure}_low": each.low, f"{measure}_high": each.high}
        first = found[measures[0]]
        rows.append({**row, "seeds": first.seeds, "lost": first.lost})
    table = pd.DataFrame(rows)
    order = {label: number for number, label in enumerate(dict.fromkeys(column(table, "label")))}
    place = column(table, "label").map(order)
    return table.assign(place=place).sort_values(["place", "epsilon"], ignore_index=True).drop(columns="place")


def paired(first: pd.Series, second: pd.Series) -> Estimate:
    """The mean of second - first over the index values (seeds) that both have."""
    both = first.index.intersection(second.index)
    return estimate(second.loc[both] - first.loc[both])
