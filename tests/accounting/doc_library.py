"""The numbers of docs/parallel-composition.md as the library answers them."""

import math
from collections.abc import Callable
from functools import cache

import numpy as np

from accounting import (
    ApproximateEpsilon,
    AtMost,
    Disjoint,
    Federation,
    Gaussian,
    Laplace,
    Mechanism,
    Membership,
    MultiRecordSampledGaussian,
    PureEpsilon,
    Relation,
    Release,
    SampledGaussian,
    Sets,
    ShuffledGaussian,
    Unknown,
    calibrate_noise_multiplier,
    epsilon,
)
from accounting._rdp import epsilon_from_renyi

Route = Callable[[], float]
DELTA = 1e-5
ADD_OR_REMOVE, ZERO_OUT, REPLACE = Relation.ADD_OR_REMOVE_ONE, Relation.ZERO_OUT, Relation.REPLACE_ONE


def alone(mechanism: Mechanism, *, delta: float = DELTA, relation: Relation = ADD_OR_REMOVE) -> Route:
    """Epsilon of one silo that released one thing."""
    return lambda: Federation({"only": [mechanism]}, Disjoint(), relation).epsilon(delta)


def step(rate: float, noise: float, steps: int) -> SampledGaussian:
    return SampledGaussian(sampling_rate=rate, noise_multiplier=noise, steps=steps)


LONG = Gaussian(noise_multiplier=100.0, steps=10_000)
TAKING_TURNS = {
    name: [
        Release(mechanism=step(0.02, 1.0, 50 if (index + first) % 2 == 0 else 5), round=index) for index in range(20)
    ]
    for first, name in enumerate(("north", "south"))
}

THREE = {
    "a": [step(0.01, 1.0, 2000)],
    "b": [step(0.1, 2.0, 500)],
    "c": [Gaussian(noise_multiplier=20.0, steps=100)],
}


def three(membership: Membership) -> Route:
    return lambda: Federation(THREE, membership, ADD_OR_REMOVE).epsilon(DELTA)


def of_silo(name: str) -> Route:
    return lambda: Federation(THREE, Disjoint(), ADD_OR_REMOVE).guarantee(delta=DELTA).per_silo[name]


@cache
def ladder() -> dict[str, float]:
    rungs = Federation(TAKING_TURNS, Disjoint(), ADD_OR_REMOVE).ladder(DELTA)
    return {rung.method: rung.epsilon for rung in rungs}


def crossing(*names: str) -> Route:
    """Delta at ln 3 of an individual in the named silos."""
    clear, response = ApproximateEpsilon(epsilon=0, delta=0.1), PureEpsilon(epsilon=math.log(3))
    silos: dict[str, list[Mechanism]] = {name: [clear if name.startswith("clear") else response] for name in names}
    return lambda: Federation(silos, Unknown(), ADD_OR_REMOVE).delta(math.log(3))


def at_most_two() -> float:
    silos: dict[str, list[Mechanism]] = {
        "clear-1": [ApproximateEpsilon(epsilon=0, delta=0.1)],
        "clear-2": [ApproximateEpsilon(epsilon=0, delta=0.1)],
        "response-1": [PureEpsilon(epsilon=math.log(3))],
        "response-2": [PureEpsilon(epsilon=math.log(3))],
    }
    return Federation(silos, AtMost(2), ADD_OR_REMOVE).delta(math.log(3))


def reacting() -> float:
    silos = {str(index): [ApproximateEpsilon(epsilon=0, delta=1e-5)] for index in range(100)}
    return Federation(silos, Unknown(), ADD_OR_REMOVE, data_may_react=True).delta(0.0)


TWO_GAUSSIANS = {"a": [Gaussian(noise_multiplier=1.0)], "b": [Gaussian(noise_multiplier=2.0)]}


def counts(*, may_move: bool) -> Route:
    silos = {name: [Laplace(scale=2.0, sensitivity=1.0, replace_sensitivity=0.0)] for name in ("a", "b")}
    return lambda: Federation(silos, Disjoint(), REPLACE, may_move=may_move).epsilon(0.0)


def calibrated(rate: float) -> Route:
    return lambda: calibrate_noise_multiplier(
        lambda noise: [step(rate, noise, 200)], epsilon=1.9, delta=DELTA, relation=ADD_OR_REMOVE
    )


def size_then_training() -> float:
    """The sum that the rule allows: the count's own epsilon at delta 0, and what training was calibrated to."""
    size = Federation({"only": [Laplace(scale=10.0)]}, Disjoint(), ADD_OR_REMOVE).epsilon(0.0)
    return size + 1.9


def converted(budget: float) -> Route:
    return lambda: epsilon_from_renyi(np.array([20.0]), np.array([budget]), DELTA)


def epochs(relation: Relation) -> Route:
    return alone(ShuffledGaussian(noise_multiplier=4.0, batches=20, steps=10), relation=relation)


LIBRARY: dict[str, Route] = {
    "reacting.true": reacting,
    "stopping.declared": alone(Gaussian(noise_multiplier=10.0, steps=1000)),
    "stopping.executed": alone(Gaussian(noise_multiplier=10.0, steps=250)),
    "crossing.clear-one": crossing("clear"),
    "crossing.clear-two": crossing("clear-1", "clear-2"),
    "crossing.response-one": crossing("response"),
    "crossing.response-two": at_most_two,
    "crossing.mixed": crossing("clear", "response"),
    "disjoint.max": lambda: Federation(TAKING_TURNS, Disjoint(), ADD_OR_REMOVE).epsilon(DELTA),
    "sets.both": lambda: Federation(TAKING_TURNS, Sets([["north", "south"]]), ADD_OR_REMOVE).epsilon(DELTA),
    "cap.a": of_silo("a"),
    "cap.b": of_silo("b"),
    "cap.c": of_silo("c"),
    "cap.two": three(AtMost(2)),
    "unknown.all": three(Unknown()),
    "replace.own": alone(step(0.01, 1.0, 1000), relation=REPLACE),
    "replace.doubled": alone(step(0.01, 0.5, 1000)),
    "replace.add-or-remove": alone(step(0.01, 1.0, 1000)),
    "move.gaussian": lambda: Federation(TWO_GAUSSIANS, Unknown(), ADD_OR_REMOVE).epsilon(DELTA),
    "move.stay": lambda: Federation(TWO_GAUSSIANS, Disjoint(), REPLACE, may_move=True).epsilon(DELTA),
    "move.count-stay": counts(may_move=False),
    "move.count": counts(may_move=True),
    "records.one": alone(MultiRecordSampledGaussian(sampling_rate=0.01, noise_multiplier=1.0, records=1, steps=500)),
    "records.three": alone(MultiRecordSampledGaussian(sampling_rate=0.01, noise_multiplier=1.0, records=3, steps=500)),
    "unit.individuals": alone(step(0.01, 1.0, 500)),
    "unit.records": alone(step(1 - 0.99**20, 1.0, 500)),
    "participation.joined": alone(step(1 / 6, 4.0, 64 * 6), delta=9e-6),
    "participation.all": alone(step(1 / 6, 4.0, 640 * 6), delta=9e-6),
    "participation.wrong": alone(step(1 / 60, 4.0, 640 * 6), delta=9e-6),
    "filter.whole": converted(1.0),
    "filter.spent": converted(0.5),
    "count.thousand": calibrated(50 / 1000),
    "count.eight-hundred": calibrated(50 / 800),
    "count.total": size_then_training,
    "shuffled.zero-out": epochs(ZERO_OUT),
    "shuffled.replace": epochs(REPLACE),
    "shuffled.add-or-remove": epochs(ADD_OR_REMOVE),
    "best.five": alone(step(0.02, 1.0, 5 * 550)),
    "best.one": alone(step(0.02, 1.0, 550)),
    "runs.two": alone(step(0.02, 1.0, 2 * 550)),
    "ladder.parallel": lambda: ladder()["parallel"],
    "ladder.parallel-rdp": lambda: ladder()["parallel-rdp"],
    "ladder.rounds-composed": lambda: ladder()["rounds-composed"],
    "ladder.sequential": lambda: ladder()["sequential"],
    "ladder.rounds-optimal": lambda: ladder()["rounds-optimal"],
    "ladder.rounds-advanced": lambda: ladder()["rounds-advanced"],
    "ladder.rounds-basic": lambda: ladder()["rounds-basic"],
    "range.truth": alone(LONG, delta=1e-13),
    "range.renyi": lambda: epsilon([LONG], relation=ADD_OR_REMOVE, delta=1e-13, method="rdp").epsilon,
}
