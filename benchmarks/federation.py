"""The work that all simulators are compared on, done by silodp: as a script it prints its own times as JSON.

    python -m benchmarks.federation --silos 10 --rounds 50 --records 500 --steps 10 --engine fleet

Each silo holds its own synthetic table, and a network of two layers learns from them by DP-SGD; batches have
`records / steps` records on average. The engine ``none`` trains nothing: what is left is the grid, the ledger and the
aggregation.
"""

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import numpy as np
from flwr.app import Context
from torch import nn

from accounting import Ledger
from server import InProcessGrid, build_strategy, find_silos, run_rounds
from silos import (
    Engine,
    Job,
    Outcome,
    Schedule,
    Shard,
    Silo,
    Streams,
    Weights,
    build_engine,
    build_model,
    client_app,
    serve_together,
    weights_of,
)
from silos._job import FleetTrainer

FEATURES = 20
KEY = b"benchmark of rounds"


class NoEngine:
    """Gives every silo the weights that it got."""

    def __init__(self, weights: Weights) -> None:
        self.layout = {name: array.shape for name, array in weights.items()}

    def train(
        self,
        weights: Mapping[str, np.ndarray],
        shard: Shard,
        schedule: Schedule,
        sampling: np.random.Generator,
        noise: np.random.Generator,
        drift: object = None,
    ) -> tuple[Weights, int]:
        """The weights as they are."""
        del shard, sampling, noise, drift
        return dict(weights), schedule.steps

    def train_all(self, jobs: Sequence[Job]) -> list[Outcome]:
        """The same for many silos."""
        return [self.train(job.weights, job.shard, job.schedule, job.sampling, job.noise) for job in jobs]


def make_shards(silos: int, records: int) -> list[Shard]:
    """A table for each silo; whether a noisy weighted sum of the features is positive is to be learned."""
    shards = []
    for number in range(silos):
        generator = np.random.default_rng(number)
        features = generator.standard_normal((records, FEATURES)).astype(np.float32)
        noise = 0.3 * generator.standard_normal(records)
        shards.append(
            Shard(
                name=f"silo {number}",
                features=features,
                labels=(features @ (np.arange(FEATURES) / FEATURES) + noise > 0).astype(np.int64),
                individuals=np.arange(records).astype(np.str_),
            )
        )
    return shards


def make_schedule(records: int, steps: int) -> Schedule:
    """One epoch's worth of steps."""
    return Schedule(
        sampling_rate=1 / steps,
        steps=steps,
        noise_multiplier=1.0,
        clip_norm=1.0,
        expected_batch=records / steps,
        learning_rate=0.5,
    )


def make_model() -> nn.Module:
    """The network that all simulators train."""
    return build_model("mlp", input_shape=(FEATURES,), outputs=2, hidden=(32,), seed=0)


def make_jobs(shards: Sequence[Shard], schedule: Schedule, weights: Weights, round: int) -> list[Job]:
    """What an engine is asked for a round of all silos."""
    streams = Streams(KEY)
    return [
        Job(
            weights=weights,
            shard=shard,
            schedule=schedule,
            sampling=streams.generator(shard.name, round, "sampling"),
            noise=streams.generator(shard.name, round, "noise"),
        )
        for shard in shards
    ]


@contextmanager
def opened(
    shards: Iterable[Shard], schedules: Mapping[str, Schedule], engine: Engine, weights: Weights
) -> Iterator[Callable[[int], float]]:
    """A federation of silos that hold the shards, with a ledger on disk.

    Args:
        shards: one a silo.
        schedules: what each round asks, by silo.
        engine: of all silos; one that trains many at once does so.
        weights: to start from.

    Yields:
        A function that runs so many more rounds and returns their seconds.
    """
    with tempfile.TemporaryDirectory() as folder, Ledger.open(Path(folder) / "ledger.db", create=True) as ledger:
        members = {
            shard.name: Silo(run="run", shard=shard, engine=engine, ledger=ledger, streams=Streams(KEY))
            for shard in shards
        }

        def find(context: Context) -> Silo:
            return members[str(context.node_config["silo"])]

        together = serve_together(engine, find) if isinstance(engine, FleetTrainer) else None
        grid = InProcessGrid(client_app(find), list(members), together=together)
        nodes = find_silos(grid, list(members))
        done = 0

        def rounds(count: int) -> float:
            nonlocal done
            began = time.perf_counter()
            for _ in run_rounds(
                grid=grid,
                silos=nodes,
                strategy=build_strategy("fedavg"),
                plan=lambda _: schedules,
                weights=weights,
                first=done + 1,
                rounds=done + count,
                ledger=ledger,
            ):
                pass
            done += count
            return time.perf_counter() - began

        yield rounds


def make_engine(name: str, model: nn.Module) -> Engine:
    """An engine by its name, for the network that all simulators train."""
    if name == "none":
        return NoEngine(weights_of(model))
    engine = build_engine(name, model, task="multiclass", input_shape=(FEATURES,), outputs=2, device="cpu")
    return cast(Engine, engine)


def run(*, silos: int, rounds: int, records: int, steps: int, engine: str) -> dict[str, float]:
    """Run a federation.

    Returns:
        Seconds of the rounds, and the process's peak memory in megabytes.
    """
    model, shards, schedule = make_model(), make_shards(silos, records), make_schedule(records, steps)
    schedules = {shard.name: schedule for shard in shards}
    with opened(shards, schedules, make_engine(engine, model), weights_of(model)) as run_rounds_of_it:
        elapsed = run_rounds_of_it(rounds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"rounds_seconds": elapsed, "peak_megabytes": peak}


def main() -> None:
    """Read the command line, run, print."""
    parser = argparse.ArgumentParser()
    for name, default in (("silos", 10), ("rounds", 50), ("records", 500), ("steps", 10)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--engine", choices=("fleet", "opacus", "none"), default="fleet")
    print(json.dumps(run(**vars(parser.parse_args()))))


if __name__ == "__main__":
    main()
