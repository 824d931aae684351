"""Which node of a grid is which silo."""

from collections.abc import Collection

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from accounting import SilodpError


class SilosMissing(SilodpError):
    """Silos that the run needs and the grid does not have."""


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
