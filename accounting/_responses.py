"""Randomised response: each record's own category, answered truthfully or at random."""

from dataclasses import dataclass
from typing import ClassVar

from accounting._errors import Unsupported
from accounting._mechanism import Mechanism
from accounting._pairs import IDENTICAL, DiscretePair, Pair
from accounting._relations import Directions, Relation
from accounting._validate import check_count, check_in_range


@dataclass(frozen=True, kw_only=True)
class RandomisedResponse(Mechanism):
    """One answer per record: its category, or with probability `noise` a category drawn uniformly.

    Args:
        noise: in [0, 1]; 0 is the truth, 1 says nothing.
        categories: their number k >= 2.
        steps: number of answers about each record, an integer >= 0.

    Supports replace-one and zero-out, where the null record answers uniformly. Under add-or-remove-one
    the number of answers alone shows who is there.

    References: Warner 1965; Kairouz, Oh, Viswanath 2015.
    """

    name: ClassVar[str] = "randomised-response"

    noise: float
    categories: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_in_range(low=0, high=1, noise=self.noise)
        check_count(low=2, categories=self.categories)

    def pairs(self, relation: Relation) -> Directions[Pair]:
        if relation is Relation.ADD_OR_REMOVE_ONE:
            raise Unsupported(f"{self.name} shows the number of records, which {relation} protects; use zero-out.")
        if self.noise == 1:
            return Directions(remove=IDENTICAL, add=IDENTICAL)
        k, other = self.categories, self.noise / self.categories
        own = 1 - self.noise + other
        if relation is Relation.REPLACE_ONE:
            rest = (k - 2) * other
            pair = DiscretePair((own, other, rest), (other, own, rest))
        else:
            pair = DiscretePair((own, (k - 1) * other), (1 / k, (k - 1) / k))
        return Directions(remove=pair, add=pair.reversed())
