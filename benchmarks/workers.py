"""The training of a round by two worker processes against the same in one process, once the workers have started."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from benchmarks import federation
from benchmarks.comparison import Comparison, in_turn, seconds
from silos import (
    FleetEngine,
    FleetTrainer,
    Job,
    OpacusEngine,
    Outcome,
    Shard,
    Workers,
    build_engine,
    build_model,
    weights_of,
)

COUNT = 2


class OneByOne:
    """The Opacus engine, silo after silo."""

    def __init__(self, engine: OpacusEngine) -> None:
        self._engine = engine

    def train_all(self, jobs: Sequence[Job]) -> list[Outcome]:
        """The outcomes."""
        train = self._engine.train
        return [train(job.weights, job.shard, job.schedule, job.sampling, job.noise, job.drift) for job in jobs]


def measure(repeats: int) -> Iterator[Comparison]:
    """Images and a convolutional network by Opacus, where arithmetic is the limit; and many small tables by a fleet."""
    generator = np.random.default_rng(0)
    images = [
        Shard(
            name=f"silo {number}",
            features=generator.random((2560, 1, 28, 28), dtype=np.float32),
            labels=generator.integers(10, size=2560),
            individuals=np.arange(2560).astype(np.str_),
        )
        for number in range(10)
    ]
    yield _compared("10 silos x 5 steps of 256, CNN 28x28, Opacus", "cnn", images, 10, 5, repeats, target=1.8)
    tables = federation.make_shards(1000, 500)
    yield _compared("1,000 silos x 10 steps of 50, MLP 20-32-2, fleet", "mlp", tables, 2, 10, repeats, target=1.5)


def _compared(
    work: str, kind: str, shards: Sequence[Shard], outputs: int, steps: int, repeats: int, *, target: float
) -> Comparison:
    shape = shards[0].features.shape[1:]
    model = partial(build_model, kind, input_shape=shape, outputs=outputs, hidden=(32,), seed=0)
    build = partial(build_engine, "auto", model, task="multiclass", input_shape=shape, outputs=outputs)
    weights, schedule = weights_of(model()), federation.make_schedule(len(shards[0]), 10)
    schedule = replace(schedule, steps=steps)
    engine = build()
    alone = engine if isinstance(engine, FleetEngine) else OneByOne(engine)
    with Workers(build, COUNT) as workers:
        round = 0

        def once(trainer: FleetTrainer) -> float:
            nonlocal round
            round += 1
            jobs = federation.make_jobs(shards, schedule, weights, round)
            return seconds(lambda: trainer.train_all(jobs))

        once(workers)
        once(alone)
        ours, rival = in_turn(repeats, lambda: once(workers), lambda: once(alone))
    return Comparison(
        work=f"{work}: the training of a round, {COUNT} workers",
        against="one process",
        ours=ours,
        rival=rival,
        target=target,
    )
