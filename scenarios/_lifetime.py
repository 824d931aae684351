"""The lifetime of deployed silos' ledgers: what was spent, on what, by whom, and how much of the budget that is."""

import json
import math
from collections.abc import Sequence
from typing import TypedDict

from accounting import LAW_CHAIN, Budget, Ledger, epsilon, number_to_json
from accounting._law_chain import is_law_chain, voided


class RunSpent(TypedDict):
    """One run of one silo.

    `by` is what the silo knew of who ran it; `charged` and `released` count releases by item; `epsilon` is what the
    run costs alone, had its rounds been fixed in advance.
    """

    run: str
    by: dict[str, str]
    charged: dict[str, int]
    released: dict[str, int]
    epsilon: float | str


class Lifetime(TypedDict):
    """A chain that pays, under its silo's budget.

    `used` is the part of the filter's total that is spent, 0 where that has no limit; `sentence` is what the budget
    guarantees, whatever of it is spent and however it was chosen, or why it guarantees nothing.
    """

    silo: str
    epsilon: float | str
    delta: float
    used: float
    sentence: str
    runs: list[RunSpent]


def budgets(ledger: Ledger) -> dict[str, Budget]:
    """The budget of each deployed silo in a ledger."""
    found: dict[str, Budget] = {}
    for chain in ledger.silos():
        fixed = ledger.fixed(chain, "budget")
        if fixed is not None and is_law_chain(ledger, chain):
            found[chain.removesuffix(LAW_CHAIN)] = Budget.from_json(json.loads(fixed))
    return found


def lifetimes(ledger: Ledger) -> list[Lifetime]:
    """What each chain of a ledger that has a budget paid, run by run; empty for the ledger of a simulation."""
    return [
        _lifetime(ledger, silo, payer, budget)
        for silo, budget in budgets(ledger).items()
        for payer in ledger.silos()
        if (payer == silo or payer.startswith(f"{silo}/")) and ledger.charges(payer)
    ]


def _lifetime(ledger: Ledger, silo: str, payer: str, budget: Budget) -> Lifetime:
    void, spent = voided(ledger), budget.spent(ledger.charged(payer))
    runs = [_run(ledger, silo, payer, run, budget) for run in ledger.runs() if ledger.charges(payer, run)]
    return Lifetime(
        silo=payer,
        epsilon=number_to_json(budget.epsilon),
        delta=budget.delta,
        used=spent / budget.total if 0 < budget.total < math.inf else 0.0,
        sentence=f"It protects nobody: {void[0].reason}." if void else budget.sentence(),
        runs=runs,
    )


def _run(ledger: Ledger, silo: str, payer: str, run: str, budget: Budget) -> RunSpent:
    charges = ledger.charges(payer, run)
    price = epsilon([*ledger.charged(payer, run), *voided(ledger)], relation=budget.relation, delta=budget.delta)
    return RunSpent(
        run=run,
        by=json.loads(ledger.fixed(silo + LAW_CHAIN, f"run {run}") or "{}"),
        charged=_count([one.key.item for one in charges]),
        released=_count([one.key.item for one in charges if one.output is not None]),
        epsilon=number_to_json(price.epsilon),
    )


def _count(items: Sequence[str]) -> dict[str, int]:
    return {item: items.count(item) for item in dict.fromkeys(items)}
