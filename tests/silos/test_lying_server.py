"""A server that lies gets nothing for it: each attack is declined in one word, computes nothing and costs nothing."""

import tracemalloc
from collections.abc import Callable
from dataclasses import asdict
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lying import FEATURES, MODEL, SCHEDULE, Server, make_silo, real_arrays

from accounting import Relation, epsilon
from silos import Loss, Outcomes, Size, Statistic, Weights, build_model, question_content, weights_of
from silos._client import DECLINED
from silos._errors import Reason

Attack = Callable[[Server], RecordDict]

HUGE = 10 * 2**30 // 4
"""Numbers of four bytes in 10 GB."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Server:
    """Its silo has served round 1 of run 7."""
    made = make_silo(tmp_path_factory.mktemp("lies") / "north")
    assert made.send(made.content()).has_content()
    return made


def scheduled(**changes: object) -> Attack:
    return lambda server: server.content(**{"round": 2} | changes)


def weighted(change: Callable[[Weights], Weights]) -> Attack:
    return lambda server: server.content(change(weights_of(MODEL)), round=2)


def recorded(name: str, array: Callable[[], Array]) -> Attack:
    def attack(server: Server) -> RecordDict:
        content = server.content(round=2)
        content["arrays"] = ArrayRecord({**real_arrays(weights_of(MODEL)), name: array()})
        return content

    return attack


def added(name: str, record: ArrayRecord | ConfigRecord | MetricRecord) -> Attack:
    def attack(server: Server) -> RecordDict:
        content = server.content(round=2)
        content[name] = record
        return content

    return attack


def npy(value: object, *, pickled: bool = False) -> bytes:
    buffer = BytesIO()
    np.save(buffer, np.array(value, dtype=object if pickled else None), allow_pickle=pickled)
    return buffer.getvalue()


def boasting() -> Array:
    """An array that says it is small, whose bytes say that they are 10 GB."""
    data = npy(np.zeros((1, FEATURES), np.float32))
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({HUGE},), }}".ljust(117).encode() + b"\n"
    return Array("float32", (1, FEATURES), "numpy.ndarray", data[:10] + header + data[-16:])


def other_model() -> Weights:
    return weights_of(build_model("mlp", input_shape=(FEATURES,), outputs=1, hidden=(8,), seed=1))


ATTACKS: dict[str, tuple[Attack, Reason]] = {
    "more steps": (scheduled(steps=4), Reason.STEPS),
    "less noise": (scheduled(noise_multiplier=1.49), Reason.NOISE),
    "no noise and no clipping": (scheduled(noise_multiplier=0.0, clip_norm=1e300), Reason.NOISE),
    "a greater clip norm": (scheduled(clip_norm=1.01), Reason.NOISE),
    "a greater rate": (scheduled(sampling_rate=0.3, expected_batch=15.0), Reason.RATE),
    "a rate of another size": (scheduled(expected_batch=12.0), Reason.RATE),
    "noise that is nan": (scheduled(noise_multiplier=float("nan")), Reason.REQUEST),
    "a rate that is nan": (scheduled(sampling_rate=float("nan")), Reason.REQUEST),
    "an infinite clip norm": (scheduled(clip_norm=float("inf")), Reason.REQUEST),
    "a clip norm that single precision cannot tell from 0": (scheduled(clip_norm=1e-44), Reason.REQUEST),
    "negative steps": (scheduled(steps=-3), Reason.REQUEST),
    "steps that are no integer": (scheduled(steps=2.5), Reason.REQUEST),
    "noise that is text": (scheduled(noise_multiplier="1.5"), Reason.REQUEST),
    "a field that no schedule has": (scheduled(skip_noise=True), Reason.REQUEST),
    "another cap on records": (scheduled(records=3), Reason.UNIT),
    "individuals instead of records": (scheduled(by_individual=True), Reason.UNIT),
    "a round beyond the last": (scheduled(round=5), Reason.ROUNDS),
    "a huge round": (scheduled(round=2**62), Reason.ROUNDS),
    "round 0": (scheduled(round=0), Reason.ROUNDS),
    "a negative attempt": (scheduled(attempt=-1), Reason.REQUEST),
    "more rounds than the law has": (scheduled(rounds=5), Reason.ROUNDS),
    "a million rounds": (scheduled(rounds=10**6), Reason.ROUNDS),
    "no rounds": (scheduled(rounds=0), Reason.ROUNDS),
    "fewer rounds than declared": (scheduled(round=3, rounds=3), Reason.RUN),
    "other noise in the middle of a run": (scheduled(noise_multiplier=3.0), Reason.RUN),
    "another rate in the middle of a run": (scheduled(sampling_rate=0.1, expected_batch=5.0), Reason.RUN),
    "a second answer to one round": (scheduled(round=1, learning_rate=0.25), Reason.REPLAY),
    "another model for one round": (
        lambda server: server.content({name: array + 1 for name, array in weights_of(MODEL).items()}),
        Reason.REPLAY,
    ),
    "another architecture": (weighted(lambda _: other_model()), Reason.MODEL),
    "a weight too many": (weighted(lambda own: own | {"spy": np.zeros(3, np.float32)}), Reason.MODEL),
    "a weight too few": (weighted(lambda own: dict(list(own.items())[:1])), Reason.MODEL),
    "another shape": (weighted(lambda own: {name: array.T for name, array in own.items()}), Reason.MODEL),
    "nan weights": (weighted(lambda own: {name: array * np.nan for name, array in own.items()}), Reason.WEIGHTS),
    "infinite weights": (weighted(lambda own: {name: array + np.inf for name, array in own.items()}), Reason.WEIGHTS),
    "integer weights": (weighted(lambda own: {name: array.astype(int) for name, array in own.items()}), Reason.WEIGHTS),
    "10 GB of weights": (
        recorded("output.weight", lambda: Array("float32", (HUGE,), "numpy.ndarray", npy([1.0]))),
        Reason.MODEL,
    ),
    "10 GB behind a small name plate": (recorded("output.weight", boasting), Reason.WEIGHTS),
    "a pickle": (
        recorded("output.weight", lambda: Array("object", (1, FEATURES), "numpy.ndarray", npy([print], pickled=True))),
        Reason.WEIGHTS,
    ),
    "bytes that are no array": (
        recorded("output.weight", lambda: Array("float32", (1, FEATURES), "numpy.ndarray", b"GIF89a")),
        Reason.WEIGHTS,
    ),
    "a record that nobody asked for": (added("spy", real_arrays(weights_of(MODEL))), Reason.REQUEST),
    "a metric": (added("metrics", MetricRecord({"loss": 1.0})), Reason.REQUEST),
    "an option": (added("config", ConfigRecord({"return-loss": True})), Reason.REQUEST),
    "nothing at all": (lambda _: RecordDict(), Reason.REQUEST),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_lie_is_declined_and_costs_nothing(name: str, server: Server) -> None:
    attack, reason = ATTACKS[name]
    content, before = attack(server), server.state()
    tracemalloc.start()
    reply = server.send(content)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert reply.has_error()
    assert (reply.error.code, reply.error.reason.split(":")[0]) == (DECLINED, f"declined ({reason})")
    assert server.state() == before
    assert peak < 2**24
    with server.ledger() as ledger:
        ledger.verify()
    assert server.send(server.content(round=2)).has_content()


@pytest.mark.parametrize("kind", ["evaluate", "train.again", "query", "query.shard"])
def test_a_message_that_nobody_listens_to_costs_nothing(kind: str, server: Server) -> None:
    before = server.state()
    with pytest.raises(ValueError, match=r"No .* registered"):
        server.send(server.content(round=2), kind)
    assert server.state() == before


@pytest.mark.parametrize(
    ("statistic", "reason"),
    [
        (Size(epsilon=1.0, relation=Relation.ADD_OR_REMOVE_ONE), Reason.RELEASE),
        (Loss(epsilon=1e-3, relation=Relation.REPLACE_ONE), Reason.UNIT),
        (Loss(epsilon=1e-3, relation=Relation.ADD_OR_REMOVE_ONE, records=2), Reason.UNIT),
        (Outcomes(epsilon=1e-3, relation=Relation.ADD_OR_REMOVE_ONE, classes=5), Reason.REQUEST),
        (Outcomes(epsilon=1e-3, relation=Relation.ADD_OR_REMOVE_ONE, classes=2, bins=10**9), Reason.REQUEST),
        (Loss(epsilon=50.0, relation=Relation.ADD_OR_REMOVE_ONE), Reason.BUDGET),
    ],
)
def test_a_question_outside_the_law_is_declined(statistic: Statistic, reason: Reason, tmp_path: Path) -> None:
    server = make_silo(tmp_path / "north", scoring)
    assert server.send(server.content()).has_content()
    before = server.state()
    asked = question_content(statistic, round=1, attempt=0, weights=real_arrays(weights_of(MODEL)))
    reply = server.send(asked, "query.statistic")
    assert reply.has_error()
    assert reply.error.reason.startswith(f"declined ({reason})")
    assert server.state() == before


def scoring(text: str) -> str:
    """The law, with scores of held-out records allowed."""
    held = text.replace('path = "shard.npz"', 'path = "shard.npz"\nheld_out = "held-out.npz"')
    return held.replace("[data]", 'releases = ["update", "outcomes", "loss"]\n\n[data]', 1)


def test_scores_that_the_law_allows_are_paid_by_those_held_out(tmp_path: Path) -> None:
    server = make_silo(tmp_path / "north", scoring)
    asked = Loss(epsilon=0.5, relation=Relation.ADD_OR_REMOVE_ONE)
    replies = [
        server.send(
            question_content(asked, round=number, attempt=0, weights=real_arrays(weights_of(MODEL))), "query.statistic"
        )
        for number in (1, 1, 2)
    ]
    assert [reply.has_content() for reply in replies] == [True, True, False]
    assert replies[0].content["loss"] == replies[1].content["loss"]
    with server.ledger() as ledger:
        assert ledger.silos() == ["north/held-out", "north/law"]
        assert len(ledger.charges("north/held-out")) == 1


def test_runs_without_end_get_the_budget_and_no_more(tmp_path: Path) -> None:
    server = make_silo(tmp_path / "north")
    replies = [
        server.send(server.content(round=number, rounds=1 if run % 2 else 4), run=run)
        for run in range(1, 16)
        for number in ((1,) if run % 2 else (1, 2, 3, 4))
    ]
    reasons = {reply.error.reason.split(":")[0] for reply in replies if reply.has_error()}
    assert reasons == {"declined (budget)"}
    with server.ledger() as ledger:
        ledger.verify()
        charged = ledger.charged("north")
        assert len(charged) == sum(reply.has_content() for reply in replies) > 4
    assert epsilon(charged, relation=Relation.ADD_OR_REMOVE_ONE, delta=1e-5).epsilon <= 6.0


schedules = st.fixed_dictionaries(
    {},
    optional={
        "round": st.integers(0, 5),
        "attempt": st.integers(0, 1),
        "rounds": st.integers(0, 5),
        "steps": st.integers(1, 4),
        "noise_multiplier": st.floats(1.0, 4.0),
        "clip_norm": st.floats(0.5, 1.2),
        "learning_rate": st.sampled_from([0.5, 1.0]),
    },
)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=st.lists(st.tuples(st.integers(1, 3), schedules), min_size=4, max_size=8))
def test_whatever_is_asked_a_silo_stays_within_law_and_budget(
    asked: list[tuple[int, dict[str, object]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    server = make_silo(tmp_path_factory.mktemp("any") / "north")
    answered = sum(server.send(server.content(**changes), run=run).has_content() for run, changes in asked)
    if not answered:
        return
    with server.ledger() as ledger:
        ledger.verify()
        charges = ledger.charges("north")
    assert all(charge.output is not None for charge in charges)
    for charge in charges:
        law = asdict(charge.mechanism)
        assert law["steps"] <= SCHEDULE.steps
        assert law["noise_multiplier"] >= SCHEDULE.noise_multiplier
    paid = [charge.mechanism for charge in charges]
    assert epsilon(paid, relation=Relation.ADD_OR_REMOVE_ONE, delta=1e-5).epsilon <= 6.0
