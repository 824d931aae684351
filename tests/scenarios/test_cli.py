"""The command line: bad input is one message and exit code 2, with nothing written; answers come as JSON too."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from accounting import Gaussian, Ledger
from scenarios import load
from scenarios.cli import main


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """Run the command line in this process; the exit code."""
    monkeypatch.setattr(sys, "argv", ["silodp", *words])
    with pytest.raises(SystemExit) as stopped:
        main()
    return int(stopped.value.code or 0)


MIXING_MODEL = """
from torch import nn

def model(*, input_shape, outputs):
    return nn.Sequential(nn.Linear(input_shape[0], 4), nn.BatchNorm1d(4), nn.Linear(4, outputs))

def broken(**_):
    raise RuntimeError("out of luck")
"""


BAD = {
    "unknown key": ("training.rouds=3", "did you mean 'rounds'"),
    "unknown section": ("trainin.rounds=3", "training"),
    "epsilon of zero": ("privacy.epsilon=0", "privacy.epsilon"),
    "negative epsilon": ("privacy.epsilon=-1", "privacy.epsilon"),
    "nan epsilon": ("privacy.epsilon=nan", "privacy.epsilon"),
    "delta of one": ("privacy.delta=1", "privacy.delta"),
    "delta of zero": ("privacy.delta=0", "privacy.delta"),
    "unknown relation": ("privacy.relation=add", "add-or-remove-one"),
    "rate above one": ("training.sampling_rate=1.5", "training.sampling_rate"),
    "rate of zero": ("training.sampling_rate=0", "training.sampling_rate"),
    "batch above the smallest silo": ("training.expected_batch=100", "west"),
    "no rounds": ("training.rounds=0", "training.rounds"),
    "clip of zero": ("training.clip_norm=0", "training.clip_norm"),
    "unknown strategy": ("training.strategy.name=fedfoo", "fedavg"),
    "missing label column": ("data.label.column=ill", "sick"),
    "label that is an input": ("data.label.column=dose", "label"),
    "missing silo column": ("silos.column=clinic", "hospital"),
    "silo without records": ("privacy.silos.east.epsilon=1", "west"),
    "silo of one record": ("silos.column=id", "at least"),
    "unknown source": ("data.source=ftp:people", "csv"),
    "missing file": ("data.source=csv:nobody.csv", "nobody.csv"),
    "sizes not declared": ("privacy.relation=add-or-remove-one", "declared_size"),
    "model that mixes records": ("model.kind=batch_normalised:model", "BatchNorm1d"),
    "model that is not there": ("model.kind=nowhere:model", "nowhere"),
    "model that raises": ("model.kind=batch_normalised:broken", "out of luck"),
    "two columns of one name": ("data.source=csv:twice.csv", "two columns have one name"),
    "silo by the federation's word": ("data.source=csv:all.csv", 'named "all"'),
    "too many rounds": ("training.rounds=1000000000000", "100000"),
    "bounds too far apart": ("data.features.age={low=-1e308, high=1e308}", "1.8e308"),
    "no equals sign": ("training.rounds", "key=value"),
    "negative seed": ("seed=-1", "seed"),
}


@pytest.mark.parametrize(("override", "told"), BAD.values(), ids=BAD)
def test_a_bad_scenario_is_one_message_and_writes_nothing(
    override: str, told: str, scenario_file: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    (tmp_path / "batch_normalised.py").write_text(MIXING_MODEL)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(scenario_file.parent)
    table = Path("people.csv").read_text()
    Path("all.csv").write_text(table.replace("west", "all"))
    Path("twice.csv").write_text(table.replace("dose", "age", 1))
    assert call(monkeypatch, "run", str(scenario_file), "--set", override, "--out", str(tmp_path / "run")) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Traceback" not in printed.err
    assert len(printed.err.splitlines()) <= 20
    assert re.search(told, printed.err), printed.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("value", [np.nan, 2])
def test_a_bad_label_names_its_column(value: float, scenario_file: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    table = pd.read_csv(scenario_file.parent / "people.csv").astype({"sick": float})
    table.loc[3, "sick"] = value
    table.to_csv(scenario_file.parent / "people.csv", index=False)
    text = scenario_file.read_text().replace(", positive = 1", "")
    scenario_file.write_text(text)
    assert call(monkeypatch, "run", str(scenario_file), "--out", str(tmp_path / "run")) == 2
    error = capsys.readouterr().err
    assert "sick" in error
    line = text.splitlines().index('label = { column = "sick" }') + 1
    assert f"{scenario_file}:{line}" in error
    assert not (tmp_path / "run").exists()


def test_show_and_plan_answer_in_json(scenario_file: Path, monkeypatch, capsys) -> None:
    assert call(monkeypatch, "show", str(scenario_file), "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["scenario"]["training"]["momentum"] == 0.0
    assert call(monkeypatch, "plan", str(scenario_file), "--json") == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["silos"] == shown["plan"]["silos"]
    assert planned["affordable_rounds"] == 4
    epsilons = [rung["epsilon"] for rung in planned["ladder"]]
    assert planned["ladder"][0]["method"] == "parallel"
    assert epsilons == sorted(epsilons)
    assert epsilons[0] == pytest.approx(planned["epsilon"])


def test_what_show_prints_loads_as_the_same_scenario(scenario_file: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    assert call(monkeypatch, "show", str(scenario_file)) == 0
    shown = capsys.readouterr().out
    assert "# Sizes: " in shown
    (tmp_path / "shown.toml").write_text(shown)
    assert load(tmp_path / "shown.toml") == load(scenario_file)


def test_plan_draws_a_plot(scenario_file: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    assert call(monkeypatch, "plan", str(scenario_file), "--plot", str(tmp_path / "plan.svg")) == 0
    assert "<svg" in (tmp_path / "plan.svg").read_text()
    assert "affords 4 rounds" in capsys.readouterr().out
    assert call(monkeypatch, "plan", str(scenario_file), "--plot", str(tmp_path / "plan.nothing")) == 2


def test_small_silos_for_their_delta_are_warned_of(scenario_file: Path, monkeypatch, capsys) -> None:
    assert call(monkeypatch, "plan", str(scenario_file), "--set", "privacy.delta=0.02") == 0
    assert "at least 1/n" in capsys.readouterr().out


def test_account_answers_a_run_by_its_own_terms(scenario_file: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    folder = str(tmp_path / "run")
    assert call(monkeypatch, "run", str(scenario_file), "--out", folder) == 0
    capsys.readouterr()
    assert call(monkeypatch, "account", folder, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    written = json.loads((tmp_path / "run" / "guarantee.json").read_text())
    assert {key: answer[key] for key in written} == written
    assert call(monkeypatch, "account", folder, "--epsilon", str(answer["epsilon"]), "--json") == 0
    assert json.loads(capsys.readouterr().out)["delta"] == pytest.approx(1e-3, rel=0.02)
    assert call(monkeypatch, "account", folder, "--relation", "add-or-remove-one") == 2
    assert "sizes are public" in capsys.readouterr().err
    assert call(monkeypatch, "account", folder, "--membership", "unknown", "--delta", "1e-3", "--json") == 0
    assert json.loads(capsys.readouterr().out)["epsilon"] > 1.3 * answer["epsilon"]


def test_account_asks_for_a_delta_where_the_runs_have_different_ones(
    scenario_file: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    folders = [str(tmp_path / name) for name in ("one", "other")]
    for folder, delta in zip(folders, ("1e-3", "1e-4"), strict=True):
        words = ["--set", f"privacy.delta={delta}", "--set", "training.rounds=1", "--out", folder]
        assert call(monkeypatch, "run", str(scenario_file), *words) == 0
    capsys.readouterr()
    assert call(monkeypatch, "account", *folders) == 2
    assert "--delta" in capsys.readouterr().err


def test_account_names_a_folder_inside_that_has_a_ledger(
    scenario_file: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    folder = tmp_path / "sweep" / "runs" / "one"
    assert call(monkeypatch, "run", str(scenario_file), "--set", "training.rounds=1", "--out", str(folder)) == 0
    capsys.readouterr()
    assert call(monkeypatch, "account", str(tmp_path / "sweep")) == 2
    assert f"such as {folder}." in capsys.readouterr().err


def test_a_file_is_no_folder_and_no_shipped_scenario(scenario_file: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(scenario_file.parent)
    assert call(monkeypatch, "run", "hospitals.toml", "--out", "people.csv") == 2
    assert "people.csv: is a file" in capsys.readouterr().err
    Path("plain").write_text(scenario_file.read_text())
    assert call(monkeypatch, "show", "plain") == 2
    assert "./plain" in capsys.readouterr().err
    assert call(monkeypatch, "show", "./plain") == 0


FIXED = {"relation": "add-or-remove-one", "unit": "record", "participation": "fixed"}
WIDER = ["disjoint", "at-most:2", "at-most:3", "unknown"]


@pytest.mark.parametrize("kept", WIDER)
@pytest.mark.parametrize("asked", WIDER)
def test_account_takes_no_membership_narrower_than_the_ledger_fixed(
    tmp_path: Path, monkeypatch, capsys, kept: str, asked: str
) -> None:
    with Ledger.open(tmp_path / "ledger.db", create=True) as ledger:
        for silo in ("north", "south"):
            for name, value in (FIXED | {"membership": kept}).items():
                ledger.fix(silo, name, value)
            ledger.charge(
                silo=silo,
                run="r",
                round=1,
                attempt=0,
                item="update",
                mechanism=Gaussian(noise_multiplier=9),
                request="q",
            )
    narrower = WIDER.index(asked) < WIDER.index(kept)
    code = call(monkeypatch, "account", str(tmp_path), "--membership", asked, "--json")
    said = capsys.readouterr()
    assert code == (2 if narrower else 0)
    if narrower:
        assert f"kept under the membership {kept}" in " ".join(said.err.split())
        assert said.out == ""


def test_account_answers_an_events_file(tmp_path: Path, monkeypatch, capsys) -> None:
    # Gaussians add up in squares: 100 steps of sigma 20 are one of sigma 2.
    silos = {
        "a": [{"mechanism": "gaussian", "noise_multiplier": 20.0, "steps": 100}],
        "b": [{"mechanism": "gaussian", "noise_multiplier": 3.0}],
    }
    events = {"relation": "add-or-remove-one", "delta": 1e-5, "silos": silos, "membership": {"kind": "disjoint"}}
    (tmp_path / "events.json").write_text(json.dumps(events))
    assert call(monkeypatch, "account", "--events", str(tmp_path / "events.json"), "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    events["silos"] = {"a": [{"mechanism": "gaussian", "noise_multiplier": 2.0}]}
    (tmp_path / "one.json").write_text(json.dumps(events))
    assert call(monkeypatch, "account", "--events", str(tmp_path / "one.json"), "--json") == 0
    assert answer["epsilon"] == pytest.approx(json.loads(capsys.readouterr().out)["epsilon"], rel=1e-3)
    assert answer["worst"] == ["a"]
    (tmp_path / "events.json").write_text("{")
    assert call(monkeypatch, "account", "--events", str(tmp_path / "events.json")) == 2
    assert "events.json" in capsys.readouterr().err


def test_overlap_finds_whom_a_declaration_leaves_out(tmp_path: Path, monkeypatch, capsys) -> None:
    key = tmp_path / "key"
    key.write_bytes(bytes(range(32)))
    for silo, ids in (("north", "ann\nbob\n"), ("south", "bob\neve\n")):
        (tmp_path / f"{silo}.txt").write_text(ids)
        words = ["--hash", silo, "--key-file", str(key), str(tmp_path / f"{silo}.txt"), str(tmp_path / f"{silo}.ids")]
        assert call(monkeypatch, "overlap", *words) == 0
        assert "bob" not in (tmp_path / f"{silo}.ids").read_text()
    files = [str(tmp_path / "north.ids"), str(tmp_path / "south.ids")]
    assert call(monkeypatch, "overlap", *files, "--json") == 1
    assert json.loads(capsys.readouterr().out)["most_silos"] == 2
    assert call(monkeypatch, "overlap", *files, "--membership", "at-most:2") == 0
    assert call(monkeypatch, "overlap", *files, "--membership", "some") == 2


def test_a_plan_needs_no_library_that_trains_draws_or_talks(scenario_file: Path) -> None:
    code = (
        "import sys; from scenarios.cli import app; app(sys.argv[1:], standalone_mode=False); "
        "print(*sorted({'torch', 'opacus', 'flwr', 'sklearn', 'matplotlib', 'scipy.stats'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "plan", str(scenario_file)], capture_output=True, text=True, check=True
    )
    assert "parallel" in done.stdout
    assert done.stdout.splitlines()[-1] == ""


def test_help_loads_nothing_heavy() -> None:
    code = "import sys, scenarios.cli; print(*sorted({'torch', 'flwr', 'pandas', 'scipy', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
