"""What the releases of one silo cost: epsilon at a delta, or delta at an epsilon.

PLD answers where it is known to be tight, Renyi accounting elsewhere, and the price says which did.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from accounting._costs import Costs
from accounting._mechanism import Mechanism
from accounting._questions import DeltaAt, EpsilonAt, Question
from accounting._relations import Relation
from accounting._release import Release, law_of
from accounting._worst import Answer, Method, worst

_SILO = "silo"


@dataclass(frozen=True, kw_only=True)
class Price:
    """An upper bound on what was given away; never without its method.

    Args:
        epsilon: in [0, inf].
        delta: in [0, 1].
        method: the accountant that answered.
    """

    epsilon: float
    delta: float
    method: Literal["pld", "rdp"]


def epsilon(releases: Sequence[Mechanism], *, relation: Relation, delta: float, method: Method = "auto") -> Price:
    """The least epsilon of the releases' adaptive composition, in the worse direction.

    Args:
        releases: what one silo released, in any order.
        relation: the neighbouring relation.
        delta: in [0, 1].
        method: ``pld``; ``rdp``; or ``auto``, PLD for delta >= 1e-9 and noise multipliers >= 0.05, or for any of both
            where plain Gaussians are alone, else Renyi.

    Raises:
        Unsupported: for a mechanism with no price under the relation, or with no pair where `method` is ``pld``.

    ```
    >>> from accounting._gaussian import SampledGaussian
    >>> step = SampledGaussian(sampling_rate=0.01, noise_multiplier=1.0, steps=500)
    >>> print(f"{epsilon([step], relation=Relation.ADD_OR_REMOVE_ONE, delta=1e-5).epsilon:.2f}")
    1.33

    ```
    """
    answer = _ask(releases, relation, EpsilonAt(delta), method)
    return Price(epsilon=answer.value, delta=delta, method=answer.method)


def delta(releases: Sequence[Mechanism], *, relation: Relation, epsilon: float, method: Method = "auto") -> Price:
    """The least delta of the releases' adaptive composition at this epsilon >= 0; arguments as in `epsilon`."""
    answer = _ask(releases, relation, DeltaAt(epsilon), method)
    return Price(epsilon=epsilon, delta=answer.value, method=answer.method)


def _ask(releases: Sequence[Mechanism], relation: Relation, question: Question, method: Method) -> Answer:
    costs = Costs({_SILO: law_of([Release(mechanism=release) for release in releases])}, relation)
    return worst(costs, [costs.alone(_SILO)], question, method)
