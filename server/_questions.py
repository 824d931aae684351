"""Asking silos beside training: for noisy statistics, which their ledgers are charged for, and for public numbers."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
from numpy.typing import NDArray

from accounting import Ledger, SilodpError
from silos import Statistic, Weights, check_reply, from_record, public_content, question_content, to_record


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


def ask_public(
    *, grid: Grid, silos: Mapping[int, str], names: Sequence[str], timeout: float | None = None
) -> dict[str, dict[str, int]]:
    """Ask every silo for numbers that the scenario declares public.

    Args:
        grid: where the silos are.
        silos: their names by node id.
        names: of the numbers; see `silos._public`.
        timeout: seconds to wait for the replies.

    Returns:
        The numbers by silo and name.

    Raises:
        SilodpError: for a silo that does not give all of them and nothing else.
    """
    if not names:
        return {}
    messages = [Message(public_content(names), node, "query.public") for node in silos]
    replies = {reply.metadata.src_node_id: reply for reply in grid.send_and_receive(messages, timeout=timeout)}
    found: dict[str, dict[str, int]] = {}
    for node, silo in silos.items():
        reply = replies.get(node)
        if reply is None or reply.has_error():
            reason = "no reply in time" if reply is None else reply.error.reason
            raise SilodpError(f"Silo {silo!r} did not give the numbers {', '.join(names)}: {reason}.")
        check_reply(reply.content, set(), set(names))
        records = {name: reply.content.get(name) for name in names}
        numbers = {name: one.get("number") for name, one in records.items() if isinstance(one, ConfigRecord)}
        found[silo] = {name: number for name, number in numbers.items() if isinstance(number, int)}
        if len(found[silo]) < len(names):
            raise SilodpError(f"Silo {silo!r} did not give the numbers {', '.join(names)} as integers.")
    return found


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
