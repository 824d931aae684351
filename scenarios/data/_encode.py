"""From columns to a model's inputs and labels, by public rules alone.

Each value is turned into inputs by the scenario's bounds and categories; no statistic of the data is ever computed,
so one record's inputs depend on that record only. A value that the scenario does not allow is refused. An infinite
number is a missing value: it has no size to clip.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from accounting._errors import InvalidValue
from scenarios.spec._data import CategoryFeature, Feature, Label, NumericFeature, Scalar
from scenarios.spec._explain import nearest
from silos._readers import Columns

Values = NDArray[np.generic]


class BadColumn(InvalidValue):
    """A column that is not what the scenario says of it.

    Args:
        column: its name.
    """

    def __init__(self, column: str, message: str) -> None:
        super().__init__(message)
        self.column = column


@dataclass(frozen=True, kw_only=True)
class Labels:
    """Encoded labels.

    Args:
        values: int64 class numbers, or float32 in [-1, 1] for a regression.
        outputs: how many outputs a model for them has.
        scale: one unit of `values` in the label's own unit.
        offset: the label, in its own unit, where `values` is 0.
    """

    values: NDArray[np.int64] | NDArray[np.float32]
    outputs: int
    scale: float = 1.0
    offset: float = 0.0


def column(columns: Columns, name: str) -> Values:
    """The named column.

    Raises:
        BadColumn: where there is none, naming the nearest.
    """
    if name not in columns:
        known = list(columns)
        shown = ", ".join(known[:20]) + (f" and {len(known) - 20} more" if len(known) > 20 else "")
        raise BadColumn(name, f"names no column of the data;{nearest(name, known)} columns: {shown}")
    return columns[name]


def texts(columns: Columns, name: str) -> NDArray[np.str_]:
    """A column of names or ids as text.

    Raises:
        BadColumn: where a value is missing.
    """
    values = column(columns, name)
    _refuse_missing(name, values, "every record needs one")
    return np.array([_text(value) for value in values.tolist()], dtype=np.str_)


def encode_features(columns: Columns, features: Mapping[str, Feature], *, blank: bool = False) -> NDArray[np.float32]:
    """Inputs of every record, shape (records, inputs); one lone block of more axes, such as images, keeps its shape.

    Args:
        columns: of the data.
        features: the inputs to make of them.
        blank: make a record that misses a value without a stand-in a blank row, all nan, instead of refusing it. It
            stays in its shard, since leaving it out would tell that it was there; its gradient is zero.

    Raises:
        BadColumn: where a column is absent or holds what its feature does not allow.
    """
    held = {name: column(columns, name) for name in features}
    gaps = {
        name: _absent(name, held[name], feature)
        for name, feature in features.items()
        if blank and held[name].ndim == 1 and (feature.missing is None or feature.missing is False)
    }
    for name, gap in gaps.items():
        held[name] = np.where(gap, _any_value(features[name]), held[name].astype(object))
    blocks = [_encode(name, held[name], feature) for name, feature in features.items()]
    if len(blocks) == 1 and blocks[0].ndim > 2:
        return blocks[0]
    inputs = np.concatenate([block.reshape(len(block), -1) for block in blocks], axis=1)
    for gap in gaps.values():
        inputs[gap] = np.nan
    return inputs


def _absent(name: str, values: Values, feature: Feature) -> NDArray[np.bool_]:
    return pd.isna(values) if isinstance(feature, CategoryFeature) else np.isnan(_finite(name, values))


def _any_value(feature: Feature) -> Scalar:
    return feature.categories[0] if isinstance(feature, CategoryFeature) else feature.low


def _encode(name: str, values: Values, feature: Feature) -> NDArray[np.float32]:
    if isinstance(feature, CategoryFeature):
        return _one_hot(name, values, feature)
    if values.ndim > 1:
        return _block(name, values, feature)
    numbers = _finite(name, values)
    missing = np.isnan(numbers)
    if feature.missing is None:
        _refuse_missing(name, numbers, "give the feature a public `missing` value")
        return _scaled(numbers, feature.low, feature.high)[:, None]
    filled = np.where(missing, feature.missing, numbers)
    return np.stack([_scaled(filled, feature.low, feature.high), missing.astype(np.float32)], axis=1)


def _block(name: str, values: Values, feature: NumericFeature) -> NDArray[np.float32]:
    """A block of pixels, in [0, 1]."""
    if values.dtype.kind not in "biuf":
        raise BadColumn(name, f"is a block of {values.dtype}, not of numbers")
    block = values.astype(np.float32)
    if not np.isfinite(block).all():
        raise BadColumn(name, "holds nan or infinite numbers; a block of inputs must be whole")
    np.clip(block, feature.low, feature.high, out=block)
    block -= np.float32(feature.low)
    block /= np.float32(feature.high - feature.low)
    return np.clip(block, 0, 1, out=block)


def _one_hot(name: str, values: Values, feature: CategoryFeature) -> NDArray[np.float32]:
    missing = pd.isna(values)
    if not feature.missing:
        _refuse_missing(name, values, "set `missing = true` to allow them")
    numbers = _class_numbers(name, values, feature.categories, missing)
    width = len(feature.categories) + feature.missing
    return np.eye(width, dtype=np.float32)[numbers]


def _class_numbers(name: str, values: Values, classes: tuple[Scalar, ...], skipped: Values) -> NDArray[np.int64]:
    """The position of each value among the classes; how many there are for a skipped value."""
    if all(isinstance(one, int | float) and not isinstance(one, bool) for one in classes):
        held = _numbers(name, values)
        position: dict[object, int] = {float(one): place for place, one in enumerate(classes)}
    else:
        held = np.array([_text(value) for value in values.tolist()], dtype=object)
        position = {_text(one): place for place, one in enumerate(classes)}
    numbers = np.full(len(held), len(classes), dtype=np.int64)
    for row, value in enumerate(held.tolist()):
        if not skipped[row]:
            if value not in position:
                shown = ", ".join(map(str, classes[:12]))
                raise BadColumn(name, f"holds {value!r} in record {row + 1}; declared: {shown}")
            numbers[row] = position[value]
    return numbers


def encode_labels(columns: Columns, label: Label, task: str) -> Labels:
    """Labels of every record, by the task's public rule.

    Raises:
        BadColumn: where the column is absent, a label is missing, or the task's rule does not fit.
    """
    values = column(columns, label.column)
    _refuse_missing(label.column, values, "every record needs a label")
    if task == "regression" and label.low is not None and label.high is not None:
        scale = (label.high - label.low) / 2
        scaled = _scaled(_label_numbers(label.column, values), label.low, label.high)
        return Labels(values=scaled, outputs=1, scale=scale, offset=label.low + scale)
    if task == "multiclass" and label.classes is not None:
        numbers = _class_numbers(label.column, values, label.classes, np.zeros(len(values), dtype=bool))
        return Labels(values=numbers, outputs=len(label.classes))
    return Labels(values=_binary(values, label).astype(np.int64), outputs=1)


def _binary(values: Values, label: Label) -> NDArray[np.bool_]:
    if label.above is not None:
        return _label_numbers(label.column, values) > label.above
    if label.positive is not None:
        positive = np.array([_text(value) == _text(label.positive) for value in values.tolist()])
        if not positive.any():
            raise BadColumn(label.column, f"holds no {label.positive!r}; it holds {_some(values)}")
        return positive
    if not {_text(value) for value in values.tolist()} <= {"0", "1", "True", "False"}:
        raise BadColumn(label.column, f"is not binary: it holds {_some(values)}; give the label `above` or `positive`")
    return np.array([_text(value) in ("1", "True") for value in values.tolist()])


def _label_numbers(name: str, values: Values) -> NDArray[np.float64]:
    numbers = _finite(name, values)
    _refuse_missing(name, numbers, "every record needs a label")
    return numbers


def _some(values: Values) -> str:
    found = sorted({_text(value) for value in values.tolist()})
    return ", ".join(found[:6]) + (f" and {len(found) - 6} more" if len(found) > 6 else "")


def _scaled(numbers: NDArray[np.float64], low: float, high: float) -> NDArray[np.float32]:
    """Clipped to the bounds, then mapped from [low, high] to [-1, 1]."""
    return (2 * ((np.clip(numbers, low, high) - low) / (high - low)) - 1).astype(np.float32)


def _numbers(name: str, values: Values) -> NDArray[np.float64]:
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    numbers: Values = np.asarray(pd.to_numeric(pd.Series(values), errors="coerce"), dtype=np.float64)
    broken = np.flatnonzero(np.isnan(numbers) & ~pd.isna(values))
    if len(broken):
        raise BadColumn(name, f"holds {values[broken[0]]!r} in record {broken[0] + 1}, which is no number")
    return numbers


def _finite(name: str, values: Values) -> NDArray[np.float64]:
    """A column's numbers, nan where one is missing or infinite."""
    numbers = _numbers(name, values)
    return np.where(np.isinf(numbers), np.nan, numbers)


def _text(value: object) -> str:
    """A value as a name: 7.0 and 7 are the same one."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _refuse_missing(name: str, values: Values, remedy: str) -> None:
    missing = np.flatnonzero(pd.isna(values))
    if len(missing):
        what = "missing or infinite" if values.dtype.kind == "f" else "missing"
        raise BadColumn(name, f"has {len(missing)} {what} values, the first in record {missing[0] + 1}; {remedy}")
