"""The rounds of a run in this process: silos, grid, strategy and oracle evaluation around `server.run_rounds`."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from flwr.app import Context
from flwr.serverapp.strategy import Strategy

from accounting import Ledger
from scenarios._asked import held_out_chain
from scenarios._checkpoint import Checkpoint, Failure, MetricRow, latest
from scenarios._evaluate import Evaluator
from scenarios._frozen_shards import freeze_shards
from scenarios._noisy_metrics import noisy_rows
from scenarios._outcome import HEADLINE
from scenarios._participation import UnreliableSilo, fates
from scenarios._plan_parts import Plan
from scenarios._price import budget_of, terms, uses_oracle
from scenarios._progress import Progress, Teller
from scenarios._ray_silos import RaySilos
from scenarios._released import ask_after, ask_before, declare, declared_public
from scenarios._run_key import run_key
from scenarios._standardise import standardised
from scenarios._strategy import strategy_in
from scenarios._trainer import Trainer
from scenarios.data._dataset import Dataset, held_out_shard
from scenarios.spec._scenario import Scenario
from server import InProcessGrid, RoundResult, find_silos, personal_models, run_rounds, save_state
from silos import Silo, Streams, Weights, client_app, weights_of


class Simulation:
    """Everything that is built once for a run and kept across its rounds.

    Args:
        scenario, dataset, plan: of the run.
        workers: processes that train the silos; 1 trains them in this one, None chooses by `worker_count`. It changes
            no result.
        cluster: processes elsewhere that hold the silos and train them; None holds them in this one.

    Close it after its rounds.

    Raises:
        ModelRefused: for a model without per-record gradients.
    """

    def __init__(
        self,
        scenario: Scenario,
        dataset: Dataset,
        plan: Plan,
        *,
        workers: int | None = None,
        cluster: RaySilos | None = None,
    ) -> None:
        self._scenario = scenario
        self._key = run_key(scenario, dataset)
        self._as_read = dataset
        self._dataset = dataset = standardised(scenario, dataset)
        self._plan = plan
        self._trainer = Trainer(scenario, dataset, plan, 1 if cluster is not None else workers)
        self._cluster = cluster
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
        if self._cluster is not None:
            self._cluster.close()

    def initial(self) -> Checkpoint:
        """The state before round 1."""
        state = Checkpoint(run=self.name, round=0, model=weights_of(self._trainer.model))
        public = declared_public(self._scenario, self._as_read)
        rows = [MetricRow(0, silo, *number) for silo, numbers in public.items() for number in numbers.items()]
        return replace(state, metrics=[*self._evaluate(state), *rows])

    def rounds(
        self, ledger: Ledger, start: Checkpoint, progress: Callable[[Progress], None] | None
    ) -> Iterator[Checkpoint]:
        """The state after each round that follows `start`; what led to it is durably in the ledger by then."""
        teller = Teller(progress, self._scenario, self._plan, ledger, start)
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
            for part in self._plan.silos:
                ledger.declare(part.silo, self.name, part.models, part.schedule.mechanism())
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
        models = {**dict.fromkeys(self._dataset.shards, state.model), **self.personal(state)}
        released = ask_after(self._scenario, self._dataset.outputs, grid, silos, models, ledger)
        rows = noisy_rows(state.round, self._dataset.task, released, scale=self._dataset.label_scale)
        return replace(state, metrics=[*state.metrics, *rows])

    def personal(self, state: Checkpoint) -> Mapping[str, Weights]:
        """Models of silos that have their own, by name."""
        return personal_models(self._strategy(state), list(self._dataset.shards))

    def _strategy(self, state: Checkpoint) -> Strategy:
        """The strategy as it was in that state."""
        return strategy_in(self._scenario, state)

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
        self, ledger: Ledger, dataset: Dataset, teller: "Teller | None" = None
    ) -> tuple[InProcessGrid, dict[int, str]]:
        """The silos over a dataset; training is told to the teller."""
        as_read = dataset is self._as_read
        silos = {name: self.silo(name, ledger, as_read=as_read) for name in dataset.shards}

        def find(context: Context) -> Silo:
            name = str(context.node_config["silo"])
            if teller is not None:
                teller.tell(name)
            return silos[name]

        app, together = client_app(find), self._trainer.together(find)
        if self._cluster is not None:
            app, together = self._cluster.serving(ledger, find, as_read=as_read)
        grid = InProcessGrid(app, list(silos), together=together)
        return grid, find_silos(grid, list(silos))

    def silo(self, name: str, ledger: Ledger, *, as_read: bool = False) -> Silo:
        """A silo of the run.

        Args:
            name: which.
            ledger: that it charges.
            as_read: whether it holds its records as they were read, not as it trains on them.
        """
        dataset = self._as_read if as_read else self._dataset
        return UnreliableSilo(
            run=self.name,
            shard=dataset.shards[name],
            engine=self._trainer.engine,
            ledger=ledger,
            streams=Streams(self._key),
            admit=self._budgets[name].check if name in self._budgets else None,
            events=self._fates[name],
            held_out=held_out_shard(dataset, name, held_out_chain(self._scenario, name)),
            predict=self._evaluator.outputs,
            public=frozenset(self._scenario.silos.public),
        )

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
