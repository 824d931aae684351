"""The rounds of a run in this process: silos, grid, strategy and oracle evaluation around `server.run_rounds`."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from importlib.metadata import version

from accounting import Ledger, Mechanism, Relation, epsilon
from scenarios._checkpoint import Checkpoint, Failure, MetricRow
from scenarios._dataset import Dataset
from scenarios._evaluate import HEADLINE, Evaluator
from scenarios._participation import UnreliableSilo, fates
from scenarios._plan import Plan
from scenarios._price import budget_of, terms
from scenarios._spec import Scenario
from server import InProcessGrid, RoundResult, build_strategy, find_silos, restore_state, run_rounds, save_state
from silos import OpacusEngine, Silo, Streams, build_model, client_app, weights_of


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What a run says of itself: when a silo begins to train, and after each round (round 0 is the untrained model).

    Attributes:
        round, rounds: rounds done, and to do in all.
        silo: the silo that trains now; None after a round.
        metric, value: the task's headline metric at its last evaluation.
        releases: so far, of the silo that the plan prices highest, from its ledger.
        relation, delta: to price them by.
        failures: silo-rounds that failed so far.
    """

    round: int
    rounds: int
    silo: str | None
    metric: str
    value: float
    releases: Sequence[Mechanism]
    relation: Relation
    delta: float
    failures: int

    @property
    def epsilon(self) -> float:
        """What the releases so far cost; computed when asked for."""
        return epsilon(self.releases, relation=self.relation, delta=self.delta).epsilon


class Simulation:
    """Everything that is built once for a run and kept across its rounds.

    Args:
        scenario, dataset, plan: of the run.

    Raises:
        ModelRefused: for a model without per-record gradients.
    """

    def __init__(self, scenario: Scenario, dataset: Dataset, plan: Plan) -> None:
        self._scenario = scenario
        self._dataset = dataset
        self._plan = plan
        shape, outputs = dataset.input_shape, dataset.outputs
        self._model = build_model(
            scenario.model.kind,
            input_shape=shape,
            outputs=outputs,
            hidden=scenario.model.hidden,
            activation=scenario.model.activation,
            seed=scenario.seed,
        )
        self._engine = OpacusEngine(
            self._model,
            task=dataset.task,
            input_shape=shape,
            outputs=outputs,
            device=scenario.training.device,
            max_physical_batch=scenario.training.max_physical_batch,
        )
        self._evaluator = Evaluator(self._model, dataset)
        self._key = run_key(scenario, dataset)
        self._fates = fates(scenario, list(dataset.shards))
        self._budgets = {
            part.silo: budget
            for part in plan.silos
            if (budget := budget_of(scenario, part.silo, part.schedule.mechanism())) is not None
        }

    @property
    def name(self) -> str:
        """The run's name in the ledger: the scenario's, and the head of the run key."""
        return f"{self._scenario.name}-{self._key.hex()[:16]}"

    def initial(self) -> Checkpoint:
        """The state before round 1."""
        weights = weights_of(self._model)
        return Checkpoint(run=self.name, round=0, model=weights, metrics=self._evaluator.rows(0, weights))

    def rounds(self, ledger: Ledger, start: Checkpoint, progress: Callable[[Progress], None]) -> Iterator[Checkpoint]:
        """The state after each round that follows `start`; what led to it is durably in the ledger by then."""
        teller = _Teller(progress, self._scenario, self._plan, ledger, start)
        grid, silos = self._grid(ledger, teller)
        schedules = {part.silo: part.schedule for part in self._plan.silos}
        total = self._scenario.training.rounds
        with ledger.batch():
            for silo, schedule in schedules.items():
                for name, value in terms(self._scenario).items():
                    ledger.fix(silo, name, value)
                if silo in self._budgets:
                    ledger.fix(silo, "budget", json.dumps(self._budgets[silo].to_json()))
                ledger.declare(silo, self.name, total, schedule.mechanism())
        options = self._scenario.training.strategy.model_dump()
        strategy = build_strategy(options.pop("name"), options)
        restore_state(strategy, start.strategy)
        teller.tell()
        state = start
        if self._reached(state.metrics):
            return
        for result in run_rounds(
            grid=grid,
            silos=silos,
            strategy=strategy,
            plan=lambda number: {
                silo: schedule for silo, schedule in schedules.items() if self._fate(silo, number) != "offline"
            },
            weights=start.model,
            rounds=total,
            first=start.round + 1,
            ledger=ledger,
            seed=self._key.hex(),
        ):
            state = replace(self._after(state, result), strategy=save_state(strategy))
            yield state
            teller.state = state
            teller.tell()
            if self._reached(state.metrics):
                return

    def _fate(self, silo: str, round: int) -> str | None:
        return self._fates[silo].get(round)

    def _reached(self, rows: Sequence[MetricRow]) -> bool:
        """Whether the last of these evaluations reached what the scenario stops at."""
        goal, metric = self._scenario.training.stop_at, HEADLINE[self._scenario.data.task]
        last = [row.value for row in rows if (row.silo, row.metric) == ("all", metric)][-1:]
        return goal is not None and any(value >= goal for value in last)

    def _grid(self, ledger: Ledger, teller: "_Teller") -> tuple[InProcessGrid, dict[int, str]]:
        streams = Streams(self._key)
        silos = {
            name: UnreliableSilo(
                run=self.name,
                shard=shard,
                engine=self._engine,
                ledger=ledger,
                streams=streams,
                admit=self._budgets[name].check if name in self._budgets else None,
                events=self._fates[name],
            )
            for name, shard in self._dataset.shards.items()
        }

        def find(name: str) -> Silo:
            teller.tell(name)
            return silos[name]

        grid = InProcessGrid(client_app(lambda context: find(str(context.node_config["silo"]))), list(silos))
        return grid, find_silos(grid, list(silos))

    def _after(self, state: Checkpoint, result: RoundResult) -> Checkpoint:
        last = result.round == self._scenario.training.rounds
        rows: list[MetricRow] = []
        if last or result.round % self._scenario.evaluation.every == 0:
            rows = self._evaluator.rows(result.round, result.weights, by_silo=last)
        if not last and self._reached(rows):
            rows = self._evaluator.rows(result.round, result.weights, by_silo=True)
        reasons = {
            silo: event or result.failures[silo]
            for silo in self._dataset.shards
            if (event := self._fate(silo, result.round)) or silo in result.failures
        }
        failures = [Failure(result.round, silo, reason) for silo, reason in reasons.items()]
        return replace(
            state,
            round=result.round,
            model=result.weights,
            metrics=[*state.metrics, *rows],
            failures=[*state.failures, *failures],
        )


class _Teller:
    """Turns the state of a run into `Progress`."""

    def __init__(
        self, progress: Callable[[Progress], None], scenario: Scenario, plan: Plan, ledger: Ledger, state: Checkpoint
    ) -> None:
        self.state = state
        self._progress = progress
        self._rounds = scenario.training.rounds
        self._metric = HEADLINE[scenario.data.task]
        self._plan = plan
        self._ledger = ledger
        self._releases: Sequence[Mechanism] = ()

    def tell(self, silo: str | None = None) -> None:
        if silo is None:
            self._releases = self._ledger.releases(self._plan.worst.silo)
        values = (row.value for row in reversed(self.state.metrics) if (row.silo, row.metric) == ("all", self._metric))
        self._progress(
            Progress(
                round=self.state.round,
                rounds=self._rounds,
                silo=silo,
                metric=self._metric,
                value=next(values, float("nan")),
                releases=self._releases,
                relation=self._plan.relation,
                delta=self._plan.delta,
                failures=len(self.state.failures),
            )
        )


def run_key(scenario: Scenario, dataset: Dataset) -> bytes:
    """The key of all noise of a run: a hash of the resolved scenario with its seed, the shards and the code version.

    A changed scenario draws fresh noise under the same seed; equal noise under two settings would cancel out of the
    difference of their releases.
    """
    digest = blake2b(digest_size=32, person=b"silodp run")
    shards = [shard.fingerprint(b"simulation") for shard in dataset.shards.values()]
    for part in (version("silodp").encode(), scenario.canonical(), *(shard.encode() for shard in shards)):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()
