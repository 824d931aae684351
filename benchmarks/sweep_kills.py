"""Kill a sweep with SIGKILL at random instants, itself or one of its workers, and see what it comes to.

    python -m benchmarks.sweep_kills [--kills 20] [--seed 0]

A third of the kills hit a sweep that starts, the others one that is in its rounds. After the last kill the
sweep goes on to its end; if it ends before, another one begins. Each must come to the table of a sweep that nobody
killed, byte by byte, with ledgers that hold the same rows: no run is counted twice, and none is charged twice.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from accounting import Ledger

SCENARIO = """
[data]
source = "csv:people.csv"
task = "binary"
label = { column = "sick", positive = 1 }
features = { age = { low = 20, high = 80 } }

[silos]
column = "hospital"

[model]
kind = "linear"

[training]
rounds = 20
sampling_rate = 0.3
learning_rate = 0.5

[privacy]
epsilon = 2.0
delta = 1e-3
relation = "zero-out"

[sweep]
over = { epsilon = [1, 4], strategy = ["fedavg", "fedadam"] }
seeds = 2
baselines = ["no-privacy", "alone", "pooled", "majority"]
"""


def write_scenario(folder: Path) -> Path:
    """A table of two hospitals and a sweep over it that takes seconds."""
    generator = np.random.default_rng(0)
    age = generator.integers(20, 81, 120)
    sick = (generator.random(120) < age / 100).astype(int)
    table = pd.DataFrame({"age": age, "sick": sick, "hospital": generator.choice(["north", "south"], 120)})
    table.to_csv(folder / "people.csv", index=False)
    path = folder / "hospitals.toml"
    path.write_text(SCENARIO, "utf-8")
    return path


def start(scenario: Path, folder: Path) -> "subprocess.Popen[bytes]":
    """A sweep in a process of its own."""
    words = ["-m", "scenarios.cli", "sweep", str(scenario), "--out", str(folder), "--jobs", "2"]
    with folder.with_suffix(".log").open("ab") as log:
        return subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL, stderr=log)


def children(process: int) -> list[int]:
    """Processes that a process started and that are not over."""
    try:
        return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


def wait_for_rounds(sweep: "subprocess.Popen[bytes]", folder: Path) -> None:
    """Return when a run has got further than now, or the sweep has ended."""
    began = time.time()
    while sweep.poll() is None:
        if any(path.stat().st_mtime > began for path in folder.glob("runs/*/checkpoint.safetensors")):
            return
        time.sleep(0.02)


def kill_once(sweep: "subprocess.Popen[bytes]", folder: Path, choice: random.Random) -> str:
    """Kill the sweep or a worker at a random instant; what was killed, or nothing where the sweep ended before."""
    if choice.random() < 1 / 3:
        time.sleep(choice.uniform(0, 3))
    else:
        wait_for_rounds(sweep, folder)
        time.sleep(choice.uniform(0, 0.5))
    workers = children(sweep.pid)
    if sweep.poll() is not None:
        return ""
    if workers and choice.random() < 0.5:
        os.kill(choice.choice(workers), signal.SIGKILL)
        return "a worker"
    sweep.kill()
    sweep.wait()
    return "the sweep"


def content(folder: Path) -> dict[str, object]:
    """The tables of a sweep, and the rows of every ledger."""
    found: dict[str, object] = {name: (folder / name).read_bytes() for name in ("results.csv", "results.parquet")}
    for path in sorted(folder.glob("runs/*/ledger.db")):
        with Ledger.open(path, read_only=True) as ledger:
            ledger.verify()
            found[path.parent.name] = [repr(row) for silo in ledger.silos() for row in ledger.rows(silo)]
    return found


def check(sweep: "subprocess.Popen[bytes]", folder: Path, whole: dict[str, object]) -> None:
    """See that a sweep ends well and comes to what one without kills does.

    Raises:
        SystemExit: naming what differs.
    """
    if code := sweep.wait():
        raise SystemExit(f"{folder}: ended with exit code {code}: {folder.with_suffix('.log').read_text()}")
    found = content(folder)
    if odd := [name for name in {*whole, *found} if whole.get(name) != found.get(name)]:
        raise SystemExit(f"{folder}: differs from a sweep without kills in {sorted(odd)}")
    if pd.read_csv(folder / "results.csv").duplicated(["run", "silo"]).any():
        raise SystemExit(f"{folder}: a run is counted twice")


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill a sweep at random instants.")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    choice = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as place:
        scenario = write_scenario(Path(place))
        start(scenario, Path(place) / "whole").wait()
        whole = content(Path(place) / "whole")
        sweeps, killed = 1, list[str]()
        folder = Path(place) / "sweep-1"
        sweep = start(scenario, folder)
        while len(killed) < options.kills:
            if victim := kill_once(sweep, folder, choice):
                killed.append(victim)
            else:
                check(sweep, folder, whole)
                sweeps += 1
                folder = Path(place) / f"sweep-{sweeps}"
            if sweep.poll() is not None:
                sweep = start(scenario, folder)
        check(sweep, folder, whole)
    workers = killed.count("a worker")
    print(
        f"{len(killed)} kills, {workers} of workers, over {sweeps} sweeps of {len(whole) - 2} runs and 2 majorities: "
        "every table and every ledger is that of a sweep without kills."
    )


if __name__ == "__main__":
    main()
