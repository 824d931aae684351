"""Worker processes change no outcome, whatever becomes of them, and none of them outlives who started it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from accounting import InvalidValue, Ledger
from silos import (
    FleetEngine,
    Job,
    Outcome,
    Request,
    Schedule,
    Shard,
    Silo,
    Streams,
    WorkerLost,
    Workers,
    build_model,
    worker_count,
)
from silos._together import train_together
from silos._worker_count import _multiplications

TOY = '''
import os, signal, sys
from pathlib import Path

class Odd(Exception):
    def __init__(self, one, two):
        super().__init__("no pickle brings this back")

class Engine:
    """Trains in no time, and breaks for silos of certain names."""

    layout = {"w": (3,)}

    def __init__(self, folder):
        self.folder = Path(folder)
        self.seen = {}

    def train(self, weights, shard, schedule, sampling, noise, drift=None):
        assert self.seen.setdefault(shard.name, shard) is shard, "a shard was sent again"
        if shard.name == "mortal":
            if len(list(self.folder.iterdir())) < int((self.folder / "deaths").read_text()) + 1:
                (self.folder / str(os.getpid())).touch()
                os.kill(os.getpid(), signal.SIGKILL)
        if shard.name == "odd":
            raise Odd(1, 2)
        if shard.name == "stuck":
            print("training", flush=True)
            signal.pause()
        step = noise.standard_normal(3) + sampling.random() + shard.features.sum()
        return {"w": weights["w"] + schedule.learning_rate * step}, schedule.steps

def broken():
    raise RuntimeError("no model today")
'''
NAMES = ("aarhus", "mortal", "bergen", "odd", "cork", "delft", "espoo")

pytestmark = pytest.mark.skipif(os.name != "posix", reason="worker processes need POSIX")


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module that only this test's import path finds; gives the folder in which its engine counts deaths."""
    (tmp_path / "toy_of_workers.py").write_text(TOY, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    folder = tmp_path / "deaths"
    folder.mkdir()
    (folder / "deaths").write_text("0")
    yield folder
    sys.modules.pop("toy_of_workers", None)


def builder(folder: Path) -> Callable[[], FleetEngine]:
    return partial(import_module("toy_of_workers").Engine, folder)


def shards(make_shard: Callable[..., Shard]) -> list[Shard]:
    return [make_shard(5 + place, name=name, seed=place) for place, name in enumerate(NAMES)]


def jobs(shards: Sequence[Shard], schedule: Schedule, round: int = 1) -> list[Job]:
    streams, weights = Streams(b"sixteen bytes ok"), {"w": np.arange(3.0) * round}
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


def shown(outcomes: Sequence[Outcome]) -> list[object]:
    """Outcomes, for comparison; of an error its kind and text."""
    return [
        (type(one).__name__, str(one))
        if isinstance(one, Exception)
        else ({name: array.tobytes() for name, array in one[0].items()}, one[1])
        for one in outcomes
    ]


def alone(folder: Path, jobs: Sequence[Job]) -> list[object]:
    """What the engine itself says, in this process."""
    engine = import_module("toy_of_workers").Engine(folder)
    outcomes: list[Outcome] = []
    for job in jobs:
        try:
            outcomes.append(engine.train(job.weights, job.shard, job.schedule, job.sampling, job.noise))
        except Exception as error:  # noqa: BLE001  # the outcome
            outcomes.append(error)
    return shown(outcomes)


def test_workers_give_what_the_engine_gives(
    toy: Path, make_shard: Callable[..., Shard], make_schedule: Callable[..., Schedule]
) -> None:
    members, schedule = shards(make_shard), make_schedule()
    with Workers(builder(toy), 2) as workers:
        for round, present in ((1, members), (2, members[2:5]), (3, [*members, make_shard(3, name="faro")])):
            found = shown(workers.train_all(jobs(present, schedule, round)))
            assert found == alone(toy, jobs(present, schedule, round))
        assert len(set(workers.pids)) == 2
        if hasattr(os, "sched_getaffinity"):
            assert all(len(os.sched_getaffinity(pid)) == 1 for pid in workers.pids)
    assert workers.pids == []


@pytest.fixture
def federation(toy: Path, tmp_path: Path, make_shard: Callable[..., Shard]) -> Iterator[Callable[[str], list[Silo]]]:
    """Silos that share a new ledger, by the ledger's name."""
    with ExitStack() as stack:

        def silos(name: str) -> list[Silo]:
            ledger = stack.enter_context(Ledger.open(tmp_path / f"{name}.db", create=True))
            streams = Streams(b"sixteen bytes ok")
            return [
                Silo(run="run", shard=shard, engine=builder(toy)(), ledger=ledger, streams=streams)
                for shard in shards(make_shard)
            ]

        yield silos


def train_alone(silo: Silo, request: Request) -> object:
    try:
        return silo.train(request)
    except Exception as error:  # noqa: BLE001  # the outcome
        return repr(error)


def test_a_worker_killed_in_a_round_is_replaced_and_nothing_is_charged_twice(
    toy: Path, federation: Callable[[str], list[Silo]], make_schedule: Callable[..., Schedule]
) -> None:
    one_by_one, together = federation("one by one"), federation("together")
    requests = [Request(round=round, schedule=make_schedule(), weights={"w": np.arange(3.0)}) for round in (1, 2)]
    expected = [[train_alone(silo, request) for silo in one_by_one] for request in requests]
    (toy / "deaths").write_text("2")
    with Workers(builder(toy), 2) as workers:
        for request, outcomes in zip(requests, expected, strict=True):
            if request.round == 2:
                os.kill(workers.pids[0], signal.SIGKILL)  # while it has nothing to do
            with together[0].ledger.batch():
                found = train_together(workers, [(silo, request) for silo in together])
            assert str([one if isinstance(one, dict) else repr(one) for one in found]) == str(outcomes)
    assert len(list(toy.iterdir())) == 1 + 2
    for name in NAMES:
        assert together[0].ledger.rows(name) == one_by_one[0].ledger.rows(name)


def test_a_worker_that_dies_again_and_again_ends_the_round_and_nothing_is_charged(
    toy: Path, federation: Callable[[str], list[Silo]], make_schedule: Callable[..., Schedule]
) -> None:
    (toy / "deaths").write_text("3")
    silos = federation("ledger")[:2]
    ledger, request = silos[0].ledger, Request(round=1, schedule=make_schedule(), weights={"w": np.arange(3.0)})
    with Workers(builder(toy), 1) as workers:
        with pytest.raises(WorkerLost, match="ended 3 times in one round, at last by SIGKILL"), ledger.batch():
            train_together(workers, [(silo, request) for silo in silos])
        assert workers.pids == []
        assert not any(ledger.charges(name) for name in NAMES)
        # The fourth process lives, as after a resume.
        with ledger.batch():
            assert all(isinstance(one, dict) for one in train_together(workers, [(silo, request) for silo in silos]))


@pytest.mark.usefixtures("toy")
def test_a_worker_without_an_engine_says_why(
    make_shard: Callable[..., Shard], make_schedule: Callable[..., Schedule]
) -> None:
    with (
        Workers(import_module("toy_of_workers").broken, 1) as workers,
        pytest.raises(WorkerLost, match="RuntimeError: no model today"),
    ):
        workers.train_all(jobs(shards(make_shard), make_schedule()))


STUCK = """
import signal
import sys
from pathlib import Path
import numpy as np
from silos import Job, Schedule, Shard, Streams, Workers
from toy_of_workers import Engine
from functools import partial

def job(name):
    stream = Streams(b"sixteen bytes ok").generator(name, 1, "noise")
    shard = Shard(name=name, features=np.zeros((1, 1), "f4"), labels=np.zeros(1, "f4"), individuals=np.array(["p"]))
    schedule = Schedule(
        sampling_rate=1, steps=1, noise_multiplier=1, clip_norm=1, expected_batch=1, learning_rate=1
    )
    return Job(weights={"w": np.zeros(3)}, shard=shard, schedule=schedule, sampling=stream, noise=stream)

# Where the tests run in the background of a shell, SIGINT comes ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
workers = Workers(partial(Engine, sys.argv[1]), 2)
workers.train_all([job("stuck"), job("idle")])
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_the_process_that_started_them(toy: Path, how: signal.Signals) -> None:
    # The script has no guard of its main module, as many have none.
    parent = subprocess.Popen(
        [sys.executable, "-c", STUCK, str(toy)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == "training\n"
    if how is signal.SIGINT:
        os.killpg(parent.pid, how)  # as a terminal does
    else:
        parent.send_signal(how)
    # Every process holds the pipe: its end is that of the last of them.
    _, errors = parent.communicate(timeout=60)
    assert parent.returncode == -how
    assert errors.count("Traceback") == (how is signal.SIGINT)


def test_work_is_counted_layer_by_layer() -> None:
    # torch.utils.flop_counter (2.13) counts 789,120, 1,408 and 60 operations, two a multiplication.
    for kind, shape, outputs, expected in (
        ("cnn", (1, 28, 28), 10, 394_560),
        ("mlp", (20,), 2, 704),
        ("linear", (30,), 1, 30),
    ):
        model = build_model(kind, input_shape=shape, outputs=outputs, seed=0)
        assert _multiplications(model, shape) == expected


def test_only_much_work_over_several_silos_gets_workers(
    make_schedule: Callable[..., Schedule], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("silos._worker_count.usable_cores", lambda: [2, 3, 5])
    model = build_model("cnn", input_shape=(1, 28, 28), outputs=10, seed=0)

    def count(silos: int, rounds: int, expected_batch: float) -> int:
        schedules = [make_schedule(expected_batch=expected_batch)] * silos
        return worker_count("opacus", model, input_shape=(1, 28, 28), schedules=schedules, rounds=rounds)

    assert count(10, 1, 256.0) == 1
    assert count(10, 100, 256.0) == 3
    assert count(2, 1000, 256.0) == 2
    assert count(1, 10**5, 256.0) == 1
    monkeypatch.setattr("silos._worker_count.usable_cores", lambda: [0])
    assert count(10, 1000, 256.0) == 1


@pytest.mark.parametrize("count", [0, -1])
def test_no_workers_are_refused(count: int) -> None:
    with pytest.raises(InvalidValue, match=f"workers={count}"):
        Workers(lambda: FleetEngine, count)  # type: ignore[arg-type,return-value]  # it is never called
