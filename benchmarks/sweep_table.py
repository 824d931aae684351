"""The table of docs/benchmarks.md from a reported sweep: `python -m benchmarks.sweep_table FOLDER`.

`silodp report FOLDER` goes first; this lays its `report/table.csv` out as Markdown, a method a line and an epsilon a
column: the mean of the headline metric over seeds, and under it the gain kept.
"""

import argparse
from pathlib import Path

import pandas as pd

_METRICS = ("auc", "accuracy", "r2")
_NO_EPSILON = ("no-privacy", "majority")


def markdown(table: pd.DataFrame) -> str:
    """The table of a report as Markdown.

    Args:
        table: the report's `table.csv`.
    """
    metric = next(name for name in _METRICS if name in table)
    epsilons = sorted(set(table.loc[~table["method"].isin(_NO_EPSILON), "epsilon"]))
    lines = [
        "| | " + " | ".join("∞" if epsilon == float("inf") else f"{epsilon:g}" for epsilon in epsilons) + " |",
        "|---" * (len(epsilons) + 1) + "|",
    ]
    for label, rows in table.groupby("label", sort=False):
        found = {row["epsilon"]: f"{_shown(row[metric])} ({_gain(row['utility'])})" for _, row in rows.iterrows()}
        lines.append(f"| {label} | " + " | ".join(found.get(epsilon, "") for epsilon in epsilons) + " |")
    return "\n".join(lines)


def _shown(value: float) -> str:
    return "< -10" if value < -10 else f"{value:.3f}"


def _gain(utility: float) -> str:
    return "lost" if utility < -1 else f"{utility:.0%}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="of a sweep that was reported")
    print(markdown(pd.read_csv(parser.parse_args().folder / "report" / "table.csv")))
