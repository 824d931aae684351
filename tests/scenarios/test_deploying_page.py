"""The commands of docs/deploying.md; `test_deployment_network` runs those that start processes."""

import re
import shlex
from pathlib import Path

import pytest
from deploying_page import PAGE, blocks, shell_commands
from typer.testing import CliRunner

from scenarios import load
from scenarios.cli import app

DEPLOY = ["init", "up", "status", "run", "account", "down"]


def test_the_page_begins_with_the_commands_that_the_network_tests_run() -> None:
    first = shell_commands()[: len(DEPLOY)]
    assert [next(word for word in line.split()[1:] if word != "deploy") for line in first] == DEPLOY


def test_overlap_commands_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("key").write_bytes(bytes(range(32)))
    Path("north-ids.txt").write_text("ann\nbob\n")
    Path("south-ids.txt").write_text("eve\n")
    commands = [line for line in shell_commands() if line.startswith("silodp overlap")]
    assert len(commands) == 3
    for command in commands:
        done = CliRunner().invoke(app, shlex.split(command)[1:], catch_exceptions=False)
        assert done.exit_code == 0, command
    assert "'disjoint' holds" in done.output


def test_every_shell_command_is_run_by_some_test() -> None:
    rest = shell_commands()[len(DEPLOY) :]
    assert all(line.startswith("silodp overlap") for line in rest)


def test_inline_commands_and_their_flags_exist() -> None:
    named = set(re.findall(r"`(?:silodp )?deploy (\w+)", PAGE)) | set(re.findall(r"`(up|run|init|down)\b", PAGE))
    for command in sorted(named):
        assert CliRunner().invoke(app, ["deploy", command, "--help"]).exit_code == 0, command
    for command, flag in (("init", "--insecure-test-seed"), ("up", "--new-certificates"), ("run", "--resume")):
        assert f"{command} {flag}" in PAGE
        assert flag in CliRunner().invoke(app, ["deploy", command, "--help"], env={"COLUMNS": "200"}).output


def test_the_deployment_section_loads_and_shows_the_defaults(scenario_file: Path) -> None:
    (section,) = [block for block in blocks("toml") if "[deployment]" in block]
    before = load(scenario_file).deployment
    scenario_file.write_text(scenario_file.read_text("utf-8") + "\n" + section, "utf-8")
    assert load(scenario_file).deployment == before
