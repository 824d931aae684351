"""The `[privacy]` section: what the whole run may give away, and silos or groups of silos with targets of their own."""

import math
from typing import Literal, Self

from pydantic import Field, model_validator

from accounting._relations import Relation
from scenarios.spec._data import Section, refuse


class Target(Section):
    """Either an epsilon to calibrate the noise to, or the noise itself."""

    epsilon: float | None = Field(
        default=None, gt=0, allow_inf_nan=True, description="target epsilon of the whole run; inf: no noise"
    )
    noise_multiplier: float | None = Field(
        default=None, gt=0, description="sigma: standard deviation of the noise relative to clip_norm C"
    )
    budget: float | None = Field(
        default=None, gt=0, description="most epsilon that a silo's ledger may spend; it declines what goes beyond"
    )

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        if (self.epsilon is None) == (self.noise_multiplier is None):
            key = "noise_multiplier" if self.epsilon is not None else ""
            raise refuse(key, "needs exactly one of epsilon and noise_multiplier")
        return self


class SiloTarget(Target):
    """One silo's own target."""

    group: str | None = Field(default=None, description="the group that the silo is shown in")


class Group(Target):
    """Silos that share a target: those named, or a share of all that have none by name, drawn from the seed."""

    share: float | None = Field(
        default=None, gt=0, le=1, description="part of the silos without a target by name; drawn from the seed"
    )
    silos: tuple[str, ...] | None = Field(
        default=None, strict=False, min_length=1, description="names of the group's silos"
    )

    @model_validator(mode="after")
    def _share_or_names(self) -> Self:
        if (self.share is None) == (self.silos is None):
            raise refuse("silos" if self.silos else "", "needs exactly one of share and silos")
        return self


class Privacy(Target):
    """What the whole run may give away about one individual (or record, where no individuals are named)."""

    delta: float = Field(gt=0, lt=1, description="delta of the guarantee; well below one over the number of records")
    relation: Relation = Field(strict=False, description="how neighbouring datasets differ")
    unit: Literal["record", "individual"] | None = Field(
        default=None, description="what is protected; without it, the individual where data.individual names one"
    )
    size_epsilon: float | None = Field(
        default=None,
        gt=0,
        description="add-or-remove-one: price of a noisy count of each silo, in place of a declared size",
    )
    silos: dict[str, SiloTarget] = Field(default_factory=dict, description="silos with a target of their own, by name")
    groups: dict[str, Group] = Field(
        default_factory=dict,
        description="groups of silos with a target of their own, by name; the others have the run's",
    )

    @model_validator(mode="after")
    def _one_group_each(self) -> Self:
        named = [silo for group in self.groups.values() for silo in group.silos or ()]
        for silo in named:
            if silo in self.silos or named.count(silo) > 1:
                raise refuse("groups", f"gives silo {silo!r} two targets; name it once, here or in privacy.silos")
        if (total := math.fsum(group.share or 0 for group in self.groups.values())) > 1 + 1e-9:
            raise refuse("groups", f"holds shares that add to {total:g}; allowed: at most 1")
        return self

    def epsilon_for(self, silo: str) -> float | None:
        """The silo's target epsilon; None where its noise multiplier is given instead."""
        return self.silos.get(silo, self).epsilon

    def noise_multiplier_for(self, silo: str) -> float | None:
        """The silo's given noise multiplier; None where it is calibrated to a target epsilon."""
        return self.silos.get(silo, self).noise_multiplier

    def budget_for(self, silo: str) -> float | None:
        """The silo's own budget, else everybody's; None where there is no limit."""
        own = self.silos[silo].budget if silo in self.silos else None
        return self.budget if own is None else own
