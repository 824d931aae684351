"""Metrics from what silos released of their held-out records: noisy counts and sums, post-processed at no price."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from scenarios._checkpoint import WHOLE, MetricRow

Sums = NDArray[np.float64]

PREFIX = "dp-"
"""Before the names of metrics that silos released with noise."""


def noisy_rows(round: int, task: str, released: Mapping[str, Mapping[str, Sums]], *, scale: float) -> list[MetricRow]:
    """Metric rows of each silo, and of all: the sums of all silos added up.

    Args:
        round: after which the silos were asked.
        task: ``binary``, ``multiclass`` or ``regression``.
        released: noisy sums by silo and item.
        scale: regression: one unit of an encoded label in the label's own unit.
    """
    if not released:
        return []
    whole = {
        item: np.sum([sums[item] for sums in released.values() if item in sums], axis=0)
        for item in dict.fromkeys(item for sums in released.values() for item in sums)
    }
    return [
        MetricRow(round, silo, PREFIX + metric, value)
        for silo, sums in {WHOLE: whole, **released}.items()
        for metric, value in noisy_metrics(task, sums, scale=scale).items()
    ]


def noisy_metrics(task: str, released: Mapping[str, Sums], *, scale: float = 1.0) -> dict[str, float]:
    """Metrics by name from noisy sums by item; noise may leave one undefined, which is then left out."""
    metrics: dict[str, float] = {}
    if "outcomes" in released:
        metrics |= _binary(released["outcomes"]) if task == "binary" else _multiclass(released["outcomes"])
        if "loss" in released and (count := float(released["outcomes"].sum())) >= 1:
            metrics["loss"] = float(max(0.0, released["loss"][0] / count))
    if "errors" in released and released["errors"][0] >= 1:
        metrics |= _regression(released["errors"], scale)
    return metrics


def _binary(cells: Sums) -> dict[str, float]:
    """From counts by label and bin of the probability; 1/2 is an edge between bins.

    Cells are added as they are: each is unbiased, and would not be if it were kept from going below zero.
    """
    half = cells.shape[1] // 2
    (tn, fp), (fn, tp) = ((float(row[:half].sum()), float(row[half:].sum())) for row in cells)
    metrics = {"true-positives": tp, "false-positives": fp, "true-negatives": tn, "false-negatives": fn}
    negatives, positives = tn + fp, tp + fn
    if negatives + positives >= 1:
        metrics["accuracy"] = _share(tp + tn, negatives + positives)
    if negatives >= 1 and positives >= 1:
        below = np.cumsum(cells[0]) - cells[0] / 2
        metrics["auc"] = _share(float((cells[1] * below).sum()), negatives * positives)
    return metrics


def _multiclass(cells: Sums) -> dict[str, float]:
    total = float(cells.sum())
    return {"accuracy": _share(float(np.trace(cells)), total)} if total >= 1 else {}


def _share(part: float, whole: float) -> float:
    return min(max(part / whole, 0.0), 1.0)


def _regression(sums: Sums, scale: float) -> dict[str, float]:
    count, absolute, square, label, label_square = map(float, sums)
    mean_square = max(0.0, 4 * square / count)
    metrics = {"mae": max(0.0, 2 * absolute / count) * scale, "rmse": mean_square**0.5 * scale}
    variance = label_square / count - (label / count) ** 2
    if variance > 0:
        metrics["r2"] = 1 - mean_square / variance
    return metrics
