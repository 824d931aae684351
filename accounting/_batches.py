"""DP-SGD with batches that are not plain Poisson samples: of fixed size, of capped size, and shuffled.

All three need a public shard size, so the sampled ones refuse add-or-remove-one; shuffled batches take it where their
number is public by itself.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from accounting._errors import Unsupported
from accounting._gaussian import gaussian_pairs
from accounting._joined_pairs import ChoicePair, Half, JoinedPair
from accounting._mechanism import Mechanism
from accounting._pairs import DiscretePair, Pair
from accounting._relations import Directions, Relation
from accounting._special import binomial_above
from accounting._validate import check_count, check_in_range


@dataclass(frozen=True, kw_only=True)
class FixedBatchGaussian(Mechanism):
    """A Gaussian step on a uniformly random batch of fixed size, drawn without replacement anew in each step.

    Args:
        batch_size: records in a batch, an integer >= 0.
        shard_size: records in the shard, public, an integer >= max(1, batch_size).
        noise_multiplier: standard deviation of the noise over the clip norm C, in [0, inf).
        steps: number of steps, an integer >= 0.

    Supports zero-out and replace-one, each by the tight pair derived in `_joined_pairs`; the replace-one curve is
    that of Zhu, Dong, Wang 2022, Theorem 11, below the bound of Wang, Balle, Kasiviswanathan 2019, Theorem 27.
    """

    name: ClassVar[str] = "fixed-batch-gaussian"

    batch_size: int
    shard_size: int
    noise_multiplier: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(batch_size=self.batch_size)
        check_count(low=max(1, self.batch_size), shard_size=self.shard_size)
        check_in_range(low=0, high=math.inf, high_open=True, noise_multiplier=self.noise_multiplier)

    def pairs(self, relation: Relation) -> Directions[Pair]:
        _check_public_size(self, relation)
        return _full_batch_pairs(self.batch_size / self.shard_size, self.noise_multiplier, relation)


@dataclass(frozen=True, kw_only=True)
class TruncatedSampledGaussian(Mechanism):
    """A Gaussian step on a Poisson sample, cut to a uniformly random part where it exceeds a cap.

    Args:
        sampling_rate: probability q in [0, 1] with which each record enters, by independent coins.
        batch_cap: most records in a batch, an integer >= 0.
        shard_size: records in the shard, public, an integer >= 1.
        noise_multiplier: standard deviation of the noise over the clip norm C, in [0, inf).
        steps: number of steps, an integer >= 0.

    Supports zero-out and replace-one. Whether the *other* records alone fill the batch does not depend on the record:
    if not, its entry is a Poisson coin; if so, it competes for a place as in a batch of fixed size. Tighter than the
    same decomposition in Ganesh, McKenna and others 2025 (arXiv 2508.15089), whose full case is replace-one at 2C.
    """

    name: ClassVar[str] = "truncated-sampled-gaussian"

    sampling_rate: float
    batch_cap: int
    shard_size: int
    noise_multiplier: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_in_range(low=0, high=1, sampling_rate=self.sampling_rate)
        check_count(batch_cap=self.batch_cap)
        check_count(low=1, shard_size=self.shard_size)
        check_in_range(low=0, high=math.inf, high_open=True, noise_multiplier=self.noise_multiplier)

    def pairs(self, relation: Relation) -> Directions[Pair]:
        _check_public_size(self, relation)
        size, cap, rate = self.shard_size, self.batch_cap, float(self.sampling_rate)
        open_pairs = gaussian_pairs(rate if cap > 0 else 0.0, self.noise_multiplier, relation)
        full = binomial_above(cap - 1, size - 1, rate) if cap > 0 else 0.0
        if full == 0:
            return open_pairs
        # P[record is in the batch | others fill it] = cap/n P[Binomial(n, q) > cap] / P[others fill it].
        place = min(1.0, cap / size * binomial_above(cap, size, rate) / full)
        full_pairs = _full_batch_pairs(place, self.noise_multiplier, relation)
        if full == 1:
            return full_pairs
        return Directions(
            remove=ChoicePair(((full, full_pairs.remove), (1 - full, open_pairs.remove))),
            add=ChoicePair(((full, full_pairs.add), (1 - full, open_pairs.add))),
        )


@dataclass(frozen=True, kw_only=True)
class ShuffledGaussian(Mechanism):
    """An epoch of Gaussian steps over the batches of a shuffled shard: each record is in one batch.

    No credit is given for the shuffling: what it gives is unknown but small (Chua and others 2024).

    Args:
        noise_multiplier: standard deviation of each batch's noise over the clip norm C, in [0, inf).
        batches: number of batches in each epoch, an integer >= 1, where it is public and does not follow from the
            shard's size: every epoch releases so many, empty ones too. None: it follows from the size.
        steps: number of epochs, an integer >= 0.

    Formal guarantees: an epoch is one Gaussian of sensitivity C under zero-out, 2C under replace-one, and sqrt(5) C
    under add-or-remove-one with batches of fixed size: the last record takes the place of the one that left (2C in
    that batch) and leaves its own (C in the last batch).

    Errors: add-or-remove-one without `batches` is refused with `Unsupported`. A number of batches that follows from the
    size shows when a record opens a new batch, and no noise hides it.
    """

    name: ClassVar[str] = "shuffled-gaussian"

    noise_multiplier: float
    batches: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batches is not None:
            check_count(low=1, batches=self.batches)
        check_in_range(low=0, high=math.inf, high_open=True, noise_multiplier=self.noise_multiplier)

    def pairs(self, relation: Relation) -> Directions[Pair]:
        if relation is Relation.ADD_OR_REMOVE_ONE and self.batches is None:
            raise Unsupported(
                f"{self.name} needs a public number of batches under {relation}: one that follows from the shard's "
                "size shows the record that opens a new batch. Give batches, or use zero-out."
            )
        both = math.sqrt(5) if relation is Relation.ADD_OR_REMOVE_ONE else 1.0
        return gaussian_pairs(1.0, self.noise_multiplier / both, relation)


def _check_public_size(mechanism: Mechanism, relation: Relation) -> None:
    if relation is Relation.ADD_OR_REMOVE_ONE:
        raise Unsupported(f"{mechanism.name} needs a public shard size, which {relation} protects; use zero-out.")


def _full_batch_pairs(rate: float, noise_multiplier: float, relation: Relation) -> Directions[Pair]:
    """The pair of a step whose batch is always full, where a record has a place with probability `rate`."""
    if rate in (0.0, 1.0):
        return gaussian_pairs(rate, noise_multiplier, relation)
    if noise_multiplier == 0:
        bare = DiscretePair((1 - rate, rate, 0.0), (1 - rate, 0.0, rate))
        return Directions(remove=bare, add=bare)
    sigma = float(min(noise_multiplier, 1e8))
    if relation is Relation.REPLACE_ONE:
        half = Half(sigma=sigma, rate=rate, u=2.0, v=0.0)
        return Directions(remove=JoinedPair(above=half, below=half), add=JoinedPair(above=half, below=half))
    remove = JoinedPair(
        above=Half(sigma=sigma, rate=rate, u=2.0, v=1.0), below=Half(sigma=sigma, rate=rate, u=1.0, v=0.0)
    )
    return Directions(remove=remove, add=remove.reversed())
