"""Participation: which silos take part in which rounds, and what becomes of those that break.

Events come from the scenario and its seed alone, never from results, so that the executed rounds are the price.

| event               | ledger                              | model                                |
|---------------------|-------------------------------------|--------------------------------------|
| offline             | nothing: the silo is not asked      | made without the silo                |
| crash-before-charge | nothing                             | made without the silo                |
| crash-after-charge  | charged, counts in full             | made without the silo                |
| crash-after-release | released, counts as executed        | made without the silo                |
| late                | released, counts as executed        | made without it; it is never used    |
| budget exhausted    | nothing: the silo declines          | made without the silo                |

A silo that crashed takes part in the next round like any other. A round without any silo leaves the model as it was.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from accounting import SilodpError
from scenarios.spec._events import KINDS
from scenarios.spec._scenario import Scenario
from silos import Charged, Request, Silo, Weights

Fates = Mapping[str, Mapping[int, str]]
"""What befalls each silo, by round."""

_STREAM = 2


class SiloGone(SilodpError):
    """A simulated silo crashed, or its reply came too late: nothing of it arrives."""


def fates(scenario: Scenario, silos: Sequence[str]) -> dict[str, dict[int, str]]:
    """What befalls each silo in each round: what the scenario gives, else a coin of the seed.

    Args:
        scenario: the scenario.
        silos: names, in the order of the dataset.

    Returns:
        By silo and round, the event's name with hyphens.

    Raises:
        ScenarioError: for events of a silo that is not there.
    """
    events = scenario.events
    for name in events.silos:
        if name not in silos:
            raise scenario.error(("events", "silos", name), "names a silo without records")
    bounds = np.cumsum([getattr(events, kind) for kind in KINDS])
    generator = np.random.default_rng(np.random.SeedSequence(scenario.seed, spawn_key=(_STREAM,)))
    # One row a round, so that more rounds change nothing in those before.
    coins = generator.random((scenario.training.rounds, len(silos)))
    found: dict[str, dict[int, str]] = {}
    for column, silo in enumerate(silos):
        drawn = np.searchsorted(bounds, coins[:, column], side="right")
        own = {number: KINDS[kind] for number, kind in enumerate(drawn.tolist(), start=1) if kind < len(KINDS)}
        given = events.silos[silo].by_round() if silo in events.silos else {}
        found[silo] = {number: kind.replace("_", "-") for number, kind in (own | given).items()}
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class UnreliableSilo(Silo):
    """A silo that crashes, or answers too late, in given rounds.

    Args:
        events: what befalls it, by round.
    """

    events: Mapping[int, str]

    def begin(self, request: Request) -> Charged:
        """As `Silo.begin`.

        Raises:
            SiloGone: where it crashes before or after the charge. The ledger holds what it held at that moment.
        """
        event = self.events.get(request.round)
        if event == "crash-before-charge":
            raise SiloGone(event)
        charged = super().begin(request)
        if event == "crash-after-charge":
            raise SiloGone(event)
        if event in ("crash-after-release", "late"):
            return _Lost(silo=self, request=request, charge=charged.charge)
        return charged


class _Lost(Charged):
    """A release that is recorded and never arrives."""

    def release(self, weights: Weights, executed: int) -> Weights:
        super().release(weights, executed)
        raise SiloGone(self.silo.name)
