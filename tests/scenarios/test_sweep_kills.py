"""A sweep that is killed, or runs on a Ray cluster: the same table. By hand, the script does 20 kills."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from scenarios import sweep

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_killed_sweep_comes_to_the_table_of_one_that_nobody_killed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.sweep_kills", "--kills", "3", "--seed", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("3 kills")


RAY = """
import sys
from scenarios import sweep

sweep(sys.argv[1], over={"epsilon": [1, 2]}, baselines=["majority"], out=sys.argv[2], jobs=2, ray="local")
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra ray")
def test_a_sweep_on_a_ray_cluster_is_the_one_of_this_machine(scenario_file: Path, tmp_path: Path) -> None:
    # In a process of its own: Ray's threads outlive it, and its imports warn.
    arguments = [str(scenario_file), str(tmp_path / "ray")]
    done = subprocess.run([sys.executable, "-c", RAY, *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    sweep(scenario_file, over={"epsilon": [1, 2]}, baselines=["majority"], out=tmp_path / "here", jobs=1)
    for name in ("results.csv", "results.parquet"):
        assert (tmp_path / "ray" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()
