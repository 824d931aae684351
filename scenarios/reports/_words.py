"""What a study found, in words: the headline, what it cost to find, and what to beware of."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from accounting import round_up
from scenarios.reports._findings import ENOUGH, Headline, Outcome
from scenarios.reports._frames import column, where
from scenarios.reports._study import Study
from scenarios.reports._summary import (
    LEAST_SEEDS,
    Estimate,
    estimate,
    metric_words,
    reference_runs,
)
from scenarios.spec._sweep import BASELINES
from scenarios.sweeps._runs import ALONE, MAJORITY, NO_PRIVACY

_COLUMNS = ("utility", "silo_mean", "silo_worst", "silo_spread", "loss", "calibration_error", "rmse")
"""The table's measures after the metric, in its order."""


@dataclass(frozen=True, kw_only=True)
class HeadlineWords:
    """The headline, and what explains it.

    Attributes:
        headline: one sentence.
        meaning: what its percentages are of, and why it is told at this epsilon.
        warnings: what to beware of, a paragraph each.
    """

    headline: str
    meaning: str
    warnings: Sequence[str]


def percent(part: float, _: int = 4) -> str:
    """A part of the whole in percent, with a decimal where it would else round to all or nothing."""
    if not math.isfinite(part):
        return "–"
    digits = 1 if 0.99 < part < 0.9995 or 0.0005 <= abs(part) < 0.01 else 0
    return f"{100 * part:.{digits}f}%".replace("-", "−")


def number(value: float, digits: int = 4) -> str:
    """A number of a table or a sentence, of so many significant digits."""
    if math.isinf(value):
        return "∞"
    return "–" if math.isnan(value) else f"{value:.{digits}g}".replace("-", "−")


def headline_words(study: Study, headline: Headline, silos: pd.DataFrame) -> HeadlineWords:
    """The headline of a study in words."""
    said = [_whole_verb(headline.best, study.metric)]
    if headline.alone is not None:
        said.append("alone, silos " + _short_verb(headline.alone, study.metric))
    if headline.pooled is not None:
        would = _short_verb(headline.pooled, study.metric)
        said.append(f"all data pooled with one trusted trainer would {would}")
    where = "Without privacy" if math.isinf(headline.epsilon) else f"At epsilon {number(headline.epsilon)}"
    meaning = [_gap(study), _why_this_epsilon(headline), _gainers(silos)]
    return HeadlineWords(
        headline=f"{where}, {'; '.join(said)}.",
        meaning=" ".join(filter(None, meaning)),
        warnings=[*_seed_warnings(study), *_failure_warnings(study)],
    )


def _whole_verb(outcome: Outcome, metric: str) -> str:
    found, show = (outcome.kept, percent) if outcome.kept.seeds else (outcome.value, number)
    if not outcome.kept.seeds:
        said = f"{outcome.label} {_short_verb(outcome, metric, s='es')}"
    else:
        said = f"{outcome.label} keeps {percent(outcome.kept.mean)} of the non-private gain"
    if math.isfinite(found.low):
        kind = "" if found.seeds >= LEAST_SEEDS else "range of seeds "
        said += f" ({kind}{show(found.low)} to {show(found.high)})"
    return said


def _short_verb(outcome: Outcome, metric: str, s: str = "") -> str:
    if outcome.kept.seeds and outcome.kept.mean < 0:
        return "keep nothing of it"
    if outcome.kept.seeds:
        return f"keep {percent(outcome.kept.mean)}"
    if outcome.value.seeds:
        return f"reach{s} {metric_words(metric)} {number(outcome.value.mean)}"
    return f"reach{s} no finite {metric_words(metric)}"


def _gap(study: Study) -> str:
    """What all and nothing are, as means over seeds."""
    if not column(study.runs, "method").isin(BASELINES).any():
        return ""
    values: dict[str, Estimate] = {}
    for method in (MAJORITY, NO_PRIVACY):
        runs = reference_runs(study.runs, method)
        values[method] = estimate(column(group, study.metric).mean() for _, group in runs.groupby("seed"))
    if not all(each.seeds for each in values.values()):
        return "Without runs of both no privacy and majority there is no gain to take a part of."
    low, high = (number(values[method].mean) for method in (MAJORITY, NO_PRIVACY))
    kind = "mean" if study.metric == "r2" else "majority"
    name = metric_words(study.metric)
    beyond = any(part > 1 for part in column(study.contenders, "utility"))
    return (
        f"The gain: from {name} {low} by predicting the {kind} to {high} by the scenario's own strategy without "
        f"privacy, on held-out records{'; more than all of it is possible' if beyond else ''}."
    )


def _why_this_epsilon(headline: Headline) -> str:
    if headline.epsilons < 2 or not headline.best.kept.seeds:
        return ""
    if headline.enough:
        return (
            f"Of {headline.epsilons} epsilons this is the least at which a method keeps {percent(ENOUGH)}; an epsilon "
            "picked by this page is picked by private results."
        )
    return f"At none of {headline.epsilons} epsilons does a method keep {percent(ENOUGH)}; this is the largest."


def _gainers(silos: pd.DataFrame) -> str:
    if "gain" not in silos or len(silos) < 2:
        return ""
    gains = column(silos, "gain").dropna()
    return f"{int((gains > 0).sum())} of {len(gains)} silos do better with the others than alone."


def _seed_warnings(study: Study) -> list[str]:
    if study.seeds >= LEAST_SEEDS:
        return []
    if study.seeds == 1:
        return ["There is one seed: no interval, and nothing here says how another seed would end."]
    return [
        f"{study.seeds} seeds are too few for 95% intervals: what stands around a mean is the range of the seeds. "
        f"{LEAST_SEEDS} are enough."
    ]


def _failure_warnings(study: Study) -> list[str]:
    said = []
    lost = where(study.runs, column(study.runs, study.metric).isna())
    if len(lost):
        names = ", ".join(dict.fromkeys(column(lost, "label")))
        said.append(
            f"{len(lost)} of {len(study.runs)} runs have no {metric_words(study.metric)}, as a run that diverged has "
            f"none ({names}). Means are over the others."
        )
    failed = sum(study.failures(run) for run in study.runs["run"])
    if failed:
        said.append(f"{failed} times a silo failed in a round, and the federation went on without it; see the table.")
    if broken := study.broken:
        said.append(f"{broken} runs of the sweep failed and are in no mean; failures.csv in its folder says why.")
    if unfinished := study.unfinished:
        said.append(
            f"{len(unfinished)} runs did not end and are in no mean; what they released counts in what all runs cost."
        )
    return said


def comparison_words(study: Study) -> str:
    """Which baselines only a simulation can run, and that the page itself is covered by nothing."""
    methods, infinite = column(study.runs, "method"), column(study.runs, "epsilon") == math.inf
    there = [name for name in BASELINES if name in set(methods) and name != ALONE]
    there += ["epsilon = ∞"] * bool((infinite & ~methods.isin(there)).any())
    told = (
        f"The runs of {', '.join(there)} are for comparison only: they need all records in one place, or release "
        "without noise, so that no federation could run them. They are in no price above. "
        if there
        else ""
    )
    return told + (
        "Metrics are a simulator's, on held-out records that nobody has in a deployment: over private data this page "
        "itself is a release that no guarantee here covers."
    )


def cells(study: Study, table: pd.DataFrame, headline: Headline) -> tuple[list[str], list[Mapping[str, object]]]:
    """The main table for the page: headings, and rows of (text, interval) pairs."""
    measures = [study.metric, *(name for name in _COLUMNS if name in table and name != study.metric)]
    measures = [name for name in measures if column(table, name).notna().any()]
    headings = ["method", "epsilon", metric_words(study.metric)]
    headings += ["gain kept" if name == "utility" else metric_words(name) for name in measures[1:]]
    headings += ["epsilon spent", "runs", "seconds"]
    rows: list[Mapping[str, object]] = []
    before = ""
    for row in table.to_dict("records"):
        shown = [(str(row["label"]), ""), (number(float(row["epsilon"])) if row["method"] != MAJORITY else "–", "")]
        for name in measures:
            show = percent if name == "utility" else number
            low, high = float(row[f"{name}_low"]), float(row[f"{name}_high"])
            around = f"{show(low, 3)} to {show(high, 3)}" if math.isfinite(low) else ""
            shown.append((show(float(row[name]), 4), around))
        spent = float("nan") if row["method"] == MAJORITY else float(row["epsilon_spent"])
        shown.append(("–" if math.isnan(spent) else round_up(spent, 4).replace("inf", "∞"), ""))
        amiss = {"lost": row["lost"], "silo-rounds failed": int(row["failed"])}
        told = ", ".join(f"{count} {what}" for what, count in amiss.items() if count)
        shown += [(str(row["seeds"] + row["lost"]), told), (number(row["seconds"], 3), "")]
        named = (row["label"], row["epsilon"]) == (headline.best.label, headline.epsilon)
        rows.append({"cells": shown, "named": named, "first": row["label"] != before})
        before = row["label"]
    return headings, rows


def silo_cells(study: Study, silos: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """The table of silos for the page: headings, and rows of text; by gain where there is one, worst first."""
    name = metric_words(study.metric)
    headings = ["silo", "records", f"{name} together"]
    gains = ["alone", "gain", "gain_low", "gain_high"] if "gain" in silos else []
    rows = [
        [str(row["silo"]), f"{row['records']:,}", *(number(row[key]) for key in ("federated", *gains))]
        for row in silos.sort_values("gain" if gains else "records", kind="stable").to_dict("records")
    ]
    return [*headings, *([f"{name} alone", "gain", "from", "to"] if gains else [])], rows
