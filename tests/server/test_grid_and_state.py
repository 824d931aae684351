"""The in-process grid, who is on it, and a strategy's state as arrays."""

from typing import Any

import numpy as np
import pytest
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from accounting import InvalidValue, Unsupported
from server import STRATEGIES, InProcessGrid, SilosMissing, build_strategy, find_silos, restore_state, save_state
from silos import to_record

Federation = Any


def test_node_ids_follow_the_order_of_the_silos(federation: Federation) -> None:
    for _ in range(2):
        grid = federation.grid()
        assert list(grid.get_node_ids()) == [1, 2, 3]
        assert find_silos(grid, ["madrid", "zurich"]) == {3: "madrid", 1: "zurich"}


def test_replies_come_in_the_order_of_the_nodes(federation: Federation) -> None:
    grid: Grid = federation.grid()
    messages = [grid.create_message(RecordDict(), "query.silo", node, "") for node in (3, 1, 2)]
    replies = list(grid.send_and_receive(messages))
    assert [reply.metadata.src_node_id for reply in replies] == [1, 2, 3]
    sent = {message.metadata.message_id for message in messages}
    assert {reply.metadata.reply_to_message_id for reply in replies} == sent
    assert len(sent) == 3


def test_a_reply_is_pulled_once(federation: Federation) -> None:
    grid = federation.grid()
    ids = list(grid.push_messages([Message(RecordDict(), 1, "query.silo")]))
    assert len(list(grid.pull_messages(ids))) == 1
    assert list(grid.pull_messages(ids)) == []


def test_a_node_that_is_not_there_answers_with_an_error(federation: Federation) -> None:
    (reply,) = federation.grid().send_and_receive([Message(RecordDict(), 9, "query.silo")])
    assert "No node 9" in (reply.error.reason or "")


def test_silos_that_are_missing_or_twice_there_are_named(federation: Federation) -> None:
    with pytest.raises(SilosMissing, match="'oslo'"):
        find_silos(federation.grid(), ["zurich", "oslo"])
    with pytest.raises(InvalidValue, match="each name once"):
        InProcessGrid(federation.app, ["zurich", "zurich"])


def test_unknown_strategies_and_options_are_refused_by_name() -> None:
    with pytest.raises(InvalidValue, match=r"'fedsgd'.*fedavg, fedavgm, fedadam"):
        build_strategy("fedsgd")
    with pytest.raises(InvalidValue, match=r"'server_momentum'.*learning_rate, momentum"):
        build_strategy("fedavgm", {"server_momentum": 0.9})


class Carrying(FedAvg):
    """A strategy that carries one of everything."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds = 0
        self.scale = 0.5
        self.vector: np.ndarray | None = None
        self.layers: list[np.ndarray] = []
        self.named: dict[str, np.ndarray] = {}
        self.last = to_record({})


def test_state_of_every_kind_comes_back_as_it_was() -> None:
    before = Carrying()
    before.rounds, before.scale, before.vector = 7, 0.25, np.arange(3.0)
    before.layers = [np.full(2, float(index), dtype=np.float32) for index in range(12)]
    before.named = {"a.b[0]:c=": np.ones((2, 2)), "bias": np.array(3.0)}
    before.last = to_record({"0.weight": np.ones((1, 3), dtype=np.float32)})
    after = Carrying()
    restore_state(after, save_state(before))
    assert (after.rounds, after.scale, after.last) == (7, 0.25, before.last)
    assert after.vector is not None
    assert after.vector.tolist() == [0.0, 1.0, 2.0]
    assert [layer.tolist() for layer in after.layers] == [layer.tolist() for layer in before.layers]
    assert {name: array.tolist() for name, array in after.named.items()} == {
        name: array.tolist() for name, array in before.named.items()
    }
    assert save_state(after).keys() == save_state(before).keys()


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_state_of_a_fresh_strategy_changes_nothing(name: str) -> None:
    strategy = build_strategy(name)
    values = dict(vars(strategy))
    restore_state(strategy, save_state(strategy))
    assert vars(strategy) == values


def test_state_that_cannot_be_saved_is_not_dropped() -> None:
    strategy = Carrying()
    strategy.named = {"nested": {"deep": np.ones(1)}}  # type: ignore[dict-item]
    with pytest.raises(Unsupported, match="'named'"):
        save_state(strategy)


def test_state_of_another_strategy_is_refused() -> None:
    with pytest.raises(InvalidValue, match=r"'m_t\.weight'"):
        restore_state(build_strategy("fedavg"), {"m_t.weight": np.ones(1)})
