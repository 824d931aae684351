"""The `[training.strategy]` section: what the server makes of the silos' models, by name."""

from typing import Annotated, Literal

from pydantic import Field

from scenarios.spec._data import Section

Rate = Annotated[float, Field(gt=0)]
Decay = Annotated[float, Field(ge=0, lt=1)]


class FedAvg(Section):
    """The weighted mean of the silos' models, by public weights (McMahan et al. 2017)."""

    name: Literal["fedavg"] = Field(description="the strategy")


class FedAvgM(Section):
    """FedAvg with momentum on the server (Hsu, Qi, Brown 2019)."""

    name: Literal["fedavgm"] = Field(description="the strategy")
    learning_rate: Rate = Field(default=1.0, description="the server's learning rate")
    momentum: Decay = Field(default=0.9, description="the server's momentum")


class FedAdam(Section):
    """Adam on the server (Reddi et al. 2021)."""

    name: Literal["fedadam"] = Field(description="the strategy")
    learning_rate: Rate = Field(default=0.1, description="the server's learning rate")
    beta_1: Decay = Field(default=0.9, description="decay of the first moment")
    beta_2: Decay = Field(default=0.99, description="decay of the second moment")
    tau: Rate = Field(default=1e-3, description="adaptivity: added to the root of the second moment")


class FedYogi(Section):
    """Yogi on the server (Reddi et al. 2021)."""

    name: Literal["fedyogi"] = Field(description="the strategy")
    learning_rate: Rate = Field(default=0.01, description="the server's learning rate")
    beta_1: Decay = Field(default=0.9, description="decay of the first moment")
    beta_2: Decay = Field(default=0.99, description="decay of the second moment")
    tau: Rate = Field(default=1e-3, description="adaptivity: added to the root of the second moment")


class FedAdagrad(Section):
    """Adagrad on the server (Reddi et al. 2021)."""

    name: Literal["fedadagrad"] = Field(description="the strategy")
    learning_rate: Rate = Field(default=0.1, description="the server's learning rate")
    tau: Rate = Field(default=1e-3, description="adaptivity: added to the root of the sum of squares")


class FedProx(Section):
    """FedAvg whose local steps are pulled to the model that the round began with (Li et al. 2020)."""

    name: Literal["fedprox"] = Field(description="the strategy")
    pull: float = Field(
        default=0.1, ge=0, description="strength (mu) of the pull in each step; 0 is fedavg, at most 1 / learning_rate"
    )


class FedMedian(Section):
    """The median of each weight over the silos, whatever their public weights (Yin et al. 2018)."""

    name: Literal["fedmedian"] = Field(description="the strategy")


class FedTrimmedAvg(Section):
    """The mean of each weight without its extremes, whatever the silos' public weights (Yin et al. 2018)."""

    name: Literal["fedtrimmedavg"] = Field(description="the strategy")
    trim: float = Field(default=0.2, ge=0, lt=0.5, description="share of the silos dropped at either end, rounded down")


class Krum(Section):
    """The one model that is nearest to most others (Blanchard et al. 2017)."""

    name: Literal["krum"] = Field(description="the strategy")
    malicious: int = Field(default=0, ge=0, description="silos that may be malicious; needs 3 more than twice as many")


class Alone(Section):
    """Each silo trains by itself: nothing of another silo reaches it."""

    name: Literal["alone"] = Field(description="the strategy")


class MeanRegularised(Section):
    """A model for each silo, drawn to the mean of all after each round (MR-MTL: Liu, Hu, Wu, Smith 2022)."""

    name: Literal["mr-mtl"] = Field(description="the strategy")
    pull: float = Field(
        default=1.0,
        ge=0,
        allow_inf_nan=True,
        description="strength (lambda) of the penalty on the distance to the mean; 0 is alone, inf is fedavg",
    )


class Ditto(Section):
    """FedAvg, and in a second pass a model for each silo that is pulled to FedAvg's (Li, Hu, Beirami, Smith 2021)."""

    name: Literal["ditto"] = Field(description="the strategy")
    pull: float = Field(
        default=0.1,
        ge=0,
        description="strength (lambda) of the pull in each step of the second pass; at most 1 / learning_rate",
    )


class Scaffold(Section):
    """FedAvg whose local steps are corrected for what other silos hold (DP-SCAFFOLD: Noble et al. 2022)."""

    name: Literal["scaffold"] = Field(description="the strategy")
    learning_rate: Rate = Field(default=1.0, description="the server's learning rate")


Strategy = Annotated[
    FedAvg
    | FedAvgM
    | FedAdam
    | FedYogi
    | FedAdagrad
    | FedProx
    | FedMedian
    | FedTrimmedAvg
    | Krum
    | Alone
    | MeanRegularised
    | Ditto
    | Scaffold,
    Field(discriminator="name"),
]
