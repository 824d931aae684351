"""The pictures of a study: utility against epsilon, silo by silo, round by round, and what the budget bought."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from scenarios.reports._frames import column, where
from scenarios.reports._plots import INK, PALETTE, STYLE, new_figure
from scenarios.reports._summary import metric_words
from scenarios.sweeps._runs import ALONE, MAJORITY, NO_PRIVACY, POOLED

MOST_METHODS = 10
"""More methods than this are not drawn: nobody could tell them apart."""

MOST_ROWS = 16
"""More silos than this are drawn as points against shard size, not as a row each."""

_WIDE, _NARROW = (7.2, 3.7), (3.9, 3.7)
"""Inches; at these the page's column and a phone's screen show the same size of type."""

_LEVELS: Mapping[str, tuple[str, str]] = {NO_PRIVACY: ("no privacy", "-"), MAJORITY: ("majority", ":")}
"""Baselines that know no epsilon: their words, and how their line is drawn."""


@dataclass(frozen=True)
class Look:
    """How a method is drawn: in colour, and by marker and dash where colour does not tell."""

    colour: str
    marker: str
    dash: str


ALONE_LOOK = Look(PALETTE[3], "v", "--")
POOLED_LOOK = Look(PALETTE[4], "P", "-.")


def looks(labels: Sequence[str]) -> dict[str, Look]:
    """How each method is drawn, the same in every picture.

    A method has its own colour; where other keys were swept, each of their settings has, and methods differ by marker
    and dash alone.
    """
    parts = {label: label.partition(", ")[::2] for label in labels}
    methods = list(dict.fromkeys(method for method, _ in parts.values()))
    settings = list(dict.fromkeys(setting for _, setting in parts.values()))
    fixed = {ALONE: ALONE_LOOK, POOLED: POOLED_LOOK}
    own = zip(cycle(PALETTE[:3] + PALETTE[5:]), cycle("osD^X*h"))
    by_method = {method: fixed[method] if method in fixed else Look(*next(own), "-") for method in methods}
    if len(settings) == 1:
        return {label: by_method[method] for label, (method, _) in parts.items()}
    colours = dict(zip(settings, cycle(PALETTE)))
    return {label: replace(by_method[method], colour=colours[setting]) for label, (method, setting) in parts.items()}


def frontier(table: pd.DataFrame, metric: str, style: Mapping[str, Look], *, narrow: bool) -> Figure:
    """The metric against epsilon, on a logarithmic axis; what knows no epsilon is a line across.

    Args:
        table: rows with columns label, method, epsilon, and the metric with its ``_low`` and ``_high``.
        metric: its name.
        style: from `looks`, of the labels to draw.
        narrow: for a phone.
    """
    with mpl.rc_context(STYLE):
        figure, axes = new_figure("epsilon of a run", metric_words(metric), _NARROW if narrow else _WIDE)
        _levels(axes, table, metric, style)
        drawn = where(table, column(table, "label").isin(list(style)))
        epsilons = sorted(set(column(drawn, "epsilon")))
        places = dict(zip(epsilons, _places(epsilons), strict=True))
        for number, (label, look) in enumerate(style.items()):
            rows = where(drawn, drawn["label"] == label)
            aside = 1.02 ** (number - (len(style) - 1) / 2)
            finite = np.isfinite(column(rows, "epsilon"))
            for part, shown in ((where(rows, finite), label), (where(rows, ~finite), label * (not finite.any()))):
                if len(part):
                    _with_intervals(axes, column(part, "epsilon").map(places) * aside, part, metric, shown, look)
        _without_the_lost(axes, table, metric)
        _log_ticks(axes, list(places.values()), [f"{each:g}".replace("inf", "∞") for each in epsilons])
        _legend(figure, axes, narrow)
    return figure


def _without_the_lost(axes: Axes, table: pd.DataFrame, metric: str) -> None:
    """Bound the axis of R2, which knows no least value: as far below the majority as the best is above it."""
    majority = float(column(where(table, table["method"] == MAJORITY), metric).mean())
    best = float(column(table, metric).max())
    if metric == "r2" and 2 * majority - best > axes.get_ylim()[0]:
        axes.set_ylim(2 * majority - best, best + 0.2 * (best - majority))
        said = "lower values are off the picture"
        axes.annotate(said, (0.01, 0.02), xycoords="axes fraction", ha="left", fontsize=8, color=INK)


def _levels(axes: Axes, table: pd.DataFrame, metric: str, style: Mapping[str, Look]) -> None:
    """Lines across for what knows no epsilon, in the colour of their settings where those were swept."""
    colours = {label.partition(", ")[2]: look.colour for label, look in style.items()}
    for row in where(table, column(table, "method").isin(list(_LEVELS))).to_dict("records"):
        words, dash = _LEVELS[row["method"]]
        setting = str(row["label"]).partition(", ")[2]
        colour = colours.get(setting, INK) if setting else INK
        said = f"{words}, {setting}" if setting else words
        axes.axhline(row[metric], color=colour, linestyle=dash, linewidth=1.2, label=said)
        if math.isfinite(row[f"{metric}_low"]):
            axes.axhspan(row[f"{metric}_low"], row[f"{metric}_high"], color=colour, alpha=0.12, linewidth=0)


def _places(epsilons: Sequence[float]) -> list[float]:
    """Where epsilons stand on a logarithmic axis: infinity a step to the right of the last finite one."""
    finite = [each for each in epsilons if math.isfinite(each)] or [1.0]
    step = max(2.0, (finite[-1] / finite[0]) ** 0.15)
    return [each if math.isfinite(each) else finite[-1] * step for each in epsilons]


def rounds(table: pd.DataFrame, metric: str, style: Mapping[str, Look], *, narrow: bool) -> Figure:
    """The metric against the round, with the range over seeds.

    Args:
        table: rows with columns label, round, mean, least, most.
        metric, style, narrow: as in `frontier`.
    """
    with mpl.rc_context(STYLE):
        figure, axes = new_figure("round", metric_words(metric), _NARROW if narrow else _WIDE)
        for label, look in style.items():
            rows = where(table, table["label"] == label).sort_values("round")
            if len(rows):
                (line,) = axes.plot(rows["round"], rows["mean"], label=label)
                line.set(color=look.colour, marker=look.marker, ls=look.dash, ms=4, markevery=max(1, len(rows) // 8))
                axes.fill_between(rows["round"], rows["least"], rows["most"], color=look.colour, alpha=0.15, lw=0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        _legend(figure, axes, narrow)
    return figure


def silos(table: pd.DataFrame, metric: str, label: str, style: Mapping[str, Look], *, narrow: bool) -> Figure:
    """Who gains from federating: each silo's metric with and without the others, against the size of its shard.

    Args:
        table: rows with columns silo, records, federated and, where silos trained alone too, alone and gain; sorted
            by records.
        metric, style, narrow: as in `frontier`.
        label: the method of the federation.
    """
    with mpl.rc_context(STYLE):
        return (_dumbbells if len(table) <= MOST_ROWS else _cloud)(table, metric, label, style, narrow)


def _dumbbells(table: pd.DataFrame, metric: str, label: str, style: Mapping[str, Look], narrow: bool) -> Figure:
    width = (_NARROW if narrow else _WIDE)[0]
    figure, axes = new_figure(metric_words(metric), "", (width, 1.4 + 0.3 * len(table)))
    rows = np.arange(len(table))
    if "alone" in table:
        axes.hlines(rows, table["alone"], table["federated"], color=INK, alpha=0.3, linewidth=2)
        axes.plot(table["alone"], rows, ALONE_LOOK.marker, color=ALONE_LOOK.colour, label=ALONE)
    axes.plot(table["federated"], rows, "o", color=style[label].colour, label=label)
    names = [_shortened(str(name), 14 if narrow else 28) for name in table["silo"]]
    sizes = [f" ({size:,})" if size else "" for size in table["records"]]
    axes.set_yticks(rows, [name + size for name, size in zip(names, sizes, strict=True)])
    axes.tick_params(axis="y", length=0)
    axes.margins(y=0.12)
    _legend(figure, axes, narrow)
    return figure


def _cloud(table: pd.DataFrame, metric: str, label: str, style: Mapping[str, Look], narrow: bool) -> Figure:
    gains = "gain" in table
    y_label = f"{metric_words(metric)}: gain over alone" if gains else metric_words(metric)
    figure, axes = new_figure("records in the silo's shard", y_label, _NARROW if narrow else _WIDE)
    values, records = column(table, "gain" if gains else "federated"), column(table, "records")
    if gains:
        axes.axhline(0, color=INK, linewidth=1)
    axes.plot(records, values, "o", color=style[label].colour, alpha=0.55, markersize=4, markeredgewidth=0)
    if metric == "r2" and float(values.abs().max()) > 1:
        axes.set_yscale("symlog", linthresh=1)
    low, high = int(records.min()), int(records.max())
    if high > 8 * low:
        axes.set_xscale("log")
        sizes = [lead * 10**power for power in range(9) for lead in (1, 3)]
        shown = [size for size in sizes if low / 1.5 <= size <= 1.5 * high]
        _log_ticks(axes, shown, [f"{size:,}" for size in shown])
    for place in sorted({int(values.argmin()), int(values.argmax())}):
        at = (int(records.iloc[place]), float(values.iloc[place]))
        left = at[0] < (low * high) ** 0.5
        axes.annotate(
            _shortened(f"silo {column(table, 'silo').iloc[place]}", 18),
            at,
            xytext=(6 if left else -6, 0),
            textcoords="offset points",
            ha="left" if left else "right",
            va="center",
            fontsize=8,
        )
    return figure


def budget(table: pd.DataFrame, *, narrow: bool) -> Figure:
    """What was spent on what, as bars of epsilon.

    Args:
        table: rows with columns part, epsilon, kind (``part``, ``run`` or ``runs``).
        narrow: for a phone.
    """
    colours = {"part": PALETTE[0], "run": INK, "runs": PALETTE[1]}
    rows = table.iloc[::-1]
    finite = column(rows, "epsilon").replace(math.inf, 0.0)
    with mpl.rc_context(STYLE):
        figure, axes = new_figure("epsilon", "", ((_NARROW if narrow else _WIDE)[0], 0.9 + 0.36 * len(rows)))
        bars = axes.barh(np.arange(len(rows)), finite, height=0.62, color=[colours[kind] for kind in rows["kind"]])
        axes.bar_label(bars, list(rows["shown"]), fontsize=9, padding=3)
        axes.set_yticks(np.arange(len(rows)), [_shortened(part, 24 if narrow else 48) for part in rows["part"]])
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.margins(x=0.16 if narrow else 0.1)
    return figure


def _with_intervals(axes: Axes, x: pd.Series, rows: pd.DataFrame, metric: str, label: str, look: Look) -> None:
    means = column(rows, metric)
    low, high = means - column(rows, f"{metric}_low"), column(rows, f"{metric}_high") - means
    bars = np.clip(np.nan_to_num([low, high]), 0, None)
    marks = {"color": look.colour, "marker": look.marker, "linestyle": look.dash, "markersize": 5}
    axes.errorbar(x, means, yerr=bars, label=label, elinewidth=1, capsize=2, **marks)


def _log_ticks(axes: Axes, values: Sequence[float], names: Sequence[str]) -> None:
    """A logarithmic axis with ticks at these values, as many of them, from the last on, as keep apart."""
    axes.set_xscale("log")
    axes.xaxis.set_minor_locator(NullLocator())
    kept: dict[float, str] = {}
    for value, name in zip(reversed(values), reversed(names), strict=True):
        if not kept or math.log(min(kept) / value) >= math.log(values[-1] / values[0]) / 9:
            kept[value] = name
    axes.set_xticks(list(kept), list(kept.values()))


def _legend(figure: Figure, axes: Axes, narrow: bool) -> None:
    handles, names = axes.get_legend_handles_labels()
    if handles:
        shown = [_shortened(name, 22 if narrow else 40) for name in names]
        room = 58 if narrow else 96
        columns = max(1, min(len(names), 4, room // (max(map(len, shown)) + 6)))
        figure.set_figheight(figure.get_figheight() + 0.17 * (-(-len(names) // columns) - 1))
        figure.legend(handles, shown, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 6]}…{text[-5:]}"
