"""What a scenario asks of silos beside training, at which price, and what that buys.

| item              | asked                | price                                      | for               |
|-------------------|----------------------|--------------------------------------------|-------------------|
| `size`            | before round 1       | `privacy.size_epsilon`                     | q, divisor, weight |
| `moments`         | before round 1       | `data.standardise_epsilon`                 | standard inputs   |
| `outcomes`, `loss` | after the last round | 3/4 and 1/4 of `evaluation.metric_epsilon` | silos' own metrics |
| `errors`          | after the last round | `evaluation.metric_epsilon`                | the same          |

Where noisy counts choose the sampling rate, the run's training is charged as one `Allowance`; see `accounting`.

Who is held out is decided by a keyed hash of the id and nothing else, so a silo's held-out individuals are disjoint
from those it trains on, as two silos are: the records held out pay for metrics, the others for the rest, each from a
chain of their own. Under replace-one, where a replaced individual may change sides, one chain pays for both.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from accounting import Allowance, Mechanism, NonPrivate, Relation
from scenarios._price import count_chooses_law, unit_of
from scenarios.spec._scenario import Scenario
from silos import Errors, Loss, Moments, Outcomes, Size, Statistic
from silos._law import HELD_OUT
from silos._weights import ITEM

ALLOWANCE = "allowance"
"""The ledger's item for what training may cost in all."""

_SLACK = 1e-3
"""Part of delta that an allowance leaves to the rounding of what it is composed with."""

_MARGIN = 1e-4
"""Part of epsilon left for the same."""

_ORACLE = "inputs were standardised by exact means and variances of private records (data.standardise = oracle)"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One release beside training.

    Attributes:
        item: its name in the ledger.
        round: 0 before round 1, else the last round.
        mechanism: its law.
        statistic: what the silo is asked; None where it is asked nothing, as for an oracle.
        apart: whether the silo's held-out individuals pay for it, and they alone.
    """

    item: str
    round: int
    mechanism: Mechanism
    statistic: Statistic | None = None
    apart: bool = False

    @property
    def epsilon(self) -> float:
        """Its own price, at delta 0."""
        return self.statistic.epsilon if self.statistic is not None else math.inf


def asked_of_silos(scenario: Scenario, *, inputs: int = 1, outputs: int = 1) -> tuple[Asked, ...]:
    """Every release of a silo beside training; equal for all silos.

    Args:
        scenario: the scenario.
        inputs: number of inputs of a record.
        outputs: outputs of the model.
    """
    relation, records = scenario.privacy.relation, unit_of(scenario).records
    before: list[Statistic] = []
    if (price := scenario.privacy.size_epsilon) is not None:
        by_individual = scenario.training.sampling == "individuals"
        before.append(Size(epsilon=price, relation=relation, records=records, by_individual=by_individual))
    if (price := scenario.data.standardise_epsilon) is not None:
        before.append(Moments(epsilon=price, relation=relation, records=records, inputs=inputs))
    after: list[Statistic] = []
    if (price := scenario.evaluation.metric_epsilon) is not None and scenario.data.task == "regression":
        after.append(Errors(epsilon=price, relation=relation, records=records))
    elif price is not None:
        classes, bins = max(2, outputs), scenario.evaluation.score_bins
        after.append(Outcomes(epsilon=0.75 * price, relation=relation, records=records, classes=classes, bins=bins))
        after.append(Loss(epsilon=0.25 * price, relation=relation, records=records))
    found = [Asked(item=one.item, round=0, mechanism=one.mechanism(), statistic=one) for one in before]
    if scenario.data.standardise == "oracle":
        found.append(Asked(item="moments", round=0, mechanism=NonPrivate(reason=_ORACLE)))
    last, apart = scenario.training.rounds, relation is not Relation.REPLACE_ONE
    found += [Asked(item=one.item, round=last, mechanism=one.mechanism(), statistic=one, apart=apart) for one in after]
    return tuple(found)


def held_out_chain(scenario: Scenario, silo: str) -> str:
    """The chain of the ledger that pays for what is released of a silo's held-out records."""
    return silo if scenario.privacy.relation is Relation.REPLACE_ONE else silo + HELD_OUT


def allowance_of(scenario: Scenario, silo: str, together: int) -> Allowance | None:
    """What a silo's training may cost, where noisy counts choose its law; None where its law is fixed in advance.

    Args:
        scenario, silo: whose training.
        together: how many silos one unit may be in, each of which takes its part of epsilon and delta.

    Raises:
        ScenarioError: where the target leaves nothing for training, or there is none.
    """
    if not count_chooses_law(scenario):
        return None
    target = scenario.privacy.epsilon_for(silo)
    if target is None:
        raise scenario.error(
            "privacy.noise_multiplier",
            "does not go with privacy.size_epsilon and training.expected_batch: the sampling rate follows from a noisy "
            "count, so that only an epsilon to calibrate to after it has a price. Give training.sampling_rate instead",
        )
    if math.isinf(target):
        return None
    return Allowance(
        item=ITEM,
        epsilon=left_for_training(scenario, silo, together) / together - _MARGIN * target / together,
        delta=(1 - _SLACK) * scenario.privacy.delta / together,
        relation=scenario.privacy.relation,
        records=unit_of(scenario).records,
    )


def left_for_training(scenario: Scenario, silo: str, together: int) -> float:
    """The target epsilon, less what all else costs a unit that is in so many silos like this one, at delta 0.

    Raises:
        ScenarioError: where nothing is left, or metrics cost those held out more than the target.
    """
    target = scenario.privacy.epsilon_for(silo) or math.inf
    asked = [one for one in asked_of_silos(scenario) if one.statistic is not None]
    spent, apart = (together * math.fsum(one.epsilon for one in asked if one.apart is side) for side in (False, True))
    if spent >= target:
        raise scenario.error("privacy.epsilon", f"= {target:g} leaves nothing for training: all else costs {spent:g}")
    if apart > target:
        raise scenario.error("evaluation.metric_epsilon", f"costs {apart:g}, above the target epsilon of {target:g}")
    return target - spent


def check_deployable(scenario: Scenario) -> None:
    """Refuse, outside a simulation, what only a simulation's silos pay for as yet.

    A silo of a deployment does not itself declare an allowance, and a count without one would be priced too low.

    Raises:
        ScenarioError: for a scenario whose plan or records follow from what silos are asked before round 1, or that
            stops by what only a simulation sees.
    """
    if scenario.silos.public:
        raise scenario.error("silos.public", "is for simulations; a deployed silo's law declares its size")
    before = {"size": "privacy.size_epsilon", "moments": "data.standardise"}
    for asked in asked_of_silos(scenario):
        if asked.item in before:
            raise scenario.error(before[asked.item], "is for simulations; a deployment does not offer it yet")
    if scenario.training.stop_at is not None:
        raise scenario.error("training.stop_at", "looks at the oracle's metric, and a deployment has no oracle")
    if scenario.silos.pooled:
        raise scenario.error("silos.pooled", "puts all records in one place, and a deployment keeps each where it is")


def bought(asked: Asked) -> str:
    """What one release buys, in words."""
    one = asked.statistic
    if one is None:
        return "exact means and variances; no guarantee is left"
    counted = "individuals" if isinstance(one, Size) and one.by_individual else "records"
    within = f"within {3 * one.scale:.3g} in 19 of 20 cases"
    return {
        "size": f"each silo's number of training {counted}, {within}",
        "moments": f"means and variances of the inputs; each silo's sums {within}",
        "outcomes": f"accuracy, confusion matrix and AUC on the silos' held-out records; each cell {within}",
        "loss": f"mean loss on the silos' held-out records; each silo's sum {within}",
        "errors": f"errors on the silos' held-out records; each silo's sums {within}",
    }[asked.item]


def training_bought(law: Mechanism, steps: int) -> str:
    """What training buys, in words."""
    values: Mapping[str, object] = law.to_json()
    return f"{steps} steps at q = {values['sampling_rate']:.4g}, sigma = {values['noise_multiplier']:.4g}"
