"""Silos that come and go as a grid: who is missing, when to ask again, and when to stop waiting.

Flower addresses nodes, which are there or not, and loses the messages of one that is killed. This grid has one fixed
number a silo, 1, 2, ... in the order of the run, so that models are summed in the order of a simulation. It asks a silo
again when its node has been started anew or Flower says that a message was lost. To ask again is the same request: a
silo that had released returns the stored bytes at no new charge.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from accounting import InvalidValue
from accounting._validate import check_count, check_in_range
from server._flower import came_from
from server._nodes import SilosMissing

OnMissing = Literal["wait", "go-on", "stop"]

LOST = frozenset({0, 3, 4, 5, 8})
"""Flower's error codes for: unknown, message gone, reply gone, node gone, app crashed. All others are answers."""

_POLL = 0.5
_BACKOFF = 5.0


@dataclass(frozen=True, kw_only=True)
class Patience:
    """What becomes of a round in which silos do not answer.

    Which silos are in a round then depends on who answers in time. So all declared rounds are the price.

    Args:
        timeout: seconds that a round waits for all silos, > 0.
        on_missing: after it, ``wait`` asks those that are missing again and waits on; ``go-on`` makes the round's model
            without them; ``stop`` ends the run, which can be resumed.
        at_least: fewest silos whose models make a round's model; with fewer the run ends and can be resumed.
    """

    timeout: float = 600.0
    on_missing: OnMissing = "wait"
    at_least: int = 1

    def __post_init__(self) -> None:
        check_in_range(low=0, high=float("inf"), low_open=True, timeout=self.timeout)
        check_count(low=1, at_least=self.at_least)


@dataclass(frozen=True)
class _Place:
    """A node, and when it was last started, in whatever words the SuperLink has for it."""

    node: int
    started: str


@dataclass
class _Asking:
    """One silo in one round."""

    message: Message
    sent: str | None = None
    place: _Place | None = None
    not_before: float = field(default=float("-inf"))


class SiloGrid(Grid):
    """A grid of silos.

    Args:
        grid: Flower's, whose nodes were registered under their silos' names; a node without a name is asked for it.
        silos: names in the run's order.
        patience: how long to wait for whom.
        clock, pause: what tells seconds and waits for some.
    """

    def __init__(
        self,
        grid: Grid,
        silos: Sequence[str],
        patience: Patience,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        if patience.at_least > len(silos):
            raise InvalidValue(
                f"Expected at_least={patience.at_least} to be at most the number of silos, {len(silos)}."
            )
        self._grid = grid
        self._names = dict(enumerate(silos, start=1))
        self._patience = patience
        self._clock, self._pause = clock, pause
        self._told: dict[int, str] = {}

    @property
    def silos(self) -> Mapping[int, str]:
        """The silos' names by number."""
        return self._names

    def set_run(self, run: Run) -> None:
        """Name the run that messages belong to."""
        self._grid.set_run(run)

    @property
    def run(self) -> Run:
        """The run that messages belong to."""
        return self._grid.run

    def get_node_ids(self) -> Iterable[int]:
        """Numbers of the silos, whether they are there or not."""
        return list(self._names)

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """A message to a silo."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Not offered: a message may be sent more than once; use `send_and_receive`."""
        raise NotImplementedError("SiloGrid sends messages by send_and_receive alone.")

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Not offered; see `push_messages`."""
        raise NotImplementedError("SiloGrid receives messages by send_and_receive alone.")

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Ask silos and return their answers, in the order of their numbers.

        Args:
            messages: at most one a silo.
            timeout: in place of the patience's.

        Raises:
            SilosMissing: where too few silos answer for the run to go on.
        """
        asking = {message.metadata.dst_node_id: _Asking(message) for message in messages}
        answers: dict[int, Message] = {}
        step = self._patience.timeout if timeout is None else timeout
        deadline = self._clock() + step
        while True:
            waiting = {number: one for number, one in asking.items() if number not in answers}
            self._send(waiting)
            answers |= self._receive(waiting)
            if len(answers) == len(asking):
                break
            if self._clock() >= deadline:
                if self._patience.on_missing != "wait":
                    break
                deadline += step
                for one in waiting.values():
                    one.sent = None
            self._pause(_POLL)
        self._check(asking, answers)
        return [answers[number] for number in sorted(answers)]

    def _send(self, waiting: Mapping[int, _Asking]) -> None:
        """Ask those that were not asked yet, or by a message that is lost."""
        places = self._places()
        for number, one in waiting.items():
            place = places.get(self._names[number])
            asked_there = place == one.place and (one.sent is not None or self._clock() < one.not_before)
            if place is None or asked_there:
                continue
            asked = one.message
            message = Message(asked.content, place.node, asked.metadata.message_type, group_id=asked.metadata.group_id)
            one.sent, one.place = next(iter(self._grid.push_messages([message])), None), place

    def _receive(self, waiting: Mapping[int, _Asking]) -> dict[int, Message]:
        """What came back: answers by number; a lost message is to be sent again after a while."""
        numbers = {one.sent: number for number, one in waiting.items() if one.sent is not None}
        answers: dict[int, Message] = {}
        for reply in self._grid.pull_messages(list(numbers)) if numbers else ():
            number = numbers.get(reply.metadata.reply_to_message_id)
            if number is None:
                continue
            if reply.has_error() and reply.error.code in LOST:
                waiting[number].sent, waiting[number].not_before = None, self._clock() + _BACKOFF
            else:
                came_from(reply, number)
                answers[number] = reply
        return answers

    def _check(self, asking: Mapping[int, _Asking], answers: Mapping[int, Message]) -> None:
        missing = [self._names[number] for number in asking if number not in answers]
        if missing and self._patience.on_missing == "stop":
            raise SilosMissing(f"No answer in time from {', '.join(map(repr, missing))}.")
        good, least = sum(not reply.has_error() for reply in answers.values()), self._patience.at_least
        if good < min(least, len(asking)):
            reasons = [
                f"{self._names[number]}: {one.error.reason}" for number, one in answers.items() if one.has_error()
            ]
            reasons += [f"{name}: no answer in time" for name in missing]
            raise SilosMissing(f"{good} silos answered as asked and at least {least} must: {'; '.join(reasons)}.")

    def _places(self) -> dict[str, _Place]:
        """Where each silo is now, by name.

        Raises:
            SilosMissing: where two nodes are one silo.
        """
        places: dict[str, _Place] = {}
        for node, name, started in self._nodes():
            name = name or self._ask_name(node)
            if name in places:
                raise SilosMissing(f"Nodes {places[name].node} and {node} both are silo {name!r}.")
            if name:
                places[name] = _Place(node, started)
        return places

    def _nodes(self) -> list[tuple[int, str, str]]:
        """Nodes that are online: number, registered name, and when they were started, as far as the grid knows."""
        get_nodes = getattr(self._grid, "get_nodes", None)
        if get_nodes is None:
            return [(node, "", "") for node in self._grid.get_node_ids()]
        return [(one.node_id, one.name, one.last_activated_at) for one in get_nodes()]

    def _ask_name(self, node: int) -> str:
        """The name that a silo gives itself; empty where it gives none."""
        if node not in self._told:
            message = Message(RecordDict(), node, "query.silo")
            replies = list(self._grid.send_and_receive([message], timeout=self._patience.timeout))
            record = replies[0].content.get("silo") if replies and replies[0].has_content() else None
            name = record.get("name") if isinstance(record, ConfigRecord) else None
            if not isinstance(name, str):
                return ""
            self._told[node] = name
        return self._told[node]
