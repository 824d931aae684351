"""Batches of fixed and capped size and several records at once, against integrals over outputs and other libraries."""

import math
from collections.abc import Sequence

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import PLDAccountant
from scipy.stats import binom, norm

from accounting import (
    FixedBatchGaussian,
    Gaussian,
    Mechanism,
    MultiRecordSampledGaussian,
    Relation,
    SampledGaussian,
    TruncatedSampledGaussian,
)
from accounting._accountant import epsilon

ADD, ZERO, REPLACE = Relation.ADD_OR_REMOVE_ONE, Relation.ZERO_OUT, Relation.REPLACE_ONE
TARGET = 1e-5
STEPS = 12


def price(mechanism: Mechanism, relation: Relation) -> float:
    return epsilon([mechanism.repeated(STEPS)], relation=relation, delta=TARGET).epsilon


def hockey_stick(p: np.ndarray, q: np.ndarray, at: float, cell: float) -> float:
    return float(np.sum(np.maximum(p - math.exp(at) * q, 0)) * cell)


EPSILONS = (0.0, 0.5, 2.0)


def full_batch_laws(
    points: Sequence[np.ndarray], rate: float, sigma: float, x: Sequence[float], y: Sequence[float], z: Sequence[float]
) -> tuple[np.ndarray, np.ndarray]:
    """A place in a full batch that holds x (or its substitute z) with probability `rate`, else y."""

    def density(centre: Sequence[float]) -> np.ndarray:
        axes = zip(points, centre, strict=True)
        return math.prod((norm.pdf(point, at, sigma) for point, at in axes), start=np.array(1.0))

    return (1 - rate) * density(y) + rate * density(x), (1 - rate) * density(y) + rate * density(z)


@pytest.mark.parametrize(("rate", "sigma"), [(0.5, 0.6), (0.05, 1.0), (0.9, 2.0)])
def test_fixed_batches_are_attained_by_the_worst_gradients_on_a_line(rate: float, sigma: float) -> None:
    x = np.linspace(-12 * sigma - 2, 12 * sigma + 2, 16_001)
    cell = float(x[1] - x[0])
    mechanism = FixedBatchGaussian(batch_size=round(rate * 20), shard_size=20, noise_multiplier=sigma)
    for relation, substitutes in ((REPLACE, (1.0, -1.0, 0.3)), (ZERO, (0.0,))):
        pairs = mechanism.pairs(relation)
        for at in EPSILONS:
            there, back = [], []
            for own in (-1.0, 0.4, 1.0):
                for other in (-1.0, -0.5, 0.0, 1.0):
                    for substitute in substitutes:
                        p, q = full_batch_laws([x], rate, sigma, [own], [other], [substitute])
                        there.append(hockey_stick(p, q, at, cell))
                        back.append(hockey_stick(q, p, at, cell))
            assert pairs.remove.profile(at) == pytest.approx(max(there), rel=1e-5, abs=1e-7)
            assert pairs.add.profile(at) == pytest.approx(max(back), rel=1e-5, abs=1e-7)


def test_fixed_batches_dominate_gradients_in_the_plane() -> None:
    """What the lemma about collinear worst cases says, on random gradients of two dimensions."""
    rate, sigma = 0.3, 0.8
    axis = np.linspace(-6.5, 6.5, 261)
    points, cell = np.meshgrid(axis, axis), float(axis[1] - axis[0]) ** 2
    mechanism = FixedBatchGaussian(batch_size=3, shard_size=10, noise_multiplier=sigma)
    angles = np.random.default_rng(5).uniform(0, 2 * math.pi, (8, 3))
    for own, other, substitute in np.stack([np.cos(angles), np.sin(angles)], axis=-1):
        for relation, instead in ((REPLACE, substitute), (ZERO, np.zeros(2))):
            p, q = full_batch_laws(points, rate, sigma, own, other, instead)
            pairs = mechanism.pairs(relation)
            for at in EPSILONS:
                assert hockey_stick(p, q, at, cell) <= pairs.remove.profile(at) + 3e-5
                assert hockey_stick(q, p, at, cell) <= pairs.add.profile(at) + 3e-5


@pytest.mark.parametrize(("batch", "sigma"), [(3, 0.8), (1, 3.0)])
def test_fixed_batch_divergence_is_its_integral_in_extended_precision(batch: int, sigma: float) -> None:
    """E_Q[r^a - 1 - a (r - 1)] over outputs, the positive losses of removal and the mirrored ones of addition."""
    rate = mpmath.mpf(batch) / 10
    pair = FixedBatchGaussian(batch_size=batch, shard_size=10, noise_multiplier=sigma).pairs(ZERO).remove

    def half(u: int, v: int, order: float, swapped: bool) -> mpmath.mpf:
        def integrand(x: mpmath.mpf) -> mpmath.mpf:
            p, q = ((1 - rate) * mpmath.npdf(x, 0, sigma) + rate * mpmath.npdf(x, mean, sigma) for mean in (u, v))
            p, q = (q, p) if swapped else (p, q)
            return q * ((p / q) ** order - 1 - order * (p / q - 1))

        start, peaks = mpmath.mpf(u + v) / 2, (0, u, v, order * u - (order - 1) * v, order * u)
        spots = {peak + k * mpmath.mpf(sigma) for peak in peaks for k in range(-12, 13, 4)}
        return mpmath.quad(integrand, [start, *sorted(spot for spot in spots if spot > start)])

    with mpmath.workdps(20):
        for order in (1.25, 7.0):
            total = half(2, 1, order, swapped=False) + half(1, 0, order, swapped=True)
            expected = float(mpmath.log1p(total) / (order - 1))
            assert pair.renyi(np.array([order]))[0] == pytest.approx(expected, rel=1e-10)


def test_full_batch_is_the_plain_gaussian() -> None:
    for relation in (ZERO, REPLACE):
        whole = FixedBatchGaussian(batch_size=9, shard_size=9, noise_multiplier=5)
        assert price(whole, relation) == price(Gaussian(noise_multiplier=5), relation)


def test_fixed_batch_replacement_is_the_sampled_gaussian_of_twice_the_sensitivity() -> None:
    """Zhu, Dong, Wang 2022, Theorem 11: at epsilon >= 0 its curve is that of sampled removal with shift 2."""
    theirs = dp_accounting.PoissonSampledDpEvent(0.05, dp_accounting.GaussianDpEvent(1.5 / 2))
    accountant = PLDAccountant(value_discretization_interval=1e-4).compose(theirs)
    pair = FixedBatchGaussian(batch_size=5, shard_size=100, noise_multiplier=1.5).pairs(REPLACE).remove
    for at in (0.1, 0.5, 1.0):
        assert pair.profile(at) == pytest.approx(accountant.get_delta(at), rel=1e-3)


def test_truncation_that_never_happens_is_the_sampled_gaussian() -> None:
    for relation in (ZERO, REPLACE):
        capped = TruncatedSampledGaussian(sampling_rate=0.1, batch_cap=50, shard_size=50, noise_multiplier=1.2)
        assert price(capped, relation) == price(SampledGaussian(sampling_rate=0.1, noise_multiplier=1.2), relation)
    none = TruncatedSampledGaussian(sampling_rate=0.1, batch_cap=0, shard_size=50, noise_multiplier=1.2)
    assert price(none, ZERO) == 0


def test_truncation_of_certain_records_is_a_fixed_batch() -> None:
    for relation in (ZERO, REPLACE):
        capped = TruncatedSampledGaussian(sampling_rate=1, batch_cap=5, shard_size=50, noise_multiplier=1.2)
        assert price(capped, relation) == price(
            FixedBatchGaussian(batch_size=5, shard_size=50, noise_multiplier=1.2), relation
        )


@pytest.mark.parametrize("cap", [4, 12])
def test_truncation_is_at_most_that_of_another_library(cap: int) -> None:
    """Theirs is replace-one at 2C wherever the batch is full, ours the worst pair that the batch allows."""
    capped = TruncatedSampledGaussian(sampling_rate=0.1, batch_cap=cap, shard_size=80, noise_multiplier=1.4)
    event = dp_accounting.TruncatedSubsampledGaussianDpEvent(80, 0.1, cap, 1.4)
    accountant = PLDAccountant(NeighboringRelation.REPLACE_ONE, value_discretization_interval=4e-4)
    theirs = accountant.compose(dp_accounting.SelfComposedDpEvent(event, STEPS)).get_epsilon(TARGET)
    assert price(capped, ZERO) < price(capped, REPLACE) < theirs * 1.001
    assert price(capped, REPLACE) > 0.5 * theirs


def test_truncation_is_attained_by_the_whole_sampler() -> None:
    """Every sample of a tiny shard and every cut of it, against zeroing a record among equal opposite ones."""
    size, cap, rate, sigma = 5, 2, 0.5, 1.0
    x = np.linspace(-14, 14, 40_001)
    mechanism = TruncatedSampledGaussian(sampling_rate=rate, batch_cap=cap, shard_size=size, noise_multiplier=sigma)

    def output(gradient: float) -> np.ndarray:
        """The record has this gradient and all others -1; they differ only in their number and its place."""
        total = np.zeros_like(x)
        for others in range(size):
            chance = binom.pmf(others, size - 1, rate)
            place = rate * min(1.0, cap / (others + 1))
            without = rate * (1 - min(1.0, cap / (others + 1))) + (1 - rate)
            total += chance * place * norm.pdf(x, gradient - min(others, cap - 1), sigma)
            total += chance * without * norm.pdf(x, -min(others, cap), sigma)
        return total

    p, q, cell = output(1.0), output(0.0), float(x[1] - x[0])
    pairs = mechanism.pairs(ZERO)
    for at in EPSILONS:
        assert hockey_stick(p, q, at, cell) <= pairs.remove.profile(at)
        assert hockey_stick(q, p, at, cell) <= pairs.add.profile(at)
    assert hockey_stick(p, q, 1.0, cell) > 0.6 * pairs.remove.profile(1.0)


def test_several_records_are_attained_by_equal_gradients() -> None:
    x = np.linspace(-15, 20, 60_001)
    weights = binom.pmf(range(4), 3, 0.3)
    mixture = sum(w * norm.pdf(x, j, 1.3) for j, w in enumerate(weights))
    pairs = MultiRecordSampledGaussian(sampling_rate=0.3, noise_multiplier=1.3, records=3).pairs(ADD)
    cell = float(x[1] - x[0])
    for at in EPSILONS:
        assert pairs.remove.profile(at) == pytest.approx(hockey_stick(mixture, norm.pdf(x, 0, 1.3), at, cell), rel=1e-6)
        expected = hockey_stick(norm.pdf(x, 0, 1.3), mixture, at, cell)
        assert pairs.add.profile(at) == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_several_certain_records_are_one_gaussian_of_their_number() -> None:
    whole = MultiRecordSampledGaussian(sampling_rate=1, noise_multiplier=9, records=3)
    for relation in (ADD, ZERO, REPLACE):
        assert price(whole, relation) == price(Gaussian(noise_multiplier=3), relation)
    assert price(replaced_by_one(whole), REPLACE) == price(
        SampledGaussian(sampling_rate=0.1, noise_multiplier=9), REPLACE
    )


def replaced_by_one(mechanism: MultiRecordSampledGaussian) -> MultiRecordSampledGaussian:
    return MultiRecordSampledGaussian(sampling_rate=0.1, noise_multiplier=mechanism.noise_multiplier, records=1)
