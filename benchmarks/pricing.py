"""The accounting's times of `benchmarks.accounting`, as comparisons with their bounds."""

from collections.abc import Iterator

from benchmarks import accounting
from benchmarks.comparison import Comparison

CALIBRATED = 1000


def measure(repeats: int) -> Iterator[Comparison]:
    """All comparisons of pricing.

    Args:
        repeats: runs of what takes less than a few seconds.
    """
    yield Comparison(
        work="1,000 distinct silos calibrated by PLD to (2, 1e-6), two processes",
        against="20 s",
        ours=[accounting.calibration(CALIBRATED, 2)["seconds"]],
        rival=[20.0],
        target=1.0,
        most=True,
    )
    yield Comparison(
        work="epsilon of a silo with 200 distinct mechanisms, PLD",
        against="5 s",
        ours=[accounting.distinct()["seconds"] for _ in range(repeats)],
        rival=[5.0],
        target=1.0,
        most=True,
    )
    yield Comparison(
        work="Renyi epsilon after a segment",
        against="2 ms",
        ours=[accounting.renyi()["milliseconds"] / 1e3 for _ in range(repeats)],
        rival=[2e-3],
        target=1.0,
        most=True,
    )
