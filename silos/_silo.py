"""A silo: charge the ledger, compute, record the release, reply."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from accounting import Charge, InvalidValue, Ledger, Mechanism
from silos._drift import Drift
from silos._errors import Declined, Reason
from silos._frozen import freeze
from silos._job import Job
from silos._records import first_unfit, hash_weights
from silos._schedule import Schedule
from silos._shard import Shard
from silos._statistics import HELD_OUT_ITEMS, Outputs, Statistic
from silos._streams import Purpose
from silos._weights import ITEM, Layout, Weights, check_layout, layout_of

Predict = Callable[[Mapping[str, NDArray[np.generic]], NDArray[np.float32]], Outputs]
"""A model's outputs, shape (records, outputs), from its weights and records' inputs."""

Admit = Callable[[Sequence[Mechanism], Mechanism], None]
"""Looks at all charges of the silo so far and a proposed one; raises to refuse it. `Budget.check` is one."""


class Engine(Protocol):
    """What a silo asks of an engine; see `OpacusEngine` for what it must guarantee."""

    @property
    def layout(self) -> Mapping[str, tuple[int, ...]]:
        """Shape of each weight, by name."""
        ...

    def train(
        self,
        weights: Mapping[str, NDArray[np.generic]],
        shard: Shard,
        schedule: Schedule,
        sampling: np.random.Generator,
        noise: np.random.Generator,
        drift: Drift | None = None,
    ) -> tuple[Weights, int]:
        """One round: the new weights, and the number of steps executed."""
        ...


class StreamSource(Protocol):
    """Where a silo's randomness comes from: `Streams` in a simulation, `SystemStreams` in a deployment."""

    def generator(self, silo: str, round: int, purpose: Purpose, attempt: int = 0) -> np.random.Generator:
        """A fresh generator at the start of its stream."""
        ...


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a server asks of a silo in one round.

    Args:
        round: from 1.
        attempt: 0, and one more each time the round is asked again as a new release.
        schedule: the public numbers of the round.
        weights: to start from.
        rounds: how many rounds the run is to have at most, where the server says so. It is not part of what is
            released.
        anchor: what each step pulls the weights to; None for the weights to start from.
        correction: added to the gradient of each step; None for nothing.
    """

    round: int
    attempt: int = 0
    rounds: int | None = None
    schedule: Schedule
    weights: Mapping[str, NDArray[np.generic]]
    anchor: Mapping[str, NDArray[np.generic]] | None = None
    correction: Mapping[str, NDArray[np.generic]] | None = None

    def fingerprint(self) -> str:
        """A hash of the whole request: the same one again asks for the same release."""
        head = f"{self.round} {self.attempt} {self.schedule} "
        for name, arrays in (("anchor", self.anchor), ("correction", self.correction)):
            head += "" if arrays is None else f"{name} {hash_weights(arrays)} "
        return _fingerprint(head, self.weights)


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a server asks of a silo beside training.

    Args:
        round: 0 before round 1, else the round after which it is asked.
        attempt: 0, and one more each time it is asked again as a new release.
        statistic: what is asked, with its price.
        weights: of the model to score held-out records by; none for statistics of training records.
    """

    round: int
    attempt: int = 0
    statistic: Statistic
    weights: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)

    def fingerprint(self) -> str:
        """A hash of the whole question: the same one again asks for the same release."""
        return _fingerprint(f"{self.round} {self.attempt} {self.statistic} ", self.weights)


def _fingerprint(head: str, weights: Mapping[str, NDArray[np.generic]]) -> str:
    return blake2b(head.encode() + hash_weights(weights).encode(), digest_size=32).hexdigest()


@dataclass(frozen=True, kw_only=True, eq=False)
class Silo:
    """One silo in one run.

    Args:
        run: the run's name in the ledger.
        shard: its records; the silo has the shard's name.
        engine: trains; may be shared by the silos of one process.
        ledger: the silo's own, or the one of a simulation.
        streams: where its samples and its noise come from.
        admit: asked before each new charge, which it may refuse; `Budget.check` fits.
        key: the silo's secret, with which its shard is frozen in the ledger before the first charge; see
            `silos._frozen`. Without one, whoever holds the silo answers for it that the shard never changes.
        held_out: its records that are kept from training, to score models on. What is released of them is charged to
            the chain of this shard's name: one of their own where no individual is on both sides.
        predict: scores them.
        public: numbers that the scenario declares public; see `silos._public`.
    """

    run: str
    shard: Shard
    engine: Engine
    ledger: Ledger
    streams: StreamSource
    admit: Admit | None = None
    key: bytes | None = None
    held_out: Shard | None = None
    predict: Predict | None = None
    public: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The shard's name."""
        return self.shard.name

    def train(self, request: Request) -> Weights:
        """One round: the release is charged before anything is computed, and recorded before it is returned.

        Raises:
            Declined: for weights that are not the model's or not finite, or a shard that changed; nothing was charged.
            BudgetExhausted: where the ledger's budget does not allow the release; nothing was computed.
            LedgerConflict: for a second, different request under the same round and attempt.
        """
        charged = self.begin(request)
        job = charged.job()
        try:
            weights, executed = self.engine_for(layout_of(request.weights)).train(
                job.weights, job.shard, job.schedule, job.sampling, job.noise, job.drift
            )
        except Exception as error:
            charged.fail(error)
            raise
        return charged.release(weights, executed)

    def answer(self, question: Question) -> Weights:
        """A statistic: charged before it is computed, and recorded before it is returned.

        Raises:
            Declined: for what the silo does not hold, or weights that are not the model's; nothing was charged.
            BudgetExhausted: where the ledger's budget does not allow the release; nothing was computed.
            LedgerConflict: for another question under the same round, attempt and item.
        """
        statistic, shard = question.statistic, self.shard
        if statistic.held_out:
            if self.held_out is None or self.predict is None:
                raise Declined(f"Silo {self.name!r} keeps no held-out records to score a model on.", Reason.RELEASE)
            self._check(question.weights)
            shard = self.held_out
        charge = self._charge(question, statistic.item, statistic.mechanism(), shard)
        outputs = np.empty((0, 1))
        if statistic.held_out and self.predict is not None:
            outputs = self.predict(question.weights, shard.features)
        generator = self.streams.generator(self.name, question.round, statistic.item, question.attempt)
        released = statistic.released(shard, outputs, generator)
        self.record(charge, 1, released)
        return released

    def charge(self, item: str, round: int, attempt: int) -> Charge | None:
        """What the ledger holds of a release of this run, if anything."""
        of_held_out = self.held_out is not None and item in HELD_OUT_ITEMS
        payer = self.held_out.name if self.held_out is not None and of_held_out else self.name
        return self.ledger.find(payer, self.run, round, attempt, item)

    def engine_for(self, layout: Layout) -> Engine:
        """What trains weights of these names and shapes.

        Raises:
            Declined: for a layout of no model that the silo trains.
        """
        try:
            check_layout(self.engine.layout, layout)
        except InvalidValue as error:
            raise Declined(str(error), Reason.MODEL) from error
        return self.engine

    def record(self, charge: Charge, executed: int, released: Weights) -> None:
        """Record a release, which may leave the silo once this has returned.

        Raises:
            LedgerConflict: for more steps than were charged, or when something else went out before.
        """
        self.ledger.release(charge, executed=executed, output=hash_weights(released))

    def begin(self, request: Request) -> "Charged":
        """The first half of `train`: everything that comes before the computing.

        Raises:
            As `train`.
        """
        self._check(request.weights)
        for name, arrays in (("anchor", request.anchor), ("correction", request.correction)):
            if arrays is None:
                continue
            if layout_of(arrays) != layout_of(request.weights):
                raise Declined(f"Expected the {name} to have the names and shapes of the weights.", Reason.WEIGHTS)
            self._check(arrays)
        charge = self._charge(request, ITEM, request.schedule.mechanism(), self.shard)
        return Charged(silo=self, request=request, charge=charge)

    def _charge(self, asked: Request | Question, item: str, mechanism: Mechanism, payer: Shard) -> Charge:
        if self.key is not None:
            freeze(self.ledger, self.shard, self.key, held_out=self.held_out)
        charge = self.ledger.charge(
            silo=payer.name,
            run=self.run,
            round=asked.round,
            attempt=asked.attempt,
            item=item,
            mechanism=mechanism,
            request=asked.fingerprint(),
            admit=self.admit,
        )
        if charge.reason is not None:
            raise Declined(
                f"Round {asked.round}, attempt {asked.attempt} failed earlier. Ask for a new attempt.", Reason.REPLAY
            )
        return charge

    def _check(self, weights: Mapping[str, NDArray[np.generic]]) -> None:
        self.engine_for(layout_of(weights))
        if (name := first_unfit(weights)) is not None:
            raise Declined(f"Expected weight {name!r} to hold finite floats.", Reason.WEIGHTS)


@dataclass(frozen=True, kw_only=True, eq=False)
class Charged:
    """A release that its silo was charged for; it is to be computed, and then to go out or to fail.

    Args:
        silo: whose.
        request: what was asked.
        charge: what the ledger holds of it.
    """

    silo: Silo
    request: Request
    charge: Charge

    def job(self) -> Job:
        """What an engine is to do, with streams at their start."""
        name, streams, request = self.silo.name, self.silo.streams, self.request
        return Job(
            weights=request.weights,
            shard=self.silo.shard,
            schedule=request.schedule,
            sampling=streams.generator(name, request.round, "sampling", request.attempt),
            noise=streams.generator(name, request.round, "noise", request.attempt),
            drift=Drift.of(request.schedule, request.weights, request.anchor, request.correction),
        )

    def release(self, weights: Weights, executed: int) -> Weights:
        """Record the release; the weights may leave the silo once this has returned.

        Raises:
            LedgerConflict: for more steps than were charged, or when other weights went out before.
        """
        self.silo.record(self.charge, executed, weights)
        return weights

    def fail(self, error: Exception) -> None:
        """Record that nothing will go out.

        The error's kind alone is kept: its text may quote records, and the head of the ledger, which hashes every row,
        is public.
        """
        self.silo.ledger.fail(self.charge, type(error).__name__)
