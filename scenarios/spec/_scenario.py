"""A scenario: one TOML file that says everything a run depends on.

Sections are pydantic models; each key has a description with its unit and range, which `silodp show` and error
messages print. A scenario is frozen, compares by value, and written back as TOML it loads as an equal one.
"""

import json
from pathlib import PurePath
from typing import Annotated, Literal, Self

import tomli_w
from pydantic import BeforeValidator, Field, PrivateAttr, model_validator
from pydantic_core import PydanticCustomError

from accounting._relations import Relation
from scenarios._errors import ScenarioError
from scenarios.spec._data import FILE_KINDS, Data, Section, Silos, refuse
from scenarios.spec._deployment import Deployment
from scenarios.spec._events import Events
from scenarios.spec._origin import Origin, Problem
from scenarios.spec._privacy import Privacy
from scenarios.spec._strategies import Ditto, FedAvg, FedProx, Scaffold, Strategy
from scenarios.spec._sweep import Sweep


class Model(Section):
    """The model that all silos train."""

    kind: str = Field(
        default="mlp",
        pattern=r"^(linear|mlp|cnn|[A-Za-z_][\w.]*:[A-Za-z_]\w*)$",
        description='"linear", "mlp", "cnn", or the user\'s own "module:factory"',
    )
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        default=(32,), strict=False, description="mlp: width of each hidden layer"
    )
    activation: Literal["elu", "gelu", "relu", "sigmoid", "tanh"] = Field(
        default="tanh", description="mlp: what follows each hidden layer"
    )


class Training(Section):
    """How the silos train: rounds of DP-SGD steps."""

    rounds: int = Field(ge=1, le=10**5, description="number of rounds")
    fine_tune_rounds: int = Field(
        default=0, ge=0, description="of the rounds, so many at the end in which each silo trains on alone"
    )
    local_steps: int = Field(default=1, ge=1, le=10**5, description="DP-SGD steps of a silo in each round")
    sampling: Literal["records", "individuals"] = Field(
        default="records",
        description="whom a step samples: records, each clipped; or individuals, each one's sum clipped",
    )
    sampling_rate: float | None = Field(
        default=None, gt=0, le=1, description="q: probability that a record is in a step's batch; equal in all silos"
    )
    expected_batch: float | None = Field(
        default=None, gt=0, description="expected records in a step's batch; q is this over the silo's public size"
    )
    clip_norm: float = Field(default=1.0, gt=0, description="C: greatest l2 norm of one record's gradient")
    contribution: Literal["whole", "shared"] = Field(
        default="whole",
        description="shared: each of the max_silos silos clips an individual's gradient to its part of clip_norm and "
        "adds the noise of all of it (after Kato et al. 2024)",
    )
    learning_rate: float = Field(gt=0, description="of the silo's SGD")
    momentum: float = Field(default=0.0, ge=0, lt=1, description="of the silo's SGD; starts afresh each round")
    strategy: Strategy = Field(
        default=FedAvg(name="fedavg"), description='how the server aggregates, as in { name = "fedavg" }'
    )
    weights: Literal["size", "inverse-variance"] = Field(
        default="size",
        description="a silo's weight in the average: its public size, or one over the variance that its noise adds",
    )
    engine: Literal["auto", "fleet", "opacus"] = Field(
        default="auto",
        description="what trains: fleet, all silos at once; opacus, one by one; auto takes fleet for linear and mlp",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="where silos train; auto takes CUDA where there is one"
    )
    max_physical_batch: int = Field(
        default=256, ge=1, description="most records in memory with their gradients at a time; changes rounding only"
    )
    stop_at: float | None = Field(
        default=None,
        description="stop after the first evaluation of the headline metric that reaches this; all rounds are priced",
    )

    @property
    def twice(self) -> int:
        """How many rounds, from the first on, ask each silo for two models instead of one."""
        return self.rounds - self.fine_tune_rounds if isinstance(self.strategy, Ditto) else 0

    @model_validator(mode="after")
    def _strategy_fits(self) -> "Training":
        strategy = self.strategy
        if self.fine_tune_rounds >= self.rounds:
            raise refuse("fine_tune_rounds", f"must leave rounds for the strategy: give at most {self.rounds - 1}")
        if self.fine_tune_rounds and self.stop_at is not None:
            raise refuse("stop_at", "would stop before fine_tune_rounds; give one of them")
        if isinstance(strategy, FedProx | Ditto) and strategy.pull * self.learning_rate > 1:
            most = f"{1 / self.learning_rate:g}, 1 / training.learning_rate"
            raise refuse("strategy.pull", f"takes steps beyond what it pulls to: give at most {most}")
        if isinstance(strategy, Scaffold) and self.momentum:
            raise refuse("momentum", "must be 0: scaffold learns gradients from plain SGD steps")
        return self

    @model_validator(mode="after")
    def _one_rate(self) -> "Training":
        if (self.sampling_rate is None) == (self.expected_batch is None):
            key = "sampling_rate" if self.sampling_rate is not None else ""
            raise refuse(key, "needs exactly one of sampling_rate and expected_batch")
        return self


def _check_test_fraction(value: object) -> object:
    number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1
    if not number and value != "source":
        raise PydanticCustomError("rule", 'must be a number in [0, 1), or "source"')
    return value


class Evaluation(Section):
    """Held-out records: an oracle on the simulator's side of the boundary."""

    test_fraction: Annotated[float | Literal["source"], BeforeValidator(_check_test_fraction)] = Field(
        default=0.2, description='share of individuals held out, or "source": the test split that the source comes with'
    )
    every: int = Field(default=1, ge=1, description="rounds between evaluations; the last round is always evaluated")
    oracle: bool = Field(
        default=True, description="whether the simulator evaluates on all held-out records, at no price"
    )
    silo_metrics: bool = Field(
        default=False, description="whether silos score the last model on their own held-out records, with noise"
    )
    metric_epsilon: float | None = Field(default=None, gt=0, description="price of all that silo_metrics releases")
    score_bins: int = Field(
        default=20,
        ge=2,
        multiple_of=2,
        description="silo_metrics of a binary task: bins of the score; more blur the AUC less and carry more noise",
    )

    @model_validator(mode="after")
    def _metrics_have_a_price(self) -> "Evaluation":
        if self.silo_metrics != (self.metric_epsilon is not None):
            raise refuse("metric_epsilon", "goes with silo_metrics = true, and only with it")
        if self.silo_metrics and self.test_fraction == 0:
            raise refuse("silo_metrics", "needs held-out records; give a test_fraction above 0")
        return self


class Scenario(Section):
    """Everything a run depends on.

    Two scenarios are equal when their keys are, wherever they were read.
    """

    name: str = Field(
        default="scenario", pattern=r"^[\w.-]+$", description="the scenario's name; the file's, if absent"
    )
    description: str = Field(default="", description="one line for the list of scenarios")
    seed: int = Field(default=1, ge=0, lt=2**63, description="seed of everything random in a simulation")
    data: Data
    silos: Silos
    model: Model = Model()
    training: Training
    privacy: Privacy
    evaluation: Evaluation = Evaluation()
    events: Events = Events()
    deployment: Deployment = Deployment()
    sweep: Sweep | None = None

    _origin: Origin = PrivateAttr(default=Origin())

    @model_validator(mode="after")
    def _sizes_are_public(self) -> Self:
        private = self.privacy.relation is Relation.ADD_OR_REMOVE_ONE
        if self.silos.public and not private:
            raise refuse("silos.public", f"means nothing under {self.privacy.relation}: true sizes are public")
        if self.sizes_declared_public and (self.silos.declared_size is not None or self.privacy.size_epsilon):
            raise refuse("silos.public", "stands in place of silos.declared_size and privacy.size_epsilon; give one")
        if self.privacy.size_epsilon is not None and not private:
            raise refuse("privacy.size_epsilon", f"means nothing under {self.privacy.relation}: true sizes are public")
        if self.privacy.size_epsilon is not None and self.silos.declared_size is not None:
            raise refuse("privacy.size_epsilon", "stands in place of silos.declared_size; give one of them")
        known = self.silos.declared_size is not None or self.privacy.size_epsilon is not None
        if private and not known and not self.sizes_declared_public:
            raise refuse(
                "silos.declared_size",
                "is required: sizes are private under add-or-remove-one. Declare a public size (one number, or a table "
                "of one per silo), pay for noisy counts by privacy.size_epsilon, choose privacy.relation = "
                '"zero-out", under which true sizes are public, or leave them out of the guarantee by silos.public',
            )
        return self

    @property
    def sizes_declared_public(self) -> bool:
        """Whether the numbers that rates, divisors and weights follow from are true ones outside the guarantee."""
        return ("individuals" if self.training.sampling == "individuals" else "records") in self.silos.public

    @model_validator(mode="after")
    def _public_numbers_are_there(self) -> Self:
        if "individuals" in self.silos.public and self.data.individual is None:
            raise refuse("silos.public", "holds individuals; it needs data.individual, the column that names them")
        if "held-out-records" in self.silos.public and self.evaluation.test_fraction == 0:
            raise refuse("silos.public", "holds held-out-records, and nothing is held out")
        return self

    @model_validator(mode="after")
    def _stopping_needs_the_oracle(self) -> Self:
        if self.training.stop_at is not None and (not self.evaluation.oracle or self.evaluation.test_fraction == 0):
            raise refuse("training.stop_at", "looks at the oracle's metric; it needs held-out records and the oracle")
        return self

    @model_validator(mode="after")
    def _individuals_are_named(self) -> Self:
        named = "needs data.individual, the column that names each record's individual"
        if self.data.individual is None and self.privacy.unit == "individual":
            raise refuse("privacy.unit", named)
        if self.data.individual is None and self.data.records_per_individual > 1:
            raise refuse("data.records_per_individual", named)
        if self.training.sampling == "individuals" and not self.protects_individuals:
            raise refuse("training.sampling", "needs individuals: data.individual, and not privacy.unit = record")
        by_individual = self.training.sampling == "individuals"
        if by_individual and self.training.engine == "fleet":
            raise refuse("training.engine", "must be opacus, or auto, where individuals are sampled")
        if self.training.contribution == "shared" and not (by_individual and self.silos.membership == "at-most"):
            raise refuse(
                "training.contribution", 'needs training.sampling = "individuals" and silos.membership = "at-most"'
            )
        return self

    @model_validator(mode="after")
    def _pooling_has_a_price(self) -> Self:
        if not self.silos.pooled:
            return self
        if self.privacy.silos or self.privacy.groups:
            raise refuse("silos.pooled", "has one trainer with one target: give no privacy.silos or privacy.groups")
        if self.silos.membership == "unknown":
            raise refuse("silos.pooled", "needs a bound on one individual's records in all silos: declare a membership")
        if self.silos.membership == "at-most" and not self.protects_individuals:
            raise refuse("silos.pooled", "cannot tell copies of a record in several silos: name data.individual")
        return self

    @property
    def protects_individuals(self) -> bool:
        """Whether the unit is an individual, not a record."""
        return self.data.individual is not None and self.privacy.unit != "record"

    @model_validator(mode="after")
    def _files_are_csv(self) -> Self:
        if self.silos.files is not None and not self.data.source.startswith("csv:"):
            raise refuse("silos.files", "goes with a csv source, whose path is the folder of the files")
        return self

    @model_validator(mode="after")
    def _partition_fits_task(self) -> Self:
        if self.data.task == "regression" and self.silos.partition in ("dirichlet", "by-class"):
            raise refuse("silos.partition", "deals by class, and a regression has none; allowed: iid, quantity")
        return self

    def to_toml(self) -> str:
        """The resolved scenario, defaults included; `load` reads it back as an equal scenario."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))

    def canonical(self) -> bytes:
        """The scenario's content as bytes, for hashing: equal wherever its files lie and whatever trains and waits."""
        content = self.model_dump(mode="json")
        del content["training"]["engine"], content["deployment"], content["sweep"]
        kind, colon, place = self.data.source.partition(":")
        content["data"]["source"] = kind + colon + PurePath(place).name if kind in FILE_KINDS else self.data.source
        return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()

    def error(self, key: str | tuple[str, ...], message: str) -> ScenarioError:
        """The error to raise where the data belie the scenario.

        Args:
            key: the key at fault, dotted; a tuple where a name itself has a dot.
            message: what is wrong and what is allowed.
        """
        path = tuple(key.split(".")) if isinstance(key, str) else key
        return ScenarioError(self._origin.report([Problem(path, message)]))
