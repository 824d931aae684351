"""What many runs over the same data cost together: selection is not free.

The server saw every run, the ones that were not picked too, so that all of them compose, whatever is told about the
best. Individuals are the same in every run over the same data; where they are may differ:

- A silo that holds the same individuals in every run is one silo: its chains are joined over all runs.
- Who is held out depends on the seed. Over runs of different splits an individual may have paid as held out in one
  and as trained on in another, so that a silo's two chains are joined too.
- A partition dealt by the seed, or by another label, puts an individual into other silos in other runs, and so does a
  cap that drops it from silos by a hash that follows from the seed. Each deal's silos are then silos of their own, and
  an individual may be in as many of them as there are deals (an upper bound: it is in one of each).

What a run does may follow from what earlier ones showed, since composition is adaptive. How many runs there are, at
which noise and rates, must not: the price is of a list of runs that was fixed in advance, as a sweep's is.
"""

import json
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from accounting import (
    AtMost,
    Disjoint,
    Federation,
    Guarantee,
    InvalidValue,
    Ledger,
    Mechanism,
    Membership,
    Relation,
    Unit,
    Unknown,
)
from accounting._release import law_of
from scenarios._account import FACTS, LEDGER, REACTS, parse_membership
from scenarios._asked import HELD_OUT
from scenarios._errors import RunError

MOST_LAWS = 24
"""More distinct laws than this are composed by Renyi divergences, since PLD of so many takes minutes."""

_MOVE_NOBODY = {
    "silos": ("seed", "declared_size", "membership", "max_silos", "public"),
    "data": ("source", "features", "standardise", "standardise_epsilon", "records_per_individual"),
}
"""Keys that say nothing of which silo an individual is in; a partition may look at labels and ids, caps at ids."""


@dataclass(frozen=True, kw_only=True)
class RunLedger:
    """What a run's folder says of its individuals and of what they paid.

    Attributes:
        data: the source; runs over the same source are over the same individuals.
        deal: who is in which silo.
        split: who is held out.
        delta: of the run's guarantee.
        facts: the terms that its ledger fixed; see `FACTS`.
        releases: of each chain, equal ones as one of all their steps.
    """

    data: str
    deal: str
    split: str
    delta: float
    facts: tuple[tuple[str, str], ...]
    releases: dict[str, list[Mechanism]]


def read_run_ledger(folder: Path) -> RunLedger | None:
    """Read a run's folder; None where nothing was charged.

    Raises:
        RunError: where it holds no run, no ledger, or one that was kept under no terms.
        LedgerError: for a ledger that is not sound.
    """
    try:
        scenario = tomllib.loads((folder / "scenario.toml").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{folder}: holds no run: {error}") from None
    if not (folder / LEDGER).exists():
        raise RunError(f"{folder}: its ledger is gone, and so nobody knows what this run cost. Put {LEDGER} back.")
    with Ledger.open(folder / LEDGER, read_only=True) as ledger:
        if not any(ledger.charges(silo) for silo in ledger.silos()):
            return None
        facts = {name: value for silo in ledger.silos() for name in FACTS if (value := ledger.fixed(silo, name))}
        if missing := [name for name in FACTS if name not in facts]:
            raise RunError(f"{folder}: its ledger fixed no {', no '.join(missing)}, and cannot be priced with others.")
        federation = Federation.from_ledger(
            ledger, Unknown(), Relation(facts["relation"]), participation_reacts=facts["participation"] == REACTS
        )
        laws = {chain: law_of(each) for chain, each in federation.releases().items()}
    return RunLedger(
        data=scenario["data"]["source"],
        deal=_deal(scenario),
        split=f"{scenario['seed']}/{scenario['evaluation']['test_fraction']}",
        delta=scenario["privacy"]["delta"],
        facts=tuple(sorted(facts.items())),
        releases={chain: [step.repeated(steps) for step, steps in law] for chain, law in laws.items()},
    )


def _deal(scenario: dict) -> str:
    """All of a scenario that decides which silo each individual is in: equal texts, equal silos."""
    silos, seed = scenario["silos"], scenario["seed"]
    deal: dict[str, object] = {
        name: {key: value for key, value in scenario[name].items() if key not in still}
        for name, still in _MOVE_NOBODY.items()
    }
    deal["dealt"] = silos.get("seed", seed) if "partition" in silos else None
    # Which of its silos an individual beyond the cap stays in is drawn from the seed.
    deal["dropped"] = seed if scenario["data"]["beyond_cap"] == "drop" else None
    return json.dumps(deal, sort_keys=True)


def price_together(runs: Sequence[RunLedger]) -> Guarantee:
    """The guarantee of all these runs for one individual, at the least of their deltas.

    Args:
        runs: over the same data, at least one.

    Raises:
        InvalidValue: where they were kept under different relations or units, which have no common price.
    """
    terms = [dict(run.facts) for run in runs]
    for name in ("relation", "unit"):
        if len(kept := sorted({each[name] for each in terms})) > 1:
            raise InvalidValue(f"The runs were kept under different {name}s ({', '.join(kept)}): no common price.")
    federation = Federation(
        _chains(runs),
        _membership(runs),
        Relation(terms[0]["relation"]),
        Unit.parse(terms[0]["unit"]),
        participation_reacts=any(each["participation"] == REACTS for each in terms),
    )
    laws = {part for law in federation.costs.laws.values() for part in law}
    return federation.guarantee(
        delta=min(run.delta for run in runs), method="auto" if len(laws) <= MOST_LAWS else "rdp"
    )


def _chains(runs: Sequence[RunLedger]) -> dict[str, list[Mechanism]]:
    """What each silo of each deal released over all runs."""
    deals = {deal: number for number, deal in enumerate(dict.fromkeys(run.deal for run in runs), 1)}
    chains: dict[str, list[Mechanism]] = {}
    for run in runs:
        splits = {each.split for each in runs if each.deal == run.deal}
        for chain, releases in run.releases.items():
            silo = chain if len(splits) == 1 else chain.removesuffix(HELD_OUT)
            name = silo if len(deals) == 1 else f"{silo} of deal {deals[run.deal]}"
            chains.setdefault(name, []).extend(releases)
    return chains


def _membership(runs: Sequence[RunLedger]) -> Membership:
    """The widest that each deal was kept under, over all deals."""
    caps: dict[str, int] = {}
    for run in runs:
        cap = parse_membership(dict(run.facts)["membership"]).cap(sys.maxsize)
        caps[run.deal] = max(cap, caps.get(run.deal, 0))
    total = sum(caps.values())
    if total >= sys.maxsize:
        return Unknown()
    return Disjoint() if total == 1 else AtMost(total)
