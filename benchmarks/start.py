"""How long the command line takes to answer."""

import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from sys import executable

from benchmarks.comparison import Comparison, seconds


def measure(repeats: int) -> Iterator[Comparison]:
    """All comparisons of the command line.

    Args:
        repeats: runs of each.
    """
    for command, bound in (("--help", 0.4), ("plan cps-regions", 3.0)):
        yield Comparison(
            work=f"silodp {command}",
            against=f"{bound} s",
            ours=[seconds(partial(_run, command)) for _ in range(repeats)],
            rival=[bound],
            target=1.0,
            most=True,
        )


def _run(command: str) -> None:
    silodp = Path(executable).with_name("silodp")
    subprocess.run([silodp, *command.split()], check=True, stdout=subprocess.DEVNULL)
