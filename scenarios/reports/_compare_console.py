"""What the command line shows of a comparison."""

import math
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.table import Table

from scenarios._errors import RunError
from scenarios.reports._compare import RESULT
from scenarios.reports._frames import column
from scenarios.reports._summary import metric_words, said_of_seeds

_console = Console()


def print_comparison(a: str, b: str, table: pd.DataFrame) -> None:
    """The table, and how to read it."""
    keys = [name for name in table.columns if name not in RESULT]
    shown = Table(box=None, header_style="bold")
    for number, name in enumerate(["metric", *keys, "A", "B", "B - A", "from", "to", "seeds", "better"]):
        shown.add_column(name, justify="left" if number == 0 else "right", no_wrap=number > 0)
    for row in table.to_dict("records"):
        numbers = [_number(row[name], sign=name == "difference") for name in ("a", "b", "difference", "low", "high")]
        seeds = f"{row['seeds']}" + (f" ({row['lost']} lost)" if row["lost"] else "")
        settings = [f"{row[key]:g}" if isinstance(row[key], float) else str(row[key]) for key in keys]
        shown.add_row(metric_words(row["metric"]), *settings, *numbers, seeds, str(row["better"]).upper())
    _console.print(f"A: {a}\nB: {b}", highlight=False)
    _console.print(shown)
    counts = sorted(set(column(table, "seeds")))
    said = "; ".join(said_of_seeds(count) for count in counts if count)
    _console.print(f"Paired by seed; from and to: {said}. Better: where a 95% interval leaves 0 out.", highlight=False)


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """Write the table, every number with all of its digits.

    Raises:
        RunError: where it cannot be written.
    """
    try:
        table.to_csv(path, index=False)
    except OSError as error:
        raise RunError(f"{path}: cannot be written: {error.strerror}.") from error


def _number(value: float, *, sign: bool = False) -> str:
    if math.isnan(value):
        return "–"
    return f"{value:+.4f}" if sign else f"{value:.4f}"
