"""What trains the silos of a run: one engine in this process, or worker processes with an engine each."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from flwr.app import Context, Message

from accounting._validate import check_count
from scenarios._model import model_builder
from scenarios._plan_parts import Plan
from scenarios.data._dataset import Dataset
from scenarios.spec._scenario import Scenario
from silos import FleetEngine, Silo, Workers, build_engine, serve_together, worker_count


class Trainer:
    """Built once for a run.

    Args:
        scenario, dataset, plan: of the run.
        workers: processes that train; 1 is this one, None chooses by `worker_count`. It changes no result.

    Attributes:
        model: with its initial weights.
        engine: in this process, whoever trains.
        workers: how many processes train; 1 is this one.

    Close it after the rounds, or processes stay until this one ends.

    Raises:
        ModelRefused: for a model without per-record gradients.
    """

    def __init__(self, scenario: Scenario, dataset: Dataset, plan: Plan, workers: int | None) -> None:
        if workers is not None:
            check_count(low=1, workers=workers)
        model = model_builder(scenario, input_shape=dataset.input_shape, outputs=dataset.outputs)
        engine = partial(
            build_engine,
            scenario.training.engine,
            task=dataset.task,
            input_shape=dataset.input_shape,
            outputs=dataset.outputs,
            by_individual=any(part.schedule.by_individual for part in plan.silos),
            device=scenario.training.device,
            max_physical_batch=scenario.training.max_physical_batch,
        )
        self.model = model()
        self.engine = engine(self.model)
        self.workers = self._fitting(scenario, dataset, plan) if workers is None else workers
        self._workers = Workers(partial(engine, model), self.workers) if self.workers > 1 else None

    def together(
        self, find: Callable[[Context], Silo]
    ) -> Callable[[Sequence[tuple[Message, Context]]], list[Message]] | None:
        """What serves all train messages of a round at once; None where the silos train one by one."""
        if self._workers is not None:
            return serve_together(self._workers, find)
        return serve_together(self.engine, find) if isinstance(self.engine, FleetEngine) else None

    def close(self) -> None:
        """End the processes."""
        if self._workers is not None:
            self._workers.close()

    def _fitting(self, scenario: Scenario, dataset: Dataset, plan: Plan) -> int:
        cuda = scenario.training.device != "cpu" and torch.cuda.is_available()
        # Silos would queue for one GPU; and a model of the main module is found in no other process.
        if cuda or scenario.model.kind.startswith("__main__:"):
            return 1
        return worker_count(
            self.engine.name,
            self.model,
            input_shape=dataset.input_shape,
            schedules=[part.schedule for part in plan.silos],
            rounds=scenario.training.rounds,
        )
