"""Questions: what one may ask of a composition, and how each accountant answers.

The larger the answer, the more was given away.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting._pld import LossDistribution
from accounting._rdp import ORDERS, delta_from_renyi, epsilon_from_renyi
from accounting._validate import check_in_range

Array = NDArray[np.float64]

SMALLEST_PLD_DELTA = 1e-9
"""Below it the rounding of the PLD's transforms is not small, and Renyi accounting answers."""


class Question(ABC):
    """What is asked of every exposure; the larger the answer the worse. Hashable, so that answers are kept."""

    @abstractmethod
    def of_losses(self, losses: LossDistribution) -> float:
        """The answer by PLD."""

    @abstractmethod
    def of_renyi(self, values: Array) -> float:
        """An upper bound from Renyi divergences at `ORDERS`."""

    @property
    def of_nothing(self) -> float:
        """The answer where nothing was released."""
        return 0.0

    @abstractmethod
    def of_pure(self, loss: float) -> float:
        """An upper bound where the privacy loss is never above `loss`; inf where that says nothing."""

    @abstractmethod
    def in_range(self, answer: float) -> bool:
        """Whether PLD may be asked, or believed, at this answer."""

    @property
    def least_believed(self) -> float:
        """An upper bound on what is so small that PLD is not believed: the least answer at which it is."""
        return 0.0

    @property
    def closed_form_rounds_up(self) -> bool:
        """Whether the answer from a closed form is rounded up by more than its floats err, at any delta."""
        return False


@dataclass(frozen=True)
class EpsilonAt(Question):
    """The epsilon at one delta in [0, 1]."""

    delta: float

    def __post_init__(self) -> None:
        check_in_range(low=0, high=1, delta=self.delta)

    def of_losses(self, losses: LossDistribution) -> float:
        return losses.epsilon(self.delta)

    def of_renyi(self, values: Array) -> float:
        return epsilon_from_renyi(ORDERS, values, self.delta)

    def of_pure(self, loss: float) -> float:
        return loss

    def in_range(self, answer: float) -> bool:  # noqa: ARG002
        return self.delta >= SMALLEST_PLD_DELTA

    @property
    def closed_form_rounds_up(self) -> bool:
        return True


@dataclass(frozen=True)
class DeltaAt(Question):
    """The delta at one epsilon in [0, inf]."""

    epsilon: float

    def __post_init__(self) -> None:
        check_in_range(low=0, high=math.inf, epsilon=self.epsilon)

    def of_losses(self, losses: LossDistribution) -> float:
        return losses.delta(self.epsilon)

    def of_renyi(self, values: Array) -> float:
        return delta_from_renyi(ORDERS, values, self.epsilon)

    def of_pure(self, loss: float) -> float:
        return 0.0 if loss <= self.epsilon else math.inf

    def in_range(self, answer: float) -> bool:
        return answer >= SMALLEST_PLD_DELTA

    @property
    def least_believed(self) -> float:
        return SMALLEST_PLD_DELTA


@dataclass(frozen=True)
class PowerAt(Question):
    """The largest true positive rate of any attack at one false positive rate in [0, 1]."""

    false_positive_rate: float

    def __post_init__(self) -> None:
        check_in_range(low=0, high=1, false_positive_rate=self.false_positive_rate)

    @property
    def of_nothing(self) -> float:
        return self.false_positive_rate

    def of_losses(self, losses: LossDistribution) -> float:
        return losses.true_positive_rate(self.false_positive_rate)

    def of_renyi(self, values: Array) -> float:
        epsilons = np.concatenate([[0.0], np.geomspace(1e-3, 300.0, 200)])
        lines = (
            math.exp(epsilon) * self.false_positive_rate + delta_from_renyi(ORDERS, values, float(epsilon))
            for epsilon in epsilons
        )
        return min(1.0, min(lines))

    def of_pure(self, loss: float) -> float:
        return math.exp(min(loss, 700.0)) * self.false_positive_rate

    def in_range(self, answer: float) -> bool:  # noqa: ARG002
        return True
