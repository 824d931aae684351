"""Kill a ledger's writer with SIGKILL at random instants and see what it left behind.

    python -m benchmarks.ledger_kills [--kills 200] [--seed 0]

After each kill the ledger must open, verify against the last head seen, hold every row that the writer was told is
durable, and hold no release without its charge. The next writer repeats the last rounds, as a resumed run does, and
goes on. In the end the ledger must be, hash by hash, the one of a run that nothing interrupted. Every third kill hits
a new ledger, in or soon after its creation.
"""

import argparse
import multiprocessing
import random
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from multiprocessing.connection import Connection
from pathlib import Path

from accounting._gaussian import SampledGaussian
from accounting._ledger import Ledger

SILOS = ("north", "south", "east")
MECHANISM = SampledGaussian(sampling_rate=0.01, noise_multiplier=1.0, steps=5)
Row = tuple[str, int, str]
"""Silo, round and event of a row."""


def write(path: Path, start: int, stop: int, told: Connection | None = None) -> None:
    """Charge and release rounds `start` to `stop`, odd ones in a batch; tell of each row once it is durable."""

    def tell(*rows: Row) -> None:
        if told is not None:
            told.send(rows)

    with Ledger.open(path, create=True) as ledger:
        for silo in SILOS:
            ledger.declare(silo, "run", 10**6, MECHANISM)
            tell((silo, 0, "declared"))
        for round in range(start, stop):
            if round % 2:
                with ledger.batch():
                    rows = list(_one_round(ledger, round))
                tell(*rows)
            else:
                for row in _one_round(ledger, round):
                    tell(row)


def _one_round(ledger: Ledger, round: int) -> Iterator[Row]:
    for silo in SILOS:
        charge = ledger.charge(
            silo=silo, run="run", round=round, attempt=0, item="update", mechanism=MECHANISM, request=f"{silo} {round}"
        )
        yield silo, round, "charged"
        if round % 7 == 6:
            ledger.fail(charge, "offline")
            yield silo, round, "failed"
        else:
            ledger.release(charge, executed=round % 6, output=f"output {round}")
            yield silo, round, "released"


def kill_once(path: Path, start: int, delay: float, *, started: bool) -> list[Row]:
    """Start a writer, kill it, and return the rows that it was told are durable.

    Args:
        path, start: see `write`.
        delay: seconds until the kill.
        started: whether the delay counts from the first row told, instead of from the start of the process.
    """
    context = multiprocessing.get_context("forkserver")
    receiver, sender = context.Pipe(duplex=False)
    writer = context.Process(target=write, args=(path, start, 10**6, sender))
    writer.start()
    sender.close()
    if started:
        receiver.poll(60)
    time.sleep(delay)
    writer.kill()
    writer.join()
    acknowledged: list[Row] = []
    with suppress(EOFError), closing(receiver):
        while True:
            acknowledged.extend(receiver.recv())
    return acknowledged


def inspect(path: Path, acknowledged: list[Row], heads: dict[str, str]) -> tuple[int, int, dict[str, str]]:
    """Check what a killed writer left.

    Returns:
        The number of rounds charged in every silo, the number of charges without an end, and the heads.

    Raises:
        SystemExit: naming what is wrong.
    """
    with Ledger.open(path, create=True) as ledger:
        heads = ledger.verify(heads)
        rounds = min(len(ledger.charged(silo)) for silo in SILOS)
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT silo, round, event FROM rows").fetchall()
    if len(set(rows)) != len(rows):
        raise SystemExit(f"{path}: a row stands twice")
    if lost := set(acknowledged) - set(rows):
        raise SystemExit(f"{path}: rows were durable and are gone: {sorted(lost)}")
    ended = {(silo, round) for silo, round, event in rows if event in ("released", "failed")}
    charged = {(silo, round) for silo, round, event in rows if event == "charged"}
    if not ended <= charged:
        raise SystemExit(f"{path}: released without a charge: {sorted(ended - charged)}")
    return rounds, len(charged - ended), heads


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill a ledger's writer at random instants.")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    choice = random.Random(options.seed)
    multiprocessing.get_context("forkserver").set_forkserver_preload(["accounting._ledger", "accounting._gaussian"])
    with tempfile.TemporaryDirectory() as folder:
        path, rounds, heads = Path(folder) / "ledger.db", 0, dict[str, str]()
        told = between = unborn = 0
        for kill in range(options.kills):
            if kill % 3 == 2:
                new = Path(folder) / f"{kill}.db"
                acknowledged = kill_once(new, 0, choice.uniform(0, 0.06), started=False)
                unborn += not acknowledged
                _, hanging, _ = inspect(new, acknowledged, {})
            else:
                acknowledged = kill_once(path, max(rounds - 2, 0), choice.uniform(0, 0.08), started=True)
                rounds, hanging, heads = inspect(path, acknowledged, heads)
            told += len(acknowledged)
            between += hanging > 0
        write(path, max(rounds - 2, 0), rounds + 3)
        write(Path(folder) / "whole.db", 0, rounds + 3)
        with Ledger.open(path) as resumed, Ledger.open(Path(folder) / "whole.db") as whole:
            if resumed.heads() != whole.heads():
                raise SystemExit("the resumed ledger differs from an uninterrupted one")
            print(
                f"{options.kills} kills, {rounds} rounds, {unborn} before a first row, {between} in mid-release; "
                f"{told} rows were told durable and all are kept; every ledger opened and verified; the resumed "
                "one equals an uninterrupted one."
            )


if __name__ == "__main__":
    main()
