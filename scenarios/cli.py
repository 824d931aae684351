"""The command line: a thin layer over `scenarios` and `accounting`.

Exit codes: 0 done, 1 an unexpected failure, 2 bad input (one message, nothing written), 130 interrupted. Everything
heavy is imported inside the commands, so that help answers at once.
"""

import json
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from scenarios.deployment._cli import deploy
from scenarios.reports._cli import register

# Before numpy is loaded: its thread pools slow the small arrays of accounting down, by up to twenty times.
os.environ.setdefault("OMP_NUM_THREADS", "1")

app = typer.Typer(
    name="silodp",
    help="Federated learning across silos under differential privacy, with a guarantee that is right.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

app.add_typer(deploy, name="deploy")

Scenario = Annotated[str, typer.Argument(help="The name of a shipped scenario, or a path to a TOML file.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a key, as in training.rounds=5; repeatable."),
]
Seed = Annotated[int | None, typer.Option(min=0, help="Replaces the scenario's seed.")]


class Grid(StrEnum):
    """Where the silos of a run are."""

    IN_PROCESS = "in-process"
    RAY = "ray"


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


@app.command()
def run(
    scenario: Scenario,
    overrides: Overrides = None,
    seed: Seed = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the results; default runs/NAME-seedN.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped.")] = False,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Processes that train; default: one a core where that is faster. Changes no result."),
    ] = None,
    grid: Annotated[
        Grid, typer.Option(help="Where the silos are: in this process, or in those of a Ray cluster.")
    ] = Grid.IN_PROCESS,
    ray_address: Annotated[
        str | None, typer.Option(help="With --grid ray: a running cluster; default: RAY_ADDRESS, else one starts here.")
    ] = None,
) -> None:
    """Run a scenario and price it."""
    from scenarios._console import print_result, watch
    from scenarios._runner import default_folder
    from scenarios._runner import run as run_scenario
    from scenarios.spec._load import load

    loaded = load(scenario, overrides or (), seed)
    with watch(loaded) as progress:
        result = run_scenario(
            loaded,
            out=out or default_folder(loaded),
            resume=resume,
            workers=workers,
            grid=grid.value,
            ray_address=ray_address,
            progress=progress,
        )
    print_result(result)


@app.command()
def sweep(
    scenario: Scenario,
    over: Annotated[
        list[str] | None,
        typer.Option(
            "--over",
            metavar="KEY=VALUE,VALUE",
            help="Values of a key, as in epsilon=0.5,1,2 or strategy=fedavg,mr-mtl:pull=0.1; repeatable. "
            "Takes the place of what the scenario's sweep section says.",
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Seeds of each combination, from the scenario's on.")] = None,
    baselines: Annotated[
        str | None, typer.Option(metavar="NAME,NAME", help="Any of no-privacy, alone, pooled and majority.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the results; default runs/NAME-sweep.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; default: one a core.")] = None,
    ray: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Run on a Ray cluster; local starts one. Needs the extra ray.")
    ] = None,
    overrides: Overrides = None,
    seed: Seed = None,
) -> None:
    """Run a scenario over values, seeds and baselines; the same command goes on with one that was stopped."""
    from scenarios.spec._load import load
    from scenarios.sweeps._console import print_sweep, watch_sweep
    from scenarios.sweeps._runs import parse_over
    from scenarios.sweeps._sweep import default_sweep_folder, resolve, run_sweep

    values = parse_over(over) if over is not None else None
    names = baselines.split(",") if baselines is not None else None
    resolved = resolve(load(scenario, overrides or (), seed), values, seeds, names)
    folder = out or default_sweep_folder(resolved)
    with watch_sweep(resolved.name) as progress:
        failed = run_sweep(resolved, folder, jobs=jobs, ray=ray, progress=progress)
    print_sweep(folder, failed)
    if failed:
        raise typer.Exit(1)


register(app)


@app.command(name="list")
def list_scenarios(as_json: AsJson = False) -> None:
    """List the scenarios that ship with silodp."""
    from scenarios._console import print_scenarios
    from scenarios.spec._load import load, names

    shipped = [load(name) for name in names()]
    if as_json:
        print(json.dumps([{"name": each.name, "description": each.description} for each in shipped], indent=2))
    else:
        print_scenarios(shipped)


@app.command()
def show(scenario: Scenario, overrides: Overrides = None, seed: Seed = None, as_json: AsJson = False) -> None:
    """Show a scenario with every default filled in, and its plan."""
    from scenarios._console import print_shown
    from scenarios._plan import make_plan
    from scenarios.data._dataset import prepare, public_sizes
    from scenarios.spec._load import load

    loaded = load(scenario, overrides or (), seed)
    plan = make_plan(loaded, public_sizes(loaded, prepare(loaded)))
    if as_json:
        print(
            json.dumps(
                {"scenario": loaded.model_dump(mode="json", exclude_none=True), "plan": plan.to_json()}, indent=2
            )
        )
    else:
        print_shown(loaded, plan)


@app.command()
def plan(
    scenario: Scenario,
    overrides: Overrides = None,
    seed: Seed = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw epsilon by round, by each method, to a file (.svg, .png or .pdf).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Price a scenario before it runs: every silo, every method, and how many rounds the budget affords."""
    from scenarios._console import print_ladder, print_plan
    from scenarios._plan import make_plan
    from scenarios._plan_questions import affordable_rounds, methods_by_round, planned_federation, sampling_compared
    from scenarios.data._dataset import prepare, public_sizes
    from scenarios.spec._load import load

    loaded = load(scenario, overrides or (), seed)
    made = make_plan(loaded, public_sizes(loaded, prepare(loaded)))
    rungs = planned_federation(loaded, made, loaded.training.rounds).ladder(made.delta)
    rounds = affordable_rounds(loaded, made)
    if plot is not None:
        from scenarios.reports import _plots

        _plots.save_figure(_plots.methods_by_round(methods_by_round(loaded, made), loaded.privacy.epsilon), plot)
    if as_json:
        answer = made.to_json() | {"ladder": [rung.to_json() for rung in rungs], "affordable_rounds": rounds}
        answer["sampling"] = sampling_compared(made)
        print(json.dumps(answer, indent=2))
        return
    print_plan(made)
    print_ladder(rungs)
    if (compared := sampling_compared(made)) is not None:
        print(compared)
    if rounds is not None:
        print(f"At this noise, epsilon = {loaded.privacy.epsilon:g} affords {rounds} rounds.")


@app.command()
def account(
    ledgers: Annotated[
        list[Path] | None, typer.Argument(help="Ledger files, or folders that hold a ledger.db.")
    ] = None,
    events: Annotated[Path | None, typer.Option(help="An events file, for releases made elsewhere.")] = None,
    delta: Annotated[
        float | None, typer.Option(help="Answer with epsilon at this delta; default: the run's own, else 1e-5.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Answer with delta at this epsilon.")] = None,
    relation: Annotated[
        str | None, typer.Option(help="Neighbouring relation; default: the one the ledger fixed.")
    ] = None,
    membership: Annotated[
        str | None, typer.Option(help="disjoint, at-most:M or unknown; default: the one the ledger fixed.")
    ] = None,
    method: Annotated[str, typer.Option(help="auto, pld or rdp.")] = "auto",
    as_json: AsJson = False,
) -> None:
    """Price what ledgers hold, or an events file."""
    from scenarios._account import account_events, account_ledgers
    from scenarios._console import print_account

    if (events is None) == (not ledgers):
        raise typer.BadParameter("give either ledgers or --events FILE")
    if events is not None:
        answer = account_events(events, method=method)
    else:
        answer = account_ledgers(
            ledgers or [], delta=delta, epsilon=epsilon, relation=relation, membership=membership, method=method
        )
    if as_json:
        print(json.dumps(answer, indent=2))
    else:
        print_account(answer)


@app.command()
def overlap(
    files: Annotated[list[Path], typer.Argument(help="Files of hashed ids, one a silo (see --hash).")],
    hash_ids: Annotated[
        str | None,
        typer.Option(
            "--hash", metavar="SILO", help="Write hashed ids of this silo: FILES are a list of ids and the output."
        ),
    ] = None,
    key_file: Annotated[
        Path | None, typer.Option(help="With --hash: the secret that all silos share and the server does not hold.")
    ] = None,
    membership: Annotated[str, typer.Option(help="What is declared: disjoint, at-most:M or unknown.")] = "disjoint",
    as_json: AsJson = False,
) -> None:
    """Check a declared membership from hashed ids. The counts are private: they stay with whoever runs this."""
    from scenarios._account import check_overlap, export_ids
    from scenarios._console import print_overlap

    if hash_ids is not None:
        if len(files) != 2 or key_file is None:
            raise typer.BadParameter("--hash SILO needs --key-file FILE and two files: ids, one a line, and the output")
        export_ids(hash_ids, files[0], files[1], key_file)
        return
    answer = check_overlap(files, membership)
    if as_json:
        print(json.dumps(answer, indent=2))
    else:
        print_overlap(answer)
    if answer["violations"]:
        raise typer.Exit(1)


def main() -> None:
    """Entry point: expected errors become one message and exit code 2."""
    try:
        app()
    except Exception as error:  # narrowed below: naming the class here would load numpy before help is printed
        from accounting import SilodpError

        if not isinstance(error, SilodpError):
            raise
        print(f"silodp: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
