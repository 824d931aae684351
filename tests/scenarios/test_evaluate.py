"""Oracle metrics, against computations by another route."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.calibration import calibration_curve
from sklearn.metrics import log_loss, r2_score, roc_auc_score

from scenarios._evaluate import CALIBRATION_BINS, calibration_error, score

Floats = NDArray[np.float64]


def error_by_intervals(probabilities: Floats, happened: NDArray[np.bool_]) -> float:
    """The definition in Guo et al. (2017), equation 3, bin by bin."""
    total = 0.0
    for number in range(CALIBRATION_BINS):
        low, high = number / CALIBRATION_BINS, (number + 1) / CALIBRATION_BINS
        within = (probabilities >= low) & ((probabilities < high) | (number == CALIBRATION_BINS - 1))
        if within.any():
            total += within.mean() * abs(happened[within].mean() - probabilities[within].mean())
    return total


@pytest.mark.parametrize("decimals", [0, 1, 8])  # with many ties, with some, with none
def test_area_under_the_curve_is_that_of_scikit_learn(decimals: int) -> None:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2, 300).astype(np.float32)
    logits = (generator.normal(0, 2, 300) + labels).round(decimals)
    found = score("binary", logits[:, np.newaxis], labels)["auc"]
    assert found == pytest.approx(roc_auc_score(labels, logits), abs=1e-12)


def test_loss_and_r2_are_those_of_scikit_learn() -> None:
    generator = np.random.default_rng(0)
    logits, labels = generator.normal(0, 3, (300, 4)), generator.integers(0, 4, 300)
    expected = log_loss(labels, softmax(logits, axis=1), labels=np.arange(4))
    assert score("multiclass", logits, labels)["loss"] == pytest.approx(expected, rel=1e-9)
    wanted = generator.normal(2, 1, 300).astype(np.float32)
    guesses = wanted[:, np.newaxis] + generator.normal(0, 0.5, (300, 1))
    assert score("regression", guesses, wanted)["r2"] == pytest.approx(r2_score(wanted, guesses[:, 0]), rel=1e-6)


def test_binary_calibration_error_is_that_of_the_positive_class() -> None:
    generator = np.random.default_rng(1)
    logits, labels = generator.normal(0, 2, (500, 1)), generator.integers(0, 2, 500)
    found = score("binary", logits, labels)["calibration_error"]
    assert found == pytest.approx(error_by_intervals(expit(logits[:, 0]), labels > 0), abs=1e-12)
    true, predicted = calibration_curve(labels, expit(logits[:, 0]), n_bins=CALIBRATION_BINS)
    counts = np.histogram(expit(logits[:, 0]), bins=CALIBRATION_BINS, range=(0, 1))[0]
    assert found == pytest.approx(np.average(np.abs(true - predicted), weights=counts[counts > 0]), abs=1e-12)


def test_multiclass_calibration_error_is_that_of_the_predicted_class() -> None:
    generator = np.random.default_rng(2)
    logits, labels = generator.normal(0, 2, (400, 5)), generator.integers(0, 5, 400)
    confidence = softmax(logits, axis=1).max(axis=1)
    found = score("multiclass", logits, labels)["calibration_error"]
    assert found == pytest.approx(error_by_intervals(confidence, logits.argmax(axis=1) == labels), abs=1e-12)


def test_certain_and_right_is_calibrated_and_certain_and_wrong_is_not() -> None:
    certain, right = np.array([0.0, 1.0, 1.0]), np.array([False, True, True])
    assert calibration_error(certain, right) == 0
    assert calibration_error(certain, ~right) == 1
    assert calibration_error(np.full(4, 0.5), np.array([True, False, True, False])) == 0


def test_a_regression_has_no_calibration_error() -> None:
    metrics = score("regression", np.array([[0.0], [1.0]]), np.array([0.0, 0.5], np.float32))
    assert metrics.keys() == {"rmse", "mae", "r2"}
