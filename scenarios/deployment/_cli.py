"""`silodp deploy`: a local deployment on Flower's SuperLink and SuperNodes."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from scenarios.deployment._deployed import DeployedProgress

deploy = typer.Typer(
    help="Deploy a scenario on this machine: a SuperLink, and a SuperNode a silo with its own law and ledger.",
    no_args_is_help=True,
)

Folder = Annotated[Path, typer.Argument(help="The deployment's folder, as init wrote it.")]


@deploy.command()
def init(
    scenario: Annotated[str, typer.Argument(help="The name of a shipped scenario, or a path to a TOML file.")],
    out: Annotated[Path, typer.Option(help="The deployment's folder, new or empty.")],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a key, as in training.rounds=5; repeatable."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Replaces the scenario's seed.")] = None,
    budget: Annotated[
        float | None, typer.Option(min=0, help="Epsilon of each silo over its lifetime; default: what one run takes.")
    ] = None,
    insecure_test_seed: Annotated[
        bool,
        typer.Option(
            "--insecure-test-seed", help="Draw noise from the seed, as a simulation does. No guarantee is left."
        ),
    ] = False,
) -> None:
    """Write a folder for the server and one for each silo: law, records, certificates, keys, start scripts."""
    from scenarios._console import print_plan
    from scenarios.deployment._deployments import make_deployment
    from scenarios.spec._load import load

    loaded = load(scenario, overrides or (), seed)
    made, plan = make_deployment(loaded, out, budget=budget, insecure_test_seed=insecure_test_seed)
    print_plan(plan)
    print(f"Written to {made.folder}. Next: silodp deploy up {out}")


@deploy.command()
def up(
    folder: Folder,
    port: Annotated[
        int | None,
        typer.Option(
            min=1, max=65000, help="Of the SuperLink; its SuperNodes take those after it. Default: free ones."
        ),
    ] = None,
    new_certificates: Annotated[
        bool, typer.Option("--new-certificates", help="Replace the certificates, as when they expired.")
    ] = False,
) -> None:
    """Start the SuperLink and the SuperNodes, or those of them that do not run, and wait until they are ready."""
    from scenarios.deployment._deployments import renew_certificates
    from server._deploy_folder import Deployment
    from server._deploy_up import down, up

    deployment = Deployment.read(folder)
    if new_certificates:
        down(deployment)
        renew_certificates(deployment)
    running = up(deployment, port=port)
    print(f"Up: the SuperLink at {running.address} and {len(running.silos)} SuperNodes.")


@deploy.command()
def run(
    folder: Folder,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the scenario; its data stay. Repeatable."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the last run that was stopped.")] = False,
) -> None:
    """Run the scenario on the SuperNodes, and price what their ledgers hold."""
    from scenarios._console import print_account
    from scenarios.deployment._deployments import run_on
    from server._deploy_folder import Deployment

    result = run_on(Deployment.read(folder), overrides or (), resume=resume, progress=_tell)
    print_account(result.price)
    if result.failures:
        print(f"{result.failures} times a silo that was asked is in no model.")
    print(f"Written to {result.folder}.")


@deploy.command()
def status(folder: Folder) -> None:
    """Show what runs, what the SuperLink hears of, and what each silo has spent."""
    from scenarios.deployment._status import print_status
    from server._deploy_folder import Deployment

    print_status(Deployment.read(folder))


@deploy.command()
def down(folder: Folder) -> None:
    """Stop all processes of the deployment; ledgers and runs stay."""
    from server._deploy_folder import Deployment
    from server._deploy_up import down

    print(f"Stopped {down(Deployment.read(folder))} processes.")


@deploy.command()
def approve(
    folder: Annotated[Path, typer.Argument(help="The silo's folder.")],
    app: Annotated[Path, typer.Argument(help="The app's bundle, a .fab file.")],
) -> None:
    """Let a silo's SuperNode run this app, in place of the one it ran before."""
    from accounting import InvalidValue
    from silos._supernode import approve

    try:
        print(f"Approved {approve(folder, app.read_bytes())}; the SuperNode runs it from its next start.")
    except OSError as error:
        raise InvalidValue(f"{error.filename}: {error.strerror}.") from error


def _tell(progress: "DeployedProgress") -> None:
    print(f"Round {progress.round} of {progress.rounds}, {progress.failures} failures.", file=sys.stderr)
