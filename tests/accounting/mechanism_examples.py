"""Examples and strategies of every mechanism, for the tests that hold all of them to one contract."""

from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

from accounting import (
    Allowance,
    ApproximateEpsilon,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    FixedBatchGaussian,
    Gaussian,
    Laplace,
    Mechanism,
    MultiRecordSampledGaussian,
    NonPrivate,
    PureEpsilon,
    RandomisedResponse,
    Relation,
    RepeatAndSelect,
    SampledGaussian,
    SampledLaplace,
    ShuffledGaussian,
    TruncatedSampledGaussian,
    Unsupported,
    ZeroConcentrated,
)

Change = Callable[[float], float]

EXAMPLES: dict[type[Mechanism], list[Mechanism]] = {
    Gaussian: [Gaussian(noise_multiplier=4.0)],
    SampledGaussian: [
        SampledGaussian(sampling_rate=0.1, noise_multiplier=1.2),
        SampledGaussian(sampling_rate=0.02, noise_multiplier=0.8, by_individual=True),
    ],
    MultiRecordSampledGaussian: [MultiRecordSampledGaussian(sampling_rate=0.1, noise_multiplier=2.0, records=4)],
    FixedBatchGaussian: [FixedBatchGaussian(batch_size=10, shard_size=200, noise_multiplier=1.5)],
    TruncatedSampledGaussian: [
        TruncatedSampledGaussian(sampling_rate=0.1, batch_cap=22, shard_size=200, noise_multiplier=1.5)
    ],
    ShuffledGaussian: [ShuffledGaussian(noise_multiplier=6.0, batches=5)],
    Laplace: [Laplace(scale=4.0), Laplace(scale=3.0, replace_sensitivity=0.5, records=2)],
    SampledLaplace: [SampledLaplace(sampling_rate=0.2, scale=1.5)],
    DiscreteLaplace: [
        DiscreteLaplace(scale=4.0),
        DiscreteLaplace(scale=9.0, sensitivity=3),
        DiscreteLaplace(scale=2.0, replace_sensitivity=0),
    ],
    DiscreteGaussian: [DiscreteGaussian(scale=4.0), DiscreteGaussian(scale=0.9, replace_sensitivity=1)],
    RandomisedResponse: [RandomisedResponse(noise=0.7, categories=2), RandomisedResponse(noise=0.8, categories=10)],
    PureEpsilon: [PureEpsilon(epsilon=0.3), PureEpsilon(epsilon=0.2, relation=Relation.ZERO_OUT)],
    ApproximateEpsilon: [ApproximateEpsilon(epsilon=0.3, delta=1e-7)],
    Allowance: [Allowance(item="update", epsilon=0.3, delta=1e-7)],
    Exponential: [Exponential(epsilon=0.4, relation=Relation.REPLACE_ONE)],
    ZeroConcentrated: [ZeroConcentrated(rho=0.02), ZeroConcentrated(rho=0.02, xi=0.01)],
    RepeatAndSelect: [
        RepeatAndSelect(run=(SampledGaussian(sampling_rate=0.05, noise_multiplier=2.0, steps=20),), mean_runs=5.0),
        RepeatAndSelect(run=(Gaussian(noise_multiplier=8.0), Laplace(scale=20.0)), mean_runs=5.0, runs="poisson"),
        RepeatAndSelect(run=(Gaussian(noise_multiplier=8.0),), mean_runs=4.0, runs="logarithmic"),
        RepeatAndSelect(run=(Gaussian(noise_multiplier=8.0),), mean_runs=4.0, runs=0.5),
    ],
    NonPrivate: [NonPrivate()],
}

ALL = [mechanism for examples in EXAMPLES.values() for mechanism in examples]

WEAKER: dict[str, Change] = {
    "noise_multiplier": lambda value: value * 0.8,
    "scale": lambda value: value * 0.8,
    "noise": lambda value: value * 0.8,
    "sampling_rate": lambda value: value * 1.3,
    "batch_size": lambda value: value + 2,
    "shard_size": lambda value: value - 20,
    "sensitivity": lambda value: value + 1,
    "records": lambda value: value + 1,
    "epsilon": lambda value: value * 1.3,
    "delta": lambda value: value * 2,
    "rho": lambda value: value * 1.3,
    "xi": lambda value: value + 0.01,
    "mean_runs": lambda value: value * 2,
}
"""A change of each number that cannot make a release more private."""

UNORDERED = {
    "relation": "a claim's own relation, not a number",
    "item": "a name",
    "batches": "decides whether there is a price, not which",
    "reason": "words for the sentence",
    "by_individual": "decides what is covered, not the price",
    "replace_sensitivity": "may be None; covered by sensitivity",
    "categories": "more answers reveal more by truth and less by chance",
    "batch_cap": "a larger batch takes the record more often but crowds it less often",
    "runs": "the name of a law",
    "run": "a tuple of mechanisms, each ordered by itself",
    "steps": "has its own test",
}
"""Fields for which there is no more or less private direction, and why."""


NOT_MONOTONE = {
    (TruncatedSampledGaussian, "shard_size"): "fewer others crowd a batch less",
    (ZeroConcentrated, "xi"): "a group of two has no price once xi is above 0",
}
"""Fields that are ordered for other mechanisms but not for this one, and why."""


def has_pairs(mechanism: Mechanism, relation: Relation) -> bool:
    try:
        mechanism.pairs(relation)
    except Unsupported:
        return False
    return True


def supports(mechanism: Mechanism, relation: Relation) -> bool:
    """Whether any accountant prices the mechanism under the relation."""
    try:
        mechanism.renyi(relation, np.array([2.0]))
    except Unsupported:
        return False
    return True


rates = st.sampled_from([0.0, 1e-6, 1.0]) | st.floats(0, 1)
noises = st.sampled_from([0.0, 1e-3, 0.05, 1.0, 1e4]) | st.floats(1e-3, 1e4)
widths = st.sampled_from([0.0, 1e-6, 1.0, 50.0]) | st.floats(0, 50)
small = st.integers(0, 5)
counts = st.integers(1, 300)
relations = st.sampled_from(list(Relation))

STRATEGIES: dict[type[Mechanism], st.SearchStrategy[Mechanism]] = {
    Gaussian: st.builds(Gaussian, noise_multiplier=noises),
    SampledGaussian: st.builds(SampledGaussian, sampling_rate=rates, noise_multiplier=noises),
    MultiRecordSampledGaussian: st.builds(
        MultiRecordSampledGaussian, sampling_rate=rates, noise_multiplier=noises, records=st.integers(1, 12)
    ),
    FixedBatchGaussian: st.builds(
        lambda size, part, noise: FixedBatchGaussian(
            batch_size=round(size * part), shard_size=size, noise_multiplier=noise
        ),
        counts,
        rates,
        noises,
    ),
    TruncatedSampledGaussian: st.builds(
        TruncatedSampledGaussian,
        sampling_rate=rates,
        batch_cap=st.integers(0, 400),
        shard_size=counts,
        noise_multiplier=noises,
    ),
    ShuffledGaussian: st.builds(ShuffledGaussian, noise_multiplier=noises, batches=st.none() | counts),
    Laplace: st.builds(Laplace, scale=noises, sensitivity=widths, replace_sensitivity=st.none() | widths),
    SampledLaplace: st.builds(SampledLaplace, sampling_rate=rates, scale=noises, sensitivity=widths),
    DiscreteLaplace: st.builds(DiscreteLaplace, scale=noises, sensitivity=small, replace_sensitivity=st.none() | small),
    DiscreteGaussian: st.builds(
        DiscreteGaussian, scale=noises, sensitivity=small, replace_sensitivity=st.none() | small
    ),
    RandomisedResponse: st.builds(RandomisedResponse, noise=rates, categories=st.integers(2, 50)),
    PureEpsilon: st.builds(PureEpsilon, epsilon=widths, relation=relations),
    ApproximateEpsilon: st.builds(ApproximateEpsilon, epsilon=widths, delta=rates, relation=relations),
    Allowance: st.builds(Allowance, item=st.just("update"), epsilon=widths, delta=rates, relation=relations),
    Exponential: st.builds(Exponential, epsilon=widths, relation=relations),
    ZeroConcentrated: st.builds(ZeroConcentrated, rho=widths, xi=widths, relation=relations),
    RepeatAndSelect: st.builds(
        lambda noise, mean, law: RepeatAndSelect(run=(Gaussian(noise_multiplier=noise),), mean_runs=mean, runs=law),
        noises,
        st.floats(1, 1000),
        st.sampled_from(["poisson", "geometric", "logarithmic", 0.5, 3.0]),
    ),
    NonPrivate: st.just(NonPrivate()),
}
