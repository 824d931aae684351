"""Standardised inputs: mean 0 and variance 1, by statistics that are paid for, or that void the guarantee.

Public bounds scale every input to [-1, 1] first, so that one record moves the sums by a known amount. With
`standardise = "dp"` each silo releases noisy sums once, before round 1; the server adds them up and every silo applies
the common mean and variance, which are public from then on. With `"oracle"` the exact ones are used, as papers do;
the run is then charged as not private.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from scenarios._released import foreseen
from scenarios.data._dataset import Dataset
from scenarios.spec._scenario import Scenario
from silos import Moments

_LEAST_VARIANCE = 0.01
"""Of an input in [-1, 1]; noise may leave less than nothing."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Scaling:
    """Public means and standard deviations, one an input."""

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]

    @classmethod
    def of(cls, sums: NDArray[np.float64]) -> "Scaling":
        """From the sums of `Moments`, of one silo or added up over silos."""
        records = max(1.0, float(sums[0]))
        means, squares = np.split(sums[1:] / records, 2)
        mean = np.clip(means, -1, 1)
        return cls(mean=mean, deviation=np.sqrt(np.clip(squares - mean**2, _LEAST_VARIANCE, 1)))

    def apply(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Inputs of records, standardised; a blank row stays blank."""
        flat = np.clip(features.reshape(len(features), len(self.mean)), -1, 1)
        return ((flat - self.mean) / self.deviation).astype(np.float32).reshape(features.shape)


def standardised(scenario: Scenario, dataset: Dataset) -> Dataset:
    """The dataset as the silos train on it."""
    if scenario.data.standardise == "public":
        return dataset
    if scenario.data.standardise == "dp":
        sums = list(foreseen(scenario, dataset, "moments").values())
    else:
        inputs = int(np.prod(dataset.input_shape))
        exact = Moments(epsilon=1.0, relation=scenario.privacy.relation, inputs=inputs)
        sums = [exact.sums(shard, np.empty((0, 1))) for shard in dataset.shards.values()]
    scaling = Scaling.of(np.sum(sums, axis=0))
    shards = {name: replace(shard, features=scaling.apply(shard.features)) for name, shard in dataset.shards.items()}
    return replace(dataset, shards=shards, test_features=scaling.apply(dataset.test_features))
