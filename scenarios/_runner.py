"""Runs: from a scenario to a model, a ledger, metrics, a guarantee and a report in one folder.

A run that is killed at any moment goes on from its last checkpoint. A round that was charged but not checkpointed is
run again from the same noise streams, which is the same release and reuses its row in the ledger.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pandas as pd
from safetensors.numpy import save

from accounting import Guarantee, Ledger, LedgerError
from scenarios._account import LEDGER, SCENARIO
from scenarios._checkpoint import Checkpoint, load_checkpoint, save_checkpoint, write_atomically
from scenarios._errors import RunError
from scenarios._groups import grouped
from scenarios._plan import make_plan
from scenarios._plan_parts import Plan
from scenarios._price import epsilons_by_round, executed, price_run
from scenarios._ray_silos import RaySilos
from scenarios._simulation import Progress, Simulation
from scenarios._strategy import PERSONAL, personal_bytes
from scenarios.data._dataset import Dataset, prepare, public_sizes
from scenarios.reports._report import render_report
from scenarios.spec._scenario import Scenario
from silos import Weights

CHECKPOINT = "checkpoint.safetensors"

GridName = Literal["in-process", "ray"]


@dataclass(frozen=True, kw_only=True, eq=False)
class RunResult:
    """What a run came to.

    Attributes:
        scenario, plan: what was asked.
        guarantee: what it gave away, from the ledger.
        metrics: tidy rows with columns round, silo, metric, value; silo ``all`` is the federation.
        failures: tidy rows with columns round, silo, reason.
        engine: what trained the silos.
        model: the final weights by name; the mean of the silos' last models, where each has its own.
        personal: models of silos that have their own, by the silo's name.
        folder: where the files are.
    """

    scenario: Scenario
    plan: Plan
    guarantee: Guarantee
    metrics: pd.DataFrame
    failures: pd.DataFrame
    engine: str
    model: Weights
    personal: Mapping[str, Weights]
    folder: Path


def default_folder(scenario: Scenario) -> Path:
    """Where a run is written when nobody says where."""
    return Path("runs") / f"{scenario.name}-seed{scenario.seed}"


def run(
    scenario: Scenario,
    *,
    out: Path | str | None = None,
    resume: bool = False,
    workers: int | None = None,
    grid: GridName = "in-process",
    ray_address: str | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> RunResult:
    """Run a scenario.

    Args:
        scenario: from `load`.
        out: folder for the results, new or empty; None is `default_folder`.
        resume: go on with the run of this scenario that was stopped in `out`; the results are the same bytes.
        workers: processes that train the silos: 1 trains them in this one, None takes one a core where that is faster.
            The results are the same bytes.
        grid: where the silos are: ``in-process``, or ``ray``, in the processes of a Ray cluster. The results are the
            same, to the byte where the machines are alike.
        ray_address: of a running cluster; None takes that of ``RAY_ADDRESS``, or starts one here.
        progress: called as the run goes on.

    Raises:
        ScenarioError: where the scenario or its data are not fit to run; nothing was written.
        RunError: where the folder holds something else.
        Declined: on resuming, where a shard is not the one that the ledger began with.
        LedgerError: where the ledger cannot be written (the run can be resumed), or, on resuming, is gone or holds
            less than the checkpoint saw.
        WorkerLost: where a worker process ends again and again; the run can be resumed.
    """
    folder = Path(out) if out is not None else default_folder(scenario)
    _check_folder(folder, resume=resume)  # before the time that the data and the plan take
    return run_prepared(
        scenario,
        prepare(scenario),
        out=folder,
        resume=resume,
        workers=workers,
        grid=grid,
        ray_address=ray_address,
        progress=progress,
    )


def run_prepared(
    scenario: Scenario,
    dataset: Dataset,
    *,
    out: Path | str | None = None,
    resume: bool = False,
    workers: int | None = None,
    grid: GridName = "in-process",
    ray_address: str | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> RunResult:
    """As `run`, over the scenario's data as `prepare` gave them."""
    began = time.perf_counter()
    scenario = grouped(scenario, dataset.shards)
    plan = make_plan(scenario, public_sizes(scenario, dataset))
    cluster = _cluster(scenario, dataset, plan, grid, ray_address, workers)
    simulation = Simulation(scenario, dataset, plan, workers=workers, cluster=cluster)
    folder = Path(out) if out is not None else default_folder(scenario)
    state = _start(folder, scenario, simulation, resume=resume)
    with _told_of(state):
        ledger = Ledger.open(folder / LEDGER, create=state.round == 0)
    with closing(simulation), ledger:
        with _told_of(state):
            ledger.verify(state.heads)
        for after in simulation.rounds(ledger, state, progress):
            state = replace(after, heads=ledger.heads())
            save_checkpoint(folder / CHECKPOINT, state)
        state = simulation.finish(ledger, state)
        guarantee = price_run(scenario, ledger)
        prices = epsilons_by_round(scenario, max(1, state.round), executed(ledger))
    result = RunResult(
        scenario=scenario,
        plan=plan,
        guarantee=guarantee,
        metrics=pd.DataFrame(state.metrics, columns=["round", "silo", "metric", "value"]),
        failures=pd.DataFrame(state.failures, columns=["round", "silo", "reason"]),
        engine=simulation.engine,
        model=state.model,
        personal=simulation.personal(state),
        folder=folder,
    )
    timings = {"seconds": round(time.perf_counter() - began, 3), "workers": simulation.workers}
    _write(result, prices, timings)
    return result


def _cluster(
    scenario: Scenario, dataset: Dataset, plan: Plan, grid: GridName, address: str | None, workers: int | None
) -> RaySilos | None:
    if grid == "in-process" and address is None:
        return None
    if grid != "ray":
        raise RunError(f"Expected grid={grid!r} to be in-process, or ray, which alone has an address.")
    if workers not in (None, 1):
        raise RunError(f"Expected workers={workers} to be left out: on Ray one actor a core of the cluster trains.")
    return RaySilos(scenario, dataset, plan, address=address)


def _start(folder: Path, scenario: Scenario, simulation: Simulation, *, resume: bool) -> Checkpoint:
    """Make the folder, or find where the run in it stopped."""
    _check_folder(folder, resume=resume)
    if resume:
        start = simulation.initial()
        if (folder / CHECKPOINT).exists():
            start = load_checkpoint(folder / CHECKPOINT)
        same = (folder / SCENARIO).read_bytes() == scenario.to_toml().encode()
        if same and start.run != simulation.name:
            # Where it is for a shard that changed, say so; a ledger that fixed nothing yet cannot tell.
            with suppress(LedgerError), Ledger.open(folder / LEDGER, read_only=True) as ledger:
                simulation.freeze(ledger)
        if not same or start.run != simulation.name:
            raise RunError(
                f"{folder}: holds a run of another scenario, seed, data or version. Resume with the same command that "
                f"started it (its scenario is in {folder / SCENARIO}), or choose another --out."
            )
        if not 0 <= start.round <= scenario.training.rounds or bool(start.heads) != (start.round > 0):
            raise RunError(f"{folder / CHECKPOINT}: is not a checkpoint that a run of this scenario wrote.")
        return start
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / SCENARIO, scenario.to_toml().encode())
    except OSError as error:
        raise RunError(f"{folder}: cannot be written: {error.strerror}.") from error
    return simulation.initial()


def _check_folder(folder: Path, *, resume: bool) -> None:
    """Refuse a folder without a run to resume, or one that a new run cannot have for itself."""
    if resume:
        if not (folder / SCENARIO).is_file():
            raise RunError(f"{folder}: holds no run to resume; leave out --resume to start one.")
        return
    try:
        if folder.exists() and not folder.is_dir():
            raise RunError(f"{folder}: is a file. A run is written to a folder; choose another --out.")
        used = folder.exists() and any(folder.iterdir())
    except OSError as error:
        raise RunError(f"{folder}: cannot be read: {error.strerror}.") from error
    if used:
        raise RunError(f"{folder}: is not empty. Choose another --out, or go on with the run in it by --resume.")


@contextmanager
def _told_of(state: Checkpoint) -> Iterator[None]:
    """Tell, where the ledger is not the one that the checkpoint saw, what can be done."""
    try:
        yield
    except LedgerError as error:
        if state.round == 0:
            raise
        raise type(error)(
            f"{error} {CHECKPOINT} beside it saw {state.round} rounds: put back the ledger that belongs to it, or "
            "begin again in another folder."
        ) from error


def _write(result: RunResult, prices: pd.DataFrame, timings: Mapping[str, float]) -> None:
    page = render_report(result, prices)
    contents = {
        "guarantee.json": json.dumps(result.guarantee.to_json(), indent=2).encode(),
        "model.safetensors": save(result.model),
        "metrics.csv": result.metrics.to_csv(index=False).encode(),
        "metrics.parquet": result.metrics.to_parquet(index=False),
        "failures.csv": result.failures.to_csv(index=False).encode(),
        "report.html": page.encode(),
        "timings.json": json.dumps(timings).encode(),
    }
    if result.personal:
        contents[PERSONAL] = personal_bytes(result.personal)
    for name, content in contents.items():
        write_atomically(result.folder / name, content)
