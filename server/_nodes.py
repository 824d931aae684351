"""Which node of a grid is which silo, and all that a strategy may know of a grid."""

from collections.abc import Collection, Iterable
from typing import NoReturn

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from accounting import SilodpError, Unsupported


class SilosMissing(SilodpError):
    """Silos that the run needs and the grid does not have."""


class NodesOnly(Grid):
    """A grid as strategies see it: which nodes there are. Whatever they send goes through the rounds, or not at all.

    Args:
        grid: whose nodes.
    """

    def __init__(self, grid: Grid) -> None:
        self._nodes = list(grid.get_node_ids())
        self._run = grid.run

    @property
    def run(self) -> Run:
        """The run that messages belong to."""
        return self._run

    def get_node_ids(self) -> Iterable[int]:
        """Ids of the nodes."""
        return list(self._nodes)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        """Refused, whatever it is."""
        raise Unsupported("A strategy does not talk to silos itself: it returns its messages from configure_train.")

    set_run = create_message = push_messages = pull_messages = send_and_receive = _refuse


def find_silos(grid: Grid, expected: Collection[str], *, timeout: float | None = None) -> dict[int, str]:
    """Ask every node for its silo's name.

    Args:
        grid: whose nodes.
        expected: names of the silos that the run needs, in the order wanted.
        timeout: seconds to wait for the answers; None waits for all.

    Returns:
        The expected silos by node id, in the order of `expected`.

    Raises:
        SilosMissing: naming silos that no node answered for, or that two did.
    """
    messages = [Message(RecordDict(), node, "query.silo") for node in sorted(grid.get_node_ids())]
    nodes: dict[str, int] = {}
    for reply in grid.send_and_receive(messages, timeout=timeout):
        record = reply.content.get("silo") if reply.has_content() else None
        name = record.get("name") if isinstance(record, ConfigRecord) else None
        if not isinstance(name, str):
            continue
        if name in nodes:
            raise SilosMissing(f"Nodes {nodes[name]} and {reply.metadata.src_node_id} both are silo {name!r}.")
        nodes[name] = reply.metadata.src_node_id
    if missing := [name for name in expected if name not in nodes]:
        raise SilosMissing(f"No node answers for silo {', '.join(map(repr, missing))}; {len(nodes)} did answer.")
    return {nodes[name]: name for name in expected}
