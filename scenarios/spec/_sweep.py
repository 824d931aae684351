"""The `[sweep]` section: which runs to make and compare."""

from typing import Annotated, Literal, get_args

from pydantic import Field, model_validator

from scenarios.spec._data import Section, refuse

Value = bool | int | Annotated[float, Field(allow_inf_nan=True)] | str
"""What a swept key takes. A strategy is a name, or a name with options, as in ``mr-mtl:pull=0.1``."""

Baseline = Literal["no-privacy", "alone", "pooled", "majority"]
BASELINES: tuple[str, ...] = get_args(Baseline)


class Sweep(Section):
    """Which runs a sweep makes: every combination of values for every seed, and baselines beside them."""

    over: dict[str, Annotated[tuple[Value, ...], Field(strict=False, min_length=1)]] = Field(
        default_factory=dict,
        description="values of each swept key: dotted, or its last part where one key alone has it; a strategy may "
        'carry options, as in "mr-mtl:pull=0.1"',
    )
    seeds: int = Field(default=1, ge=1, le=10**4, description="runs of each combination: seeds from the scenario's on")
    baselines: tuple[Baseline, ...] = Field(
        default=(),
        strict=False,
        description="no-privacy, epsilon = inf; alone, each silo by itself; pooled, one trusted trainer; majority, no "
        "model",
    )

    @model_validator(mode="after")
    def _distinct(self) -> "Sweep":
        for key, values in self.over.items():
            if len(set(values)) < len(values):
                raise refuse(f"over.{key}", "must not repeat a value")
        if len(set(self.baselines)) < len(self.baselines):
            raise refuse("baselines", "must not repeat a baseline")
        return self
