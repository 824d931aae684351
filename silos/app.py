"""The Flower client app: what a SuperNode starts for each message, and `flwr run .` for each silo.

A composition root, and so the one module here that may import `scenarios`. The node's config says where the silo lives
(``silo-folder``); everything else stands in that folder, above all the law that the silo keeps, whatever the run's
config says (`silos._law`). Where Flower's own simulation gives a number instead (``partition-id``), the folder is made
from the run's scenario, in ``ledgers``.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from flwr.app import Context

from accounting import InvalidValue
from silos import Silo, client_app
from silos._deployed import open_silo
from silos._folder import SiloFolder
from silos._law import LAW, Law


def _find(context: Context) -> Silo:
    folder = context.node_config.get("silo-folder")
    place = Path(str(folder)) if folder is not None else _prototype(context)
    law = SiloFolder(place).law()
    run = str(context.run_config.get("run", "")) or str(context.run_id)
    asked_by = {
        "server": law.server,
        "scenario": str(context.run_config.get("scenario", ""))[:200],
        "flower run": str(context.run_id),
        "flower node": str(context.node_id),
    }
    return _open(place, law.to_toml(), run, tuple(asked_by.items()))


@cache
def _open(folder: Path, law: str, run: str, asked_by: tuple[tuple[str, str], ...]) -> Silo:
    from scenarios.deployment._silo_data import read_silo_data

    kept = Law.parse(law)
    shard, held_out = read_silo_data(folder, kept)
    return open_silo(folder, kept, shard, held_out, run=run, asked_by=dict(asked_by))


def _prototype(context: Context) -> Path:
    """The folder of a silo of Flower's own simulation."""
    place, folder = context.node_config.get("partition-id"), str(context.node_config.get("ledgers", "ledgers"))
    if not isinstance(place, int):
        raise InvalidValue(
            "The node's config must say where the silo lives, as in --node-config 'silo-folder=\"north\"'."
        )
    return _prototypes(str(context.run_config["scenario"]), folder)[place]


@cache
def _prototypes(name: str, folder: str) -> Mapping[int, Path]:
    """Folders of a scenario's silos without a limit on their budgets, made where they are not there yet."""
    from scenarios import load, make_plan, prepare, public_sizes
    from scenarios.deployment._silo_folders import laws_of, write_silo_folder

    scenario = load(name)
    dataset = prepare(scenario)
    laws = laws_of(scenario, dataset, make_plan(scenario, public_sizes(scenario, dataset)), budget=float("inf"))
    found: dict[int, Path] = {}
    for place, law in enumerate(laws.values()):
        found[place] = Path(folder) / f"{scenario.name}-{place}"
        found[place].mkdir(mode=0o700, parents=True, exist_ok=True)
        with SiloFolder(found[place]).locked():
            if not (found[place] / LAW).exists():
                write_silo_folder(found[place], law, dataset)
    return found


app = client_app(_find)
