"""The Flower server app: what `flwr run .` starts for the server.

A composition root, and so the one module here that may import `scenarios`. Keys of the run's config:

| key        | what it says                                                                                        |
|------------|-----------------------------------------------------------------------------------------------------|
| `scenario` | a shipped scenario's name, or a TOML file                                                           |
| `public`   | a file of what is public of the silos; without it, the server reads the scenario's data to find out |
| `run`      | the run's name, under which a run that stopped goes on; without it, Flower's number of the run      |
| `out`      | folder for the checkpoint and the model                                                             |
"""

import logging
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

_LOG = logging.getLogger("flwr")

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds of a scenario over the silos that the grid has."""
    from scenarios import load, prepare
    from scenarios._asked import check_deployable
    from scenarios.deployment._deployed import PublicFacts, run_deployed

    config = context.run_config
    scenario = load(str(config["scenario"]))
    check_deployable(scenario)
    public = str(config.get("public", ""))
    run_deployed(
        grid,
        scenario,
        PublicFacts.read(Path(public)) if public else PublicFacts.of(scenario, prepare(scenario)),
        run=str(config.get("run", "")) or str(context.run_id),
        folder=Path(str(config.get("out", "."))),
        log=_LOG.info,
    )
