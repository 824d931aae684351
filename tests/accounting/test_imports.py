"""`accounting` stands alone."""

import subprocess
import sys


def test_accounting_loads_no_training_library_and_no_other_folder() -> None:
    program = (
        "import sys, accounting; "
        "print(*sorted({'torch', 'flwr', 'opacus', 'silos', 'server', 'scenarios', 'dp_accounting', 'pandas'}"
        " & {name.partition('.')[0] for name in sys.modules}))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


def test_everything_public_is_there() -> None:
    program = "import accounting; [getattr(accounting, name) for name in accounting.__all__]; print(accounting.__doc__)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "Where to start" in found.stdout
