"""Random streams: who draws what, so that noise is never shared.

A stream belongs to one (run key, silo, round, purpose, attempt). The five are written down without ambiguity and hashed
to 256 bits, which seed NumPy's `SeedSequence`; two streams are the same only where all five are. The run key hashes
the resolved scenario, the code version and the seed, so a changed scenario draws fresh noise even under the same
seed: equal noise under two settings would cancel out of the difference of their releases.

These generators are for research: fast and reproducible, not cryptographic.
"""

from hashlib import blake2b
from typing import Literal

import numpy as np

from accounting._errors import InvalidValue
from accounting._validate import check_count

Purpose = Literal["sampling", "noise", "size", "moments", "outcomes", "loss", "errors"]
"""What is drawn: which records a step takes, the noise of training, or the noise of a statistic."""


class Streams:
    """The streams of one run.

    Args:
        run_key: at least 16 bytes that no other run of the same shards shares. It determines every noise draw: whoever
            knows it can take the noise off.
    """

    def __init__(self, run_key: bytes) -> None:
        if len(run_key) < 16:
            raise InvalidValue(f"Expected run_key of {len(run_key)} bytes to have at least 16 bytes.")
        self._run_key = run_key

    def generator(self, silo: str, round: int, purpose: Purpose, attempt: int = 0) -> np.random.Generator:
        """A fresh generator at the start of its stream.

        Args:
            silo: the silo's name.
            round: from 1; 0 is what comes before round 1.
            purpose: what is drawn.
            attempt: 0, and one more each time a round is asked of the silo as a new release.
        """
        check_count(round=round, attempt=attempt)
        digest = blake2b(digest_size=32, person=b"silodp-stream-1")
        for part in (self._run_key, silo.encode(), str(round).encode(), purpose.encode(), str(attempt).encode()):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
        words = np.frombuffer(digest.digest(), dtype="<u4")
        return np.random.Generator(np.random.SFC64(np.random.SeedSequence(words)))


def poisson_sample(records: int, sampling_rate: float, generator: np.random.Generator) -> np.ndarray:
    """Row numbers of one Poisson sample: each record is in it with probability `sampling_rate`, independently.

    Args:
        records: number of records in the shard; the draw of a record does not depend on how many follow it.
        sampling_rate: in [0, 1].

    Returns:
        Ascending row numbers, shape (sampled,); empty ones happen and are steps like any other.
    """
    return np.flatnonzero(generator.random(records) < sampling_rate)


def poisson_samples(
    records: int, sampling_rate: float, generator: np.random.Generator, *, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """The Poisson samples of several steps at once: the same, from the same stream, as `poisson_sample` step by step.

    Returns:
        Row numbers of all samples one after the other, and the size of each sample, shape (steps,).
    """
    taken = np.flatnonzero(generator.random(steps * records) < sampling_rate)
    starts = np.arange(steps + 1) * records
    bounds = np.searchsorted(taken, starts)
    sizes = bounds[1:] - bounds[:-1]
    return taken - np.repeat(starts[:-1], sizes), sizes
