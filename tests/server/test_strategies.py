"""Flower's strategies through the round loop, and strategies that ask for what is not theirs."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from accounting import InvalidValue, Relation, Unsupported
from server import InProcessGrid, build_strategy
from silos import Size, Weights, question_content

Federation = Any


def answers(federation: Federation) -> list[Weights]:
    """What each silo answers in round 1, asked directly."""
    found: list[Weights] = []
    for name, silo in federation.silos.items():
        streams = (silo.streams.generator(name, 1, purpose) for purpose in ("sampling", "noise"))
        found.append(silo.engine.train(federation.initial, silo.shard, federation.schedules[name], *streams)[0])
    return found


def flat(weights: Weights) -> np.ndarray:
    return np.concatenate([array.ravel() for array in weights.values()]).astype(np.float64)


def test_the_trimmed_mean_drops_the_extremes_of_each_weight(federation: Federation) -> None:
    (result,) = federation.run(build_strategy("fedtrimmedavg", {"trim": 0.4}), 1)
    middle = np.sort([flat(one) for one in answers(federation)], axis=0)[1]
    np.testing.assert_allclose(flat(result.weights), middle, rtol=0, atol=1e-6)


def test_krum_takes_the_model_that_is_nearest_to_another(federation: Federation) -> None:
    (result,) = federation.run(build_strategy("krum"), 1)
    models = [flat(one) for one in answers(federation)]
    gaps = [min(float(np.linalg.norm(a - b)) for b in models if b is not a) for a in models]
    nearest = [model for model, gap in zip(models, gaps, strict=True) if gap < 1.0001 * min(gaps)]
    assert any(np.allclose(flat(result.weights), model, rtol=0, atol=1e-6) for model in nearest)


def test_yogi_and_adagrad_take_their_papers_first_step(federation: Federation) -> None:
    """Reddi et al. 2021, algorithm 2, from moments of zero."""
    start = flat(federation.initial)
    delta = flat(next(federation.run(build_strategy("fedavg"), 1)).weights) - start
    for name, v, m in (("fedyogi", 0.01 * delta**2, 0.1 * delta), ("fedadagrad", delta**2, delta)):
        (result,) = federation.run(build_strategy(name, {"learning_rate": 0.3}), 1)
        moved = flat(result.weights) - start
        assert np.sign(moved).tolist() == np.sign(m).tolist()
        if name == "fedadagrad":
            np.testing.assert_allclose(moved, 0.3 * m / (np.sqrt(v) + 1e-3), rtol=1e-3, atol=1e-6)


class Malicious(FedAvg):
    """FedAvg that does something to its messages, or with the grid."""

    def __init__(self, act: Callable[[list[Message], Grid], Iterable[Message]]) -> None:
        super().__init__(min_available_nodes=1)
        self._act = act

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return self._act(list(super().configure_train(server_round, arrays, config, grid)), grid)


def count_of(message: Message) -> RecordDict:
    del message
    size = Size(epsilon=1.0, relation=Relation.ADD_OR_REMOVE_ONE, records=1)
    return question_content(size, round=0, attempt=0, weights=None)


def as_query(messages: list[Message], grid: Grid) -> Iterable[Message]:
    del grid
    return [Message(count_of(one), one.metadata.dst_node_id, "query.statistic") for one in messages]


def with_record(record: ArrayRecord | MetricRecord) -> Callable[[list[Message], Grid], Iterable[Message]]:
    def act(messages: list[Message], grid: Grid) -> Iterable[Message]:
        del grid
        for one in messages:
            one.content["more"] = record
        return messages

    return act


@pytest.mark.parametrize(
    ("act", "named"),
    [
        (as_query, "query.statistic"),
        (with_record(ArrayRecord([np.zeros(3)])), "found 2"),
        (with_record(MetricRecord({"epsilon": 1e9})), "'more'"),
    ],
)
def test_a_strategy_that_asks_for_anything_but_training_is_refused(
    federation: Federation, act: Callable[[list[Message], Grid], Iterable[Message]], named: str
) -> None:
    with pytest.raises(InvalidValue, match=named):
        next(federation.run(Malicious(act), 1))
    assert federation.ledger.silos() == []


@pytest.mark.parametrize(
    "talk",
    [
        lambda grid, message: grid.send_and_receive([message]),
        lambda grid, message: grid.push_messages([message]),
        lambda grid, _: grid.pull_messages(["1"]),
        lambda grid, message: grid.create_message(message.content, "train", 1, "1"),
        lambda grid, _: grid.set_run(grid.run),
    ],
)
def test_a_strategy_that_talks_to_silos_itself_is_refused(
    federation: Federation, talk: Callable[[Grid, Message], object]
) -> None:
    def act(messages: list[Message], grid: Grid) -> Iterable[Message]:
        talk(grid, messages[0])
        return messages

    with pytest.raises(Unsupported, match="talk to silos"):
        next(federation.run(Malicious(act), 1))
    assert federation.ledger.silos() == []


def test_a_strategy_cannot_replace_a_silos_schedule(federation: Federation) -> None:
    """What it sends under the schedule's name is overwritten or makes each silo decline, and nothing is charged."""

    def act(messages: list[Message], grid: Grid) -> Iterable[Message]:
        del grid
        for one in messages:
            one.content["schedule"] = ConfigRecord({"noise_multiplier": 0.0})
        return messages

    (result,) = federation.run(Malicious(act), 1)
    for name, schedule in federation.schedules.items():
        assert federation.ledger.releases(name) in ([], [schedule.mechanism()])
        assert (name in result.failures) == (federation.ledger.releases(name) == [])


@pytest.mark.parametrize("name", ["records", "anchor"])
def test_a_reply_with_an_item_that_nothing_was_charged_for_is_refused(federation: Federation, name: str) -> None:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Any) -> Message:
        content = RecordDict({"arrays": message.content["arrays"]})
        if context.node_config["silo"] == "madrid":
            content[name] = ArrayRecord([federation.silos["madrid"].shard.features])
        return Message(content, reply_to=message)

    @app.query("silo")
    def silo(message: Message, context: Any) -> Message:
        return Message(RecordDict({"silo": ConfigRecord({"name": context.node_config["silo"]})}), reply_to=message)

    grid = InProcessGrid(app, list(federation.silos))
    (result,) = federation.run(build_strategy("fedavg"), 1, grid=grid)
    assert list(result.failures) == ["madrid"]
    assert repr(name) in result.failures["madrid"]
