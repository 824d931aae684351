"""What a plan holds: each silo's part, and what the budget buys."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from accounting import Allowance, Mechanism, Price, Relation, Release, number_to_json
from scenarios._asked import Asked
from scenarios._groups import GroupRow, group_rows
from silos import Schedule


@dataclass(frozen=True, kw_only=True)
class SiloPlan:
    """One silo's part.

    Attributes:
        silo: its name.
        size: its public number of records, declared or true by the relation.
        schedule: what each round asks of it.
        rounds: how many rounds it is asked to train.
        twice: how many of them, from the first on, ask it for two models.
        price: what all that it is asked costs together, at the scenario's delta.
        asked: what it is asked beside training.
        allowance: what its training may cost, where a noisy count chose the schedule; None where its law is the price.
    """

    silo: str
    size: int
    schedule: Schedule
    rounds: int
    twice: int
    price: Price
    asked: tuple[Asked, ...] = ()
    allowance: Allowance | None = None

    def releases(self, rounds: int) -> list[Release]:
        """What those it trains on will have paid for after so many rounds."""
        found = [Release(mechanism=one.mechanism, round=one.round) for one in self.asked if not one.apart]
        if self.allowance is not None:
            return [*found, Release(mechanism=self.allowance, round=0)]
        law = self.schedule.mechanism()
        trained = (number for number in range(1, rounds + 1) for _ in range(2 if number <= self.twice else 1))
        return [*found, *(Release(mechanism=law, round=number) for number in trained)]

    def apart(self) -> list[Release]:
        """What its held-out individuals will have paid for."""
        return [Release(mechanism=one.mechanism, round=one.round) for one in self.asked if one.apart]

    def fixed_costs(self) -> tuple[Mechanism, ...]:
        """What those it trains on pay for beside training, as far as noise can pay for it."""
        return tuple(one.mechanism for one in self.asked if one.statistic is not None and not one.apart)

    @property
    def models(self) -> int:
        """Models that it is asked for over the whole run."""
        return self.rounds + self.twice

    @property
    def steps(self) -> int:
        """Steps over the whole run."""
        return self.models * self.schedule.steps


@dataclass(frozen=True, kw_only=True)
class Share:
    """One part of a silo's budget: its item in the ledger, its price alone, and what it buys."""

    item: str
    epsilon: float
    buys: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The silos' parts, in the order of the dataset, and what to know before the run.

    Attributes:
        silos: the parts.
        relation, delta: of the guarantee.
        epsilon: of the worst set of silos that one unit may be in, if every silo trains in every round.
        sizes: what the sizes are: ``declared``, ``true`` (and by whom they are public) or ``noisy counts``.
        budget: what the budget of the silo that pays most is spent on.
        warnings: what to know before the run.
        groups: the group of each silo that shares its target with one.
    """

    silos: tuple[SiloPlan, ...]
    relation: Relation
    delta: float
    epsilon: float
    sizes: str
    budget: tuple[Share, ...]
    warnings: tuple[str, ...]
    groups: Mapping[str, str] = field(default_factory=dict)

    def group_rows(self, spent: Mapping[str, float] | None = None) -> list[GroupRow]:
        """What the silos of each group spend: by the plan, or as was spent in fact, by silo."""
        return group_rows(
            self.groups, {part.silo: part.price.epsilon if spent is None else spent[part.silo] for part in self.silos}
        )

    def to_json(self) -> dict[str, object]:
        """The plan as plain values."""
        silos = [
            {"silo": part.silo, "size": part.size, "rounds": part.rounds, "models": part.models}
            | {"schedule": asdict(part.schedule)}
            | {"epsilon": number_to_json(part.price.epsilon), "method": part.price.method}
            for part in self.silos
        ]
        return {
            "relation": str(self.relation),
            "delta": self.delta,
            "epsilon": number_to_json(self.epsilon),
            "sizes": self.sizes,
            "groups": [asdict(row) | {"epsilon": number_to_json(row.epsilon)} for row in self.group_rows()],
            "budget": [asdict(share) | {"epsilon": number_to_json(share.epsilon)} for share in self.budget],
            "silos": silos,
            "warnings": list(self.warnings),
        }

    @property
    def worst(self) -> SiloPlan:
        """The silo that pays most: under disjoint membership its price is the run's."""
        return max(self.silos, key=lambda part: part.price.epsilon)
