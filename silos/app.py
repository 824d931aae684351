"""The Flower client app: what `flwr run .` starts for each silo.

A composition root, and so the one module here that may import `scenarios`. The node's config says which silo it is
(``silo``, or ``partition-id`` in Flower's own simulation) and where its ledger lies (``ledgers``, a folder). Noise
comes from the operating system, so that two runs of one scenario differ.
"""

from functools import cache
from pathlib import Path

from flwr.app import Context

from accounting import InvalidValue, Ledger
from silos import OpacusEngine, Silo, SystemStreams, build_model, client_app, silo_key


@cache
def _open(scenario_name: str, silo: str | int, folder: str, run: str) -> Silo:
    from scenarios import load, prepare
    from scenarios._asked import check_deployable

    scenario = load(scenario_name)
    check_deployable(scenario)
    dataset = prepare(scenario)
    name = silo if isinstance(silo, str) else list(dataset.shards)[silo]
    if name not in dataset.shards:
        raise InvalidValue(f"Unknown silo {name!r}; {scenario_name} has {', '.join(dataset.shards)}.")
    shape, outputs = dataset.input_shape, dataset.outputs
    model = build_model(
        scenario.model.kind,
        input_shape=shape,
        outputs=outputs,
        hidden=scenario.model.hidden,
        activation=scenario.model.activation,
        seed=scenario.seed,
    )
    Path(folder).mkdir(parents=True, exist_ok=True)
    position = list(dataset.shards).index(name)
    return Silo(
        run=run,
        shard=dataset.shards[name],
        engine=OpacusEngine(model, task=dataset.task, input_shape=shape, outputs=outputs),
        ledger=Ledger.open(Path(folder) / f"silo-{position}.db", create=True),
        streams=SystemStreams(),
        key=silo_key(Path(folder) / f"silo-{position}.key"),
    )


def _find(context: Context) -> Silo:
    silo = context.node_config.get("silo", context.node_config.get("partition-id"))
    if not isinstance(silo, str | int):
        raise InvalidValue("The node's config must say which silo it is, as in --node-config 'silo=\"North\"'.")
    folder = str(context.node_config.get("ledgers", "ledgers"))
    return _open(str(context.run_config["scenario"]), silo, folder, str(context.run_id))


app = client_app(_find)
