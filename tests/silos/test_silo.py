"""A silo charges, trains, records and replies, in this order, and lets nothing else out."""

import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from accounting import BudgetExhausted, Ledger, LedgerConflict, Mechanism
from server import InProcessGrid
from silos import (
    Declined,
    OpacusEngine,
    ReleaseRefused,
    Request,
    Schedule,
    Shard,
    Silo,
    Streams,
    Weights,
    check_reply,
    client_app,
    hash_weights,
    request_content,
    to_record,
)

Train = Callable[[], tuple[Weights, int]]


class StubEngine:
    """An engine whose training is one function."""

    def __init__(self, weights: Weights, train: Train) -> None:
        self._layout = {name: array.shape for name, array in weights.items()}
        self._train = train

    @property
    def layout(self) -> Mapping[str, tuple[int, ...]]:
        return self._layout

    def train(
        self,
        weights: Mapping[str, NDArray[np.generic]],
        shard: Shard,
        schedule: Schedule,
        sampling: np.random.Generator,
        noise: np.random.Generator,
        drift: object = None,
    ) -> tuple[Weights, int]:
        del weights, shard, schedule, sampling, noise, drift
        return self._train()


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "ledger.sqlite", create=True) as opened:
        yield opened


@pytest.fixture
def make_silo(ledger: Ledger, make_shard: Callable[..., Shard], streams: Streams) -> Callable[..., Silo]:
    def make(engine: OpacusEngine | StubEngine, **options: object) -> Silo:
        return Silo(run="run", shard=make_shard(), engine=engine, ledger=ledger, streams=streams, **options)  # type: ignore[arg-type]

    return make


def events(ledger: Ledger) -> list[str]:
    return [str(row.event) for row in ledger.rows("north")]


def test_the_charge_is_written_before_training_and_the_release_before_the_reply(
    ledger: Ledger, make_silo: Callable[..., Silo], weights: Weights, make_schedule: Callable[..., Schedule]
) -> None:
    seen: list[list[str]] = []

    def training() -> tuple[Weights, int]:
        seen.append(events(ledger))
        return weights, 4

    schedule = make_schedule()
    make_silo(StubEngine(weights, training)).train(Request(round=1, schedule=schedule, weights=weights))
    assert seen == [["charged"]]
    assert events(ledger) == ["charged", "released"]
    assert ledger.releases("north") == [schedule.mechanism()]
    assert ledger.rows("north")[-1].output == hash_weights(weights)


def test_executed_steps_come_from_the_engine_and_never_pass_the_declared_ones(
    ledger: Ledger, make_silo: Callable[..., Silo], weights: Weights, make_schedule: Callable[..., Schedule]
) -> None:
    schedule = make_schedule(steps=4)
    make_silo(StubEngine(weights, lambda: (weights, 3))).train(Request(round=1, schedule=schedule, weights=weights))
    assert ledger.releases("north") == [schedule.mechanism().repeated(3)]
    with pytest.raises(LedgerConflict):
        make_silo(StubEngine(weights, lambda: (weights, 5))).train(Request(round=2, schedule=schedule, weights=weights))
    assert ledger.releases("north") == [schedule.mechanism().repeated(3), schedule.mechanism()]


def test_a_real_engine_reports_the_steps_it_took(
    ledger: Ledger,
    make_silo: Callable[..., Silo],
    engine: OpacusEngine,
    weights: Weights,
    make_schedule: Callable[..., Schedule],
) -> None:
    schedule = make_schedule(steps=5, sampling_rate=0.05)
    make_silo(engine).train(Request(round=1, schedule=schedule, weights=weights))
    assert ledger.rows("north")[-1].executed == 5


def test_the_same_request_again_is_the_same_release(
    ledger: Ledger,
    make_silo: Callable[..., Silo],
    engine: OpacusEngine,
    weights: Weights,
    make_schedule: Callable[..., Schedule],
) -> None:
    silo, request = make_silo(engine), Request(round=1, schedule=make_schedule(), weights=weights)
    first, again = silo.train(request), silo.train(request)
    assert hash_weights(first) == hash_weights(again)
    assert events(ledger) == ["charged", "released"]
    with pytest.raises(LedgerConflict):
        silo.train(Request(round=1, schedule=make_schedule(noise_multiplier=0.1), weights=weights))
    other = silo.train(Request(round=1, attempt=1, schedule=make_schedule(), weights=weights))
    assert hash_weights(other) != hash_weights(first)
    assert len(ledger.releases("north")) == 2


def test_a_failed_round_stays_charged_in_full(
    ledger: Ledger, make_silo: Callable[..., Silo], weights: Weights, make_schedule: Callable[..., Schedule]
) -> None:
    def training() -> tuple[Weights, int]:
        raise MemoryError("no room")

    silo, request = (
        make_silo(StubEngine(weights, training)),
        Request(round=1, schedule=make_schedule(), weights=weights),
    )
    with pytest.raises(MemoryError):
        silo.train(request)
    assert events(ledger) == ["charged", "failed"]
    assert ledger.releases("north") == [make_schedule().mechanism()]
    with pytest.raises(Declined, match="new attempt"):
        silo.train(request)


def test_weights_that_are_not_finite_or_not_the_models_cost_nothing(
    ledger: Ledger,
    make_silo: Callable[..., Silo],
    engine: OpacusEngine,
    weights: Weights,
    make_schedule: Callable[..., Schedule],
) -> None:
    name = next(iter(weights))
    wrong: list[Weights] = [
        weights | {name: np.full_like(weights[name], np.nan)},
        weights | {name: np.zeros((2, 2))},
        weights | {name: np.zeros(weights[name].shape, dtype=np.int64)},
        weights | {"extra": np.zeros(1)},
        {},
    ]
    for given in wrong:
        with pytest.raises(Declined):
            make_silo(engine).train(Request(round=1, schedule=make_schedule(), weights=given))
    assert ledger.rows("north") == []


def test_a_refused_charge_is_never_computed(
    ledger: Ledger, make_silo: Callable[..., Silo], weights: Weights, make_schedule: Callable[..., Schedule]
) -> None:
    def admit(spent: object, proposed: Mechanism) -> None:
        del spent, proposed
        raise BudgetExhausted("over", requested=2.0, remaining=1.0)

    silo = make_silo(StubEngine(weights, lambda: pytest.fail("computed")), admit=admit)
    with pytest.raises(BudgetExhausted):
        silo.train(Request(round=1, schedule=make_schedule(), weights=weights))
    assert ledger.rows("north") == []


def ask(silo: Silo, content: RecordDict, kind: str = "train") -> Message:
    def find(context: Context) -> Silo:
        assert context.node_config["silo"] == silo.name
        return silo

    grid = InProcessGrid(client_app(find), [silo.name])
    (reply,) = grid.send_and_receive([Message(content, 1, kind)])
    return reply


def test_a_reply_holds_the_trained_weights_and_nothing_else(
    make_silo: Callable[..., Silo], engine: OpacusEngine, weights: Weights, make_schedule: Callable[..., Schedule]
) -> None:
    reply = ask(make_silo(engine), request_content(to_record(weights), make_schedule(), round=1, attempt=0))
    assert list(reply.content) == ["arrays"]
    record = reply.content["arrays"]
    assert isinstance(record, ArrayRecord)
    assert list(record) == list(weights)


def test_a_silo_tells_its_name(make_silo: Callable[..., Silo], engine: OpacusEngine) -> None:
    assert ask(make_silo(engine), RecordDict(), "query.silo").content["silo"] == ConfigRecord({"name": "north"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "steps=0"),
        ({"steps": 2.0}, "steps=2.0"),
        ({"sampling_rate": 1.5}, "sampling_rate=1.5"),
        ({"noise_multiplier": float("nan")}, "noise_multiplier=nan"),
        ({"round": "one"}, "round='one'"),
        ({"bonus": 1}, "'bonus'"),
    ],
)
def test_a_malformed_schedule_is_declined_by_field(
    ledger: Ledger,
    make_silo: Callable[..., Silo],
    engine: OpacusEngine,
    weights: Weights,
    make_schedule: Callable[..., Schedule],
    change: dict[str, float],
    message: str,
) -> None:
    content = request_content(to_record(weights), make_schedule(), round=1, attempt=0)
    content.config_records["schedule"].update(change)
    reply = ask(make_silo(engine), content)
    assert (reply.error.reason or "").startswith("declined")
    assert message in (reply.error.reason or "")
    assert ledger.rows("north") == []


def test_an_option_that_the_silo_would_ignore_is_declined(
    make_silo: Callable[..., Silo], engine: OpacusEngine, weights: Weights, make_schedule: Callable[..., Schedule]
) -> None:
    content = request_content(to_record(weights), make_schedule(), round=1, attempt=0)
    content["config"] = ConfigRecord({"server-round": 1, "proximal-mu": 0.1})
    assert "proximal-mu" in (ask(make_silo(engine), content).error.reason or "")


def test_the_text_of_a_failure_stays_in_the_silo(
    ledger: Ledger,
    make_silo: Callable[..., Silo],
    weights: Weights,
    make_schedule: Callable[..., Schedule],
    caplog: pytest.LogCaptureFixture,
) -> None:
    def training() -> tuple[Weights, int]:
        raise RuntimeError("label 37 of patient Doe")

    content = request_content(to_record(weights), make_schedule(), round=1, attempt=0)
    with caplog.at_level(logging.WARNING):
        reply = ask(make_silo(StubEngine(weights, training)), content)
    assert reply.error.reason == "failed: RuntimeError"
    assert "patient Doe" in caplog.text
    # The head of the ledger is public and hashes its rows.
    assert ledger.rows("north")[-1].note == "RuntimeError"


def test_the_server_names_what_it_refuses(weights: Weights) -> None:
    with pytest.raises(ReleaseRefused, match=r"'metrics'.*arrays"):
        check_reply(RecordDict({"metrics": MetricRecord({"num-examples": 40})}), {"arrays"})
    with pytest.raises(ReleaseRefused, match="MetricRecord"):
        check_reply(RecordDict({"arrays": MetricRecord({"num-examples": 40})}), {"arrays"})
    check_reply(RecordDict({"arrays": to_record(weights)}), {"arrays"})
