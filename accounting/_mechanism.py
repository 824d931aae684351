"""A mechanism: the frozen description of one release's law, apart from any accountant.

A mechanism carries its own mathematics and nothing else does: its dominating pair in each direction of a
relation, from which PLD and Renyi accountants work, or its Renyi divergence alone where no pair is known.
It never touches data. Composition of a mechanism with itself is its field `steps`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import ClassVar, Self, cast

import numpy as np
from numpy.typing import NDArray

from accounting._errors import InvalidValue, Unsupported
from accounting._pairs import Pair
from accounting._relations import Directions, Relation
from accounting._validate import check_count

_REGISTRY: dict[str, type["Mechanism"]] = {}


@dataclass(frozen=True, kw_only=True)
class Mechanism(ABC):
    """One kind of release, executed `steps` times with fresh randomness.

    Args:
        steps: number of executions, an integer >= 0.
    """

    steps: int = 1

    name: ClassVar[str]
    """The word for it in ledgers and events files, such as ``sampled-gaussian``."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" in cls.__dict__:
            _REGISTRY[cls.name] = cls

    def __post_init__(self) -> None:
        check_count(steps=self.steps)

    @abstractmethod
    def pairs(self, relation: Relation) -> Directions[Pair]:
        """The dominating pair of a single step, in each direction (Zhu, Dong, Wang 2022, Definition 7).

        Raises:
            Unsupported: where no pair is known for the relation.
        """

    def renyi(self, relation: Relation, orders: NDArray[np.float64]) -> Directions[NDArray[np.float64]]:
        """Renyi divergence of a single step at each order > 1, in each direction."""
        pairs = self.pairs(relation)
        return Directions(remove=pairs.remove.renyi(orders), add=pairs.add.renyi(orders))

    def covers(self, records: int) -> bool:
        """Whether the pairs bound a change of up to `records` records of one individual."""
        return records == 1

    def repeated(self, steps: int) -> Self:
        """The same law executed `steps` times."""
        return replace(self, steps=steps)

    def to_json(self) -> dict[str, object]:
        """The mechanism as plain values, as ledgers and events files hold it."""
        values: dict[str, object] = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"mechanism": self.name, **values}


def mechanisms() -> dict[str, type[Mechanism]]:
    """Every mechanism by its name, sorted."""
    return dict(sorted(_REGISTRY.items()))


def mechanism_from_json(values: Mapping[str, object]) -> Mechanism:
    """The inverse of `Mechanism.to_json`.

    Raises:
        Unsupported: for a mechanism that is not known, listing those that are.
        InvalidValue: for a field that is missing, unknown or out of range.
    """
    name = values.get("mechanism")
    if not isinstance(name, str) or name not in _REGISTRY:
        raise Unsupported(f"Unknown mechanism {name!r}; known: {', '.join(sorted(_REGISTRY))}.")
    kind = _REGISTRY[name]
    known = {field.name for field in fields(kind)}
    if unknown := set(values) - known - {"mechanism"}:
        raise InvalidValue(f"Unknown field {min(unknown)!r} of {name}; known: {', '.join(sorted(known))}.")
    build = cast("Callable[..., Mechanism]", kind)
    try:
        return build(**{key: value for key, value in values.items() if key != "mechanism"})
    except TypeError as error:
        raise InvalidValue(f"Mechanism {name}: {error}.") from error
