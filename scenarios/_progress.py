"""What a run says of itself while it goes on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from accounting import Ledger, Mechanism, Relation, epsilon
from scenarios._checkpoint import Checkpoint, latest
from scenarios._outcome import HEADLINE
from scenarios._plan_parts import Plan
from scenarios._price import spent_in_words
from scenarios.spec._scenario import Scenario


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What a run says of itself: when a silo begins to train, and after each round (round 0 is the untrained model).

    Attributes:
        round, rounds: rounds done, and to do in all.
        silo: the silo that trains now; None after a round.
        metric, value: the task's headline metric at its last evaluation.
        read: what the silo that the plan prices highest has released, from its ledger, by now.
        spent: what their epsilon is, in words.
        relation, delta: to price them by.
        failures: silo-rounds that failed so far.
    """

    round: int
    rounds: int
    silo: str | None
    metric: str
    value: float
    read: Callable[[], Sequence[Mechanism]]
    spent: str
    relation: Relation
    delta: float
    failures: int

    @property
    def epsilon(self) -> float:
        """What the releases so far cost; read and computed when asked for."""
        return epsilon(self.read(), relation=self.relation, delta=self.delta).epsilon


class Teller:
    """Turns the state of a run into `Progress`."""

    def __init__(
        self,
        progress: Callable[[Progress], None] | None,
        scenario: Scenario,
        plan: Plan,
        ledger: Ledger,
        state: Checkpoint,
    ) -> None:
        self.state = state
        self._progress = progress
        self._rounds = scenario.training.rounds
        self._metric = HEADLINE[scenario.data.task]
        self._spent = spent_in_words(scenario)
        self._plan = plan
        self._ledger = ledger

    def tell(self, silo: str | None = None) -> None:
        """Call back: a silo begins to train; or, without one, a round is over."""
        if self._progress is None:
            return
        value = latest(self.state.metrics, self._metric)
        self._progress(
            Progress(
                round=self.state.round,
                rounds=self._rounds,
                silo=silo,
                metric=self._metric,
                value=float("nan") if value is None else value,
                read=self._read,
                spent=self._spent,
                relation=self._plan.relation,
                delta=self._plan.delta,
                failures=len(self.state.failures),
            )
        )

    def _read(self) -> Sequence[Mechanism]:
        return self._ledger.releases(self._plan.worst.silo)
