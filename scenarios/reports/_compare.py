"""Comparing two runs or sweeps: differences between runs of the same seed and epsilon."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from accounting import InvalidValue
from scenarios.reports._frames import column, where
from scenarios.reports._study import read_studies
from scenarios.reports._summary import estimate, labels, metrics_of, per_run, settings_of, smaller_is_better

_KEYS = ("scenario", "method", "epsilon")
RESULT = ("metric", "a", "b", "difference", "low", "high", "seeds", "lost", "better")
"""Columns of a comparison beside the keys that pair."""


def compare(a: str | Path, b: str | Path) -> pd.DataFrame:
    """What B is better or worse by than A, over runs that are paired by seed and by all that was swept in either.

    Runs of one seed share their split and their initial model; their noise is fresh. Whatever has one value in A and
    one in B is what is compared, and need not be equal.

    Args:
        a, b: folders of sweeps or runs; ``FOLDER:METHOD`` takes one method of a sweep.

    Returns:
        A row per metric and combination: ``metric``; ``scenario``, ``method``, ``epsilon`` and other swept keys, of
        those that pair; ``a`` and ``b``, means over seeds; ``difference``, b - a, with ``low`` and ``high`` (see
        `scenarios.reports._summary`); ``seeds``, those that both have; ``lost``, those where either has no value; and
        ``better``: ``a`` or ``b`` where the interval leaves 0 out, else empty.

    Raises:
        RunError: for a folder that is neither.
        InvalidValue: where no run of A has a pair in B, or one has several.
    """
    first, second = _runs(str(a)), _runs(str(b))
    keys = [*(key for key in _pairing(first, second) if key != "seed"), "seed"]
    for name, runs in (("A", first), ("B", second)):
        if runs.duplicated(keys).any():
            raise InvalidValue(f"{name} = {a if name == 'A' else b}: has several runs of one {', '.join(keys)}.")
    both = first.merge(second, on=keys, suffixes=("_a", "_b"))
    if both.empty:
        raise InvalidValue(
            f"No run of {a} has one of {b} with the same {', '.join(keys)} beside it{_apart(first, second, keys)}."
        )
    measures = [name for name in metrics_of(first) if f"{name}_a" in both and f"{name}_b" in both]
    rows = [row for measure in measures for row in _rows(both, measure, keys[:-1])]
    return pd.DataFrame(rows)


def _runs(place: str) -> pd.DataFrame:
    """The runs of a folder, or of one method of it."""
    folder, _, method = (place, "", "") if Path(place).exists() else place.rpartition(":")
    tables = [per_run(study.results, study.metric) for study in read_studies([Path(folder or place)])]
    runs = pd.concat(tables, ignore_index=True).drop(columns=["label", "settings", "utility", "silo_mean"])
    if not method:
        return runs
    names = labels(runs)
    chosen = where(runs, (names == method) | (column(runs, "method") == method))
    if chosen.empty:
        raise InvalidValue(f"{folder}: has no method {method!r}; it has {', '.join(dict.fromkeys(names))}.")
    return chosen


def _pairing(first: pd.DataFrame, second: pd.DataFrame) -> list[str]:
    """Seed, and the keys that vary within either side."""
    keys = [*_KEYS, *settings_of(first)]
    shared = [key for key in keys if key in second]
    return ["seed", *(key for key in shared if max(column(side, key).nunique() for side in (first, second)) > 1)]


def _apart(first: pd.DataFrame, second: pd.DataFrame, keys: Sequence[str]) -> str:
    """The keys of which the sides share no value, with their values."""
    values = {key: [[*dict.fromkeys(map(str, column(side, key)))] for side in (first, second)] for key in keys}
    return "".join(
        f"; {key} is {', '.join(ours)} in A and {', '.join(theirs)} in B"
        for key, (ours, theirs) in values.items()
        if not set(ours) & set(theirs)
    )


def _rows(both: pd.DataFrame, measure: str, keys: Sequence[str]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for group in _groups(both, keys):
        a, b = column(group, f"{measure}_a"), column(group, f"{measure}_b")
        difference = b - a
        found, known = estimate(difference), difference.notna()
        better = "" if not found.certain else "b" if (found.mean < 0) == smaller_is_better(measure) else "a"
        values = (measure, a[known].mean(), b[known].mean(), found.mean, found.low, found.high, found.seeds, found.lost)
        row: dict[str, object] = {"metric": measure, **{key: column(group, key).iloc[0] for key in keys}}
        rows.append(row | dict(zip(RESULT, (*values, better), strict=True)))
    return rows


def _groups(both: pd.DataFrame, keys: Sequence[str]) -> list[pd.DataFrame]:
    return [group for _, group in both.groupby(list(keys), sort=False)] if keys else [both]
