"""What a study found: the numbers of its headline, and the tables behind its pictures."""

import math
from dataclasses import dataclass

import pandas as pd

from accounting import Guarantee, Ledger, Relation, epsilon, round_up
from scenarios._account import LEDGER
from scenarios._asked import ALLOWANCE, HELD_OUT
from scenarios._checkpoint import WHOLE
from scenarios._errors import RunError
from scenarios.reports._frames import column, where
from scenarios.reports._study import Study
from scenarios.reports._summary import (
    Estimate,
    estimate,
    labels,
    over_seeds,
    paired,
    smaller_is_better,
)
from scenarios.spec._sweep import BASELINES
from scenarios.sweeps._runs import ALONE, POOLED
from silos._silo import ITEM

ENOUGH = 0.9
"""Part of the non-private gain: the headline is at the least epsilon at which a method keeps as much."""

_PARTS = {ITEM: "training", ALLOWANCE: "training, by its allowance", "size": "sizes", "moments": "moments"}
_METRICS = "metrics on held-out records"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one method came to at one epsilon.

    Attributes:
        label, method: which.
        value: of the study's metric.
        kept: part of the gap between majority and no privacy; without a value where a baseline or the gap is missing.
    """

    label: str
    method: str
    value: Estimate
    kept: Estimate


@dataclass(frozen=True, kw_only=True)
class Headline:
    """What a study came to.

    Attributes:
        epsilon: at which the rest is told; inf where no run is private.
        best: of the strategies there, by the mean of what they kept, or of the metric.
        alone, pooled: the baselines at the same epsilon, where they were run.
        candidates: labels that `best` was picked from.
        epsilons: how many the sweep has.
        enough: whether `best` keeps `ENOUGH`.
    """

    epsilon: float
    best: Outcome
    alone: Outcome | None
    pooled: Outcome | None
    candidates: int
    epsilons: int
    enough: bool


def headline_of(study: Study) -> Headline:
    """The numbers of the headline: at the least epsilon at which a strategy keeps `ENOUGH`, else at the largest.

    Raises:
        RunError: for a study without any run of a federation.
    """
    contenders = study.contenders
    if contenders.empty:
        contenders = where(study.runs, ~column(study.runs, "method").isin(BASELINES))
    if contenders.empty:
        raise RunError(f"{study.folder}: holds no run of a federation; there is nothing to report.")
    table = over_seeds(contenders, ["utility", study.metric])
    reached = column(where(table, table["utility"] >= ENOUGH), "epsilon")
    chosen = float(reached.min()) if len(reached) else float(column(table, "epsilon").max())
    there = where(table, table["epsilon"] == chosen)
    kept = column(there, "utility")
    best = str(column(there, "label")[_best(kept if kept.notna().any() else _goodness(there, study.metric))])
    return Headline(
        epsilon=chosen,
        best=_outcome(study, best, chosen),
        alone=_baseline(study, ALONE, best, chosen),
        pooled=_baseline(study, POOLED, best, chosen),
        candidates=len(there),
        epsilons=column(table, "epsilon").nunique(),
        enough=len(reached) > 0,
    )


def _goodness(table: pd.DataFrame, metric: str) -> pd.Series:
    values = column(table, metric)
    return -values if smaller_is_better(metric) else values


def _best(scores: pd.Series) -> object:
    """Where the largest is; the first, where none is a number."""
    return scores.idxmax() if scores.notna().any() else scores.index[0]


def _outcome(study: Study, label: str, at: float) -> Outcome:
    runs = study.at(label, at)
    return Outcome(
        label=label,
        method=str(column(runs, "method").iloc[0]),
        value=estimate(column(runs, study.metric)),
        kept=estimate(column(runs, "utility")),
    )


def _baseline(study: Study, method: str, beside: str, at: float) -> Outcome | None:
    """The baseline at this epsilon under the settings of the label beside it, or without any."""
    settings = str(column(study.at(beside, at), "settings").iloc[0])
    there = where(study.runs, (study.runs["method"] == method) & (study.runs["epsilon"] == at))
    known = set(column(there, "settings"))
    if not known & {settings, ""}:
        return None
    return _outcome(study, method + (settings if settings in known else ""), at)


def round_table(study: Study, at: float) -> pd.DataFrame:
    """The metric by round of each strategy at an epsilon: columns label, round, mean, least, most over seeds."""
    runs = where(study.runs, (study.runs["epsilon"] == at) & ~column(study.runs, "method").isin(BASELINES))
    found = []
    for run, label in zip(runs["run"], runs["label"], strict=True):
        rows = study.by_round(run)
        own = where(rows, (rows["silo"] == WHOLE) & (rows["metric"] == study.metric))
        found.append(own.filter(["round", "value"]).assign(label=label))
    table = pd.concat(found) if found else pd.DataFrame(columns=["round", "value", "label"])
    shapes = {"mean": ("value", "mean"), "least": ("value", "min"), "most": ("value", "max")}
    return table.groupby(["label", "round"], sort=False, as_index=False).agg(**shapes)


def silo_table(study: Study, headline: Headline) -> pd.DataFrame:
    """Each silo with the others and alone, at the headline's epsilon; smallest shards first.

    Returns:
        Columns silo, records, federated and, where silos trained alone too, alone, gain, gain_low, gain_high (paired by
        seed, positive where federating is better) and seeds. Where silos of one name hold others under another seed,
        a row is one silo of one seed. Silos whose own metric is undefined are left out.
    """
    results = study.results
    rows = where(results, (results["silo"] != WHOLE) & (results["epsilon"] == headline.epsilon))
    rows = rows.assign(label=labels(rows)).dropna(subset=[study.metric])
    if study.seeded_silos and column(rows, "seed").nunique() > 1:
        rows = rows.assign(silo=column(rows, "silo").astype(str) + ", seed " + column(rows, "seed").astype(str))
    own = where(rows, rows["label"] == headline.best.label)
    table = own.groupby("silo", sort=False).agg(records=("records", "mean"), federated=(study.metric, "mean"))
    if headline.alone is not None:
        alone = where(rows, rows["label"] == headline.alone.label)
        means = alone.groupby("silo").agg(alone=(study.metric, "mean"))
        table = table.join(means).join(_gains(own, alone, study.metric))
    records = column(table, "records").round().astype(int)
    return table.assign(records=records).reset_index().sort_values(["records", "silo"], ignore_index=True)


def _gains(federated: pd.DataFrame, alone: pd.DataFrame, metric: str) -> pd.DataFrame:
    sign = -1 if smaller_is_better(metric) else 1
    first, second = (frame.pivot(index="seed", columns="silo", values=metric) for frame in (alone, federated))
    gains = {str(silo): paired(column(first, silo), column(second, silo)) for silo in second.columns if silo in first}
    rows = [(each.mean * sign, *sorted((each.low * sign, each.high * sign)), each.seeds) for each in gains.values()]
    return pd.DataFrame(rows, columns=["gain", "gain_low", "gain_high", "seeds"], index=list(gains))


def budget_table(study: Study, run: str, together: dict[str, Guarantee]) -> pd.DataFrame:
    """What a run spent on what in the silo that pays most, and in all; and what all runs cost together.

    Args:
        study, run: whose ledger.
        together: guarantees of many runs, by what they are of.

    Returns:
        Columns part, epsilon, kind (``part``, ``run`` or ``runs``), shown (epsilon, rounded up).
    """
    guarantee, ledger = study.guarantee(run), study.path(run) / LEDGER
    rows: list[tuple[str, float, str]] = []
    if guarantee is not None and ledger.exists():
        rows += [(part, cost, "part") for part, cost in _parts(study, run, guarantee)]
        rows.append(("one run, all parts", guarantee.epsilon, "run"))
    rows += [(name, each.epsilon, "runs") for name, each in together.items()]
    table = pd.DataFrame(rows, columns=["part", "epsilon", "kind"])
    shown = ["no guarantee" if math.isinf(cost) else round_up(cost, 3) for cost in table["epsilon"]]
    return table.assign(shown=shown)


def _parts(study: Study, run: str, guarantee: Guarantee) -> list[tuple[str, float]]:
    relation: Relation = guarantee.relation
    payer = guarantee.worst[0].removesuffix(HELD_OUT) if guarantee.worst else ""
    with Ledger.open(study.path(run) / LEDGER, read_only=True) as ledger:
        charges = [*ledger.charges(payer), *ledger.charges(payer + HELD_OUT)]
    laws: dict[str, list] = {}
    for charge in charges:
        if (law := charge.priced()).steps:
            laws.setdefault(_PARTS.get(charge.key.item, _METRICS), []).append(law)
    return [(part, epsilon(each, relation=relation, delta=guarantee.delta).epsilon) for part, each in laws.items()]


def main_table(study: Study) -> pd.DataFrame:
    """One row per method and epsilon, with everything that is told of it, over seeds."""
    measures = [study.metric, "utility", "silo_mean", "silo_worst", "silo_spread"]
    measures += [name for name in ("loss", "calibration_error", "rmse") if name in study.runs and name != study.metric]
    table = over_seeds(study.runs, [*measures, "seconds"])
    counted = study.runs.assign(failed=[study.failures(run) for run in column(study.runs, "run")])
    totals = {"epsilon_spent": ("epsilon_spent", "max"), "failed": ("failed", "sum")}
    spent = counted.groupby(["label", "epsilon"], as_index=False).agg(**totals)
    return table.merge(spent, how="left", on=["label", "epsilon"])
