"""The Flower server app: what `flwr run .` starts for the server.

A composition root, and so the one module here that may import `scenarios`. The run config names the scenario
(``scenario``) and may say where the model goes (``out``, a folder).
"""

import logging
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from safetensors.numpy import save_file

from server import build_strategy, find_silos, run_rounds
from silos import build_model, weights_of

_LOG = logging.getLogger("flwr")

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds of a scenario over the silos that the grid has."""
    from scenarios import load, make_plan, prepare, public_sizes
    from scenarios._asked import check_deployable

    scenario = load(str(context.run_config["scenario"]))
    check_deployable(scenario)
    dataset = prepare(scenario)
    plan = make_plan(scenario, public_sizes(scenario, dataset))
    model = build_model(
        scenario.model.kind,
        input_shape=dataset.input_shape,
        outputs=dataset.outputs,
        hidden=scenario.model.hidden,
        activation=scenario.model.activation,
        seed=scenario.seed,
    )
    schedules = {part.silo: part.schedule for part in plan.silos}
    options = scenario.training.strategy.model_dump()
    weights = weights_of(model)
    for result in run_rounds(
        grid=grid,
        silos=find_silos(grid, list(schedules)),
        strategy=build_strategy(options.pop("name"), options),
        plan=lambda _: schedules,
        weights=weights,
        rounds=scenario.training.rounds,
        seed=str(scenario.seed),
    ):
        weights = result.weights
        _LOG.info("Round %d: %d silos replied.", result.round, len(result.replied))
        for silo, reason in result.failures.items():
            _LOG.warning("Round %d: silo %s: %s", result.round, silo, reason)
    folder = Path(str(context.run_config.get("out", ".")))
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors")
