"""Any sequence of calls against a plain model of what a ledger should say."""

import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from accounting._errors import LedgerConflict
from accounting._gaussian import Gaussian, SampledGaussian
from accounting._ledger import Ledger
from accounting._mechanism import Mechanism

LAWS = [SampledGaussian(sampling_rate=0.1, noise_multiplier=1.0), Gaussian(noise_multiplier=2.0)]

silos = st.sampled_from(["north", "south"])
runs = st.sampled_from(["a", "b"])
mechanisms = st.builds(lambda law, steps: law.repeated(steps), st.sampled_from(LAWS), st.integers(0, 3))
Release = tuple[str, str, int, int]


@dataclass
class Entry:
    """One release in the model."""

    mechanism: Mechanism
    request: str
    end: tuple[object, ...] = ()


@dataclass
class Model:
    """What a ledger should hold, in plain values."""

    entries: dict[Release, Entry] = field(default_factory=dict)
    declared: dict[tuple[str, str], dict[int, tuple[Mechanism, int]]] = field(default_factory=dict)
    rows: int = 0

    def copy(self) -> "Model":
        entries = {key: Entry(each.mechanism, each.request, each.end) for key, each in self.entries.items()}
        return Model(entries, {key: dict(each) for key, each in self.declared.items()}, self.rows)

    def room(self, silo: str, run: str, mechanism: Mechanism) -> bool:
        """Whether the run's declaration, if any, covers one more charge."""
        if (silo, run) not in self.declared:
            return True
        law = LAWS.index(mechanism.repeated(1))
        declared, rounds = self.declared[silo, run].get(law, (mechanism, 0))
        used = [
            key
            for key, each in self.entries.items()
            if key[:2] == (silo, run) and each.mechanism.repeated(1) == LAWS[law]
        ]
        return mechanism.steps <= declared.steps and len(used) < rounds


class LedgerMachine(RuleBasedStateMachine):
    """Charges, ends, declarations, batches that end well or badly, and new connections, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.model, self.saved = Model(), Model()
        self.batch: ExitStack | None = None

    @initialize()
    def open(self) -> None:
        self.ledger = Ledger.open(self.folder / "ledger.db", create=True)

    def teardown(self) -> None:
        if self.batch is not None:
            self.batch.close()
        self.ledger.close()
        shutil.rmtree(self.folder)

    def attempt(self, call, allowed: bool) -> None:
        """A call succeeds exactly when the model allows it."""
        try:
            call()
        except LedgerConflict:
            assert not allowed
        else:
            assert allowed

    @rule(silo=silos, run=runs, rounds=st.integers(0, 3), mechanism=mechanisms)
    def declare(self, silo: str, run: str, rounds: int, mechanism: Mechanism) -> None:
        law = LAWS.index(mechanism.repeated(1))
        known = self.model.declared.get((silo, run), {})
        charged = any(key[:2] == (silo, run) for key in self.model.entries)
        same = known.get(law) == (mechanism, rounds)
        allowed = same or (law not in known and (bool(known) or not charged))
        self.attempt(lambda: self.ledger.declare(silo, run, rounds, mechanism), allowed)
        if allowed and not same:
            self.model.declared.setdefault((silo, run), {})[law] = (mechanism, rounds)
            self.model.rows += 1

    @rule(
        silo=silos,
        run=runs,
        round=st.integers(0, 3),
        attempt=st.integers(0, 1),
        mechanism=mechanisms,
        request=st.sampled_from("rs"),
    )
    def charge(self, silo: str, run: str, round: int, attempt: int, mechanism: Mechanism, request: str) -> None:
        key = (silo, run, round, attempt)
        known = self.model.entries.get(key)
        same = known is not None and (known.mechanism, known.request) == (mechanism, request)
        allowed = same or (known is None and self.model.room(silo, run, mechanism))
        self.attempt(lambda: self._charge(key, mechanism, request), allowed)
        if allowed and not same:
            self.model.entries[key] = Entry(mechanism, request)
            self.model.rows += 1

    def _charge(self, key: Release, mechanism: Mechanism, request: str):
        silo, run, round, attempt = key
        return self.ledger.charge(
            silo=silo, run=run, round=round, attempt=attempt, item="update", mechanism=mechanism, request=request
        )

    @precondition(lambda self: self.model.entries)
    @rule(data=st.data(), executed=st.integers(0, 4), output=st.sampled_from("op"))
    def release(self, data: st.DataObject, executed: int, output: str) -> None:
        key, entry = data.draw(st.sampled_from(list(self.model.entries.items())))
        charge = self._charge(key, entry.mechanism, entry.request)
        end = ("released", executed, output)
        allowed = entry.end == end or (not entry.end and executed <= entry.mechanism.steps)
        self.attempt(lambda: self.ledger.release(charge, executed=executed, output=output), allowed)
        self._end(entry, end, allowed)

    @precondition(lambda self: self.model.entries)
    @rule(data=st.data(), reason=st.sampled_from("vw"))
    def fail(self, data: st.DataObject, reason: str) -> None:
        key, entry = data.draw(st.sampled_from(list(self.model.entries.items())))
        charge = self._charge(key, entry.mechanism, entry.request)
        allowed = entry.end in ((), ("failed", reason))
        self.attempt(lambda: self.ledger.fail(charge, reason), allowed)
        self._end(entry, ("failed", reason), allowed)

    def _end(self, entry: Entry, end: tuple[object, ...], allowed: bool) -> None:
        if allowed and not entry.end:
            entry.end = end
            self.model.rows += 1

    @precondition(lambda self: self.batch is None)
    @rule()
    def begin_batch(self) -> None:
        self.batch = ExitStack()
        self.batch.enter_context(self.ledger.batch())
        self.saved = self.model.copy()

    @precondition(lambda self: self.batch is not None)
    @rule(error=st.booleans())
    def end_batch(self, error: bool) -> None:
        batch, self.batch = self.batch, None
        assert batch is not None
        if not error:
            batch.close()
            return
        try:
            with batch:
                raise KeyError
        except KeyError:
            self.model = self.saved

    @precondition(lambda self: self.batch is None)
    @rule(close=st.booleans())
    def reopen(self, close: bool) -> None:
        before = self.ledger
        if close:
            before.close()
        self.ledger = Ledger.open(self.folder / "ledger.db")
        assert self.ledger.verify() == self.ledger.heads()
        before.close()

    @invariant()
    def the_ledger_says_what_the_model_says(self) -> None:
        entries = self.model.entries
        for silo in ("north", "south"):
            for run in (None, "a", "b"):
                mine = [each for key, each in entries.items() if key[0] == silo and run in (None, key[1])]
                assert self.ledger.charged(silo, run) == [each.mechanism for each in mine]
                assert self.ledger.releases(silo, run) == [
                    each.mechanism.repeated(each.end[1]) if each.end[:1] == ("released",) else each.mechanism
                    for each in mine
                ]
        assert sum(len(self.ledger.rows(silo)) for silo in self.ledger.silos()) == self.model.rows


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(max_examples=30, stateful_step_count=40, deadline=None, derandomize=True)
