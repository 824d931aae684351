"""Silos that come and go, on a grid and a clock of our own."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from flwr.app import Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from accounting import InvalidValue
from server import SilosMissing
from server._deploy_grid import Patience, SiloGrid
from server._flower import identify_process, number

DECLINED, GONE = 1001, 5


@dataclass
class Node:
    """A SuperNode: its name, since when it runs, and what becomes of each message, in turn."""

    name: str
    started: str = "first"
    online: bool = True
    fates: list[str] = field(default_factory=list)
    asked: int = 0


class ScriptedGrid(Grid):
    """A grid whose nodes answer as they are told: ``answer``, ``decline``, ``gone`` or ``silence``."""

    def __init__(self, nodes: dict[int, Node]) -> None:
        self.nodes, self.messages = nodes, list[Message]()
        self.set_run(Run.create_empty(1))

    def set_run(self, run: Run) -> None:
        self._run = run
        identify_process(run.run_id)

    @property
    def run(self) -> Run:
        return self._run

    def create_message(self, *arguments: object, **options: object) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return [node for node, one in self.nodes.items() if one.online]

    def get_nodes(self) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(node_id=node, name=one.name, last_activated_at=one.started)
            for node, one in self.nodes.items()
            if one.online
        ]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        for message in messages:
            self.messages.append(message)
            number(message, str(len(self.messages)))
            self.nodes[message.metadata.dst_node_id].asked += 1
            yield message.metadata.message_id

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        for name in message_ids:
            message = self.messages[int(name) - 1]
            node = self.nodes[message.metadata.dst_node_id]
            fate = node.fates[node.asked - 1] if node.asked <= len(node.fates) else "answer"
            if fate == "answer":
                yield Message(message.content, reply_to=message)
            elif fate != "silence":
                yield Message(Error(DECLINED if fate == "decline" else GONE, fate), reply_to=message)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        del timeout
        return self.pull_messages(list(self.push_messages(messages)))


class Clock:
    """Seconds that pass only by waiting; each wait may change the world."""

    def __init__(self, *events: tuple[float, object]) -> None:
        self.now, self._events = 0.0, sorted(events, key=lambda event: event[0])

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds
        assert self.now < 1000, "waits for ever"
        while self._events and self._events[0][0] <= self.now:
            self._events.pop(0)[1]()  # pyright: ignore


def ask(nodes: list[Node], clock: Clock, **patience: object) -> list[Message]:
    """One question to every silo, whose nodes have numbers that are not in the silos' order."""
    inner = ScriptedGrid({1000 - place: node for place, node in enumerate(nodes)})
    names = [node.name for node in nodes]
    grid = SiloGrid(inner, names, Patience(**patience), clock=clock, pause=clock.pause)  # pyright: ignore
    messages = [Message(RecordDict(), one, "train") for one in grid.get_node_ids()]
    return list(grid.send_and_receive(messages))


def sources(replies: Iterable[Message]) -> list[int]:
    return [reply.metadata.src_node_id for reply in replies]


def test_answers_come_in_the_silos_order_under_their_own_numbers() -> None:
    replies = ask([Node("north"), Node("south"), Node("west")], Clock())
    assert sources(replies) == [1, 2, 3]
    assert not any(reply.has_error() for reply in replies)


def test_a_late_joiner_is_asked_when_it_comes() -> None:
    late = Node("south", online=False)
    replies = ask([Node("north"), late], clock := Clock((30, lambda: setattr(late, "online", True))))
    assert sources(replies) == [1, 2]
    assert 30 <= clock.now < 40


def test_a_node_that_was_started_anew_is_asked_again() -> None:
    node = Node("south", fates=["silence"])
    replies = ask([Node("north"), node], clock := Clock((20, lambda: setattr(node, "started", "again"))))
    assert sources(replies) == [1, 2]
    assert node.asked == 2
    assert 20 <= clock.now < 30


def test_a_message_that_flower_lost_is_sent_again() -> None:
    node = Node("south", fates=["gone", "gone"])
    assert sources(ask([Node("north"), node], Clock())) == [1, 2]
    assert node.asked == 3


def test_a_silo_that_declines_has_answered() -> None:
    node = Node("south", fates=["decline"])
    replies = ask([Node("north"), node], clock := Clock())
    assert [reply.has_error() for reply in replies] == [False, True]
    assert node.asked == 1
    assert clock.now == 0


def test_waiting_goes_on_past_the_timeout_and_asks_again() -> None:
    node = Node("south", fates=["silence", "silence"])
    replies = ask([Node("north"), node], clock := Clock(), timeout=50.0)
    assert sources(replies) == [1, 2]
    assert 100 <= clock.now < 110
    assert node.asked == 3


def test_going_on_leaves_out_who_is_missing_after_the_timeout() -> None:
    gone = Node("south", online=False)
    replies = ask([Node("north"), gone, Node("west")], clock := Clock(), timeout=50.0, on_missing="go-on")
    assert sources(replies) == [1, 3]
    assert 50 <= clock.now < 60


def test_stopping_names_who_is_missing() -> None:
    with pytest.raises(SilosMissing, match="'south'"):
        ask([Node("north"), Node("south", online=False)], Clock(), timeout=50.0, on_missing="stop")


def test_fewer_models_than_asked_for_stop_the_run_and_say_why() -> None:
    nodes = [Node("north"), Node("south", fates=["decline"]), Node("west", online=False)]
    with pytest.raises(SilosMissing, match=r"1 silos.*at least 2.*south: decline.*west: no answer in time"):
        ask(nodes, Clock(), timeout=50.0, on_missing="go-on", at_least=2)


def test_two_nodes_of_one_name_are_refused() -> None:
    inner = ScriptedGrid({5: Node("north"), 6: Node("north")})
    grid = SiloGrid(inner, ["north"], Patience())
    with pytest.raises(SilosMissing, match="both are silo 'north'"):
        grid.send_and_receive([Message(RecordDict(), 1, "train")])


def test_more_models_than_silos_cannot_be_asked_for() -> None:
    with pytest.raises(InvalidValue, match="at_least=3"):
        SiloGrid(ScriptedGrid({}), ["north", "south"], Patience(at_least=3))
