"""What the shipped scenarios reach, against numbers from outside.

    python -m benchmarks.utility cps-regions chem97-authorities fashion-mnist-one-silo fashion-mnist-silos

| case | seeds | must reach | where the number comes from |
|---|---|---|---|
| cps-regions | 3 | mean AUC 0.74 | pooled without privacy: logistic regression 0.747, boosted trees 0.757 |
| chem97-authorities | 3 | mean AUC 0.845 | pooled without privacy: 0.848 to 0.856 by split |
| fashion-mnist-one-silo | 1 | accuracy 0.855 | Tramer, Boneh 2021, Table 1, end-to-end CNN: 0.860 |
| fashion-mnist-silos | 1 | no number | ten silos at the epsilon of the case before |
"""

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass

import pandas as pd

from scenarios import load, run
from scenarios._outcome import HEADLINE

ONE_SILO = (
    "silos.count=1",
    "training.rounds=4",
    "training.local_steps=293",
    "training.expected_batch=2048",
    "privacy.noise_multiplier=2.15",
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A scenario with overrides, its seeds and the least mean of its headline metric."""

    scenario: str
    overrides: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (1, 2, 3)
    least: float | None = None


CASES = {
    "cps-regions": Case(scenario="cps-regions", least=0.74),
    "chem97-authorities": Case(scenario="chem97-authorities", least=0.845),
    "fashion-mnist-one-silo": Case(scenario="fashion-mnist-silos", overrides=ONE_SILO, seeds=(1,), least=0.855),
    "fashion-mnist-silos": Case(
        scenario="fashion-mnist-silos", overrides=("privacy.epsilon=2.39", "training.rounds=20"), seeds=(1,)
    ),
}


def measure(case: Case, extra: tuple[str, ...] = ()) -> pd.DataFrame:
    """Run every seed of a case; columns seed, metric, value, epsilon, delta, seconds."""
    rows: list[tuple[int, str, float, float, float, float]] = []
    for seed in case.seeds:
        scenario = load(case.scenario, [*case.overrides, *extra], seed=seed)
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            result = run(scenario, out=folder)
        metric = HEADLINE[scenario.data.task]
        at = (result.metrics["silo"] == "all") & (result.metrics["metric"] == metric)
        value = float(result.metrics.loc[at, "value"].to_numpy()[-1])
        guarantee = result.guarantee
        rows.append((seed, metric, value, guarantee.epsilon, guarantee.delta, time.perf_counter() - began))
    return pd.DataFrame(rows, columns=["seed", "metric", "value", "epsilon", "delta", "seconds"])


def main() -> None:
    """Measure the cases named, print a table for each, and exit with 1 where one falls short."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.utility", description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES), help=", ".join(CASES))
    parser.add_argument("--set", action="append", default=[], dest="extra", help="override a key, as in silodp run")
    arguments = parser.parse_args()
    short = False
    for name in arguments.cases:
        case = CASES[name]
        table = measure(case, tuple(arguments.extra))
        mean = table["value"].mean()
        print(f"\n{name}\n{table.to_string(index=False)}\nmean {mean:.4f}, must reach {case.least}")
        short |= case.least is not None and mean < case.least
    sys.exit(short)


if __name__ == "__main__":
    main()
