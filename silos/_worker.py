"""A worker process: it trains the silos whose shards it was sent, and knows nothing of ledgers.

It ends with the process that started it, however that ends: its standard input is a pipe that nobody else holds.
"""

import os
import pickle
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, NamedTuple, cast

from silos._job import FleetTrainer, Job, Outcome
from silos._parcel import Parcel, SharedMemory, pack, unpack
from silos._shard import Shard

if TYPE_CHECKING:
    from silos._silo import Engine


class Start(NamedTuple):
    """The first message to a worker.

    Attributes:
        core: to stay on; None where processes cannot be pinned.
        build: makes the engine.
    """

    core: int | None
    build: "Callable[[], Engine | FleetTrainer]"


class Unfit(NamedTuple):
    """A worker's last message, where it has no engine.

    Attributes:
        reason: why.
    """

    reason: str


def serve(connection: int, there: int, back: int) -> None:
    """Train until the other side is gone.

    Args:
        connection: descriptor of the socket to the other side. It sends a `Start`, then shards by their numbers and
            parcels of jobs; each parcel is answered by one of outcomes.
        there: descriptor of the memory with the arrays of jobs.
        back: the same for outcomes.
    """
    threading.Thread(target=_end_with_parent, daemon=True).start()
    channel = Connection(connection)
    with suppress(EOFError, ConnectionError):  # the other side is gone
        engine = _begin(channel)
        if engine is not None:
            _answer(channel, engine, SharedMemory(there), SharedMemory(back))


def _begin(channel: Connection) -> "Engine | FleetTrainer | None":
    try:
        start = cast(Start, channel.recv())
        if start.core is not None:
            os.sched_setaffinity(0, {start.core})
        return start.build()
    except Exception as error:  # noqa: BLE001  # whatever it is, the other side must hear of it
        channel.send(Unfit(f"{type(error).__name__}: {error}"))
        return None


def _answer(channel: Connection, engine: "Engine | FleetTrainer", there: SharedMemory, back: SharedMemory) -> None:
    shards: dict[int, Shard] = {}
    while True:
        message = cast("dict[int, Shard] | Parcel", channel.recv())
        if isinstance(message, dict):
            shards |= message
            continue
        jobs = cast(list[Job], unpack(message, there, shards, in_place=True))
        back.clear()
        channel.send(pack([_portable(one) for one in _train(engine, jobs)], back, {}))


def _train(engine: "Engine | FleetTrainer", jobs: Sequence[Job]) -> Sequence[Outcome]:
    if not isinstance(engine, FleetTrainer):
        return [_train_one(engine, job) for job in jobs]
    try:
        return engine.train_all(jobs)
    except Exception as error:  # noqa: BLE001  # an error of the common computing befalls every silo in it
        return [error] * len(jobs)


def _train_one(engine: "Engine", job: Job) -> Outcome:
    try:
        return engine.train(job.weights, job.shard, job.schedule, job.sampling, job.noise, job.drift)
    except Exception as error:  # noqa: BLE001  # whatever befalls one silo must not end the others' round
        return error


def _portable(outcome: Outcome) -> Outcome:
    """The outcome, an error with its traceback as a note, and in a stand-in of its name where it cannot be pickled."""
    if not isinstance(outcome, Exception):
        return outcome
    outcome.add_note("".join(traceback.format_exception(outcome)))
    try:
        arrived = pickle.loads(pickle.dumps(outcome))
    except Exception:  # noqa: BLE001  # the user's own error may do anything when it is pickled
        arrived = None
    return outcome if type(arrived) is type(outcome) else stand_in(type(outcome).__name__, str(outcome))


def stand_in(name: str, text: str) -> Exception:
    """An error of a class of that name."""
    kind = type(name, (Exception,), {"__reduce__": lambda _: (stand_in, (name, text))})
    return kind(text)


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)
