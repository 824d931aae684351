"""The two apps that `flwr run .` loads, wired together without its processes."""

from pathlib import Path

import pytest
from flwr.app import Context, RecordDict
from safetensors.numpy import load_file

import server.app
import silos.app
from accounting import Ledger
from server import InProcessGrid


@pytest.mark.slow
def test_both_apps_run_a_shipped_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    from scenarios import load, prepare

    names = list(prepare(load("digits-dirichlet")).shards)
    grid = InProcessGrid(silos.app.app, names, run_config={"scenario": "digits-dirichlet"})
    context = Context(1, 0, {}, RecordDict(), {"scenario": "digits-dirichlet", "out": "out"})
    server.app.app(grid, context)
    rounds = load("digits-dirichlet").training.rounds
    assert load_file(tmp_path / "out" / "model.safetensors").keys()
    for position, name in enumerate(names):
        with Ledger.open(tmp_path / "ledgers" / f"silo-{position}.db", read_only=True) as ledger:
            assert ledger.silos() == [name]
            assert len(ledger.releases(name)) == rounds
