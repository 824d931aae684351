"""The rounds of a run in this process: silos, grid, strategy and oracle evaluation around `server.run_rounds`."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from flwr.app import Context
from flwr.serverapp.strategy import Strategy

from accounting import Ledger, Mechanism, Relation, epsilon
from scenarios._asked import held_out_chain
from scenarios._checkpoint import Checkpoint, Failure, MetricRow, latest
from scenarios._dataset import Dataset, held_out_shard
from scenarios._evaluate import Evaluator
from scenarios._frozen_shards import freeze_shards
from scenarios._noisy_metrics import noisy_rows
from scenarios._outcome import HEADLINE
from scenarios._participation import UnreliableSilo, fates
from scenarios._plan import Plan
from scenarios._price import budget_of, spent_in_words, terms, uses_oracle
from scenarios._released import ask_after, ask_before, declare
from scenarios._run_key import run_key
from scenarios._spec import Scenario
from scenarios._standardise import standardised
from scenarios._trainer import Trainer
from server import InProcessGrid, RoundResult, build_strategy, find_silos, restore_state, run_rounds, save_state
from server._personal import personal_models
from silos import Silo, Streams, Weights, client_app, weights_of


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What a run says of itself: when a silo begins to train, and after each round (round 0 is the untrained model).

    Attributes:
        round, rounds: rounds done, and to do in all.
        silo: the silo that trains now; None after a round.
        metric, value: the task's headline metric at its last evaluation.
        releases: so far, of the silo that the plan prices highest, from its ledger.
        spent: what their epsilon is, in words.
        relation, delta: to price them by.
        failures: silo-rounds that failed so far.
    """

    round: int
    rounds: int
    silo: str | None
    metric: str
    value: float
    releases: Sequence[Mechanism]
    spent: str
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
        workers: processes that train the silos; 1 trains them in this one, None chooses by `worker_count`. It changes
            no result.

    Close it after its rounds.

    Raises:
        ModelRefused: for a model without per-record gradients.
    """

    def __init__(self, scenario: Scenario, dataset: Dataset, plan: Plan, *, workers: int | None = None) -> None:
        self._scenario = scenario
        self._key = run_key(scenario, dataset)
        self._as_read = dataset
        self._dataset = dataset = standardised(scenario, dataset)
        self._plan = plan
        self._trainer = Trainer(scenario, dataset, plan, workers)
        self._evaluator = Evaluator(self._trainer.model, dataset)
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

    @property
    def engine(self) -> str:
        """Which engine trains: ``fleet`` or ``opacus``."""
        return self._trainer.engine.name

    @property
    def workers(self) -> int:
        """How many processes train: 1 is this one."""
        return self._trainer.workers

    def close(self) -> None:
        """End the processes that train."""
        self._trainer.close()

    def initial(self) -> Checkpoint:
        """The state before round 1."""
        state = Checkpoint(run=self.name, round=0, model=weights_of(self._trainer.model))
        return replace(state, metrics=self._evaluate(state))

    def rounds(self, ledger: Ledger, start: Checkpoint, progress: Callable[[Progress], None]) -> Iterator[Checkpoint]:
        """The state after each round that follows `start`; what led to it is durably in the ledger by then."""
        teller = _Teller(progress, self._scenario, self._plan, ledger, start)
        grid, silos = self._grid(ledger, self._dataset, teller)
        schedules = {part.silo: part.schedule for part in self._plan.silos}
        total = self._scenario.training.rounds
        with ledger.batch():
            self.freeze(ledger)
            for silo in schedules:
                for name, value in terms(self._scenario).items():
                    ledger.fix(silo, name, value)
                if silo in self._budgets:
                    ledger.fix(silo, "budget", json.dumps(self._budgets[silo].to_json()))
            declare(self._scenario, self._plan, ledger, self.name)
            for silo, schedule in schedules.items():
                ledger.declare(silo, self.name, total, schedule.mechanism())
        self._ask_before(ledger)
        strategy = self._strategy(start)
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
            state = self._after(replace(state, strategy=save_state(strategy)), result)
            yield state
            teller.state = state
            teller.tell()
            if self._reached(state.metrics):
                return

    def freeze(self, ledger: Ledger) -> None:
        """Fix the shards in their silos' ledgers.

        Raises:
            Declined: for a shard that is not the one its ledger began with.
        """
        freeze_shards(self._scenario, self._as_read, ledger)

    def finish(self, ledger: Ledger, state: Checkpoint) -> Checkpoint:
        """The state with what the silos say of the last model, where the scenario asks them."""
        if not self._scenario.evaluation.silo_metrics:
            return state
        grid, silos = self._grid(ledger, self._dataset)
        models = dict.fromkeys(self._dataset.shards, state.model) | self.personal(state)
        released = ask_after(self._scenario, self._dataset, grid, silos, ledger, models)
        rows = noisy_rows(state.round, self._dataset.task, released, scale=self._dataset.label_scale)
        return replace(state, metrics=[*state.metrics, *rows])

    def personal(self, state: Checkpoint) -> Mapping[str, Weights]:
        """Models of silos that have their own, by name."""
        return personal_models(self._strategy(state), list(self._dataset.shards))

    def _strategy(self, state: Checkpoint) -> Strategy:
        """The strategy as it was in that state."""
        options = self._scenario.training.strategy.model_dump()
        strategy = build_strategy(options.pop("name"), options)
        restore_state(strategy, state.strategy)
        return strategy

    def _ask_before(self, ledger: Ledger) -> None:
        grid, silos = self._grid(ledger, self._as_read)
        ask_before(self._scenario, self._as_read, grid, silos, ledger)

    def _evaluate(self, state: Checkpoint, *, by_silo: bool = False) -> list[MetricRow]:
        """The oracle's metrics, where the scenario uses one."""
        if not uses_oracle(self._scenario):
            return []
        return self._evaluator.rows(state.round, state.model, personal=self.personal(state), by_silo=by_silo)

    def _fate(self, silo: str, round: int) -> str | None:
        return self._fates[silo].get(round)

    def _reached(self, rows: Sequence[MetricRow]) -> bool:
        """Whether the last of these evaluations reached what the scenario stops at."""
        goal, metric = self._scenario.training.stop_at, HEADLINE[self._scenario.data.task]
        value = latest(rows, metric)
        return goal is not None and value is not None and value >= goal

    def _grid(
        self, ledger: Ledger, dataset: Dataset, teller: "_Teller | None" = None
    ) -> tuple[InProcessGrid, dict[int, str]]:
        """The silos over a dataset; training is told to the teller."""
        streams = Streams(self._key)
        silos = {
            name: UnreliableSilo(
                run=self.name,
                shard=shard,
                engine=self._trainer.engine,
                ledger=ledger,
                streams=streams,
                admit=self._budgets[name].check if name in self._budgets else None,
                events=self._fates[name],
                held_out=held_out_shard(dataset, name, held_out_chain(self._scenario, name)),
                predict=self._evaluator.outputs,
            )
            for name, shard in dataset.shards.items()
        }

        def find(context: Context) -> Silo:
            name = str(context.node_config["silo"])
            if teller is not None:
                teller.tell(name)
            return silos[name]

        grid = InProcessGrid(client_app(find), list(silos), together=self._trainer.together(find))
        return grid, find_silos(grid, list(silos))

    def _after(self, state: Checkpoint, result: RoundResult) -> Checkpoint:
        state = replace(state, round=result.round, model=result.weights)
        last = result.round == self._scenario.training.rounds
        rows: list[MetricRow] = []
        if last or result.round % self._scenario.evaluation.every == 0:
            rows = self._evaluate(state, by_silo=last)
        if not last and self._reached(rows):
            rows = self._evaluate(state, by_silo=True)
        reasons = {
            silo: event or result.failures[silo]
            for silo in self._dataset.shards
            if (event := self._fate(silo, result.round)) or silo in result.failures
        }
        failures = [Failure(result.round, silo, reason) for silo, reason in reasons.items()]
        return replace(state, metrics=[*state.metrics, *rows], failures=[*state.failures, *failures])


class _Teller:
    """Turns the state of a run into `Progress`."""

    def __init__(
        self, progress: Callable[[Progress], None], scenario: Scenario, plan: Plan, ledger: Ledger, state: Checkpoint
    ) -> None:
        self.state = state
        self._progress = progress
        self._rounds = scenario.training.rounds
        self._metric = HEADLINE[scenario.data.task]
        self._spent = spent_in_words(scenario)
        self._plan = plan
        self._ledger = ledger
        self._releases: Sequence[Mechanism] = ()

    def tell(self, silo: str | None = None) -> None:
        if silo is None:
            self._releases = self._ledger.releases(self._plan.worst.silo)
        value = latest(self.state.metrics, self._metric)
        self._progress(
            Progress(
                round=self.state.round,
                rounds=self._rounds,
                silo=silo,
                metric=self._metric,
                value=float("nan") if value is None else value,
                releases=self._releases,
                spent=self._spent,
                relation=self._plan.relation,
                delta=self._plan.delta,
                failures=len(self.state.failures),
            )
        )
