"""The report of sweeps and runs: one HTML page that needs no network, and its pictures and tables as files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from accounting import Guarantee
from scenarios._checkpoint import write_atomically
from scenarios._errors import RunError
from scenarios.reports._body import BODY
from scenarios.reports._findings import Headline, budget_table, headline_of, main_table, silo_table
from scenarios.reports._page import render_page
from scenarios.reports._pictures import Picture, pictures_of
from scenarios.reports._selection import Together, prices_of, selection_words
from scenarios.reports._study import Study, read_studies
from scenarios.reports._summary import said_of_seeds
from scenarios.reports._words import HeadlineWords, cells, comparison_words, headline_words, silo_cells

PAGE = "report.html"


@dataclass(frozen=True, kw_only=True)
class Section:
    """All that the page says of one study; the template names these."""

    study: Study
    prefix: str
    words: HeadlineWords
    together: Together
    selection: Sequence[str]
    comparisons: str
    guarantee: Guarantee | None
    pictures: Sequence[Picture]
    around: str
    table: pd.DataFrame
    columns: Sequence[str]
    rows: Sequence[Mapping[str, object]]
    silo_columns: Sequence[str]
    silo_rows: Sequence[Sequence[str]]


def write_report(folders: Sequence[Path], out: Path) -> Path:
    """Write the page, and each picture as PNG, SVG and CSV, into a folder.

    Args:
        folders: of sweeps or runs.
        out: made where it is missing; files of the same names are replaced.

    Returns:
        The page.

    Raises:
        RunError: for a folder that holds neither, or one that cannot be written.
    """
    sections = sections_of(folders)
    title = ", ".join(dict.fromkeys(section.study.name for section in sections))
    values = {"sections": sections, "command": "silodp report " + " ".join(map(str, folders))}
    files = {PAGE: render_page(BODY, title=title, values=values).encode()}
    for section in sections:
        files[f"{section.prefix}table.csv"] = section.table.to_csv(index=False).encode()
        for picture in section.pictures:
            files |= picture.files()
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            write_atomically(out / name, content)
    except OSError as error:
        raise RunError(f"{out}: cannot be written: {error.strerror}.") from error
    return out / PAGE


def sections_of(folders: Sequence[Path]) -> list[Section]:
    """All that the page says, its pictures not yet drawn.

    Raises:
        RunError: for a folder that holds neither a sweep nor a run.
    """
    studies = read_studies(folders)
    return [
        _section(study, price, f"{place}-" if place > 1 else "")
        for place, (study, price) in enumerate(zip(studies, prices_of(studies), strict=True), 1)
    ]


def _section(study: Study, together: Together, prefix: str) -> Section:
    headline = headline_of(study)
    table, silos = main_table(study), silo_table(study, headline)
    run = _dearest(study, headline)
    columns, rows = cells(study, table, headline)
    silo_columns, silo_rows = silo_cells(study, silos)
    spent = budget_table(study, run, together.guarantees())
    return Section(
        study=study,
        prefix=prefix,
        words=headline_words(study, headline, silos),
        together=together,
        selection=selection_words(headline, together),
        comparisons=comparison_words(study),
        guarantee=study.guarantee(run),
        pictures=pictures_of(study, headline, table, silos, spent, prefix),
        around=said_of_seeds(study.seeds),
        table=table,
        columns=columns,
        rows=rows,
        silo_columns=silo_columns,
        silo_rows=silo_rows,
    )


def _dearest(study: Study, headline: Headline) -> str:
    """Of the headline's runs, the one that spent most."""
    runs = study.at(headline.best.label, headline.epsilon)
    return str(runs.sort_values("epsilon_spent", ascending=False)["run"].iloc[0])
