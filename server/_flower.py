"""Every place where Flower's internals are touched, kept to one page.

`flwr.app.Message` can be made only in a process that knows its task; Flower's own runtimes set that. Its strategies log
each round and draw from Python's global generator.
"""

import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager

from flwr.app import Message
from flwr.supercore.task_identity import TaskIdentity

PULL = "proximal-mu"
"""Flower's word, in what its FedProx sends, for a schedule's pull."""

SERVER = 0
"""Node id of the server in a process of our own."""


def identify_process(run_id: int) -> None:
    """Let this process make messages, as Flower's own runtimes do for theirs."""
    TaskIdentity.task_id = 0
    TaskIdentity.run_id = run_id
    TaskIdentity.node_id = SERVER


def number(message: Message, message_id: str) -> None:
    """Give a message the id that a SuperLink would give it."""
    message.metadata.__dict__["_message_id"] = message_id


@contextmanager
def quiet_strategy(seed: str) -> Iterator[None]:
    """Keep a strategy from writing to the log, and from drawing on or moving Python's global generator.

    Args:
        seed: of what the strategy draws inside, such as the nodes of a round.
    """
    logger = logging.getLogger("flwr")
    disabled, state = logger.disabled, random.getstate()
    logger.disabled = True
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)
        logger.disabled = disabled


def came_from(message: Message, node: int) -> None:
    """Give a reply another sender: the number under which the sender was asked."""
    message.metadata.__dict__["_src_node_id"] = node
