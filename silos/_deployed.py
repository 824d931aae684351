"""A deployed silo: one that keeps its own law and lives in its folder.

What `Silo` does, under four more rules:

- Its law is asked first (`silos._guard`); then its budget, for the whole run that begins and again for each release.
- A run keeps to the law of training that it began with, so that no round's noise or rate reacts to another's output.
- What it released it keeps, and the same request again gets the same bytes. Another request under a key that is taken
  gets nothing.
- One process at a time serves.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import nn

from accounting import (
    LAW_CHAIN,
    NOISE,
    SYSTEM_NOISE,
    TEST_NOISE,
    Budget,
    Charge,
    Ledger,
    LedgerConflict,
    Mechanism,
)
from silos._choose import build_engine
from silos._errors import Declined, LawBroken, Reason
from silos._folder import SiloFolder
from silos._guard import check_question, check_request
from silos._law import HELD_OUT, Law
from silos._models import build_model, load_weights, weights_of
from silos._predict import predict
from silos._shard import Shard
from silos._silo import Charged, Engine, Predict, Question, Request, Silo
from silos._statistics import Outputs
from silos._streams import Streams
from silos._system_streams import SystemStreams
from silos._weights import ITEM, Layout, Weights, layout_of


@dataclass(frozen=True, kw_only=True, eq=False)
class DeployedSilo(Silo):
    """A silo under its law.

    Args:
        law: what it serves.
        budget: the law's, as the ledger keeps it.
        folder: where it lives.
        engines: one for each model that the law allows.
        asked_by: what is known of who runs this, for the ledger; all public.
    """

    law: Law
    budget: Budget
    folder: SiloFolder
    engines: Sequence[Engine]
    asked_by: Mapping[str, str] = field(default_factory=dict)

    def train(self, request: Request) -> Weights:
        """As `Silo.train`; the same request again is answered from what was kept, at no new charge.

        Raises:
            Declined: also for what the law does not allow.
        """
        with self.folder.locked():
            check_request(self.law, request)
            kept = self._kept(ITEM, request)
            return super().train(request) if kept is None else kept

    def answer(self, question: Question) -> Weights:
        """As `Silo.answer`, likewise.

        Raises:
            Declined: also for what the law does not allow.
        """
        with self.folder.locked():
            check_question(self.law, question)
            kept = self._kept(question.statistic.item, question)
            return super().answer(question) if kept is None else kept

    def begin(self, request: Request) -> Charged:
        """As `Silo.begin`.

        Raises:
            Declined: also for what the law does not allow.
        """
        check_request(self.law, request)
        return super().begin(request)

    def engine_for(self, layout: Layout) -> Engine:
        """The engine of the allowed model of this layout.

        Raises:
            Declined: where no allowed model has it.
        """
        for engine in self.engines:
            if dict(engine.layout) == dict(layout):
                return engine
        if len(self.engines) == 1:
            return super().engine_for(layout)
        raise Declined(f"Expected the weights to be those of one of {len(self.engines)} allowed models.", Reason.MODEL)

    def record(self, charge: Charge, executed: int, released: Weights) -> None:
        """Keep what is released, then record that it was."""
        self.folder.keep(released)
        super().record(charge, executed, released)
        self.folder.remember(self.ledger)

    def _kept(self, item: str, asked: Request | Question) -> Weights | None:
        """What was released for this very request; None where nothing was."""
        charge = self.charge(item, asked.round, asked.attempt)
        if charge is None or charge.output is None or charge.request != asked.fingerprint():
            return None
        kept = self.folder.kept(charge.output)
        if kept is None:
            raise Declined("This was released before, and its bytes are gone. Ask for a new attempt.", Reason.REPLAY)
        self.folder.remember(self.ledger)
        return kept

    def _charge(self, asked: Request | Question, item: str, mechanism: Mechanism, payer: Shard) -> Charge:
        with self.ledger.batch():
            self._begin_run(asked, item, mechanism, payer.name)
            return super()._charge(asked, item, mechanism, payer)

    def _begin_run(self, asked: Request | Question, item: str, mechanism: Mechanism, payer: str) -> None:
        """Fix the law, and declare the run's releases of this item by its first charge for it."""
        for name, value in self.law.terms().items():
            self._fix(payer, name, value)
        chain = self.name + LAW_CHAIN
        self._fix(chain, "budget", json.dumps(self.budget.to_json()))
        self._fix(chain, NOISE, SYSTEM_NOISE if self.law.insecure_test_seed is None else TEST_NOISE)
        if self.ledger.fixed(chain, f"run {self.run}") is None:
            self.ledger.fix(chain, f"run {self.run}", json.dumps(dict(self.asked_by)))
        rounds = check_request(self.law, asked) if isinstance(asked, Request) else 1
        charges = [one for one in self.ledger.charges(payer, self.run) if one.key.item == item]
        first = charges[0].mechanism if charges else mechanism
        if mechanism.repeated(first.steps) != first or mechanism.steps > first.steps:
            raise Declined(f"A run keeps to the law of its first release: {first!r}, not {mechanism!r}.", Reason.RUN)
        if self.charge(item, asked.round, asked.attempt) is None and len(charges) >= rounds:
            raise Declined(f"The run has had its {rounds} releases of {item!r}.", Reason.ROUNDS)
        if not charges:
            self.budget.check(self.ledger.charged(payer), mechanism.repeated(mechanism.steps * rounds))
        try:
            self.ledger.declare(payer, self.run, rounds, first, item=item)
        except LedgerConflict as error:
            raise Declined(f"The run declared another number of rounds than {rounds}.", Reason.RUN) from error

    def _fix(self, chain: str, name: str, value: str) -> None:
        try:
            self.ledger.fix(chain, name, value)
        except LedgerConflict as error:
            raise _changed(name) from error


def open_silo(
    folder: Path, law: Law, shard: Shard, held_out: Shard | None, *, run: str, asked_by: Mapping[str, str]
) -> DeployedSilo:
    """The silo of a folder, with its ledger open.

    Args:
        folder: where it lives.
        law: its law.
        shard: its training records.
        held_out: those that score models.
        run: the run's name in the ledger, as the server gives it; a test seed has its own.
        asked_by: what is known of who runs this.

    Raises:
        LawBroken: for a law that does not fit the shard, or whose models cannot be told apart.
        ModelRefused: for a model that cannot be trained.
        LedgerError: for a ledger that cannot be used.
    """
    if not run or not run.isprintable():
        raise Declined("Expected the run to have a printable name.", Reason.RUN)
    place, seed = SiloFolder(folder), law.insecure_test_seed
    models = _models(law, shard.features.shape[1:])
    engines = [_engine(law, model, shard.features.shape[1:]) for model in models]
    layouts = [frozenset(engine.layout.items()) for engine in engines]
    if len(set(layouts)) < len(layouts):
        raise LawBroken(f"{place.path}: two allowed models have weights of the same names and shapes.")
    ledger = place.open_ledger()
    budget = _budget(ledger, law)
    return DeployedSilo(
        run=run if seed is None else seed.run,
        shard=shard,
        engine=engines[0],
        ledger=ledger,
        streams=SystemStreams() if seed is None else Streams(bytes.fromhex(seed.key)),
        admit=budget.check,
        key=place.key(),
        held_out=held_out,
        predict=_scores(models, law.data.outputs),
        law=law,
        budget=budget,
        folder=place,
        engines=engines,
        asked_by=asked_by,
    )


def _models(law: Law, input_shape: tuple[int, ...]) -> list[nn.Module]:
    """The models that the law allows; their weights are the server's to send."""
    return [
        build_model(
            one.kind,
            input_shape=input_shape,
            outputs=law.data.outputs,
            hidden=one.hidden,
            activation=one.activation,
            seed=0,
        )
        for one in law.models
    ]


def _engine(law: Law, model: nn.Module, input_shape: tuple[int, ...]) -> Engine:
    return build_engine(
        law.engine.name,
        model,
        task=law.data.task,
        input_shape=input_shape,
        outputs=law.data.outputs,
        by_individual=law.limits.sampling == "individuals",
        device=law.engine.device,
        max_physical_batch=law.engine.max_physical_batch,
    )


def _budget(ledger: Ledger, law: Law) -> Budget:
    """The budget that the ledger began with, which is a filter only as long as nothing of it changes."""
    if set(ledger.silos()) - {law.name, law.name + HELD_OUT, law.name + LAW_CHAIN}:
        raise _changed("name")
    fixed = ledger.fixed(law.name + LAW_CHAIN, "budget")
    if fixed is None:
        return law.filter()
    budget = Budget.from_json(json.loads(fixed))
    now = (law.budget.epsilon, law.budget.delta, law.relation, law.protected)
    if (budget.epsilon, budget.delta, budget.relation, budget.unit) != now:
        raise _changed("budget")
    return budget


def _changed(name: str) -> Declined:
    return Declined(f"The {name} of this silo's law is not the one its ledger began under.", Reason.LAW)


def _scores(models: Sequence[nn.Module], outputs: int) -> Predict:
    """Scores records by the model that weights are of."""
    known = {frozenset(layout_of(weights_of(model)).items()): model for model in models}

    def scores(weights: Mapping[str, NDArray[np.generic]], features: NDArray[np.float32]) -> Outputs:
        model = known[frozenset(layout_of(weights).items())]
        load_weights(model, weights)
        return predict(model, features) if len(features) else np.empty((0, outputs))

    return scores
