"""Rounds of a whole federation against other simulators, and how they grow."""

from collections.abc import Iterator

from benchmarks import federation
from benchmarks.comparison import Comparison, in_turn, run_script, seconds
from benchmarks.opacus_loop import OpacusLoop
from silos import OpacusEngine, weights_of

RIVAL = "benchmarks/flower_ray_baseline.py"
WORK = ("--silos", "10", "--rounds", "50", "--records", "500", "--steps", "10")
SMALL = {"silos": 10, "rounds": 50, "records": 500, "steps": 10}


def measure(repeats: int, pfl_python: str | None) -> Iterator[Comparison]:
    """All comparisons of rounds.

    Args:
        repeats: runs of each.
        pfl_python: an interpreter that has pfl; None leaves the comparison with it out.
    """
    yield from _against_flower(repeats)
    if pfl_python:
        yield _against_pfl(repeats, pfl_python)
    yield from _around_the_steps(repeats)
    yield _without_training(repeats)
    yield from _growth(repeats)


def _against_flower(repeats: int) -> Iterator[Comparison]:
    kinds = ("fleet", "opacus")
    ours: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    rival: list[dict[str, float]] = []
    for _ in range(repeats):
        rival.append(run_script(RIVAL, *WORK))
        for kind in kinds:
            ours[kind].append(run_script("-m", "benchmarks.federation", *WORK, "--engine", kind))
    rows = (("fleet", "rounds", 30), ("opacus", "rounds", 4), ("fleet", "process", 6))
    for kind, part, target in rows:
        key = f"{part}_seconds"
        yield Comparison(
            work=f"10 silos x 50 rounds x 10 steps, MLP 20-32-2, {kind}: {part}",
            against="Flower Ray + Opacus",
            ours=[run[key] for run in ours[kind]],
            rival=[run[key] for run in rival],
            target=target,
        )


def _against_pfl(repeats: int, python: str) -> Comparison:
    ours, rival = in_turn(
        repeats,
        lambda: federation.run(**SMALL, engine="fleet")["rounds_seconds"],
        lambda: run_script("benchmarks/pfl_nonprivate_baseline.py", *WORK, python=python)["rounds_seconds"],
    )
    return Comparison(
        work="the same with DP, fleet: rounds", against="pfl without DP", ours=ours, rival=rival, target=1.5
    )


def _around_the_steps(repeats: int) -> Iterator[Comparison]:
    """The Opacus engine in a federation against steps that nobody asks for, answers or charges."""
    shards, schedule = federation.make_shards(10, 500), federation.make_schedule(500, 10)
    model, rounds = federation.make_model(), 5
    weights = weights_of(model)
    engine = OpacusEngine(model, task="multiclass", input_shape=(federation.FEATURES,), outputs=2)
    loop = OpacusLoop(model, "multiclass")

    def calls() -> None:
        for round in range(1, rounds + 1):
            for job in federation.make_jobs(shards, schedule, weights, round):
                engine.train(job.weights, job.shard, job.schedule, job.sampling, job.noise)

    def steps() -> None:
        for round in range(1, rounds + 1):
            loop.run(federation.make_jobs(shards, schedule, weights, round))

    with federation.opened(shards, {shard.name: schedule for shard in shards}, engine, weights) as run:
        run(1)
        calls()
        steps()
        ours, bare, own = in_turn(max(repeats, 5), lambda: run(rounds), lambda: seconds(steps), lambda: seconds(calls))
    work = "Opacus engine in the federation, 10 silos x 10 steps"
    yield Comparison(work=work, against="a bare loop of Opacus steps", ours=ours, rival=bare, target=1.05, most=True)
    yield Comparison(work=work, against="the engine's own calls", ours=ours, rival=own, target=1.05, most=True)


def _without_training(repeats: int) -> Comparison:
    rounds = 20
    runs = [federation.run(silos=100, rounds=rounds, records=2, steps=1, engine="none") for _ in range(repeats)]
    return Comparison(
        work="grid + ledger + aggregation, a silo-round without training",
        against="0.3 ms",
        ours=[run["rounds_seconds"] / rounds / 100 for run in runs],
        rival=[0.3e-3],
        target=1.0,
        most=True,
    )


def _growth(repeats: int) -> Iterator[Comparison]:
    few, many = ("--silos", "10", "--rounds", "20"), ("--silos", "1000", "--rounds", "2")
    runs = [
        [run_script("-m", "benchmarks.federation", *work, "--engine", "fleet") for work in (few, many)]
        for _ in range(repeats)
    ]
    yield Comparison(
        work="a silo-round among 1,000 silos, fleet",
        against="a silo-round among 10",
        ours=[large["rounds_seconds"] / 2000 for _, large in runs],
        rival=[small["rounds_seconds"] / 200 for small, _ in runs],
        target=1.1,
        most=True,
    )
    yield Comparison(
        work="peak memory with 1,000 silos of 500 records",
        against="1.5 GB",
        ours=[large["peak_megabytes"] for _, large in runs],
        rival=[1536.0],
        target=1.0,
        most=True,
        unit="MB",
    )
