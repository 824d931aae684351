"""Steps of DP-SGD against the same steps otherwise."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import nn

from benchmarks import federation
from benchmarks.comparison import Comparison, in_turn, seconds
from benchmarks.opacus_loop import OpacusLoop
from silos import FleetEngine, Job, OpacusEngine, Schedule, Shard, Streams, Weights, build_model, weights_of


def measure(repeats: int) -> Iterator[Comparison]:
    """All comparisons of steps.

    Args:
        repeats: runs of each.
    """
    yield from _authorities(repeats)
    yield _small_network(repeats)
    yield _images(repeats)


def one_by_one(engine: OpacusEngine, jobs: Sequence[Job]) -> None:
    """The jobs, by an engine that trains one silo at a time."""
    for job in jobs:
        engine.train(job.weights, job.shard, job.schedule, job.sampling, job.noise, job.drift)


def _authorities(repeats: int) -> Iterator[Comparison]:
    from scenarios import load, make_plan, prepare, public_sizes

    scenario = load("chem97-authorities")
    data = prepare(scenario)
    schedules = {part.silo: part.schedule for part in make_plan(scenario, public_sizes(scenario, data)).silos}
    shape, outputs = data.input_shape, data.outputs
    model = build_model("mlp", input_shape=shape, outputs=outputs, hidden=scenario.model.hidden, seed=0)
    weights, streams = weights_of(model), Streams(federation.KEY)
    fleet = FleetEngine(model, task=data.task, input_shape=shape, outputs=outputs)
    loop = OpacusLoop(model, data.task)

    def jobs() -> list[Job]:
        return [
            Job(
                weights=weights,
                shard=shard,
                schedule=schedules[name],
                sampling=streams.generator(name, 1, "sampling"),
                noise=streams.generator(name, 1, "noise"),
            )
            for name, shard in data.shards.items()
        ]

    fleet.train_all(jobs())
    loop.run(jobs())
    with federation.opened(data.shards.values(), schedules, fleet, weights) as run:
        run(1)
        ours, whole, rival = in_turn(
            repeats,
            lambda: seconds(lambda: fleet.train_all(jobs())),
            lambda: run(5) / 5,
            lambda: seconds(lambda: loop.run(jobs())),
        )
    work, against = "131 silos of chem97-authorities, one step each", "a bare loop of Opacus steps"
    yield Comparison(work=f"{work}: fleet engine", against=against, ours=ours, rival=rival, target=12)
    yield Comparison(
        work=f"{work}: fleet engine, grid, ledger and aggregation",
        against=against,
        ours=whole,
        rival=rival,
        target=None,
    )


def _small_network(repeats: int) -> Comparison:
    silos, records, steps = 100, 500, 10
    shards, schedule = federation.make_shards(silos, records), federation.make_schedule(records, steps)
    model = federation.make_model()
    weights = weights_of(model)
    fleet = FleetEngine(model, task="multiclass", input_shape=(federation.FEATURES,), outputs=2)
    tables = [(torch.from_numpy(shard.features), torch.from_numpy(shard.labels)) for shard in shards]

    def plain() -> None:
        for features, labels in tables:
            plain_sgd(model, features, labels, batch=records // steps, steps=steps)

    fleet.train_all(federation.make_jobs(shards, schedule, weights, 1))
    ours, rival = in_turn(
        repeats,
        lambda: seconds(lambda: fleet.train_all(federation.make_jobs(shards, schedule, weights, 1))),
        lambda: seconds(plain),
    )
    return Comparison(
        work="a DP step of the fleet engine, MLP 20-32-2, 100 silos",
        against="plain SGD, silo by silo, no DP",
        ours=[value / silos / steps for value in ours],
        rival=[value / silos / steps for value in rival],
        target=3,
    )


def _images(repeats: int) -> Comparison:
    records, batch, steps = 1024, 256, 4
    generator = np.random.default_rng(0)
    shard = Shard(
        name="images",
        features=generator.random((records, 1, 28, 28), dtype=np.float32),
        labels=generator.integers(10, size=records),
        individuals=np.arange(records).astype(np.str_),
    )
    model = build_model("cnn", input_shape=(1, 28, 28), outputs=10, seed=0)
    engine = OpacusEngine(model, task="multiclass", input_shape=(1, 28, 28), outputs=10)
    schedule = Schedule(
        sampling_rate=batch / records,
        steps=steps,
        noise_multiplier=1.0,
        clip_norm=1.0,
        expected_batch=batch,
        learning_rate=0.5,
    )
    weights: Weights = weights_of(model)
    features, labels = torch.from_numpy(shard.features), torch.from_numpy(shard.labels)
    ours, rival = in_turn(
        repeats,
        lambda: seconds(lambda: one_by_one(engine, federation.make_jobs([shard], schedule, weights, 1))),
        lambda: seconds(lambda: plain_sgd(model, features, labels, batch=batch, steps=steps)),
    )
    return Comparison(
        work="a DP step of the Opacus engine, CNN 28x28, batch 256",
        against="plain SGD, no DP",
        ours=[value / steps for value in ours],
        rival=[value / steps for value in rival],
        target=1.9,
        most=True,
    )


def plain_sgd(model: nn.Module, features: torch.Tensor, labels: torch.Tensor, *, batch: int, steps: int) -> None:
    """Steps of SGD on shuffled batches, without any privacy."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    order = torch.randperm(len(features))
    for rows in order.split(batch)[:steps]:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(features[rows]), labels[rows]).backward()
        optimizer.step()
