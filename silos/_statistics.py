"""Statistics: numbers that a silo computes of its records and releases with noise.

Each is a sum over records of one bounded vector a record, plus noise on every coordinate: integers get discrete Laplace
noise, real numbers Laplace noise. One record moves the sum by at most `bound` in L1, so one unit of k records by k
times that (twice that where it is replaced), and noise of this over epsilon is epsilon-DP (Dwork, McSherry, Nissim,
Smith 2006).

| item       | of which records  | one record's vector                                          |
|------------|-------------------|--------------------------------------------------------------|
| `size`     | training records  | 1 (or one individual is 1, whatever its records)             |
| `moments`  | training records  | 1, each input clipped to [-1, 1], and the square of each     |
| `outcomes` | held-out records  | 1 in the cell of its label and its score's bin               |
| `loss`     | held-out records  | its loss, clipped                                            |
| `errors`   | held-out records  | 1, the clipped error and its square, the label and its square |
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from accounting import DiscreteLaplace, InvalidValue, Mechanism, PureEpsilon, Relation
from accounting._validate import check_count, check_in_range
from silos._shard import Shard
from silos._streams import Purpose
from silos._weights import Weights

if TYPE_CHECKING:
    from flwr.app import ConfigRecord

Outputs: TypeAlias = NDArray[np.float64]
Sums: TypeAlias = NDArray[np.int64] | NDArray[np.float64]

MOST_NOISE = 1e12
"""Greatest scale of noise. Near 2^63 integer draws saturate, and the difference of two saturated ones is no noise."""


@dataclass(frozen=True, kw_only=True)
class Statistic(ABC):
    """What is asked: which sum, at which price.

    Args:
        epsilon: the price, in (0, inf).
        relation: the neighbouring relation under which it is the price.
        records: public cap on the records of one unit, an integer >= 1.
    """

    item: ClassVar[Purpose]
    held_out: ClassVar[bool] = True

    epsilon: float
    relation: Relation
    records: int = 1

    def __post_init__(self) -> None:
        check_in_range(low=0, high=float("inf"), low_open=True, high_open=True, epsilon=self.epsilon)
        check_count(low=1, records=self.records)
        object.__setattr__(self, "relation", Relation(self.relation))
        if not self.scale <= MOST_NOISE:
            raise InvalidValue(
                f"Expected epsilon={self.epsilon} to be so large that noise has a scale of at most {MOST_NOISE:g}, not "
                f"{self.scale:g}."
            )

    @property
    def bound(self) -> float:
        """Greatest L1 norm of one record's vector."""
        return 1.0

    @property
    def moved(self) -> float:
        """How far one unit may move the sum, in L1."""
        return self.bound * self.records * (2 if self.relation is Relation.REPLACE_ONE else 1)

    @property
    def scale(self) -> float:
        """Scale of the noise on each coordinate."""
        return self.moved / self.epsilon

    def mechanism(self) -> Mechanism:
        """The law of the release."""
        return PureEpsilon(epsilon=self.epsilon, relation=self.relation, records=self.records)

    @abstractmethod
    def sums(self, shard: Shard, outputs: Outputs) -> Sums:
        """The sum without noise, which must not leave.

        Args:
            shard: the records.
            outputs: the model's outputs on them, shape (records, outputs); empty for statistics of training records.
        """

    def released(self, shard: Shard, outputs: Outputs, generator: np.random.Generator) -> Weights:
        """The sum with noise, under the statistic's item as name."""
        return {self.item: add_noise(self.sums(shard, outputs), self.scale, generator)}

    def to_config(self) -> "ConfigRecord":
        """The statistic as a Flower record."""
        from flwr.app import ConfigRecord  # takes half a second, and a plan needs none

        record = ConfigRecord({"item": self.item})
        for name, value in asdict(self).items():
            record[name] = str(value) if isinstance(value, Relation) else value
        return record


@dataclass(frozen=True, kw_only=True)
class Size(Statistic):
    """The number of training records, or of individuals; under replace-one and zero-out it does not move.

    Args:
        by_individual: count individuals, of whom one unit is one, however many records it has.
    """

    item: ClassVar[Purpose] = "size"
    held_out: ClassVar[bool] = False

    by_individual: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.by_individual, bool):
            raise InvalidValue(f"Expected by_individual={self.by_individual!r} to be true or false.")
        super().__post_init__()

    @property
    def moved(self) -> float:
        return float(1 if self.by_individual else self.records)

    def mechanism(self) -> Mechanism:
        return DiscreteLaplace(
            scale=self.scale, sensitivity=int(self.moved), replace_sensitivity=0, records=self.records
        )

    def sums(self, shard: Shard, outputs: Outputs) -> Sums:  # noqa: ARG002
        return np.array([shard.individual_count if self.by_individual else len(shard)])


@dataclass(frozen=True, kw_only=True)
class Moments(Statistic):
    """How many records there are, and of each input the sum and the sum of squares; inputs are clipped to [-1, 1].

    Args:
        inputs: number of inputs of a record.
    """

    item: ClassVar[Purpose] = "moments"
    held_out: ClassVar[bool] = False

    inputs: int

    @property
    def bound(self) -> float:
        return 1.0 + 2.0 * self.inputs

    def sums(self, shard: Shard, outputs: Outputs) -> Sums:  # noqa: ARG002
        values = shard.features.reshape(len(shard), self.inputs).astype(np.float64)
        held = np.clip(values[np.isfinite(values).all(axis=1)], -1, 1)
        return np.concatenate([[float(len(held))], held.sum(axis=0), (held**2).sum(axis=0)])


@dataclass(frozen=True, kw_only=True)
class Outcomes(Statistic):
    """How often each label met each score, of which accuracy, the confusion matrix and the AUC are made.

    Args:
        classes: number of classes; 2 for a binary task, whose scores are binned.
        bins: binary: number of equal bins of the probability, even, so that 1/2 is an edge.
    """

    item: ClassVar[Purpose] = "outcomes"

    classes: int
    bins: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(low=2, classes=self.classes, bins=self.bins)
        if self.bins % 2:
            raise InvalidValue(f"Expected bins={self.bins} to be even.")

    def mechanism(self) -> Mechanism:
        if self.records == 1 and self.relation is not Relation.REPLACE_ONE:
            return DiscreteLaplace(scale=self.scale)
        return super().mechanism()

    def sums(self, shard: Shard, outputs: Outputs) -> Sums:
        labels, kept = shard.labels.astype(np.int64), np.isfinite(outputs).all(axis=1)
        if outputs.shape[1] == 1:
            probabilities = 1 / (1 + np.exp(-np.clip(np.nan_to_num(outputs[:, 0]), -700, 700)))
            scores, width = np.minimum((probabilities * self.bins).astype(np.int64), self.bins - 1), self.bins
        else:
            scores, width = np.nan_to_num(outputs).argmax(axis=1), self.classes
        cells = np.bincount((labels * width + scores)[kept], minlength=self.classes * width)
        return cells.reshape(self.classes, width).astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class Loss(Statistic):
    """The sum of each record's loss, clipped; `Outcomes` counts the records.

    Args:
        greatest: where one record's loss is clipped, in (0, inf), in nats.
    """

    item: ClassVar[Purpose] = "loss"

    greatest: float = 2.0

    def __post_init__(self) -> None:
        check_in_range(low=0, high=float("inf"), low_open=True, high_open=True, greatest=self.greatest)
        super().__post_init__()

    @property
    def bound(self) -> float:
        return self.greatest

    def sums(self, shard: Shard, outputs: Outputs) -> Sums:
        kept = np.isfinite(outputs).all(axis=1)
        labels, held = shard.labels[kept].astype(np.int64), outputs[kept]
        if outputs.shape[1] == 1:
            losses = np.logaddexp(0.0, held[:, 0]) - labels * held[:, 0]
        else:
            losses = np.logaddexp.reduce(held, axis=1) - held[np.arange(len(held)), labels]
        return np.array([np.clip(losses, 0, self.greatest).sum()], dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class Errors(Statistic):
    """Of a regression: count, absolute error, its square, label and its square; errors are clipped to [-2, 2]."""

    item: ClassVar[Purpose] = "errors"

    @property
    def bound(self) -> float:
        return 5.0

    def sums(self, shard: Shard, outputs: Outputs) -> Sums:
        kept = np.isfinite(outputs).all(axis=1)
        labels = np.clip(shard.labels[kept].astype(np.float64), -1, 1)
        errors = np.minimum(np.abs(outputs[kept, 0] - labels), 2) / 2
        rows = np.stack([np.ones_like(labels), errors, errors**2, labels, labels**2])
        return rows.sum(axis=1)


_KINDS: Mapping[str, type[Statistic]] = {kind.item: kind for kind in (Size, Moments, Outcomes, Loss, Errors)}

HELD_OUT_ITEMS = frozenset(name for name, kind in _KINDS.items() if kind.held_out)
"""Items that are computed of held-out records."""


def statistic_from_config(values: Mapping[str, object]) -> Statistic:
    """The inverse of `Statistic.to_config`.

    Raises:
        InvalidValue: for an item or field that is unknown, missing or out of range.
    """
    kind = _KINDS.get(str(values.get("item")))
    if kind is None:
        raise InvalidValue(f"Unknown statistic {values.get('item')!r}; known: {', '.join(_KINDS)}.")
    given = {name: value for name, value in values.items() if name != "item"}
    if odd := set(given) ^ {field.name for field in fields(kind)}:
        raise InvalidValue(f"Field {min(odd)!r} of the statistic {kind.item!r} is missing or unknown.")
    try:
        return kind(**given)  # pyright: ignore[reportArgumentType]  # each field is checked where it is kept
    except (TypeError, ValueError) as error:
        raise InvalidValue(f"Statistic {kind.item!r}: {error}") from error


def add_noise(sums: Sums, scale: float, generator: np.random.Generator) -> Sums:
    """Discrete Laplace noise on integers, Laplace noise on real numbers, of this scale on each coordinate.

    Two-sided geometric noise is the difference of two geometric numbers (Ghosh, Roughgarden, Sundararajan 2012).
    """
    if sums.dtype.kind == "i":
        chance = -np.expm1(-1 / scale)
        return sums + generator.geometric(chance, sums.shape) - generator.geometric(chance, sums.shape)
    return sums + generator.laplace(0.0, scale, sums.shape)
