"""Asking silos for statistics: noisy counts, moments and scores that their ledgers are charged for."""

from collections.abc import Mapping
from contextlib import nullcontext

import numpy as np
from flwr.app import ArrayRecord, Message
from flwr.serverapp import Grid
from numpy.typing import NDArray

from accounting import Ledger, SilodpError
from silos import Statistic, Weights, check_reply, from_record, question_content, to_record


def ask_silos(
    *,
    grid: Grid,
    silos: Mapping[int, str],
    statistics: Mapping[str, Statistic],
    round: int,
    models: Mapping[str, Mapping[str, NDArray[np.generic]]] | None = None,
    ledger: Ledger | None = None,
    timeout: float | None = None,
) -> tuple[dict[str, NDArray[np.generic]], dict[str, str]]:
    """Ask each silo for its statistic.

    Args:
        grid: where the silos are.
        silos: their names by node id.
        statistics: what is asked of each silo, by name; a silo without one is not asked.
        round: 0 before round 1, else the round after which it is asked.
        models: weights to score held-out records by, for each silo.
        ledger: as for `run_rounds`: all charges of the question are made durable in one commit.
        timeout: seconds to wait for the replies.

    Returns:
        The noisy sums by silo, and why each other silo that was asked is not among them.
    """
    messages = [
        Message(
            question_content(
                statistics[name],
                round=round,
                attempt=0,
                weights=None if models is None else to_record(models[name]),
            ),
            node,
            "query.statistic",
        )
        for node, name in silos.items()
        if name in statistics
    ]
    with nullcontext() if ledger is None else ledger.batch():
        replies = list(grid.send_and_receive(messages, timeout=timeout)) if messages else []
    failures = {silos[message.metadata.dst_node_id]: "no reply in time" for message in messages}
    answers: dict[str, NDArray[np.generic]] = {}
    for reply in replies:
        name = silos[reply.metadata.src_node_id]
        found = _read(reply, statistics[name].item)
        if isinstance(found, str):
            failures[name] = found
        else:
            answers[name] = found[statistics[name].item]
            del failures[name]
    return answers, failures


def _read(reply: Message, item: str) -> Weights | str:
    """The reply's one item, or what is wrong with it."""
    if reply.has_error():
        return reply.error.reason or f"error {reply.error.code}"
    try:
        check_reply(reply.content, {item})
    except SilodpError as error:
        return f"refused: {error}"
    record = reply.content.get(item)
    if not isinstance(record, ArrayRecord) or item not in record:
        return f"the reply holds no {item!r}"
    return from_record(record)
