"""Streams for deployments: seeded by the operating system, the same to nobody."""

import secrets

import numpy as np

from silos._streams import Purpose


class SystemStreams:
    """Streams that nobody can draw again, the silo itself included.

    A round that is run again is therefore a new release: it needs a new attempt, which is charged anew. Seeds are 256
    bits from the operating system; they are not kept.
    """

    def generator(self, silo: str, round: int, purpose: Purpose, attempt: int = 0) -> np.random.Generator:
        """A fresh generator; the arguments are those of `Streams.generator` and are not used."""
        del silo, round, purpose, attempt
        return np.random.Generator(np.random.SFC64(np.random.SeedSequence(secrets.randbits(256))))
