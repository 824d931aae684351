"""The law of a silo: its `silo.toml`, which says what the silo serves, whoever asks and whatever for.

The server proposes and the law decides. Whatever is outside the law is declined before anything is computed or charged,
so that a server that lies gets at most the budget.

```toml
name = "north"                     # the silo's public name
relation = "add-or-remove-one"     # how neighbouring datasets differ
server = "10.0.0.7:8000"           # who asks, as far as the silo knows; kept in its ledger

[data]
path = "patients.csv"              # beside this file
task = "binary"
size = 1200                        # the declared number of training records, which is public

[data.rules]                       # the keys of a scenario's [data]; without them the file is a prepared shard
individual = "id"
label = { column = "sick", positive = 1 }
features = { age = { low = 18, high = 90 }, sex = { categories = ["f", "m"] } }

[[models]]                         # what may be trained
kind = "mlp"
hidden = [32]

[budget]                           # over the lifetime of the ledger, all runs together
epsilon = 2.0
delta = 1e-6

[limits]
noise_multiplier = 1.0             # the least
clip_norm = 1.0                    # the greatest, as are the others
sampling_rate = 0.05
steps = 10
rounds = 100
```
"""

import tomllib
from pathlib import Path
from typing import Annotated, Literal

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from accounting import Budget, InvalidValue, MultiRecordSampledGaussian, Relation, SampledGaussian, Unit
from silos._errors import LawBroken

LAW = "silo.toml"
"""The law's file, in the silo's folder."""

HELD_OUT = "/held-out"
"""After a silo's name: those of its individuals who are held out."""

Item = Literal["update", "outcomes", "loss", "errors"]
"""What a law may allow to leave. A count would choose rates, and moments would change the shard: neither is offered."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class SiloData(_Section):
    """The silo's own file, and how it is read."""

    path: str = Field(min_length=1, description="the file of training records: .csv, .parquet or .npz, beside the law")
    held_out: str | None = Field(default=None, description="a file like it of records that score models, never train")
    task: Literal["binary", "multiclass", "regression"] = Field(description="what kind of label is predicted")
    classes: int | None = Field(default=None, ge=2, description="multiclass: how many classes")
    size: int | None = Field(
        default=None, ge=1, description="public number of training records (of individuals, where they are sampled)"
    )
    rules: dict[str, object] | None = Field(
        default=None, description="how columns are read, in the keys of a scenario's [data]; without, a prepared shard"
    )

    @model_validator(mode="after")
    def _classes_fit_the_task(self) -> "SiloData":
        if (self.task == "multiclass") != (self.classes is not None):
            raise ValueError('classes goes with task = "multiclass", and only with it')
        return self

    @property
    def outputs(self) -> int:
        """Outputs of a model for the task."""
        return self.classes or 1


class AllowedModel(_Section):
    """A model that the silo trains; the silo builds it, the server sends weights alone."""

    kind: str = Field(
        pattern=r"^(linear|mlp|cnn|[A-Za-z_][\w.]*:[A-Za-z_]\w*)$",
        description='"linear", "mlp", "cnn", or "module:factory" of a module that the silo has',
    )
    hidden: Annotated[
        tuple[Annotated[int, Field(ge=1)], ...],
        Field(strict=False, description="mlp: width of each hidden layer"),
    ] = (32,)
    activation: Literal["elu", "gelu", "relu", "sigmoid", "tanh"] = Field(
        default="tanh", description="mlp: what follows each hidden layer"
    )


class BudgetLaw(_Section):
    """What the silo gives away at most, over the lifetime of its ledger, all runs and servers together."""

    epsilon: float = Field(ge=0, allow_inf_nan=True, description="the whole budget; inf: no limit")
    delta: float = Field(gt=0, lt=1, description="its delta")


class Limits(_Section):
    """The worst that one request may ask."""

    noise_multiplier: float = Field(ge=0, description="least noise, relative to what is clipped to")
    clip_norm: float = Field(gt=0, description="greatest norm of one record's gradient")
    sampling_rate: float = Field(gt=0, le=1, description="greatest probability of a record to be in a step")
    steps: int = Field(ge=1, description="most steps in a round")
    rounds: int = Field(ge=1, description="most rounds in a run")
    sampling: Literal["records", "individuals"] = Field(
        default="records", description="whom a step samples, as training.sampling of a scenario"
    )


class EngineLaw(_Section):
    """What trains."""

    name: Literal["auto", "fleet", "opacus"] = Field(default="auto", description="as training.engine of a scenario")
    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="as training.device of a scenario")
    max_physical_batch: int = Field(default=256, ge=1, description="most records in memory with their gradients")


class InsecureTestSeed(_Section):
    """Noise that whoever holds the key can take off: for tests that compare a deployment with a simulation."""

    run: str = Field(min_length=1, description="the run's name in the ledger, as in the simulation")
    key: str = Field(pattern=r"^[0-9a-f]{64}$", description="the simulation's run key, in hexadecimal")


class Law(_Section):
    """Everything that a silo decides for itself.

    Raises:
        LawBroken: from `read` and `parse`, naming key and value of what is not allowed.
    """

    name: str = Field(min_length=1, pattern=r"^[^\x00-\x1f]+$", description="the silo's public name")
    relation: Relation = Field(strict=False, description="how neighbouring datasets differ")
    unit: Literal["record", "individual"] = Field(default="record", description="what is protected")
    records: int = Field(default=1, ge=1, description="public cap on the records of one individual")
    membership: str = Field(
        default="disjoint",
        pattern=r"^(disjoint|unknown|at-most:[1-9]\d*)$",
        description="what the silos agreed on how many of them hold one individual",
    )
    participation: Literal["fixed", "reacts"] = Field(
        default="reacts", description="whether rounds may end by what was released: then all declared ones are priced"
    )
    server: str = Field(default="", description="who asks, as far as the silo knows; kept in its ledger with each run")
    releases: Annotated[
        tuple[Item, ...],
        Field(strict=False, min_length=1, description="what may leave"),
    ] = ("update",)
    data: SiloData
    models: Annotated[tuple[AllowedModel, ...], Field(strict=False, min_length=1)]
    budget: BudgetLaw
    limits: Limits
    engine: EngineLaw = EngineLaw()
    insecure_test_seed: InsecureTestSeed | None = None

    @model_validator(mode="after")
    def _fits(self) -> "Law":
        if self.unit == "record" and self.records > 1:
            raise ValueError('records goes with unit = "individual"')
        if self.unit == "record" and self.limits.sampling == "individuals":
            raise ValueError('limits.sampling = "individuals" goes with unit = "individual"')
        if set(self.releases) - {"update"} and self.data.held_out is None:
            raise ValueError(f"releases = {list(self.releases)} are scores of records that data.held_out names")
        return self

    @classmethod
    def read(cls, path: Path) -> "Law":
        """The law in a file."""
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise LawBroken(f"{path}: cannot be read: {error}.") from None
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, where: str = LAW) -> "Law":
        """The law in a text.

        Args:
            text: TOML.
            where: what errors call it.
        """
        try:
            return cls.model_validate(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise LawBroken(f"{where}: is not valid TOML: {error}") from None
        except ValidationError as error:
            raise LawBroken("\n".join(f"{where}: {_told(one)}" for one in error.errors())) from None

    def to_toml(self) -> str:
        """The law as `parse` reads it, defaults included."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))

    @property
    def protected(self) -> Unit:
        """What is protected."""
        return Unit(individual=self.unit == "individual", records=self.records)

    @property
    def held_out_chain(self) -> str:
        """The chain of the ledger that pays for what is released of held-out records.

        Those held out and those trained on are apart as two silos are, except where a replaced one may change sides.
        """
        return self.name if self.relation is Relation.REPLACE_ONE else self.name + HELD_OUT

    def terms(self) -> dict[str, str]:
        """What the law fixes for every chain that pays, so that it cannot be priced under other terms later."""
        return {
            "relation": str(self.relation),
            "membership": self.membership,
            "unit": str(self.protected),
            "participation": self.participation,
        }

    def filter(self) -> Budget:
        """The budget as a filter, which admits the most rounds of the kind that the limits allow.

        Raises:
            LawBroken: for a budget below what no release can be priced at.
        """
        rate, sigma, steps = self.limits.sampling_rate, self.limits.noise_multiplier, self.limits.steps
        round = SampledGaussian(sampling_rate=rate, noise_multiplier=sigma, steps=steps)
        if self.records > 1 and self.limits.sampling == "records":
            round = MultiRecordSampledGaussian(
                sampling_rate=rate, noise_multiplier=sigma, records=self.records, steps=steps
            )
        try:
            return Budget(
                epsilon=self.budget.epsilon,
                delta=self.budget.delta,
                relation=self.relation,
                unit=self.protected,
                suits=[round] if sigma > 0 else [],
            )
        except InvalidValue as error:
            raise LawBroken(f"{LAW}: budget.epsilon = {self.budget.epsilon:g}: {error}") from None


def _told(error: ErrorDetails) -> str:
    """One fault: key, value, what is allowed."""
    key = ".".join(str(part) for part in error["loc"]) or "the law"
    held = error["input"]
    shown = "" if isinstance(held, dict) else f" = {held!r}"
    return f"{key}{shown}: {error['msg'].removeprefix('Value error, ')}"
