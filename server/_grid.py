"""The in-process grid: a Flower `Grid` whose nodes are silos of this process.

Messages are handed over as they are, without Ray, sockets, polling or pickling, so that any Flower `Strategy` and any
Flower `ClientApp` run unchanged. Node ids are 1, 2, ... in the silos' order and replies come back in that order.
"""

from collections.abc import Callable, Iterable, Sequence

from flwr.app import Context, Error, Message, RecordDict, UserConfig
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from accounting import InvalidValue
from server._flower import identify_process, number

UNKNOWN_NODE = 1

App = Callable[[Message, Context], Message]
"""Serves a message to a node, whose context comes with it; a Flower `ClientApp` is one."""

Together = Callable[[Sequence[tuple[Message, Context]]], Sequence[Message]]
"""Serves many messages at once: each with its node's context, and a reply to each in the same order."""


class InProcessGrid(Grid):
    """Silos of this process as a grid.

    Args:
        app: serves every silo; a silo's name is its node's config value ``silo``.
        silos: their names, in a fixed order.
        run_id: Flower's number of the run; it reaches no result.
        run_config: the run's config, as `flwr run` would give it to each app.
        together: serves all train messages that are pushed in one call, instead of the app; `serve_together` makes one.
    """

    def __init__(
        self,
        app: App,
        silos: Sequence[str],
        *,
        run_id: int = 1,
        run_config: UserConfig | None = None,
        together: Together | None = None,
    ) -> None:
        if len(set(silos)) != len(silos) or not silos:
            raise InvalidValue("Expected silos to be at least one name, each name once.")
        self._app = app
        self._together = together
        self._run = Run.create_empty(run_id)
        self._contexts = {
            node: Context(
                run_id=run_id,
                node_id=node,
                node_config={"silo": name},
                state=RecordDict(),
                run_config=dict(run_config or {}),
            )
            for node, name in enumerate(silos, start=1)
        }
        self._sent = 0
        self._waiting: dict[str, Message] = {}
        identify_process(run_id)

    def set_run(self, run: Run) -> None:
        """Name the run that messages belong to."""
        self._run = run
        identify_process(run.run_id)

    @property
    def run(self) -> Run:
        """The run that messages belong to."""
        return self._run

    def get_node_ids(self) -> Iterable[int]:
        """Ids of the nodes, ascending."""
        return list(self._contexts)

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """A message to a node."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Deliver messages, in the order of their nodes, and keep the replies for `pull_messages`.

        Returns:
            Ids of the messages, in the same order.
        """
        ordered = sorted(messages, key=lambda message: message.metadata.dst_node_id)
        for message in ordered:
            self._sent += 1
            number(message, str(self._sent))
        ids = [message.metadata.message_id for message in ordered]
        served = self._serve_together(ordered)
        for name, message in zip(ids, ordered, strict=True):
            self._waiting[name] = served.get(name) or self._deliver(message)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Replies to the messages, each once, in the order asked for."""
        return [self._waiting.pop(name) for name in message_ids if name in self._waiting]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Deliver messages and return the replies, in the order of their nodes.

        Args:
            messages: to deliver.
            timeout: has no effect: every reply is there when the call returns.
        """
        del timeout
        return self.pull_messages(self.push_messages(messages))

    def _serve_together(self, messages: Iterable[Message]) -> dict[str, Message]:
        """Replies by message id to the messages that are served all at once."""
        joint = [
            (message, self._contexts[message.metadata.dst_node_id])
            for message in messages
            if message.metadata.message_type == "train" and message.metadata.dst_node_id in self._contexts
        ]
        if self._together is None or not joint:
            return {}
        replies = self._together(joint)
        return {message.metadata.message_id: reply for (message, _), reply in zip(joint, replies, strict=True)}

    def _deliver(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        context = self._contexts.get(node)
        if context is None:
            return Message(Error(UNKNOWN_NODE, f"No node {node} in this grid."), reply_to=message)
        return self._app(message, context)
