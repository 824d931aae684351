"""Sweeps: from a scenario to a table that says what privacy costs, one folder for all.

A sweep's folder holds `sweep.toml`, the scenario with its `[sweep]` section; `runs`, an ordinary folder for each run;
and, when it has ended, `results.csv` and `results.parquet` (the same table; see `scenarios.sweeps._table`),
`timings.csv`, and `failures.csv` where a run failed. The same call over the same folder goes on where it was stopped,
however it was: runs that are done stay, the others go on from their last checkpoints.
"""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import IO

import pandas as pd

from scenarios._checkpoint import write_atomically
from scenarios._errors import RunError, reading
from scenarios.spec._load import changed, load
from scenarios.spec._scenario import Scenario
from scenarios.spec._sweep import Sweep, Value
from scenarios.sweeps._runs import SweepRun, expand
from scenarios.sweeps._table import ROWS, RUNS, SWEEP, gather, to_csv
from scenarios.sweeps._workers import Told, work

RESULTS, FAILURES, LOCK = "results", "failures.csv", "sweep.lock"

_TIMINGS = "timings.json"

_PATIENCE = 10.0
"""Seconds to wait for the last workers of a sweep that was killed a moment ago."""


@dataclass(kw_only=True)
class SweepProgress:
    """How far a sweep is.

    Attributes:
        runs: how many there are.
        parts: how much of each run is done, in [0, 1], by name.
        failed: why each run that failed did.
        run: the one last heard of.
    """

    runs: int
    parts: dict[str, float]
    failed: dict[str, str] = field(default_factory=dict)
    run: str = ""

    @property
    def done(self) -> float:
        """Runs done, unfinished ones in part; failed ones count as done."""
        return sum(self.parts.values()) + len(self.failed)

    @property
    def over(self) -> int:
        """Runs that are done or have failed."""
        return sum(part == 1 for part in self.parts.values()) + len(self.failed)


def sweep(
    scenario: Scenario | str | Path,
    *,
    over: Mapping[str, Sequence[Value]] | None = None,
    seeds: int | None = None,
    baselines: Sequence[str] | None = None,
    out: Path | str | None = None,
    jobs: int | None = None,
    ray: str | None = None,
    progress: Callable[[SweepProgress], None] | None = None,
) -> pd.DataFrame:
    """Run every combination of values for every seed, and baselines. What is not given, the scenario's section says.

    Args:
        scenario: a scenario, its shipped name or its file.
        over: values by key, as in ``{"epsilon": [0.5, 1, 2], "strategy": ["fedavg", "mr-mtl:pull=0.1"]}``.
        seeds: how many, from the scenario's seed on.
        baselines: any of ``no-privacy``, ``alone``, ``pooled``, ``majority``.
        out: folder for the results; new, or that of the same sweep to go on with; None is ``runs/NAME-sweep``.
        jobs: processes; None is one a core.
        ray: address of a Ray cluster to run on, which shares `out`'s file system; ``local`` starts one.
        progress: called as runs go on.

    Returns:
        The table of results, one row per run and silo; see `results`.

    Raises:
        ScenarioError: for a scenario or a sweep that makes no sense; nothing was written.
        RunError: where the folder holds something else, or some runs failed; the table of the others is written.
    """
    base = scenario if isinstance(scenario, Scenario) else load(scenario)
    folder = Path(out) if out is not None else default_sweep_folder(base)
    failed = run_sweep(resolve(base, over, seeds, baselines), folder, jobs=jobs, ray=ray, progress=progress)
    if failed:
        name, reason = next(iter(failed.items()))
        raise RunError(f"{folder}: {len(failed)} runs failed, which {FAILURES} lists; the first, {name}: {reason}")
    return results(folder)


def results(folder: Path | str) -> pd.DataFrame:
    """The table of a sweep's runs that are done, one row per run and silo.

    Returns:
        Columns run, scenario, method, epsilon, seed, one per other swept key, silo (``all`` is the federation),
        records, epsilon_spent, delta, and one per metric.

    Raises:
        RunError: where the folder holds no sweep.
    """
    folder = Path(folder)
    if not (folder / SWEEP).is_file():
        raise RunError(f"{folder}: holds no sweep; silodp sweep makes one.")
    return gather([folder / RUNS / run.name for run in expand(load(folder / SWEEP))])


def resolve(
    scenario: Scenario,
    over: Mapping[str, Sequence[Value]] | None,
    seeds: int | None,
    baselines: Sequence[str] | None,
) -> Scenario:
    """The scenario with the section that a sweep follows: its own, where nothing else is given."""
    own = scenario.sweep or Sweep()
    section: dict[str, object] = {
        "over": dict(own.over if over is None else over),
        "seeds": own.seeds if seeds is None else seeds,
        "baselines": list(own.baselines if baselines is None else baselines),
    }
    bare = scenario.model_copy(update={"sweep": None})
    return changed(bare, sweep=section)


def default_sweep_folder(scenario: Scenario) -> Path:
    """Where a sweep is written when nobody says where."""
    return Path(RUNS) / f"{scenario.name}-sweep"


def run_sweep(
    scenario: Scenario,
    folder: Path,
    *,
    jobs: int | None = None,
    ray: str | None = None,
    progress: Callable[[SweepProgress], None] | None = None,
) -> dict[str, str]:
    """Run the sweep of a scenario's section; see `sweep`.

    Returns:
        Why each run that failed did, by name. The others are in the table.
    """
    runs = expand(scenario)
    with _held(folder) as lock:
        _claim(folder, scenario)
        parts = {run.name: float((folder / RUNS / run.name / ROWS).exists()) for run in runs}
        state = SweepProgress(runs=len(runs), parts=parts)

        def tell(told: Told) -> None:
            state.run, state.parts[told.run] = told.run, told.part
            if told.failed is not None:
                state.failed[told.run] = told.failed
            if progress is not None:
                progress(state)

        # One seed after another, so that those that are done can be compared, and a seed's data are read once.
        left = [run.name for run in sorted(runs, key=lambda run: run.scenario.seed) if not parts[run.name]]
        if left and ray is not None:
            from scenarios.sweeps._ray import work_on_ray

            work_on_ray(folder, left, address=ray, jobs=jobs or _cores(), tell=tell)
        elif left:
            work(folder, left, jobs=jobs or _cores(), lock=lock, tell=tell)
        _write(folder, runs, state.failed)
    return state.failed


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _held(folder: Path) -> Iterator[IO[bytes]]:
    """The folder, made if need be, for this sweep alone."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("wb")
    except OSError as error:
        raise RunError(f"{folder}: cannot be written: {error.strerror}.") from error
    with lock:
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise RunError(f"{folder}: another sweep is going on in it.") from None
                time.sleep(0.1)
        yield lock


def _claim(folder: Path, scenario: Scenario) -> None:
    """See that the folder is this sweep's, or is empty and becomes it."""
    path = folder / SWEEP
    content = f"# silodp {version('silodp')}\n{scenario.to_toml()}".encode()
    if path.exists():
        if path.read_bytes() != content:
            raise RunError(
                f"{folder}: holds another sweep (see {path}), or one of another version. Go on with it by the command "
                "that started it, or choose another --out."
            )
        return
    if any(each.name not in (LOCK, f"{SWEEP}.partial") for each in folder.iterdir()):
        raise RunError(f"{folder}: is not empty and holds no sweep. Choose another --out.")
    write_atomically(path, content)


def _write(folder: Path, runs: Sequence[SweepRun], failed: Mapping[str, str]) -> None:
    folders = [folder / RUNS / run.name for run in runs]
    table = gather(folders)
    write_atomically(folder / f"{RESULTS}.csv", to_csv(table))
    write_atomically(folder / f"{RESULTS}.parquet", table.to_parquet(index=False))
    seconds = [(each.name, _seconds(each)) for each in folders if (each / _TIMINGS).exists()]
    write_atomically(folder / "timings.csv", to_csv(pd.DataFrame(seconds, columns=["run", "seconds"])))
    if failed:
        rows = [(run.name, failed[run.name]) for run in runs if run.name in failed]
        write_atomically(folder / FAILURES, to_csv(pd.DataFrame(rows, columns=["run", "reason"])))
    else:
        (folder / FAILURES).unlink(missing_ok=True)


def _seconds(folder: Path) -> float:
    with reading(folder / _TIMINGS):
        return float(json.loads((folder / _TIMINGS).read_text("utf-8"))["seconds"])
