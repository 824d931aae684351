"""The commands that read results: `silodp report` and `silodp compare`."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of sweeps or runs.")],
    out: Annotated[Path | None, typer.Option(help="Folder for the page and pictures; default DIR/report.")] = None,
) -> None:
    """Tell what sweeps and runs found: one HTML page, and each picture as PNG, SVG and CSV."""
    from scenarios.reports._sweep_report import write_report

    print(f"Written: {write_report(folders, out or folders[0] / 'report')}")


def compare(
    a: Annotated[str, typer.Argument(help="A folder of a sweep or run, or FOLDER:METHOD for one method of it.")],
    b: Annotated[str, typer.Argument(help="What to compare with it.")],
    csv: Annotated[Path | None, typer.Option(help="Write the table, all digits, to a file as well.")] = None,
) -> None:
    """Compare two runs, sweeps or methods: differences between runs of the same seed and epsilon."""
    from scenarios.reports._compare import compare as compared
    from scenarios.reports._compare_console import print_comparison, write_csv

    table = compared(a, b)
    print_comparison(a, b, table)
    if csv is not None:
        write_csv(table, csv)


def register(app: typer.Typer) -> None:
    """Give the command line these commands."""
    app.command()(report)
    app.command()(compare)
