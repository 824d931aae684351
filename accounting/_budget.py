"""Budget: a silo's limit over the lifetime of its ledger, for releases chosen in reaction to earlier ones.

PLD prices hold for schedules fixed in advance. Where noise, rate or the number of rounds reacts to what came out, a
*filter* licenses the choice: it fixes one Renyi order and one total before the first release, looks at the worst each
proposed release can add, and says no before anything is computed. Whatever was chosen, the silo's releases then meet
the whole budget; what was spent of it is not a guarantee and is never quoted as one.

Formal guarantees, each checked by the tests:

- As long as every release passed `Budget.check`, all of them together, however chosen from each other's outputs, are
  (epsilon, delta)-DP (Feldman, Zrnic 2021: a Renyi filter has no price beyond its total).
- The total at the order converts to at most (epsilon, delta) (Canonne, Kamath, Steinke 2020, Proposition 12).
- A budget of 0 admits only what costs nothing.

A charge depends on public values only: the mechanism as it was charged, with all its steps, whatever came of it.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Self, cast

import numpy as np
from numpy.typing import NDArray

from accounting._errors import BudgetExhausted, InvalidValue, Unsupported
from accounting._mechanism import Mechanism
from accounting._rdp import ORDERS, epsilon_from_renyi
from accounting._relations import Directions, Relation, Unit
from accounting._validate import check_in_range

_ONE_RECORD = Unit()
_ANY_TOTAL = 64.0
_ROUNDING = 1e-14


@dataclass(frozen=True, kw_only=True, init=False)
class Budget:
    """A Renyi filter: the most that a silo may give away, fixed once.

    Keep it in the ledger that it governs (`Ledger.fix`), since a filter is void once order or total change.

    Args:
        epsilon: the whole budget, in [0, inf].
        delta: its delta, in (0, 1).
        relation: the neighbouring relation.
        unit: what is protected.
        order: the Renyi order, > 1; when None, the one of the accountant's grid that lets the most through.
        suits: what is to be let through, from public knowledge, such as one round of the plan; when empty, Gaussian
            noise. Only the choice of the order depends on it.

    Attributes:
        order: the order as chosen.

    Raises:
        InvalidValue: for a value out of range, or a budget so small that no order on the grid converts to it.
    """

    epsilon: float
    delta: float
    relation: Relation
    unit: Unit
    order: float

    def __init__(
        self,
        *,
        epsilon: float,
        delta: float,
        relation: Relation,
        unit: Unit = _ONE_RECORD,
        order: float | None = None,
        suits: Sequence[Mechanism] = (),
    ) -> None:
        check_in_range(low=0, high=math.inf, epsilon=epsilon)
        check_in_range(low=0, high=1, low_open=True, high_open=True, delta=delta)
        for name, value in (("epsilon", epsilon), ("delta", delta), ("relation", relation), ("unit", unit)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "order", self._best_order(suits) if order is None else order)
        check_in_range(low=1, high=math.inf, low_open=True, high_open=True, order=self.order)
        if self.total < 0:
            raise InvalidValue(
                f"Expected epsilon={epsilon} to be at least {epsilon - self.total:.3g}, which converting from order "
                f"{self.order:g} takes by itself at delta={delta:g}."
            )

    @cached_property
    def total(self) -> float:
        """The whole budget as a Renyi divergence at `order`, in nats; negative when there is none."""
        return _largest_total(self.order, self.epsilon, self.delta)

    def spent(self, releases: Iterable[Mechanism]) -> float:
        """What releases have used at most, as a Renyi divergence at `order`; not a guarantee.

        Args:
            releases: as charged, with all their steps (`Ledger.charged`).
        """
        return max(self._sums(releases))

    def remaining(self, releases: Iterable[Mechanism]) -> float:
        """What is left after these releases, as a Renyi divergence at `order`, at least 0."""
        return max(self.total - self.spent(releases), 0.0) if math.isfinite(self.total) else self.total

    def check(self, releases: Iterable[Mechanism], proposed: Mechanism) -> None:
        """Refuse a release that the budget does not allow after those before it.

        Args:
            releases: as charged, with all their steps (`Ledger.charged`).
            proposed: the release in question.

        Raises:
            BudgetExhausted: with `requested` and `remaining` as Renyi divergences at `order`.
            Unsupported: for a mechanism that cannot be priced under this relation and unit.
        """
        releases = list(releases)
        after = max(self._sums([*releases, proposed]))
        if not after <= self.total:
            requested, remaining = max(self._cost(proposed)), self.remaining(releases)
            raise BudgetExhausted(
                f"{proposed!r} would cost {requested:.6g}, and {remaining:.6g} of {self.total:.6g} remain (Renyi "
                f"divergence at order {self.order:g}; the budget is epsilon={self.epsilon:g}, delta={self.delta:g}).",
                requested=requested,
                remaining=remaining,
            )

    def sentence(self) -> str:
        """What the budget guarantees, in words."""
        return (
            f"Whatever the silo releases under this budget, however chosen from what it released before, is "
            f"({self.epsilon:g}, {self.delta:g})-differentially private for one {self.unit}, {self.relation} (Renyi "
            f"filter at order {self.order:g}; Feldman, Zrnic 2021)."
        )

    def to_json(self) -> dict[str, object]:
        """The budget as plain values; `from_json` reads them back."""
        return {
            "epsilon": self.epsilon if math.isfinite(self.epsilon) else "inf",
            "delta": self.delta,
            "relation": self.relation.value,
            "individual": self.unit.individual,
            "records": self.unit.records,
            "order": self.order,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, object]) -> Self:
        """The inverse of `to_json`.

        Raises:
            InvalidValue: for a field that is missing, unknown or out of range.
        """
        fields = {"epsilon", "delta", "relation", "individual", "records", "order"}
        for name in sorted(fields ^ set(values)):
            raise InvalidValue(
                f"Expected a budget to hold {', '.join(sorted(fields))}; {name!r} is missing or unknown."
            )
        try:
            epsilon, delta, order = (float(cast("float | str", values[name])) for name in ("epsilon", "delta", "order"))
            unit = Unit(individual=bool(values["individual"]), records=cast("int", values["records"]))
            relation = Relation(cast("str", values["relation"]))
        except (TypeError, ValueError) as error:
            raise InvalidValue(f"Expected the values of a budget: {error}.") from error
        return cls(epsilon=epsilon, delta=delta, relation=relation, unit=unit, order=order)

    def _sums(self, releases: Iterable[Mechanism]) -> Directions[float]:
        costs = [(self._cost(each), times) for each, times in Counter(releases).items()]
        return Directions(
            remove=math.fsum(each.remove * times for each, times in costs),
            add=math.fsum(each.add * times for each, times in costs),
        )

    def _cost(self, mechanism: Mechanism) -> Directions[float]:
        if self.unit.individual and not mechanism.covers(self.unit.records):
            raise Unsupported(f"{mechanism!r} is not priced for one {self.unit}.")
        step = _step_cost(mechanism, self.relation, self.order)
        return Directions(*(each * mechanism.steps if mechanism.steps else 0.0 for each in step))

    def _best_order(self, suits: Sequence[Mechanism]) -> float:
        totals = np.array([_largest_total(float(order), self.epsilon, self.delta) for order in ORDERS])
        if (totals <= 0).all():
            return float(ORDERS[-1])
        costs = sum((_largest(each.renyi(self.relation, ORDERS)) * each.steps for each in suits), np.zeros_like(ORDERS))
        with np.errstate(divide="ignore"):
            return float(ORDERS[np.argmax(totals / (costs if suits else ORDERS))])


def shared_epsilon(budgets: Sequence[Budget], *, delta: float) -> float:
    """What silos that share individuals guarantee together, each under its own budget.

    Totals add at the smallest order: a Renyi divergence does not shrink when its order grows, so that each total holds
    there as well.

    Args:
        budgets: of the silos of one set that an individual may be in; all under one relation and unit.
        delta: for the whole, in (0, 1).

    Returns:
        epsilon for the individuals of the set, at `delta`.

    Raises:
        InvalidValue: for no budgets, or budgets under different relations or units.
    """
    check_in_range(low=0, high=1, low_open=True, high_open=True, delta=delta)
    if len({(each.relation, each.unit) for each in budgets}) != 1:
        raise InvalidValue("Expected budgets to be at least one, all under the same relation and unit.")
    total = math.fsum(each.total for each in budgets)
    return _epsilon_at(min(each.order for each in budgets), total, delta) if total else 0.0


def _epsilon_at(order: float, total: float, delta: float) -> float:
    return epsilon_from_renyi(np.array([order]), np.array([total]), delta)


def _largest_total(order: float, epsilon: float, delta: float) -> float:
    """The largest Renyi divergence at `order` that converts to at most (epsilon, delta); negative when none does."""
    if epsilon == 0 or math.isinf(epsilon):
        return epsilon
    # Converting adds what does not depend on the divergence, so that any one shows how much; it is rounded away from.
    added = _epsilon_at(order, _ANY_TOTAL, delta) - _ANY_TOTAL
    return epsilon - added - _ROUNDING * (epsilon + abs(added) + _ANY_TOTAL)


@lru_cache(maxsize=4096)
def _step_cost(mechanism: Mechanism, relation: Relation, order: float) -> Directions[float]:
    remove, add = (float(values[0]) for values in mechanism.renyi(relation, np.array([order])))
    if math.isnan(remove) or math.isnan(add):
        raise Unsupported(f"The Renyi divergence of {mechanism!r} at order {order:g} is not known.")
    return Directions(remove=remove, add=add)


def _largest(values: Directions[NDArray[np.float64]]) -> NDArray[np.float64]:
    return np.maximum(values.remove, values.add)
