"""Silos served together are charged, released, declined and failed exactly as one by one."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict

from accounting import BudgetExhausted, Ledger, LedgerConflict
from accounting._ledger_rows import Row
from server import InProcessGrid, build_strategy, find_silos, run_rounds
from silos import (
    FleetEngine,
    Job,
    OpacusEngine,
    Outcome,
    Request,
    Schedule,
    Shard,
    Silo,
    Streams,
    Weights,
    build_model,
    client_app,
    from_record,
    request_content,
    serve_together,
    to_record,
    weights_of,
)
from silos._together import train_together

NAMES = ("aarhus", "bergen", "cork", "delft")
MODEL = build_model("mlp", input_shape=(5,), outputs=3, hidden=(4,), seed=1)


class CountingEngine(FleetEngine):
    """A fleet engine that notes how many silos each call had, and can be broken."""

    def __init__(self) -> None:
        super().__init__(MODEL, task="multiclass", input_shape=(5,), outputs=3)
        self.calls: list[int] = []
        self.fate: Exception | Callable[[list[Outcome]], list[Outcome]] | None = None

    def train_all(self, jobs: Sequence[Job]) -> list[Outcome]:
        self.calls.append(len(jobs))
        if isinstance(self.fate, Exception):
            raise self.fate
        outcomes = super().train_all(jobs)
        return outcomes if self.fate is None else self.fate(outcomes)


class Federation:
    """Four silos, their ledger and both ways to serve them."""

    def __init__(
        self,
        ledger: Ledger,
        shards: Mapping[str, Shard],
        admit: Mapping[str, Callable[..., None]],
        engine: OpacusEngine | None = None,
    ) -> None:
        self.ledger = ledger
        self.engine = CountingEngine()
        streams = Streams(b"sixteen bytes ok")
        self.silos = {
            name: Silo(
                run="run",
                shard=shard,
                engine=engine or self.engine,
                ledger=ledger,
                streams=streams,
                admit=admit.get(name),
            )
            for name, shard in shards.items()
        }

    def find(self, context: Context) -> Silo:
        return self.silos[str(context.node_config["silo"])]

    def grid(self, *, together: bool) -> InProcessGrid:
        serve = serve_together(self.engine, self.find) if together else None
        return InProcessGrid(client_app(self.find), list(self.silos), together=serve)

    def ask(self, contents: Mapping[str, RecordDict], *, together: bool) -> dict[str, Weights | str]:
        """Each silo's weights, or why it has none."""
        nodes = {name: node for node, name in enumerate(self.silos, start=1)}
        messages = [Message(content, nodes[name], "train") for name, content in contents.items()]
        answers: dict[str, Weights | str] = {}
        for reply in self.grid(together=together).send_and_receive(messages):
            name = list(self.silos)[reply.metadata.src_node_id - 1]
            if reply.has_error():
                answers[name] = reply.error.reason or ""
            else:
                answers[name] = from_record(reply.content.array_records["arrays"])
        return answers

    def rows(self) -> dict[str, list[Row]]:
        return {name: self.ledger.rows(name) for name in self.silos}


Make = Callable[..., Federation]


@pytest.fixture
def make(tmp_path: Path, make_shard: Callable[..., Shard]) -> Iterator[Make]:
    ledgers: list[Ledger] = []

    def federation(
        admit: Mapping[str, Callable[..., None]] | None = None, engine: OpacusEngine | None = None, **changed: Shard
    ) -> Federation:
        ledgers.append(Ledger.open(tmp_path / f"{len(ledgers)}.sqlite", create=True))
        shards = {name: make_shard(10 + 30 * seed, name=name, seed=seed) for seed, name in enumerate(NAMES)}
        return Federation(ledgers[-1], shards | changed, admit or {}, engine)

    yield federation
    for ledger in ledgers:
        ledger.close()


def flat(weights: Weights) -> list[float]:
    return np.concatenate([array.ravel() for array in weights.values()]).tolist()


def plain(answers: Mapping[str, Weights | str]) -> dict[str, list[float] | str]:
    return {name: answer if isinstance(answer, str) else flat(answer) for name, answer in answers.items()}


def three_rounds(
    federation: Federation, make_schedule: Callable[..., Schedule], *, together: bool
) -> list[list[float]]:
    """The model after each of three rounds."""
    grid = federation.grid(together=together)
    rounds = run_rounds(
        grid=grid,
        silos=find_silos(grid, NAMES),
        strategy=build_strategy("fedavgm"),
        plan=lambda round: {name: make_schedule(steps=round + len(name), weight=len(name)) for name in NAMES},
        weights=weights_of(MODEL),
        rounds=3,
        ledger=federation.ledger,
    )
    return [flat(one.weights) for one in rounds]


def test_the_ledgers_of_both_engines_differ_in_hashes_of_weights_alone(
    make: Make, make_schedule: Callable[..., Schedule]
) -> None:
    opacus = OpacusEngine(MODEL, task="multiclass", input_shape=(5,), outputs=3)
    one_by_one, together = make(engine=opacus), make()
    expected = three_rounds(one_by_one, make_schedule, together=False)
    np.testing.assert_allclose(three_rounds(together, make_schedule, together=True), expected, rtol=1e-3, atol=1e-5)
    of_weights = dict.fromkeys(("request", "output", "previous", "hash"), "")
    ledgers = [
        {name: [row._replace(**of_weights) for row in rows] for name, rows in federation.rows().items()}
        for federation in (one_by_one, together)
    ]
    assert ledgers[0] == ledgers[1]
    assert len(ledgers[0]["cork"]) == 6


def test_rounds_together_are_rounds_one_by_one(make: Make, make_schedule: Callable[..., Schedule]) -> None:
    results = []
    for together in (False, True):
        federation = make()
        models = three_rounds(federation, make_schedule, together=together)
        results.append((models, federation.ledger.verify(), federation.engine.calls))
    assert results[0][:2] == results[1][:2]
    assert results[0][2] == [1] * 12
    assert results[1][2] == [4] * 3


def test_what_befalls_one_silo_stays_with_it(
    make: Make, make_schedule: Callable[..., Schedule], make_shard: Callable[..., Shard]
) -> None:
    def refuse(*_: object) -> None:
        raise BudgetExhausted("over", requested=2.0, remaining=1.0)

    shard = make_shard(30, name="cork")
    broken = replace(shard, labels=shard.labels + 2)
    weights, schedule = weights_of(MODEL), make_schedule()
    contents = {name: request_content(to_record(weights), schedule, round=1, attempt=0) for name in NAMES}
    contents["delft"] = RecordDict({"config": ConfigRecord({"server-round": 1})})
    together, apart = (make({"aarhus": refuse}, cork=broken) for _ in range(2))
    answers = together.ask(contents, together=True)
    assert plain(answers) == plain(apart.ask(contents, together=False))
    assert together.rows() == apart.rows()
    assert {name: str(answer).split()[0].rstrip(":") for name, answer in answers.items() if name != "bergen"} == {
        "aarhus": "declined",
        "cork": "failed",
        "delft": "declined",
    }
    assert [row.event for row in together.rows()["cork"]] == ["charged", "failed"]
    assert together.rows()["aarhus"] == together.rows()["delft"] == []
    assert [row.event for row in together.rows()["bergen"]] == ["charged", "released"]
    assert together.engine.calls == [2]


def test_every_silo_is_charged_before_any_is_trained(make: Make, make_schedule: Callable[..., Schedule]) -> None:
    federation = make()
    seen: list[list[str]] = []

    def note(outcomes: list[Outcome]) -> list[Outcome]:
        seen.extend([row.event for row in rows] for rows in federation.rows().values())
        return outcomes

    federation.engine.fate = note
    request = Request(round=1, schedule=make_schedule(), weights=weights_of(MODEL))
    train_together(federation.engine, [(silo, request) for silo in federation.silos.values()])
    assert seen == [["charged"]] * 4
    assert [[row.event for row in rows] for rows in federation.rows().values()] == [["charged", "released"]] * 4


def test_an_error_of_the_common_computing_fails_every_silo_in_it(
    make: Make, make_schedule: Callable[..., Schedule]
) -> None:
    federation = make()
    federation.engine.fate = MemoryError("no room for label 37")
    contents = {
        name: request_content(to_record(weights_of(MODEL)), make_schedule(), round=1, attempt=0) for name in NAMES
    }
    assert set(federation.ask(contents, together=True).values()) == {"failed: MemoryError"}  # type: ignore[arg-type]
    for name in NAMES:
        assert [row.event for row in federation.ledger.rows(name)] == ["charged", "failed"]
        assert federation.ledger.releases(name) == [make_schedule().mechanism()]


def test_a_silo_that_took_more_steps_than_charged_releases_nothing(
    make: Make, make_schedule: Callable[..., Schedule]
) -> None:
    federation = make()

    def overrun(outcomes: list[Outcome]) -> list[Outcome]:
        first = outcomes[0]
        assert not isinstance(first, Exception)
        return [(first[0], first[1] + 1), *outcomes[1:]]

    federation.engine.fate = overrun
    request = Request(round=1, schedule=make_schedule(), weights=weights_of(MODEL))
    ended = train_together(federation.engine, [(silo, request) for silo in federation.silos.values()])
    assert isinstance(ended[0], LedgerConflict)
    assert not any(isinstance(one, Exception) for one in ended[1:])


def test_the_same_requests_again_are_the_same_releases(make: Make, make_schedule: Callable[..., Schedule]) -> None:
    federation = make()
    contents = {
        name: request_content(to_record(weights_of(MODEL)), make_schedule(), round=1, attempt=0) for name in NAMES
    }
    first = federation.ask(contents, together=True)
    rows = federation.rows()
    assert plain(federation.ask(contents, together=True)) == plain(first)
    assert plain(federation.ask(contents, together=False)) == plain(first)
    assert federation.rows() == rows


def test_other_messages_and_unknown_nodes_are_served_as_ever(
    make: Make, make_schedule: Callable[..., Schedule]
) -> None:
    federation = make()
    content = request_content(to_record(weights_of(MODEL)), make_schedule(), round=1, attempt=0)
    grid = federation.grid(together=True)
    messages = [Message(content, 9, "train"), Message(content, 2, "train"), Message(RecordDict(), 1, "query.silo")]
    query, train, unknown = grid.send_and_receive(messages)
    assert query.content.config_records["silo"]["name"] == "aarhus"
    assert list(train.content) == ["arrays"]
    assert "No node 9" in (unknown.error.reason or "")
    assert find_silos(grid, NAMES) == dict(enumerate(NAMES, start=1))
