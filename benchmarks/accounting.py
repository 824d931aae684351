"""How long accounting takes, by PLD with an error of at most 0.1% unless said otherwise.

    python -m benchmarks.accounting [--silos 1000] [--processes 2] [--json FILE]

- **distinct**: epsilon of one silo with 200 distinct (noise multiplier, sampling rate) pairs. Opacus' PRV accountant
  takes 131 s for such a list.
- **calibration**: noise multipliers of many distinct silos, each to (2, 1e-6), over worker processes.
- **renyi**: one Renyi epsilon of a silo after each of many new segments.

The error of an epsilon is taken against the same composition on a grid whose error is 30 times less.
"""

import argparse
import json
import math
import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

from accounting import Relation, SampledGaussian
from accounting._accountant import epsilon
from accounting._calibration import calibrate_noise_multiplier
from accounting._parts import directed_parts
from accounting._pld import LossDistribution

RELATION = Relation.ADD_OR_REMOVE_ONE
TARGET = 2.0
DELTA = 1e-6
CHECKED = 20
"""How many calibrated silos are priced again on the finer grid."""

Law = tuple[float, int]
"""Sampling rate and steps of a silo."""


def silo_laws(count: int) -> list[Law]:
    """Distinct silos: sampling rates from .002 to .5 and steps from 100 to 20,000, spread evenly in logarithms."""
    generator = np.random.default_rng(0)
    rates = np.exp(generator.uniform(math.log(0.002), math.log(0.5), count))
    steps = np.exp(generator.uniform(math.log(100), math.log(20_000), count))
    return [(float(q), int(n)) for q, n in zip(rates, steps, strict=True)]


def _releases(law: Law) -> Callable[[float], list[SampledGaussian]]:
    rate, steps = law
    return lambda sigma: [SampledGaussian(sampling_rate=rate, noise_multiplier=sigma, steps=steps)]


def _calibrate(law: Law) -> float:
    return calibrate_noise_multiplier(_releases(law), epsilon=TARGET, delta=DELTA, relation=RELATION)


def _fine(releases: list[SampledGaussian]) -> float:
    parts = directed_parts(releases, RELATION)
    return max(LossDistribution(direction).epsilon(DELTA, accuracy=1e-5) for direction in parts)


def distinct(count: int = 200) -> dict[str, float]:
    """Seconds for the epsilon of a silo with `count` distinct pairs, and the part by which it is too large."""
    pairs = zip(np.linspace(0.8, 3.0, count), np.geomspace(0.002, 0.1, count), strict=True)
    releases = [SampledGaussian(sampling_rate=float(q), noise_multiplier=float(s), steps=10) for s, q in pairs]
    started = time.perf_counter()
    spent = epsilon(releases, relation=RELATION, delta=DELTA, method="pld").epsilon
    seconds = time.perf_counter() - started
    return {"pairs": count, "seconds": seconds, "error": spent / _fine(releases) - 1}


def calibration(count: int, processes: int) -> dict[str, float]:
    """Seconds to calibrate `count` distinct silos, and how far below the target the checked ones are at most."""
    laws = silo_laws(count)
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        pool.map(_calibrate, laws[:processes])
        started = time.perf_counter()
        sigmas = pool.map(_calibrate, laws, chunksize=8)
        seconds = time.perf_counter() - started
    checked = list(zip(laws, sigmas, strict=True))[:: max(1, count // CHECKED)]
    spent = [_fine(_releases(law)(sigma)) for law, sigma in checked]
    return {"silos": count, "processes": processes, "seconds": seconds, "error": 1 - min(spent) / TARGET}


def renyi(segments: int = 200) -> dict[str, float]:
    """Milliseconds of a Renyi epsilon after each new segment of a kind seen before, and of a new kind."""
    kinds = [SampledGaussian(sampling_rate=0.01, noise_multiplier=1.0 + 0.1 * i, steps=10) for i in range(10)]
    seen: list[float] = []
    fresh: list[float] = []
    releases: list[SampledGaussian] = []
    for segment in range(segments):
        new = segment % (segments // len(kinds)) == 0
        known = 1 + segment * len(kinds) // segments
        releases.append(kinds[known - 1] if new else kinds[segment % known])
        started = time.perf_counter()
        epsilon(releases, relation=RELATION, delta=DELTA, method="rdp")
        (fresh if new else seen).append(1e3 * (time.perf_counter() - started))
    return {"segments": segments, "milliseconds": median(seen), "milliseconds_of_a_new_kind": median(fresh)}


def report(results: dict[str, dict[str, float]]) -> str:
    """The results as a table."""
    one, many, query = results["distinct"], results["calibration"], results["renyi"]
    rows = [
        ("work", "took", "asked", "error"),
        (f"{one['pairs']:g} distinct pairs, one silo", f"{one['seconds']:.2f} s", "5 s", f"{one['error']:.3%}"),
        (
            f"{many['silos']:g} silos calibrated, {many['processes']:g} processes",
            f"{many['seconds']:.1f} s",
            f"{0.3 * many['silos']:g} s",
            f"{many['error']:.3%}",
        ),
        ("Renyi epsilon after a segment", f"{query['milliseconds']:.2f} ms", "2 ms", "exact"),
        ("the same, of a new kind", f"{query['milliseconds_of_a_new_kind']:.2f} ms", "-", "exact"),
    ]
    return "\n".join(f"{work:44}{took:>12}{asked:>10}{error:>10}" for work, took, asked, error in rows)


def main() -> None:
    """Run all three and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--silos", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    results = {
        "distinct": distinct(),
        "calibration": calibration(options.silos, options.processes),
        "renyi": renyi(),
    }
    print(report(results))
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
