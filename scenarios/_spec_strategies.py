"""The `[training.strategy]` section: what the server makes of the silos' models, by name."""

from typing import Annotated, Literal

from pydantic import Field

from scenarios._spec_data import Section


class FedAvg(Section):
    """The weighted mean of the silos' models, by public weights."""

    name: Literal["fedavg"] = Field(description="the strategy")


class FedAvgM(Section):
    """FedAvg with momentum on the server (Hsu, Qi, Brown 2019)."""

    name: Literal["fedavgm"] = Field(description="the strategy")
    learning_rate: float = Field(default=1.0, gt=0, description="the server's learning rate")
    momentum: float = Field(default=0.9, ge=0, lt=1, description="the server's momentum")


class FedAdam(Section):
    """Adam on the server (Reddi et al. 2021)."""

    name: Literal["fedadam"] = Field(description="the strategy")
    learning_rate: float = Field(default=0.1, gt=0, description="the server's learning rate")
    beta_1: float = Field(default=0.9, ge=0, lt=1, description="decay of the first moment")
    beta_2: float = Field(default=0.99, ge=0, lt=1, description="decay of the second moment")
    tau: float = Field(default=1e-3, gt=0, description="adaptivity: added to the root of the second moment")


class Alone(Section):
    """Each silo trains by itself: nothing of another silo reaches it."""

    name: Literal["alone"] = Field(description="the strategy")


Strategy = Annotated[FedAvg | FedAvgM | FedAdam | Alone, Field(discriminator="name")]
