"""A comparison: our times and a rival's, taken in turn, and the ratio that they have to reach."""

import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
_LIBRARIES = ("flwr", "numpy", "opacus", "torch")


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What was measured for one line of the table.

    Args:
        work: what was done.
        against: the rival, or what is compared with what.
        ours: seconds of each run, or megabytes where `unit` says so.
        rival: the same of the rival; a single number where the rival is a fixed bound.
        target: what `ratio` has to reach; None where it is only reported.
        most: whether the target is a most instead of a least.
        unit: of both.
    """

    work: str
    against: str
    ours: Sequence[float]
    rival: Sequence[float]
    target: float | None
    most: bool = False
    unit: str = "s"

    @property
    def ratio(self) -> float:
        """How many times faster we are; with `most`, how many times the rival's number ours is."""
        faster = median(self.rival) / median(self.ours)
        return 1 / faster if self.most else faster

    @property
    def reached(self) -> bool:
        """Whether the target, if any, is reached."""
        if self.target is None:
            return True
        return self.ratio <= self.target if self.most else self.ratio >= self.target


def in_turn(repeats: int, *runs: Callable[[], float]) -> list[list[float]]:
    """Numbers of each run, `repeats` times one after the other, so that a busy moment hits all of them."""
    rows = [[run() for run in runs] for _ in range(repeats)]
    return [list(column) for column in zip(*rows, strict=True)]


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def run_script(*arguments: str, python: str = sys.executable) -> dict[str, float]:
    """Run a script that prints its numbers as JSON on its last line; `process_seconds` is the time of all of it."""
    quiet = {
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "RAY_DEDUP_LOGS": "0",
        "PYTHONWARNINGS": "ignore",
        "PATH": "/usr/bin:/bin",
        "HOME": str(Path.home()),
        "OMP_NUM_THREADS": "1",
    }
    began = time.perf_counter()
    done = subprocess.run([python, *arguments], cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    elapsed = time.perf_counter() - began
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)} failed:\n{done.stderr[-3000:]}")
    return {**json.loads(done.stdout.strip().splitlines()[-1]), "process_seconds": elapsed}


def to_json(comparisons: Sequence[Comparison]) -> str:
    """Everything that was measured, and on what."""
    machine = {
        "machine": platform.machine(),
        "python": platform.python_version(),
        **{name: version(name) for name in _LIBRARIES},
    }
    rows = [{**asdict(one), "ratio": one.ratio, "reached": one.reached} for one in comparisons]
    return json.dumps({"on": machine, "comparisons": rows}, indent=1)
