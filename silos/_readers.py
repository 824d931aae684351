"""Readers of a silo's own data: a table becomes named columns of equal length.

A missing value is None or nan in a column, never a guess; text stays text until a public rule says what it is.
"""

import csv
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from silos._errors import DataUnreadable

Columns = Mapping[str, NDArray[np.generic]]
"""Column name to values; the first axis of each is the records."""


def read_csv(path: Path, *, missing: Sequence[str] = ("",), names: Sequence[str] | None = None) -> Columns:
    """Read a CSV file, every value as text: an id of ``007`` is not 7.

    Args:
        path: the file, UTF-8.
        missing: the words that mean a missing value, after surrounding spaces are taken off.
        names: names of the columns of a file that has no header.

    Raises:
        DataUnreadable: where the file is absent or is no CSV with a header.
    """
    try:
        table = pd.read_csv(
            path,
            dtype=str,
            keep_default_na=False,
            skipinitialspace=True,
            header=None if names else "infer",
            names=list(names) if names else None,
            index_col=False,
        )
    except (OSError, ValueError) as error:
        raise DataUnreadable(f"{path}: cannot be read as CSV: {error}") from None
    if names is None and len(set(header := _header(path))) < len(header):
        raise DataUnreadable(f"{path}: two columns have one name; the header is {', '.join(header)}.")
    texts = {str(name): table[name].to_numpy(dtype=object) for name in table.columns}
    return {name: np.array([_present(text, missing) for text in texts[name]], dtype=object) for name in texts}


def _header(path: Path) -> list[str]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return [name.strip() for name in next(csv.reader(file), [])]


def _present(text: object, missing: Sequence[str]) -> str | None:
    stripped = text.strip() if isinstance(text, str) else ""
    return None if stripped in missing else stripped


def read_parquet(path: Path) -> Columns:
    """Read a Parquet file.

    Raises:
        DataUnreadable: where the file is absent or is no Parquet file.
    """
    try:
        table = pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise DataUnreadable(f"{path}: cannot be read as Parquet: {error}") from None
    return columns_of(table)


def columns_of(table: pd.DataFrame) -> Columns:
    """The columns of a data frame as arrays: numbers as they are, everything else as objects."""
    return {
        str(name): table[name].to_numpy(dtype=None if pd.api.types.is_numeric_dtype(table[name].dtype) else object)
        for name in table.columns
    }


def read_npz(path: Path) -> Columns:
    """Read NumPy's NPZ: each array is a column, or a block of inputs where it has more than one axis.

    Raises:
        DataUnreadable: where the file is absent, is no NPZ, holds pickled objects, or its arrays differ in length.
    """
    try:
        with zipfile.ZipFile(path):
            held = np.load(path, allow_pickle=False)
        with held:
            columns = {name: held[name] for name in held.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise DataUnreadable(f"{path}: cannot be read as NPZ: {error}") from None
    lengths = {name: len(column) if column.ndim else 0 for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise DataUnreadable(f"{path}: arrays differ in length: {shown}")
    return columns
