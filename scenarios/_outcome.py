"""What a run came to, as the console and the report both tell it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from accounting import Guarantee, round_up
from scenarios._asked import HELD_OUT
from scenarios._checkpoint import WHOLE
from scenarios._noisy_metrics import PREFIX
from scenarios._plan_parts import Plan
from scenarios._price import participation_reacts
from scenarios.spec._scenario import Scenario

if TYPE_CHECKING:
    import pandas as pd

HEADLINE: Mapping[str, str] = {"binary": "auc", "multiclass": "accuracy", "regression": "r2"}
"""The metric that a task is judged by; larger is better in each."""


def shown_metric(metrics: "pd.DataFrame", task: str) -> str:
    """What a run is shown by: the oracle's headline metric, or the silos' noisy one where there is no oracle."""
    noisy = PREFIX + HEADLINE[task]
    known = set(metrics["metric"])
    return noisy if noisy in known and HEADLINE[task] not in known else HEADLINE[task]


@dataclass(frozen=True, kw_only=True)
class SiloRow:
    """One line of the table of silos."""

    silo: str
    size: int
    sampling_rate: float
    noise_multiplier: float
    steps: int
    epsilon: float
    metric: str


def silo_rows(plan: Plan, guarantee: Guarantee, metrics: "pd.DataFrame", metric: str) -> list[SiloRow]:
    """The table of silos: what each was asked, what it spent in fact, what the model does for its held-out records."""
    last = metrics[(metrics["metric"] == metric) & (metrics["silo"] != WHOLE)].set_index("silo")["value"]
    return [
        SiloRow(
            silo=part.silo,
            size=part.size,
            sampling_rate=part.schedule.sampling_rate,
            noise_multiplier=part.schedule.noise_multiplier,
            steps=part.steps,
            epsilon=guarantee.per_silo[part.silo],
            metric=f"{last[part.silo]:.4f}" if part.silo in last.index else "–",
        )
        for part in plan.silos
    ]


def headline(scenario: Scenario, guarantee: Guarantee, metrics: "pd.DataFrame") -> str:
    """What the run came to, in one line."""
    metric = shown_metric(metrics, scenario.data.task)
    rows = metrics.loc[(metrics["metric"] == metric) & (metrics["silo"] == WHOLE)]
    final = rows["value"].to_numpy()[-1:]
    said = f"{metric} {final[0]:.4f} on held-out records" if len(final) else "not evaluated"
    rounds = rows["round"].max() if len(rows) else scenario.training.rounds
    priced = f" (the price of all {scenario.training.rounds} declared rounds)" if participation_reacts(scenario) else ""
    silos = sum(not name.endswith(HELD_OUT) for name in guarantee.per_silo)
    return (
        f"After {rounds} rounds over {silos} silos: {said}, at epsilon "
        f"{round_up(guarantee.epsilon, 4)}, delta {round_up(guarantee.delta, 4)}{priced}."
    )
