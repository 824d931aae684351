"""What an engine is asked for one silo in one round, and what comes of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from silos._drift import Drift
from silos._schedule import Schedule
from silos._shard import Shard
from silos._weights import Weights


@dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """One round of one silo; the fields are the arguments of `OpacusEngine.train`.

    Args:
        weights: to start from.
        shard: the silo's records.
        schedule: the public numbers of the round.
        sampling: stream of the Poisson samples.
        noise: stream of the noise.
        drift: what moves the weights beside gradients, if anything does.
    """

    weights: Mapping[str, NDArray[np.generic]]
    shard: Shard
    schedule: Schedule
    sampling: np.random.Generator
    noise: np.random.Generator
    drift: Drift | None = None


Outcome = tuple[Weights, int] | Exception
"""The weights after the round and the number of steps executed, or why the silo has none."""


@runtime_checkable
class FleetTrainer(Protocol):
    """What trains many silos at once; `FleetEngine` and `Workers` do."""

    def train_all(self, jobs: Sequence[Job]) -> list[Outcome]:
        """One round of many silos: what came of each job, in their order."""
        ...
