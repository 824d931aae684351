"""A ledger whose writer is killed; the script does 200 kills when run by hand."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "ledger_kills.py"


def test_a_killed_writer_leaves_a_ledger_that_opens_verifies_and_lost_nothing():
    done = subprocess.run(
        [sys.executable, SCRIPT, "--kills", "6", "--seed", "1"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "6 kills" in done.stdout
