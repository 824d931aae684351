"""Which pictures a report shows of a study, and what stands under them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure

from scenarios.reports import _sweep_plots
from scenarios.reports._findings import Headline, round_table
from scenarios.reports._frames import column, where
from scenarios.reports._plots import image, laid_out, svg
from scenarios.reports._study import Study
from scenarios.reports._summary import metric_words, said_of_seeds
from scenarios.reports._words import number
from scenarios.spec._sweep import BASELINES
from scenarios.sweeps._runs import MAJORITY, NO_PRIVACY


@dataclass(frozen=True, kw_only=True)
class Picture:
    """One picture: its name as a file and an id, what it shows, the numbers behind it, and how it is drawn."""

    name: str
    title: str
    caption: str
    data: pd.DataFrame
    draw: Callable[[bool], Figure]

    def inline(self) -> Markup:
        """The picture for the page, once for its column and once for a phone."""
        figures = {"wide": self._wide, "narrow": laid_out(self.draw(True))}
        drawn = (
            f'<div class="{kind}">{svg(figure, f"{self.name}-{kind}", self.title)}</div>'
            for kind, figure in figures.items()
        )
        return Markup("".join(drawn))

    def files(self) -> dict[str, bytes]:
        """The picture as PNG and SVG on white, and its numbers as CSV, by name of the file."""
        drawn = {f"{self.name}.{kind}": image(self._wide, kind) for kind in ("png", "svg")}
        return drawn | {f"{self.name}.csv": self.data.to_csv(index=False).encode()}

    @cached_property
    def _wide(self) -> Figure:
        return laid_out(self.draw(False))


def pictures_of(
    study: Study, headline: Headline, table: pd.DataFrame, silos: pd.DataFrame, spent: pd.DataFrame, prefix: str
) -> list[Picture]:
    """The pictures that have something to show.

    Args:
        study, headline: whose, and at which epsilon.
        table, silos, spent: from `main_table`, `silo_table` and `budget_table`.
        prefix: before the pictures' names.
    """
    metric, seeds = study.metric, study.seeds
    drawn, left_out = _drawn(table, headline)
    style = _sweep_plots.looks(drawn)
    about = metric_words(metric)
    at = f"at epsilon {number(headline.epsilon)}"
    rounds = round_table(study, headline.epsilon)
    shown = " ".join((f"Marks: means over seeds, with {said_of_seeds(seeds)}.", left_out)).strip()
    found = [
        Picture(
            name=f"{prefix}frontier",
            title=f"{about[:1].upper()}{about[1:]} against epsilon",
            caption=f"{shown} Lines across are baselines without an epsilon. Epsilon is the price of one run.",
            data=table,
            draw=lambda narrow: _sweep_plots.frontier(table, metric, style, narrow=narrow),
        ),
        Picture(
            name=f"{prefix}silos",
            title=f"{'Who gains from federating' if 'gain' in silos else 'Silo by silo'}, {at}",
            caption=_silo_caption(silos, seeds),
            data=silos,
            draw=lambda narrow: _sweep_plots.silos(silos, metric, headline.best.label, style, narrow=narrow),
        ),
        Picture(
            name=f"{prefix}rounds",
            title=f"{about[:1].upper()}{about[1:]} by round, {at}",
            caption="Means over seeds; shaded: from the least to the greatest seed." if seeds > 1 else "One seed.",
            data=rounds,
            draw=lambda narrow: _sweep_plots.rounds(rounds, metric, style, narrow=narrow),
        ),
        Picture(
            name=f"{prefix}budget",
            title=f"What the budget bought, {at}",
            caption="In the silo that pays most. Parts have their own price each; together they cost less than their "
            "sum, since composition is not addition.",
            data=spent,
            draw=lambda narrow: _sweep_plots.budget(spent, narrow=narrow),
        ),
    ]
    said = {"frontier": len(table) > 1, "silos": len(silos) > 1, "rounds": rounds["round"].nunique() > 1}
    said["budget"] = len(spent) > 0
    return [picture for picture in found if said[picture.name.removeprefix(prefix)]]


def _drawn(table: pd.DataFrame, headline: Headline) -> tuple[list[str], str]:
    """The labels that pictures show, and what is said of those left out: the best at the headline's epsilon stay."""
    leveled = column(table, "method").isin([NO_PRIVACY, MAJORITY])
    labels = list(dict.fromkeys(column(where(table, ~leveled), "label")))
    if len(labels) <= _sweep_plots.MOST_METHODS:
        return labels, ""
    there = where(table, (table["epsilon"] == headline.epsilon) & ~column(table, "method").isin(BASELINES))
    kept = there.sort_values("utility", ascending=False, kind="stable")["label"].tolist()
    baselines = [one.label for one in (headline.alone, headline.pooled) if one is not None]
    drawn = [*kept[: _sweep_plots.MOST_METHODS - len(baselines)], *baselines]
    return drawn, f"Drawn are the best {len(drawn)} of {len(labels)}; the table has all."


def _silo_caption(silos: pd.DataFrame, seeds: int) -> str:
    if "gain" not in silos:
        return "Each silo's own held-out records. Silos were not trained alone in these runs."
    gains = column(silos, "gain").dropna()
    return (
        f"Each silo's own held-out records, with the others and alone at the same epsilon, paired by seed, means over "
        f"{seeds} seed{'s' * (seeds != 1)}. {int((gains > 0).sum())} of {len(gains)} silos gain."
    )
