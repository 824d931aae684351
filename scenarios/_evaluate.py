"""Oracle evaluation: the model on records held out from every silo.

It lives on the simulator's side of the boundary. In a deployment nobody holds these records, so no guarantee covers
what is chosen by looking at these numbers; the guarantee names it under "not covered".
"""

import copy
from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit

from scenarios._checkpoint import WHOLE, MetricRow
from scenarios._outcome import HEADLINE
from scenarios.data._dataset import Dataset
from silos import Weights, load_weights
from silos._predict import predict

Floats: TypeAlias = NDArray[np.float64]
Labels: TypeAlias = NDArray[np.int64] | NDArray[np.float32]
Metrics = dict[str, float]

CALIBRATION_BINS = 15
"""Equal-width bins of `calibration_error`, as many as Guo et al. (2017) use."""


class Evaluator:
    """Evaluates weights on the held-out records of a dataset.

    Args:
        model: the architecture; copied.
        dataset: whose held-out records.
    """

    def __init__(self, model: torch.nn.Module, dataset: Dataset) -> None:
        self._model = copy.deepcopy(model)
        self._dataset = dataset

    def rows(
        self, round: int, weights: Weights, *, personal: Mapping[str, Weights] | None = None, by_silo: bool = False
    ) -> list[MetricRow]:
        """Metrics after a round: of the federation, and of each silo's own held-out records if `by_silo`.

        A dataset with nothing held out has none; blank rows are left out.

        Args:
            round: after which.
            weights: the model.
            personal: models of silos that have their own, by name: each scores the held-out records of its silo.
            by_silo: whether silos have rows of their own.
        """
        data = self._dataset
        outputs = self.outputs(weights, data.test_features)
        for silo, own in (personal or {}).items():
            rows = data.test_silos == silo
            outputs[rows] = self.outputs(own, data.test_features[rows])
        return metric_rows(data, round, outputs, by_silo=by_silo)

    def outputs(self, weights: Mapping[str, NDArray[np.generic]], features: NDArray[np.float32]) -> Floats:
        """The model's outputs on any records, shape (records, outputs)."""
        load_weights(self._model, weights)
        if not len(features):
            return np.empty((0, self._dataset.outputs))
        return predict(self._model, features)


def metric_rows(data: Dataset, round: int, outputs: Floats, *, by_silo: bool) -> list[MetricRow]:
    """Metrics of outputs on a dataset's held-out records; blank rows are left out."""
    kept = np.isfinite(data.test_features).all(axis=tuple(range(1, data.test_features.ndim)))
    groups = {WHOLE: kept}
    if by_silo:
        groups |= {silo: kept & (data.test_silos == silo) for silo in data.records}
    return [
        MetricRow(round, silo, metric, value)
        for silo, rows in groups.items()
        if rows.any()
        for metric, value in score(data.task, outputs[rows], data.test_labels[rows], scale=data.label_scale).items()
    ]


def score(task: str, outputs: Floats, labels: Labels, *, scale: float = 1.0) -> Metrics:
    """Task metrics of outputs against labels.

    Args:
        task: ``binary`` (logits), ``multiclass`` (logits) or ``regression``.
        outputs: shape (records, outputs), as `predict` gives them.
        labels: shape (records,).
        scale: one unit of a regression's scaled label in original units; errors are in original units.

    Returns:
        Metric name to value; a metric that the labels leave undefined (the AUC of one class) is left out. A model that
        has diverged scores nan in its headline metric and has no other.
    """
    if not np.isfinite(outputs).all():
        return {HEADLINE[task]: float("nan")}
    return _SCORES[task](outputs, labels, scale)


def _binary(outputs: Floats, labels: Labels, _: float) -> Metrics:
    logits = outputs[:, 0]
    metrics = {
        "accuracy": float(np.mean((logits > 0) == (labels > 0))),
        "loss": float(np.mean(np.logaddexp(0.0, logits) - labels * logits)),
        "calibration_error": calibration_error(expit(logits), labels > 0),
    }
    if len(np.unique(labels)) == 2:
        metrics["auc"] = area_under_curve(logits, labels > 0)
    return metrics


def _multiclass(outputs: Floats, labels: Labels, _: float) -> Metrics:
    shifted = outputs - outputs.max(axis=1, keepdims=True)
    probabilities = np.exp(shifted)
    totals = probabilities.sum(axis=1, keepdims=True)
    probabilities /= totals
    correct = outputs.argmax(axis=1) == labels
    own = np.take_along_axis(shifted, labels.astype(np.intp)[:, np.newaxis], axis=1)
    return {
        "accuracy": float(np.mean(correct)),
        "loss": float(np.mean(np.log(totals) - own)),
        "calibration_error": calibration_error(probabilities.max(axis=1), correct),
    }


def area_under_curve(scores: Floats, positive: NDArray[np.bool_]) -> float:
    """How often a positive record scores above a negative one, ties counting half: the area under the ROC curve.

    It follows from the ranks of the positives alone (Hanley, McNeil 1982). scikit-learn's takes longer to import than
    many a run of small models takes.

    Args:
        scores: shape (records,).
        positive: shape (records,), of both kinds.
    """
    ordered = np.sort(scores)
    ranks = (np.searchsorted(ordered, scores, "left") + np.searchsorted(ordered, scores, "right") + 1) / 2
    positives = np.count_nonzero(positive)
    above = ranks[positive].sum() - positives * (positives + 1) / 2
    return float(above / (positives * (len(scores) - positives)))


def calibration_error(probabilities: Floats, happened: NDArray[np.bool_]) -> float:
    """How far probabilities are from frequencies: the expected calibration error over `CALIBRATION_BINS` bins.

    Records are put into equal-width bins by probability; it is the mean over records of the distance between their
    bin's mean probability and its frequency. Of a binary task, the probability is the positive class's (Naeini,
    Cooper, Hauskrecht 2015); of more classes, the predicted class's, which happens where it is right (Guo, Pleiss,
    Sun, Weinberger 2017). It falls with the number of records: noise within bins counts as error.

    Args:
        probabilities: shape (records,), each in [0, 1].
        happened: shape (records,).

    Returns:
        In [0, 1]; 0 is best.
    """
    bins = np.minimum((probabilities * CALIBRATION_BINS).astype(np.int64), CALIBRATION_BINS - 1)
    gaps = np.bincount(bins, weights=probabilities - happened)
    return float(np.abs(gaps).sum() / len(probabilities))


def _regression(outputs: Floats, labels: Labels, scale: float) -> Metrics:
    errors = (outputs[:, 0] - labels) * scale
    metrics = {"rmse": float(np.sqrt(np.mean(errors**2))), "mae": float(np.mean(np.abs(errors)))}
    if len(labels) > 1 and np.var(labels) > 0:
        metrics["r2"] = 1.0 - float(np.mean((outputs[:, 0] - labels) ** 2) / np.var(labels, dtype=np.float64))
    return metrics


_SCORES: Mapping[str, Callable[[Floats, Labels, float], Metrics]] = {
    "binary": _binary,
    "multiclass": _multiclass,
    "regression": _regression,
}
