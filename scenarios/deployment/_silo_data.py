"""A deployed silo's own records, read by its own law: a prepared shard, or a file and the rules of its columns.

The rules are the keys of a scenario's `[data]`, so that a silo reads its file as a simulation would read it.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from accounting import InvalidValue
from scenarios.data._encode import encode_features, encode_labels, texts
from scenarios.spec._data import Data
from silos._errors import DataUnreadable, LawBroken
from silos._law import LAW, Law
from silos._readers import Columns, read_csv, read_npz, read_parquet
from silos._shard import Shard
from silos._shard_files import read_shard

RULES = ("label", "features", "individual", "missing_values", "incomplete", "columns")
"""Keys of a scenario's `[data]` that a law may give as `data.rules`."""

_KINDS = {".csv": "csv", ".parquet": "parquet", ".npz": "npz"}


def read_silo_data(folder: Path, law: Law) -> tuple[Shard, Shard | None]:
    """The training records of a silo, and those that it holds out, if any.

    Args:
        folder: the silo's; its law names files in it.
        law: the silo's.

    Raises:
        LawBroken: for rules that are none, or do not fit the task.
        DataUnreadable: for a file that is not what the law says. The message may quote records.
    """
    rules = None if law.data.rules is None else _rules(law, law.data.rules)
    shard = _read(folder / law.data.path, law, rules, law.name)
    if law.data.held_out is None:
        return shard, None
    held_out = _read(folder / law.data.held_out, law, rules, law.held_out_chain)
    apart = law.held_out_chain != law.name
    if law.unit == "individual" and apart and (both := set(shard.individuals) & set(held_out.individuals)):
        raise DataUnreadable(f"{folder / law.data.held_out}: holds {len(both)} individuals of {law.data.path}.")
    return shard, held_out


def _rules(law: Law, given: Mapping[str, object]) -> Data:
    if odd := sorted(set(given) - set(RULES)):
        raise LawBroken(f"{LAW}: data.rules.{odd[0]}: is unknown; allowed: {', '.join(RULES)}")
    kind = _KINDS.get(Path(law.data.path).suffix)
    if kind is None:
        raise LawBroken(f"{LAW}: data.path = {law.data.path!r}: must end in one of {', '.join(_KINDS)}")
    try:
        rules = Data.model_validate({"source": f"{kind}:{law.data.path}", "task": law.data.task, **given})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in ("data", "rules", *first["loc"]))
        raise LawBroken(f"{LAW}: {key}: {first['msg']}") from None
    if rules.label is None or not rules.features:
        raise LawBroken(f"{LAW}: data.rules: needs label and features")
    if rules.label.classes is not None and len(rules.label.classes) != law.data.classes:
        raise LawBroken(f"{LAW}: data.classes = {law.data.classes}: data.rules.label names {len(rules.label.classes)}")
    if law.unit == "individual" and rules.individual is None:
        raise LawBroken(f'{LAW}: unit = "individual": needs data.rules.individual, the column of their ids')
    return rules


def _read(path: Path, law: Law, rules: Data | None, name: str) -> Shard:
    shard = read_shard(path, name) if rules is None else _encoded(path, rules, name)
    if law.unit == "individual" and (most := np.bincount(shard.owners, minlength=1).max()) > law.records:
        raise DataUnreadable(f"{path}: an individual has {most} records, and the law's cap is {law.records}.")
    return shard


def _encoded(path: Path, rules: Data, name: str) -> Shard:
    columns, label = _columns(path, rules), rules.label
    if label is None:
        raise LawBroken(f"{LAW}: data.rules: needs label and features")
    try:
        features = encode_features(columns, rules.features, blank=rules.incomplete == "blank")
        labels = encode_labels(columns, label, rules.task).values
        rows = np.arange(len(features)).astype(np.str_)
        individuals = rows if rules.individual is None else texts(columns, rules.individual)
        return Shard(name=name, features=features, labels=labels, individuals=individuals)
    except InvalidValue as error:
        column = getattr(error, "column", "")
        raise DataUnreadable(f"{path}: column {column!r} {error}") from None


def _columns(path: Path, rules: Data) -> Columns:
    if path.suffix == ".csv":
        return read_csv(path, missing=rules.missing_values, names=rules.columns or None)
    return read_parquet(path) if path.suffix == ".parquet" else read_npz(path)
