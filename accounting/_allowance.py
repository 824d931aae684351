"""An allowance: what all releases of one item in a run may cost together, whatever they are chosen to be.

Where the law of a run's training follows from an earlier release (a sampling rate from a noisy count of the shard),
the law that was executed is not its price: another count would have chosen another law, and a price that is itself
chosen by an output bounds nothing. What bounds the run is a promise that holds for every choice: each law that might
be chosen meets one (epsilon, delta). The run is charged that promise once, in full, before its first release; the
releases under it are recorded with their laws and executed steps, and cost nothing on top. Stopping early gives
nothing back.

What is promised, and no more:

- The laws of the item are public numbers chosen after other items' outputs, such as the count, but before the item's
  own first output: all of them are declared before its first charge, and a later declaration is refused. Choosing a
  law after one of the item's own outputs needs a filter; that the laws executed fit together within (epsilon, delta)
  does not bound it (0.2 and then, by the output, either 1.2 or delta 0.0766 fit (1.2, 0.0767); the pair costs 0.111).
- All declared laws together cost at most (epsilon, delta), each for as many records as the allowance.
- The allowance's own epsilon and delta are fixed in advance. The ledger cannot tell whether they were.

Together with an epsilon_s-DP count the run is then (epsilon_s + epsilon, delta)-DP: composition with a mechanism chosen
by the first output, each choice of which meets the same (epsilon, delta) (Dwork, Roth 2014, Theorem 3.16). Which of the
declared releases are made, and in which order, may depend on outputs: that is concurrent composition (Vadhan, Zhang
2023).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from accounting._accountant import epsilon as priced_epsilon
from accounting._claims import ApproximateEpsilon
from accounting._errors import InvalidValue
from accounting._mechanism import Mechanism


@dataclass(frozen=True, kw_only=True)
class Allowance(ApproximateEpsilon):
    """(epsilon, delta)-DP of everything that a run releases as one item, whichever laws were declared for it.

    Args:
        epsilon: in [0, inf).
        delta: in [0, 1].
        item: what is released under it.
        relation: the relation under which it holds.
        records: the number of records of one unit up to which it holds, >= 1.

    ```
    >>> from accounting import SampledGaussian
    >>> training = [SampledGaussian(sampling_rate=0.1, noise_multiplier=2.0, steps=100)]
    >>> Allowance(item="update", epsilon=2.6, delta=1e-5).affords(training)
    True

    ```
    """

    name: ClassVar[str] = "allowance"

    item: str

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.item or not self.item.isprintable():
            raise InvalidValue(f"Expected item={self.item!r} to be printable text on one line.")

    def affords(self, releases: Sequence[Mechanism], *, slack: float = 0.0) -> bool:
        """Whether these releases together cost no more than the allowance, and cover as many records of a unit.

        Args:
            releases: all of the item.
            slack: how far the computed epsilon may be above the allowance's, as a part of it, >= 0.
        """
        if not all(release.covers(self.records) for release in releases):
            return False
        return priced_epsilon(releases, relation=self.relation, delta=self.delta).epsilon <= self.epsilon * (1 + slack)
