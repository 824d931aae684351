"""A strategy's own state as named arrays, so that a run can stop and go on.

Flower's strategies keep what they carry from round to round (momentum, second moments, the last model) in attributes
and have no way to save it. Attributes that hold numbers or arrays are written under names that say what they are in:

| name            | attribute holds                              |
|-----------------|----------------------------------------------|
| ``a=``          | an array, or a single int, float or bool     |
| ``a[3]``        | a list whose item 3 is an array              |
| ``a.weight``    | a dict whose item ``weight`` is an array     |
| ``a:weight``    | an `ArrayRecord` with the array ``weight``   |
| ``a>name``      | a strategy whose state has ``name``          |
"""

import re
from collections.abc import Iterator, Mapping

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from accounting import InvalidValue, Unsupported
from silos import from_record, to_record

State = dict[str, NDArray[np.generic]]

_NAME = re.compile(r"(?P<attribute>\w+)(?:(?P<single>=)|\[(?P<index>\d+)\]|(?P<kind>[.:>])(?P<key>.+))", re.DOTALL)


def save_state(strategy: Strategy) -> State:
    """The numbers and arrays that a strategy holds.

    Raises:
        Unsupported: for a list, dict or set that holds anything else and so might change unseen from round to round.
    """
    return {name: array for attribute in sorted(vars(strategy)) for name, array in _flatten(strategy, attribute)}


def restore_state(strategy: Strategy, state: Mapping[str, NDArray[np.generic]]) -> None:
    """Put a saved state into a fresh strategy that was built in the same way.

    Raises:
        InvalidValue: for a name that `save_state` does not give.
    """
    found: dict[str, list[tuple[re.Match[str], NDArray[np.generic]]]] = {}
    for name, array in state.items():
        match = _NAME.fullmatch(name)
        if match is None or not hasattr(strategy, match["attribute"]):
            raise InvalidValue(f"State {name!r} is not of a {type(strategy).__name__}.")
        found.setdefault(match["attribute"], []).append((match, array))
    for attribute, parts in found.items():
        inner = getattr(strategy, attribute)
        if isinstance(inner, Strategy) and all(match["kind"] == ">" for match, _ in parts):
            restore_state(inner, {match["key"]: array for match, array in parts})
        else:
            setattr(strategy, attribute, _rebuild(parts))


def _flatten(strategy: Strategy, attribute: str) -> Iterator[tuple[str, NDArray[np.generic]]]:
    value = getattr(strategy, attribute)
    if isinstance(value, bool | int | float | np.ndarray | np.generic):
        yield f"{attribute}=", np.asarray(value)
    elif isinstance(value, Strategy):
        yield from ((f"{attribute}>{name}", array) for name, array in save_state(value).items())
    elif isinstance(value, ArrayRecord):
        yield from ((f"{attribute}:{key}", array) for key, array in from_record(value).items())
    elif isinstance(value, list) and all(isinstance(item, np.ndarray | np.generic) for item in value):
        yield from ((f"{attribute}[{index}]", np.asarray(item)) for index, item in enumerate(value))
    elif isinstance(value, dict) and all(isinstance(item, np.ndarray | np.generic) for item in value.values()):
        yield from ((f"{attribute}.{key}", np.asarray(item)) for key, item in value.items())
    elif isinstance(value, list | dict | set):
        raise Unsupported(
            f"Attribute {attribute!r} of {type(strategy).__name__} cannot be saved. Supported: numbers, arrays, "
            "lists and dicts of arrays, and ArrayRecord."
        )


def _rebuild(parts: list[tuple[re.Match[str], NDArray[np.generic]]]) -> object:
    first = parts[0][0]
    if first["single"]:
        array = parts[0][1]
        return array.item() if array.ndim == 0 else array
    if first["index"] is not None:
        return [array for _, array in sorted(parts, key=lambda part: int(part[0]["index"]))]
    arrays = {match["key"]: array for match, array in parts}
    return to_record(arrays) if first["kind"] == ":" else arrays
