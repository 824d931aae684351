"""The `[events]` section: silos that are away, crash or answer late, in given rounds or by coins of the seed."""

from typing import Annotated

from pydantic import Field, model_validator

from scenarios.spec._data import Section, refuse

KINDS = ("offline", "crash_before_charge", "crash_after_charge", "crash_after_release", "late")
"""What may befall a silo in a round; `scenarios._participation` says what each does."""

Rounds = tuple[Annotated[int, Field(ge=1)], ...]
Share = Annotated[float, Field(ge=0, le=1)]


class SiloEvents(Section):
    """The rounds in which something befalls one silo."""

    offline: Rounds = Field(default=(), strict=False, description="rounds in which it is not there and not asked")
    crash_before_charge: Rounds = Field(
        default=(), strict=False, description="rounds in which it crashes before its ledger is charged"
    )
    crash_after_charge: Rounds = Field(
        default=(), strict=False, description="rounds in which it crashes after the charge, before the release"
    )
    crash_after_release: Rounds = Field(
        default=(), strict=False, description="rounds in which it crashes after the release, before its reply arrives"
    )
    late: Rounds = Field(
        default=(), strict=False, description="rounds in which its reply comes after the server stopped waiting"
    )

    def by_round(self) -> dict[int, str]:
        """What befalls the silo, by round."""
        return {number: kind for kind in KINDS for number in getattr(self, kind)}

    @model_validator(mode="after")
    def _one_a_round(self) -> "SiloEvents":
        if sum(len(set(getattr(self, kind))) for kind in KINDS) > len(self.by_round()):
            raise refuse("", "lets two things befall a silo in one round")
        return self


class Events(Section):
    """What goes wrong, chosen from the seed and from this table alone, never from results."""

    offline: Share = Field(default=0.0, description="probability that a silo is not there in a round")
    crash_before_charge: Share = Field(default=0.0, description="probability of a crash before the charge")
    crash_after_charge: Share = Field(default=0.0, description="probability of a crash between charge and release")
    crash_after_release: Share = Field(default=0.0, description="probability of a crash before the reply arrives")
    late: Share = Field(default=0.0, description="probability that a reply comes too late")
    silos: dict[str, SiloEvents] = Field(default_factory=dict, description="silos with given rounds, by name")

    @model_validator(mode="after")
    def _at_most_one(self) -> "Events":
        if sum(getattr(self, kind) for kind in KINDS) > 1 + 1e-9:
            raise refuse("", "holds probabilities that add to more than 1; at most one thing befalls a silo in a round")
        return self
