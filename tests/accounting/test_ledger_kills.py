"""A ledger whose writer is killed; the script does 200 kills when run by hand."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_killed_writer_leaves_a_ledger_that_opens_verifies_and_lost_nothing():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.ledger_kills", "--kills", "6", "--seed", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "6 kills" in done.stdout
