"""What the command line shows of a sweep: a live bar with the time left, and what came of it."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from scenarios.sweeps._sweep import FAILURES, RESULTS, SweepProgress

_LEAST_SECONDS = 10.0
"""Between two plain lines."""


@contextmanager
def watch_sweep(name: str) -> Iterator[Callable[[SweepProgress], None]]:
    """A callback that shows the sweep's progress: a live bar on a terminal, else a plain line now and then."""
    if not sys.stderr.isatty():
        yield _plain()
        return
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[state]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(name, total=None, state="starting")

        def show(now: SweepProgress) -> None:
            bar.update(task, total=now.runs, completed=now.done, state=_state(now))

        yield show


def _plain() -> Callable[[SweepProgress], None]:
    began, first, shown = time.monotonic(), None, 0.0

    def show(now: SweepProgress) -> None:
        nonlocal first, shown
        at = time.monotonic()
        first = now.done if first is None else first
        if now.over < now.runs and at - shown < _LEAST_SECONDS:
            return
        shown = at
        fresh = now.done - first
        left = f"  {(at - began) / fresh * (now.runs - now.done):.0f} s left" if fresh > 0 else ""
        print(f"{_state(now)}{left}", file=sys.stderr, flush=True)

    return show


def _state(now: SweepProgress) -> str:
    failed = f"  {len(now.failed)} failed" if now.failed else ""
    return f"{now.over}/{now.runs} runs{failed}  {now.run}"


def print_sweep(folder: Path, failed: Mapping[str, str]) -> None:
    """Where the table is, and which runs are not in it."""
    for run, reason in failed.items():
        print(f"{run}: {reason}", file=sys.stderr)
    missing = f"; {len(failed)} failed runs are in {FAILURES} and not in the table" if failed else ""
    print(f"Written to {folder}: {RESULTS}.csv, {RESULTS}.parquet, a folder for each run in runs{missing}.")
