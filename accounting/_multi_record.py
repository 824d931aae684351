"""DP-SGD where one individual owns several records and each is sampled by its own coin."""

import math
from dataclasses import dataclass
from typing import ClassVar

from accounting._errors import Unsupported
from accounting._gaussian import RAREST, gaussian_pairs
from accounting._gaussian_pairs import MixturePair
from accounting._mechanism import Mechanism
from accounting._pairs import DiscretePair, Pair
from accounting._relations import Directions, Relation
from accounting._special import binomial_masses
from accounting._validate import check_count, check_in_range


@dataclass(frozen=True, kw_only=True)
class MultiRecordSampledGaussian(Mechanism):
    """A Poisson-sampled Gaussian step over records, priced for an individual with up to k of them.

    Each record's term is clipped to norm C; a Binomial(k, q) number of the individual's terms enters, so the sum moves
    by at most that many times C.

    Args:
        sampling_rate: probability q in [0, 1] with which each record enters a step, by independent coins.
        noise_multiplier: standard deviation of the noise over C, in [0, inf).
        records: k, the cap on the records of one individual in the shard, in [1, 1000]; the silo must enforce it.
        steps: number of steps, an integer >= 0.

    Formal guarantees: one record is the sampled Gaussian; q = 1 is the Gaussian of sensitivity k C. Supports
    add-or-remove-one and zero-out; replace-one only where k = 1 or nothing is left to chance.

    References: Choquette-Choo, Ganesh, Steinke, Thakurta 2024 (mixture of Gaussians).
    """

    name: ClassVar[str] = "multi-record-sampled-gaussian"

    sampling_rate: float
    noise_multiplier: float
    records: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_in_range(low=0, high=1, sampling_rate=self.sampling_rate)
        check_in_range(low=0, high=math.inf, high_open=True, noise_multiplier=self.noise_multiplier)
        check_count(low=1, records=self.records)
        check_in_range(low=1, high=1000, records=self.records)

    def pairs(self, relation: Relation) -> Directions[Pair]:
        rate, sigma, count = float(self.sampling_rate), float(min(self.noise_multiplier, 1e8)), self.records
        if rate in (0.0, 1.0) or count == 1:
            return gaussian_pairs(rate, sigma / count if rate == 1 else sigma, relation)
        if relation is Relation.REPLACE_ONE:
            raise Unsupported(
                f"No dominating pair of {self.name} with records={count} under {relation} is known: use zero-out, or "
                "sample individuals instead of records."
            )
        if sigma == 0:
            seen = -math.expm1(count * math.log1p(-rate))
            bare = DiscretePair((1 - seen, seen), (1.0, 0.0))
            return Directions(remove=bare, add=bare.reversed())
        weights = binomial_masses(count, max(rate, RAREST))
        pair = MixturePair(
            sigma=sigma,
            means=tuple(float(mean) for mean in range(count + 1)),
            p=tuple(float(weight) for weight in weights),
            q=(1.0, *([0.0] * count)),
        )
        return Directions(remove=pair, add=pair.reversed())

    def covers(self, records: int) -> bool:
        return records <= self.records
