"""Rows and columns of data frames, typed: to pandas, any selection may be a frame, a column, an array or a scalar."""

from typing import cast

import pandas as pd


def where(frame: pd.DataFrame, mask: object) -> pd.DataFrame:
    """The rows for which a boolean column is true."""
    return cast(pd.DataFrame, frame[mask])


def column(frame: pd.DataFrame, name: str) -> pd.Series:
    """One column."""
    return cast(pd.Series, frame[name])
