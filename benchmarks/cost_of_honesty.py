"""What it costs to pay for everything that leaves a silo: sizes, scaling and metrics, at one and the same epsilon.

    python -m benchmarks.cost_of_honesty cps-regions chem97-authorities

| row           | sizes                     | scaling of inputs                     | what its epsilon covers       |
|---------------|---------------------------|---------------------------------------|-------------------------------|
| usual         | true, at no price         | exact means and variances, at no price | training alone: no guarantee |
| public bounds | true, public by zero-out  | public bounds                         | everything, under zero-out    |
| priced        | noisy counts              | public bounds                         | everything                    |
| priced, dp    | noisy counts              | noisy means and variances             | everything                    |

Every row is judged twice: by the oracle on all held-out records, and, where all is priced, by what the silos
themselves release with noise of their own held-out records, who pay for it and for nothing else.
"""

import argparse
import math
import tempfile
from collections.abc import Sequence
from statistics import mean, stdev
from typing import NamedTuple

from scenarios import load, run

SEEDS = (1, 2, 3, 4, 5)
METRIC = "auc"

_COUNTS = ("privacy.relation=add-or-remove-one", "privacy.size_epsilon=0.1")
_SCORES = ("evaluation.silo_metrics=true", "evaluation.metric_epsilon=1.0")
ROWS: dict[str, tuple[str, ...]] = {
    "usual": ("privacy.relation=zero-out", "data.standardise=oracle"),
    "public bounds": ("privacy.relation=zero-out",),
    "priced": (*_COUNTS, *_SCORES),
    "priced, dp": (*_COUNTS, *_SCORES, "data.standardise=dp", "data.standardise_epsilon=0.1"),
}


class Measured(NamedTuple):
    """One run: AUC by the oracle, AUC that the silos released (nan where none was), epsilon, largest sigma."""

    row: str
    oracle: float
    released: float
    epsilon: float
    sigma: float


def measure(scenario: str, seeds: Sequence[int] = SEEDS) -> list[Measured]:
    """Run every row with every seed."""
    return [_measure(scenario, row, seed) for row in ROWS for seed in seeds]


def _measure(scenario: str, row: str, seed: int) -> Measured:
    loaded = load(scenario, [*ROWS[row], "evaluation.every=100000"], seed=seed)
    true_sizes = loaded.silos.model_copy(update={"declared_size": None})
    loaded = loaded.model_copy(update={"silos": true_sizes})
    with tempfile.TemporaryDirectory() as folder:
        result = run(loaded, out=folder)
    last = {metric: value for _, silo, metric, value in result.metrics.to_numpy().tolist() if silo == "all"}
    return Measured(
        row=row,
        oracle=last[METRIC],
        released=last.get(f"dp-{METRIC}", math.nan),
        epsilon=result.guarantee.epsilon,
        sigma=max(part.schedule.noise_multiplier for part in result.plan.silos),
    )


def table(scenario: str, measured: Sequence[Measured]) -> str:
    """The runs as Markdown: means and standard deviations over seeds."""
    lines = [
        f"| {scenario} | epsilon | sigma | AUC by the oracle | AUC that the silos released |",
        "|---|---|---|---|---|",
    ]
    for row in ROWS:
        runs = [one for one in measured if one.row == row]
        released = [one.released for one in runs if not math.isnan(one.released)]
        lines.append(
            f"| {row} | {max(one.epsilon for one in runs):.3f} | {mean(one.sigma for one in runs):.2f} "
            f"| {_spread([one.oracle for one in runs])} | {_spread(released) if released else ''} |"
        )
    return "\n".join(lines)


def _spread(values: Sequence[float]) -> str:
    return f"{mean(values):.4f} ± {stdev(values):.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="+")
    for scenario in parser.parse_args().scenarios:
        print(table(scenario, measure(scenario)), flush=True)
        print()


if __name__ == "__main__":
    main()
