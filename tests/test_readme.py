"""Every command and every piece of code in the README runs as it stands."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    """The README's fenced blocks in a language."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


COMMANDS = [line for block in blocks("sh") for line in block.splitlines() if line]
SILODP = [command for command in COMMANDS if command.startswith("silodp ")]
MAKE = [command for command in COMMANDS if command.startswith("make ")]


def test_every_command_is_of_a_kind_that_is_tested() -> None:
    assert sorted(COMMANDS) == sorted(SILODP + MAKE)
    assert len(SILODP) >= 5


@pytest.mark.parametrize("command", MAKE)
def test_make_targets_exist_and_ci_runs_them(command: str) -> None:
    target = command.split()[1]
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert re.search(rf"^make {target}$", (ROOT / ".ci" / "run").read_text("utf-8"), re.MULTILINE)


def test_commands_run_in_order(tmp_path: Path) -> None:
    for command in SILODP:
        words = [sys.executable, "-m", "scenarios.cli", *shlex.split(command)[1:]]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        assert done.stdout.strip(), command
    assert (tmp_path / "runs" / "digits" / "report.html").exists()


@pytest.mark.parametrize("code", blocks("python"))
def test_python_blocks_run(code: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "epsilon" in done.stdout
