"""The table of a sweep: one row per run and silo.

| column                                 | what it is                                                              |
|----------------------------------------|-------------------------------------------------------------------------|
| `run`, `scenario`                      | names; the run's is its folder's                                        |
| `method`                               | the strategy, with its options where the sweep gave any, or a baseline  |
| `epsilon`                              | the target; inf without noise, empty where sigma was given instead      |
| `seed`                                 | of the run                                                              |
| one per other swept key, dotted        | its value                                                               |
| `silo`                                 | `all` is the federation                                                 |
| `records`                              | the silo's training records, which a simulation knows; `all`, their sum |
| `epsilon_spent`, `delta`               | by the ledger; pooled, the one trainer's for every silo                 |
| one per metric of the last round       | empty where it is not defined                                           |
"""

from pathlib import Path

import pandas as pd

from scenarios._errors import reading

SWEEP = "sweep.toml"
"""The scenario with its sweep, in the sweep's folder."""

RUNS = "runs"
"""The folder of the runs' folders, in the sweep's."""

ROWS = "rows.parquet"
"""The rows of a run in its folder; the last file that is written, so that a run with it is done."""


def to_csv(table: pd.DataFrame) -> bytes:
    """The table as CSV, every number with all of its digits."""
    return table.to_csv(index=False).encode()


def gather(folders: list[Path]) -> pd.DataFrame:
    """One table of the rows in these folders of runs, in their order; runs that are not done have none."""
    tables = [_rows(folder / ROWS) for folder in folders if (folder / ROWS).exists()]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def _rows(path: Path) -> pd.DataFrame:
    with reading(path):
        return pd.read_parquet(path)
