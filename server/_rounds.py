"""The rounds: our own loop around any Flower strategy.

Flower's `Strategy.start` cannot resume, cannot stop early with a result and drops what each silo says. This loop drives
the same strategy object through `configure_train` and `aggregate_train` and adds what a run needs: each silo's own
schedule, a fixed order, one ledger commit a round before anything is aggregated, public weights, and what became of
every silo.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from accounting import InvalidValue, Ledger, SilodpError
from accounting._validate import check_count
from server._flower import PULL, quiet_strategy
from server._nodes import NodesOnly
from server._personal import Seated, passes_of
from server._strategies import WEIGHT
from silos import Schedule, Weights, check_reply, from_record, request_content, to_record
from silos._records import filled, first_unfit

Plan = Callable[[int], Mapping[str, Schedule]]
"""Schedules of a round's silos by name; a silo without one is not asked. It may look at nothing private."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RoundResult:
    """What a round came to.

    Args:
        round: its number, from 1.
        weights: the model after it.
        replied: silos whose models were aggregated, in the grid's order; in every pass, where a round has several.
        failures: why each other silo that was asked is not among them, by name. When all failed, `weights` are those
            from before the round.
    """

    round: int
    weights: Weights
    replied: tuple[str, ...]
    failures: Mapping[str, str]


def run_rounds(
    *,
    grid: Grid,
    silos: Mapping[int, str],
    strategy: Strategy,
    plan: Plan,
    weights: Mapping[str, NDArray[np.generic]],
    rounds: int,
    first: int = 1,
    ledger: Ledger | None = None,
    seed: str = "",
    timeout: float | None = None,
) -> Iterator[RoundResult]:
    """Run rounds `first` to `rounds`, yielding after each.

    A run that stopped after round k goes on with `first` k + 1, the weights after round k and the strategy's restored
    state (`save_state`, `restore_state`); the result is the same, bit by bit.

    Args:
        grid: where the silos are.
        silos: their names by node id; `find_silos` gives it.
        strategy: any Flower strategy that sends a silo one model, the same to all or to each its own, and with it,
            if need be, an ``anchor`` and a ``correction`` (see `silos._drift`). It sees of the grid which nodes there
            are, and of the replies those that hold a finite model of the right shape, each with the silo's public
            weight as its only metric.
        plan: each round's schedules.
        weights: to start from.
        rounds: number of the last round.
        first: number of the first.
        ledger: of all silos, where they share this process and the caller holds it: the rows of a round are made
            durable in one commit, before anything is aggregated. None where each silo keeps its own.
        seed: of the strategy's own draws, such as which nodes take part.
        timeout: seconds to wait for the replies of a round.

    Raises:
        InvalidValue: for a strategy that needs more silos than there are, or sends anything else.
        Unsupported: for a strategy that talks to silos itself.
        SilodpError: when aggregation gives weights that are not finite or not of the model's shapes.
    """
    check_count(low=1, first=first)
    check_count(low=0, rounds=rounds)
    _check_strategy(strategy, len(silos))
    if isinstance(strategy, Seated):
        strategy.seat(list(silos))
    current = dict(weights)
    releases = sum(len(passes_of(strategy, round)) for round in range(1, rounds + 1))
    for round in range(first, rounds + 1):
        schedules, start = plan(round), current
        replied, failures = list(silos.values()), dict[str, str]()
        for attempt, one in enumerate(passes_of(strategy, round)):
            draws = f"{seed}/{round}" + f"/{attempt}" * (attempt > 0)
            with quiet_strategy(draws):
                messages = list(one.configure_train(round, to_record(start), ConfigRecord(), NodesOnly(grid)))
            asked = _address(messages, schedules, silos, {"round": round, "attempt": attempt, "rounds": releases})
            with _commit(ledger):
                replies = list(grid.send_and_receive(asked.values(), timeout=timeout)) if asked else []
            valid, failed = _sort(replies, asked, start, silos)
            if valid:
                _weigh(valid, schedules, silos, getattr(one, "weighted_by_key", WEIGHT))
                with quiet_strategy(f"{draws}/aggregate"):
                    aggregated, _ = one.aggregate_train(round, valid)
                if aggregated is not None:
                    current = _accept(aggregated, current, round)
            arrived = {silos[reply.metadata.src_node_id] for reply in valid}
            replied, failures = [name for name in replied if name in arrived], failed | failures
        yield RoundResult(round=round, weights=dict(current), replied=tuple(replied), failures=failures)


def _check_strategy(strategy: Strategy, silos: int) -> None:
    # A Flower strategy that wants more nodes than there are waits for them forever.
    for name in ("min_train_nodes", "min_available_nodes"):
        wanted = getattr(strategy, name, 0)
        if wanted > silos:
            raise InvalidValue(f"Expected {name}={wanted} of the strategy to be at most the number of silos, {silos}.")


def _commit(ledger: Ledger | None) -> AbstractContextManager[None]:
    return nullcontext() if ledger is None else ledger.batch()


def _address(
    messages: Iterable[Message], schedules: Mapping[str, Schedule], silos: Mapping[int, str], key: Mapping[str, int]
) -> dict[int, Message]:
    """The messages of silos that have a schedule, by node in ascending order, with their schedule inside."""
    addressed: dict[int, Message] = {}
    for message in sorted(messages, key=lambda message: message.metadata.dst_node_id):
        node = message.metadata.dst_node_id
        schedule = schedules.get(silos.get(node, ""))
        if schedule is not None:
            message.content = _request(message, schedule, key)
            addressed[node] = message
    return addressed


def _request(message: Message, schedule: Schedule, key: Mapping[str, int]) -> RecordDict:
    """What a silo is asked under a round, an attempt and so many in all, from what the strategy sends it.

    Raises:
        InvalidValue: for anything but one model, its drift and options.
    """
    if message.metadata.message_type != "train":
        raise InvalidValue(f"Expected the strategy to ask silos to train, found {message.metadata.message_type!r}.")
    arrays = {name: record for name, record in message.content.items() if isinstance(record, ArrayRecord)}
    configs = {name: record for name, record in message.content.items() if isinstance(record, ConfigRecord)}
    drift = {name: arrays.pop(name) for name in ("anchor", "correction") if name in arrays}
    if len(arrays) != 1:
        raise InvalidValue(f"Expected the strategy to send 1 ArrayRecord to a silo, found {len(arrays)}.")
    if odd := set(message.content) - set(arrays) - set(drift) - set(configs):
        raise InvalidValue(f"Expected the strategy to send no {min(odd)!r} to a silo.")
    for config in configs.values():
        if PULL in config:
            schedule = replace(schedule, pull=config[PULL])  # pyright: ignore[reportArgumentType]  # checked there
    (start,) = arrays.values()
    content = request_content(start, schedule, **key, drift=drift)
    for name, config in configs.items():
        content[name] = ConfigRecord({key: value for key, value in config.items() if key != PULL})
    return content


def _sort(
    replies: Iterable[Message], nodes: Iterable[int], current: Weights, silos: Mapping[int, str]
) -> tuple[list[Message], dict[str, str]]:
    """Replies that can be aggregated, in the order of their nodes, and why the others of them have none."""
    answers: dict[int, Message] = {}
    for reply in replies:
        answers.setdefault(reply.metadata.src_node_id, reply)
    valid: list[Message] = []
    failures: dict[str, str] = {}
    for node in nodes:
        reply = answers.get(node)
        if reply is None:
            failures[silos[node]] = "no reply in time"
        elif reply.has_error():
            failures[silos[node]] = reply.error.reason or f"error {reply.error.code}"
        elif fault := _fault(reply.content, current):
            failures[silos[node]] = f"refused: {fault}"
        else:
            valid.append(reply)
    return valid, failures


def _fault(content: RecordDict, current: Weights) -> str | None:
    try:
        check_reply(content, {"arrays"})
    except SilodpError as error:
        return str(error)
    record = content.get("arrays")
    if not isinstance(record, ArrayRecord):
        return "the reply holds no 'arrays'"
    return _difference(from_record(record), current)


def _difference(found: Weights, current: Weights) -> str | None:
    """What keeps arrays from being weights of the same model, if anything."""
    if odd := sorted(set(found) ^ set(current)):
        return f"weight {odd[0]!r} is missing or unknown"
    for name, array in found.items():
        if array.shape != current[name].shape or array.dtype.kind != "f":
            return f"weight {name!r} is {array.dtype} of shape {array.shape}"
    unfit = first_unfit(found)
    return None if unfit is None else f"weight {unfit!r} is not finite"


def _weigh(replies: Iterable[Message], schedules: Mapping[str, Schedule], silos: Mapping[int, str], key: str) -> None:
    for reply in replies:
        weight = schedules[silos[reply.metadata.src_node_id]].weight
        filled(reply.content, {"metrics": filled(MetricRecord(), {key: weight})})


def _accept(aggregated: ArrayRecord, current: Weights, round: int) -> Weights:
    """The aggregated weights in the model's own precision: some strategies return float64 whatever they were given."""
    arrays = from_record(aggregated)
    if fault := _difference(arrays, current):
        raise SilodpError(f"Aggregation in round {round} failed: {fault}. Lower the server's learning rate.")
    return {name: arrays[name].astype(before.dtype, copy=False) for name, before in current.items()}
