"""The server's side of a deployed run: rounds over silos that come and go, with a checkpoint after each.

The server holds no records. What it needs to know of the silos is public: their names and sizes, the shape of an input
and the number of outputs. A run that stopped for whatever reason goes on from its last checkpoint when it is submitted
again under the same name. It then asks for the next round by the very request it may have made before, which each silo
answers at no new charge if it had released.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

import pandas as pd
from flwr.serverapp import Grid
from safetensors.numpy import save

from scenarios._checkpoint import Checkpoint, Failure, load_checkpoint, save_checkpoint
from scenarios._errors import RunError
from scenarios._model import model_builder
from scenarios._noisy_metrics import noisy_rows
from scenarios._plan import make_plan
from scenarios._released import ask_after
from scenarios._strategy import PERSONAL, personal_bytes, strategy_in
from scenarios.data._dataset import Dataset, public_sizes
from scenarios.spec._scenario import Scenario
from server import RoundResult, personal_models, run_rounds, save_state
from server._deploy_grid import Patience, SiloGrid
from silos import Weights, weights_of
from silos._files import write_atomically

CHECKPOINT, MODEL, PROGRESS = "checkpoint.safetensors", "model.safetensors", "progress.json"
"""What a run's folder holds; the model is there when the run is done."""

METRICS = "metrics.csv"
"""What silos said of their last model, where the scenario asks them."""


@dataclass(frozen=True, kw_only=True)
class PublicFacts:
    """What is public of the silos and their records.

    Args:
        sizes: each silo's public number of training records, in the order of the run.
        input_shape: shape of one record's inputs.
        outputs: outputs of a model.
        label_scale: regression: one unit of an encoded label in the label's own unit; else 1.
    """

    sizes: dict[str, int]
    input_shape: tuple[int, ...]
    outputs: int
    label_scale: float = 1.0

    @classmethod
    def of(cls, scenario: Scenario, dataset: Dataset) -> Self:
        """The facts of a dataset."""
        return cls(
            sizes=public_sizes(scenario, dataset),
            input_shape=tuple(dataset.input_shape),
            outputs=dataset.outputs,
            label_scale=dataset.label_scale,
        )

    @classmethod
    def read(cls, path: Path) -> Self:
        """The facts in a file.

        Raises:
            RunError: for a file that holds none.
        """
        try:
            held = json.loads(path.read_text("utf-8"))
            return cls(**held | {"input_shape": tuple(held["input_shape"])})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(f"{path}: holds no public facts of silos ({error}).") from None

    def write(self, path: Path) -> None:
        """Write them; `read` is the inverse."""
        write_atomically(path, (json.dumps(asdict(self), indent=2) + "\n").encode())


@dataclass(frozen=True, kw_only=True)
class DeployedProgress:
    """What a run's folder says of how far it is.

    Args:
        run: its name.
        round, rounds: done, and in all.
        failures: silos that were asked in a round and are not in its model, so far.
    """

    run: str
    round: int
    rounds: int
    failures: int

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """The progress in a run's folder; None before the first is written."""
        try:
            return cls(**json.loads((folder / PROGRESS).read_text("utf-8")))
        except FileNotFoundError:
            return None


def run_deployed(
    grid: Grid, scenario: Scenario, facts: PublicFacts, *, run: str, folder: Path, log: Callable[[str], None]
) -> None:
    """Run a scenario's rounds, from the checkpoint in the folder if there is one.

    Args:
        grid: Flower's.
        scenario: what to run; its data are not read.
        facts: of the silos.
        run: the run's name, under which silos know its rounds.
        folder: for the checkpoint, the model, and what silos say of it.
        log: told of each round.

    Raises:
        SilosMissing: where too few silos answer; the run can be submitted again.
        RunError: for a checkpoint of another run.
        ScenarioError: for a scenario that a deployment does not offer.
    """
    folder.mkdir(parents=True, exist_ok=True)
    state = _start(scenario, facts, run, folder)
    rounds = scenario.training.rounds
    schedules = {part.silo: part.schedule for part in make_plan(scenario, facts.sizes).silos}
    strategy = strategy_in(scenario, state)
    silos = SiloGrid(grid, list(schedules), Patience(**scenario.deployment.model_dump()))
    _tell(folder, state, rounds)
    for result in run_rounds(
        grid=silos,
        silos=silos.silos,
        strategy=strategy,
        plan=lambda _: schedules,
        weights=state.model,
        rounds=rounds,
        first=state.round + 1,
        seed=str(scenario.seed),
    ):
        state = replace(_after(state, result), strategy=save_state(strategy))
        save_checkpoint(folder / CHECKPOINT, state)
        _tell(folder, state, rounds)
        log(f"Round {result.round} of {rounds}: {len(result.replied)} silos replied.")
        for silo, reason in result.failures.items():
            log(f"Round {result.round}: silo {silo}: {reason}")
    _finish(scenario, facts, silos, state, personal_models(strategy, list(schedules)), folder)


def _start(scenario: Scenario, facts: PublicFacts, run: str, folder: Path) -> Checkpoint:
    """The run's checkpoint, or its state before round 1."""
    if (folder / CHECKPOINT).exists():
        state = load_checkpoint(folder / CHECKPOINT)
        if state.run != run:
            raise RunError(f"{folder / CHECKPOINT}: is of run {state.run!r}, not of {run!r}.")
        return state
    model = model_builder(scenario, input_shape=facts.input_shape, outputs=facts.outputs)()
    return Checkpoint(run=run, round=0, model=weights_of(model))


def _finish(
    scenario: Scenario,
    facts: PublicFacts,
    silos: SiloGrid,
    state: Checkpoint,
    own: Mapping[str, Weights],
    folder: Path,
) -> None:
    """Ask silos of the last model, where the scenario does, and write what came of the run, its model last."""
    if scenario.evaluation.silo_metrics:
        models = {silo: own.get(silo, state.model) for silo in facts.sizes}
        released = ask_after(scenario, facts.outputs, silos, silos.silos, models)
        rows = noisy_rows(state.round, scenario.data.task, released, scale=facts.label_scale)
        table = pd.DataFrame(rows, columns=["round", "silo", "metric", "value"])
        write_atomically(folder / METRICS, table.to_csv(index=False).encode())
    if own:
        write_atomically(folder / PERSONAL, personal_bytes(own))
    write_atomically(folder / MODEL, save(state.model))


def _after(state: Checkpoint, result: RoundResult) -> Checkpoint:
    failures = [Failure(result.round, silo, reason) for silo, reason in result.failures.items()]
    return replace(state, round=result.round, model=dict(result.weights), failures=[*state.failures, *failures])


def _tell(folder: Path, state: Checkpoint, rounds: int) -> None:
    progress = DeployedProgress(run=state.run, round=state.round, rounds=rounds, failures=len(state.failures))
    write_atomically(folder / PROGRESS, json.dumps(asdict(progress)).encode())
