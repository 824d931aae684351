"""The two apps that `flwr run .` loads, wired together without its processes."""

from pathlib import Path

import pytest
from flwr.app import Context, Message, RecordDict
from safetensors.numpy import load_file

import server.app
import silos.app
from accounting import LAW_CHAIN, Ledger
from server import InProcessGrid


@pytest.mark.slow
def test_both_apps_run_a_shipped_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    from scenarios import load, prepare

    names = list(prepare(load("digits-dirichlet")).shards)

    def numbered(message: Message, context: Context) -> Message:
        context.node_config = {"partition-id": context.node_id - 1}
        return silos.app.app(message, context)

    grid = InProcessGrid(numbered, names, run_config={"scenario": "digits-dirichlet"})  # type: ignore[arg-type]
    context = Context(1, 0, {}, RecordDict(), {"scenario": "digits-dirichlet", "out": "out"})
    server.app.app(grid, context)
    rounds = load("digits-dirichlet").training.rounds
    assert load_file(tmp_path / "out" / "model.safetensors").keys()
    for position, name in enumerate(names):
        place = tmp_path / "ledgers" / f"digits-dirichlet-{position}" / "ledger.db"
        with Ledger.open(place, read_only=True) as ledger:
            assert ledger.silos() == [name, name + LAW_CHAIN]
            assert len(ledger.releases(name)) == rounds
