"""The `[deployment]` section: what becomes of a round in which silos do not answer. Simulations do not read it."""

from typing import Literal

from pydantic import Field

from scenarios.spec._data import Section


class Deployment(Section):
    """How long a deployed round waits for whom; which silos are in it then depends on who answers in time."""

    timeout: float = Field(default=600.0, gt=0, description="seconds that a round waits for the answers of all silos")
    on_missing: Literal["wait", "go-on", "stop"] = Field(
        default="wait",
        description="after it: ask those missing again and wait on, make the model without them, or stop the run, "
        "which can be resumed",
    )
    at_least: int = Field(
        default=1, ge=1, description="fewest silos whose models make a round's model; with fewer the run stops"
    )
