"""`python -m benchmarks`: measure everything, print a table, write JSON."""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks import pricing, rounds, start, steps, workers
from benchmarks.comparison import Comparison, to_json

Measure = Callable[[int], Iterator[Comparison]]


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", nargs="*", help="what to measure: steps, rounds, start, pricing; all by default")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each side; medians are compared")
    parser.add_argument("--pfl-python", help="an interpreter that has pfl 0.6, in an environment of its own")
    parser.add_argument("--out", type=Path, default=Path("runs/benchmarks.json"))
    arguments = parser.parse_args()
    modules: dict[str, Measure] = {
        "steps": steps.measure,
        "rounds": partial(rounds.measure, pfl_python=arguments.pfl_python),
        "workers": workers.measure,
        "start": start.measure,
        "pricing": pricing.measure,
    }
    done: list[Comparison] = []
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    console = Console()
    if not console.is_terminal:
        console = Console(width=150)
    for name in arguments.only or modules:
        for comparison in modules[name](arguments.repeats):
            done.append(comparison)
            console.print(f"{comparison.work}: {comparison.ratio:.3g}", style="dim")
            arguments.out.write_text(to_json(done), "utf-8")
    console.print(_table(done))
    console.print(f"Written to {arguments.out}.")


def _table(comparisons: list[Comparison]) -> Table:
    table = Table("work", "ours", "against", "theirs", "ratio", "target", "")
    for one in comparisons:
        table.add_row(
            one.work,
            _number(median(one.ours), one.unit),
            one.against,
            _number(median(one.rival), one.unit),
            f"{one.ratio:.2f}",
            "-" if one.target is None else f"{'<=' if one.most else '>='} {one.target:g}",
            "-" if one.target is None else "reached" if one.reached else "missed",
        )
    return table


def _number(value: float, unit: str) -> str:
    if unit != "s":
        return f"{value:.0f} {unit}"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.3g} ms"


if __name__ == "__main__":
    main()
