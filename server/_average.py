"""The weighted mean of the silos' models, taken over flat vectors.

Flower's own mean looks through every record of every reply several times and copies each of its arrays, which takes
longer than everything else in a round of small models. It also adds up in the model's precision; here sums are taken
in double precision, in the order of the replies, and rounded once.
"""

from collections.abc import Iterable

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAdagrad, FedAdam, FedAvg, FedAvgM, FedProx, FedYogi

from silos import Weights, from_record, to_record


class Average(FedAvg):
    """Flower's `FedAvg` with a faster mean: FedAvg (McMahan et al. 2017)."""

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The mean of the models in the replies, and no metrics."""
        del server_round
        contents = [reply.content for reply in replies if not reply.has_error()]
        if not contents:
            return None, None
        weights = [_weight(content, self.weighted_by_key) for content in contents]
        return to_record(_mean([_model(content) for content in contents], weights)), MetricRecord()


class AverageWithMomentum(FedAvgM, Average):
    """Flower's `FedAvgM` with the faster mean (Hsu et al. 2019)."""


class AverageWithAdam(FedAdam, Average):
    """Flower's `FedAdam` with the faster mean (Reddi et al. 2021)."""


class AverageWithYogi(FedYogi, Average):
    """Flower's `FedYogi` with the faster mean (Reddi et al. 2021)."""


class AverageWithAdagrad(FedAdagrad, Average):
    """Flower's `FedAdagrad` with the faster mean (Reddi et al. 2021)."""


class AverageWithProximal(FedProx, Average):
    """Flower's `FedProx` with the faster mean (Li et al. 2020)."""


def _mean(models: list[Weights], weights: list[float]) -> Weights:
    first, total = models[0], sum(weights)
    sizes = [array.size for array in first.values()]
    mean = np.zeros(sum(sizes))
    for model, weight in zip(models, weights, strict=True):
        flat = np.concatenate([model[name].ravel() for name in first])
        mean += np.multiply(flat, weight / total, dtype=np.float64)
    parts = np.split(mean, np.cumsum(sizes)[:-1])
    return {
        name: part.reshape(array.shape).astype(array.dtype)
        for (name, array), part in zip(first.items(), parts, strict=True)
    }


def _model(content: RecordDict) -> Weights:
    return next(from_record(record) for record in content.values() if isinstance(record, ArrayRecord))


def _weight(content: RecordDict, key: str) -> float:
    weight = next(record[key] for record in content.values() if isinstance(record, MetricRecord))
    if not isinstance(weight, int | float):
        raise TypeError(f"Expected metric {key!r} of a reply to be a number.")
    return weight
