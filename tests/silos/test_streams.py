"""Noise is never shared, and a stream is the same wherever it is asked for."""

import itertools
import math

import numpy as np
import pytest

from accounting import InvalidValue
from silos import Streams, poisson_sample

KEY = b"sixteen bytes ok"
PINNED = [1.1503750296099513, -0.6374539186179581, 0.9582036292431082]


def test_streams_over_silos_rounds_purposes_and_attempts_are_uncorrelated() -> None:
    length = 4096
    streams = Streams(KEY)
    keys = itertools.product(("north", "south", "east"), range(1, 5), ("noise", "sampling"), (0, 1))
    draws = np.array([streams.generator(*key).standard_normal(length) for key in keys])
    correlations = np.corrcoef(draws)[np.triu_indices(len(draws), k=1)]
    # 1128 independent pairs: the largest correlation passes 5 standard errors once in 1500 sets of streams.
    assert np.abs(correlations).max() < 5 / math.sqrt(length)
    lagged = [np.corrcoef(a[:-1], b[1:])[0, 1] for a, b in itertools.pairwise(draws)]
    assert np.abs(lagged).max() < 5 / math.sqrt(length)


def test_every_part_of_the_key_changes_the_stream() -> None:
    ours = Streams(KEY).generator("north", 1, "noise", 0)
    others = [
        Streams(KEY + b"!").generator("north", 1, "noise", 0),
        Streams(KEY).generator("north1", 1, "noise", 0),
        Streams(KEY).generator("north", 11, "noise", 0),
        Streams(KEY).generator("north", 1, "sampling", 0),
        Streams(KEY).generator("north", 1, "noise", 1),
        Streams(KEY + b"n").generator("orth", 1, "noise", 0),
    ]
    first = ours.standard_normal(8).tobytes()
    assert len({first, *(other.standard_normal(8).tobytes() for other in others)}) == 7


def test_a_stream_is_pinned() -> None:
    """Moving this draw moves every model that anybody has published with a seed."""
    draw = Streams(KEY).generator("north", 1, "noise").standard_normal(3)
    again = Streams(KEY).generator("north", 1, "noise").standard_normal(3)
    assert draw.tobytes() == again.tobytes()
    np.testing.assert_allclose(draw, PINNED, rtol=0, atol=1e-12)


def test_a_short_run_key_is_refused() -> None:
    with pytest.raises(InvalidValue, match="16 bytes"):
        Streams(b"short")


@pytest.mark.parametrize("sampling_rate", [0.01, 0.3, 0.97])
def test_poisson_samples_have_independent_coins(sampling_rate: float) -> None:
    generator = Streams(KEY).generator("north", 1, "sampling")
    records, draws = 50, 20_000
    taken = np.zeros((draws, records))
    for row in taken:
        row[poisson_sample(records, sampling_rate, generator)] = 1
    deviation = math.sqrt(sampling_rate * (1 - sampling_rate))
    assert np.abs(taken.mean(axis=0) - sampling_rate).max() < 5 * deviation / math.sqrt(draws)
    # A sample of fixed size has variance 0, independent coins a binomial one; its standard error is 1%.
    assert np.var(taken.sum(axis=1)) == pytest.approx(records * deviation**2, rel=0.06)


def test_rate_one_takes_everything_and_rate_zero_nothing() -> None:
    generator = Streams(KEY).generator("north", 1, "sampling")
    assert poisson_sample(1000, 1.0, generator).tolist() == list(range(1000))
    assert poisson_sample(1000, 0.0, generator).tolist() == []
