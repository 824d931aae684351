"""What the rows of `accounting_cases.json` released, under which relation and over which grid of orders."""

import json
from collections.abc import Callable

import numpy as np

from accounting import (
    ApproximateEpsilon,
    Exponential,
    Gaussian,
    Laplace,
    Mechanism,
    PureEpsilon,
    RandomisedResponse,
    Relation,
    SampledGaussian,
    SampledLaplace,
    ZeroConcentrated,
)

Row = dict[str, object]

ADD_OR_REMOVE, REPLACE, ZERO = Relation.ADD_OR_REMOVE_ONE, Relation.REPLACE_ONE, Relation.ZERO_OUT

_TENTHS = [1 + x / 10 for x in range(1, 100)]
ORDERS = {
    None: [*_TENTHS, *range(11, 64), 128, 256, 512, 1024],
    "opacus": [*_TENTHS, *range(12, 64)],
    "tfp_old": [1.25, 1.5, 1.75, 2, 2.25, 2.5, 3, 3.5, 4, 4.5, *range(5, 64), 128, 256, 512],
    "thousandths": list(np.arange(1001, 100_000) / 1000),
    "2..32": list(range(2, 33)),
}
"""Order grids by name; the one without a name is dp-accounting's default."""


def steps_of(row: Row) -> list[Mechanism]:
    """The releases of a row, by the name of its mechanism."""
    return RELEASES[str(row["mechanism"])](row)


def gaussian(row: Row) -> list[Mechanism]:
    return [Gaussian(noise_multiplier=row["sigma"], steps=row["steps"])]


def sampled_gaussian(row: Row) -> list[Mechanism]:
    return [SampledGaussian(sampling_rate=row["q"], noise_multiplier=row["sigma"], steps=row["steps"])]


def several_sampled_gaussians(row: Row) -> list[Mechanism]:
    columns = (json.loads(str(row[key])) for key in ("q", "sigma", "steps"))
    return [
        SampledGaussian(sampling_rate=q, noise_multiplier=sigma, steps=steps)
        for q, sigma, steps in zip(*columns, strict=True)
    ]


def several_gaussians(row: Row) -> list[Mechanism]:
    sigmas, steps = json.loads(str(row["sigma"])), json.loads(str(row["steps"]))
    return [Gaussian(noise_multiplier=s, steps=n) for s, n in zip(sigmas, steps, strict=True)]


def laplace(row: Row) -> list[Mechanism]:
    return [Laplace(scale=scale_of(row), steps=row["steps"])]


def sampled_laplace(row: Row) -> list[Mechanism]:
    return [SampledLaplace(sampling_rate=row["q"], scale=scale_of(row), steps=row["steps"])]


def scale_of(row: Row) -> float:
    return float(str(row["sigma"]).split()[0])


def response(noise: float, categories: int) -> Callable[[Row], list[Mechanism]]:
    return lambda _: [RandomisedResponse(noise=noise, categories=categories)]


RELEASES: dict[str, Callable[[Row], list[Mechanism]]] = {
    "Gaussian": gaussian,
    "sampled Gaussian": sampled_gaussian,
    "550 steps": sampled_gaussian,
    "silo takes part in 64 of 640 rounds, 6 local steps of q=1/6 each": sampled_gaussian,
    "heterogeneous sampled Gaussian": several_sampled_gaussians,
    "silo A q=0.01 sigma=1.0 2000 steps; silo B q=0.1 sigma=2.0 500 steps; silo C q=1 sigma=20 100 steps": (
        several_sampled_gaussians
    ),
    "Gaussian sigma 10 x50 and sigma 5 x50": several_gaussians,
    "Laplace": laplace,
    "Laplace b=10": laplace,
    "sampled Laplace b=0.5": sampled_laplace,
    "pure-DP 1 + pure-DP 2": lambda _: [PureEpsilon(epsilon=1), PureEpsilon(epsilon=2)],
    "randomized response p=0.3 k=10": response(0.3, 10),
    "randomized response p=0.05 k=20": response(0.05, 20),
    "randomized response p=0.01 k=3": response(0.01, 3),
    "randomized response p=0.9 k=2": response(0.9, 2),
    "randomized response p=0.99 k=2": response(0.99, 2),
    "exponential mechanism eps=1": lambda _: [Exponential(epsilon=1)],
    "Gaussian mu=1": lambda _: [Gaussian(noise_multiplier=1)],
    "2 x (Gaussian sigma=1 at delta 1e-7)": lambda _: [Gaussian(noise_multiplier=1)] * 2,
    "Laplace b=10 and Gaussian sigma=10": lambda _: [Laplace(scale=10), Gaussian(noise_multiplier=10)],
    "rho=0.5 zCDP": lambda _: [ZeroConcentrated(rho=0.5)],
    "(0.25,0)-DP": lambda row: [PureEpsilon(epsilon=0.25, steps=row["steps"])],
    "(0,0.001)-DP": lambda row: [ApproximateEpsilon(epsilon=0, delta=0.001, steps=row["steps"])],
}
RELATIONS = {"replace_one": REPLACE, "replace_special": ZERO}


def relation_of(row: Row) -> Relation:
    return RELATIONS.get(str(row["neighbouring"]).split()[0], ADD_OR_REMOVE)
