"""The pictures of a run, drawn with matplotlib and embedded as SVG that follows the page's light or dark colours."""

import html
import io
import re
from pathlib import Path
from typing import Literal

import matplotlib as mpl
import pandas as pd
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.typing import RcKeyType

from scenarios._checkpoint import WHOLE
from scenarios._errors import RunError

INK = "#123456"
"""Stands for the page's text colour while drawing; `svg` turns it into ``currentColor``."""

PALETTE = ("#0072b2", "#d55e00", "#9b4f96", "#009e73", "#b07d00", "#3f7f93", "#8c564b")
"""Told apart by colour-blind readers (after Okabe, Ito 2008), and dark enough on white."""

DARK_PALETTE = ("#5ab4f0", "#ff9457", "#d79ad3", "#35c99b", "#e6b84a", "#8cc6d6", "#cfa093")
"""The same hues, light enough on a dark page."""

STYLE: dict[RcKeyType, object] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "silodp",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.prop_cycle": cycler(color=PALETTE),
}

MOST_LINES = 10
"""More silos than this are drawn as a band with the worst silo named."""


def metric_by_round(metrics: pd.DataFrame, metric: str) -> Figure:
    """The federation's metric against the round.

    Args:
        metrics: tidy rows with columns round, silo, metric, value.
        metric: which metric to draw.
    """
    rows = metrics[(metrics["metric"] == metric) & (metrics["silo"] == WHOLE)]
    with mpl.rc_context(STYLE):
        figure, axes = new_figure("round", f"{metric} on held-out records")
        axes.plot(rows["round"], rows["value"], marker="o", markersize=3)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def epsilon_by_round(prices: pd.DataFrame, target: float | None, spent: str = "epsilon so far") -> Figure:
    """What each silo has spent after each round.

    Args:
        prices: rows with columns round, silo, epsilon.
        target: the scenario's epsilon, drawn as a line; None draws none.
        spent: what the curve is, in words.
    """
    table = prices.pivot_table(index="round", columns="silo", values="epsilon", sort=False)
    with mpl.rc_context(STYLE):
        figure, axes = new_figure("round", spent)
        if table.shape[1] <= MOST_LINES:
            for silo in table.columns:
                axes.plot(table.index, table[silo], label=str(silo))
        else:
            axes.fill_between(table.index, table.min(axis=1), table.max(axis=1), alpha=0.3, label="all silos")
            axes.plot(table.index, table.max(axis=1), label="the worst silo")
        if target is not None:
            axes.axhline(target, linestyle="--", linewidth=1, color=INK, label="target")
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(frameon=False, fontsize=8)
    return figure


def methods_by_round(prices: pd.DataFrame, target: float | None) -> Figure:
    """What each method says of the same releases after each round, on a logarithmic scale.

    Args:
        prices: rows with columns round, method, epsilon.
        target: the scenario's epsilon, drawn as a line; None draws none.
    """
    with mpl.rc_context(STYLE):
        figure, axes = new_figure("round", "epsilon so far")
        for method, rows in prices.groupby("method", sort=False):
            axes.plot(rows["round"], rows["epsilon"], label=str(method), linewidth=3 if method == "parallel" else 1.5)
        if target is not None:
            axes.axhline(target, linestyle="--", linewidth=1, color=INK, label="target")
        axes.set_yscale("log")
        axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def save_figure(figure: Figure, path: Path) -> None:
    """Write the figure to a file; the suffix says in which format.

    Raises:
        RunError: for a suffix that is no picture's, or a file that cannot be written.
    """
    try:
        with mpl.rc_context(STYLE):
            figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: the plot cannot be written: {error}") from None


def svg(figure: Figure, name: str, title: str) -> str:
    """The figure as an inline SVG element, the same bytes for the same figure.

    Args:
        figure: drawn in `STYLE`.
        name: distinguishes its ids from those of the page's other figures.
        title: read out in place of the picture.
    """
    buffer = io.StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(
            buffer, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
        )
    text = re.sub(r"^.*?(?=<svg)|<metadata>.*?</metadata>", "", buffer.getvalue(), flags=re.DOTALL)
    text = re.sub(
        r'<svg [^>]*?(viewBox="[^"]*")[^>]*>', rf'<svg \1 role="img" aria-label="{html.escape(title)}">', text
    )
    text = re.sub(r'(id="|url\(#|xlink:href="#)', rf"\g<1>{name}-", text).replace("xlink:href", "href")
    text = text.replace(INK, "currentColor")
    for number, colour in enumerate(PALETTE):
        text = text.replace(colour, f"var(--c{number}, {colour})")
    return text


def image(figure: Figure, kind: Literal["png", "svg"]) -> bytes:
    """The figure as a file on white, the same bytes for the same figure."""
    buffer = io.BytesIO()
    with mpl.rc_context(STYLE):
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(buffer, format=kind, dpi=180, facecolor="white", metadata=metadata)
    return buffer.getvalue()


def laid_out(figure: Figure) -> Figure:
    """The figure with its layout fixed, so that saving it in several formats does not find it anew."""
    with mpl.rc_context(STYLE):
        figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return figure


def new_figure(x_label: str, y_label: str, size: tuple[float, float] = (6.4, 3.2)) -> tuple[Figure, Axes]:
    """An empty figure of a size in inches, and its axes; to be called in the context of `STYLE`."""
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(alpha=0.2)
    return figure, axes
