"""The dataset of a scenario: a shard per silo, and the records held out from all of them.

Which individuals are held out depends on a keyed hash of their ids and on nothing else, so one individual more or less
moves nobody else to the other side.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from accounting._errors import InvalidValue
from accounting._relations import Relation
from scenarios._checkpoint import WHOLE
from scenarios.data._encode import BadColumn, Labels, encode_features, encode_labels, texts
from scenarios.data._overlap import capped, spread
from scenarios.data._partitions import deal, natural_order, silo_names
from scenarios.data._sources import Source, read_source
from scenarios.spec._explain import nearest
from scenarios.spec._scenario import Scenario
from silos._shard import Shard
from silos._tasks import Task

LEAST_RECORDS = 2
"""Training records that a silo needs: a silo of one record is one individual, and its name tells whose."""

POOLED = "pooled"
"""The one silo of a trusted trainer who holds everybody's records."""

_PARTITION_STREAM = 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """What the silos hold, and what the simulator holds out.

    Args:
        shards: each silo's training records, by name, in the natural order of names; where they are pooled, one shard
            of everything, `POOLED`.
        records: number of training records of each silo, by name, pooled or not.
        test_features: float32, shape (held out, *input_shape).
        test_labels: encoded as in the shards.
        test_silos: the silo that each held-out record belongs to.
        input_shape: shape of one record's inputs.
        outputs: outputs of a model for the task.
        task: "binary", "multiclass" or "regression".
        label_scale: regression: one unit of an encoded label in the label's own unit; else 1.
        label_offset: regression: the label, in its own unit, that is encoded as 0; else 0.
    """

    shards: dict[str, Shard]
    records: dict[str, int]
    test_features: NDArray[np.float32]
    test_labels: NDArray[np.int64] | NDArray[np.float32]
    test_silos: NDArray[np.str_]
    input_shape: tuple[int, ...]
    outputs: int
    task: Task
    label_scale: float = 1.0
    label_offset: float = 0.0


def prepare(scenario: Scenario) -> Dataset:
    """Read, encode, deal and split a scenario's data. Nothing is written.

    Raises:
        ScenarioError: where the data are not what the scenario says, naming file, line and key.
    """
    source = read_source(scenario)
    features = _features(scenario, source)
    labels = _labels(scenario, source)
    individuals = _individuals(scenario, source, len(features))
    silos = _silos(scenario, source, labels, individuals)
    order = natural_order(np.unique(silos).tolist())
    held = capped(scenario, individuals, spread(scenario, individuals, silos))
    _check_membership(scenario, held.silos, individuals[held.rows])
    _check_silo_names(scenario, order)
    held_out = _held_out(scenario, source, individuals)
    kept = held.where(~held_out[held.rows])
    # What is held out is scored at a price for the same caps, in the silo that each record was dealt to.
    tested = np.sort(held.rows[held_out[held.rows] & (held.silos == silos[held.rows])])
    trained = {name: kept.rows[kept.silos == name] for name in order}
    _check_sizes(scenario, trained)
    records = {name: len(rows) for name, rows in trained.items()}
    if scenario.silos.pooled:
        trained = {POOLED: np.unique(kept.rows)}  # a record that several silos hold is there once
    shards = {
        name: Shard(name=name, features=features[rows], labels=labels.values[rows], individuals=individuals[rows])
        for name, rows in trained.items()
    }
    return Dataset(
        shards=shards,
        records=records,
        test_features=features[tested],
        test_labels=labels.values[tested],
        test_silos=silos[tested],
        input_shape=features.shape[1:],
        outputs=labels.outputs,
        task=scenario.data.task,
        label_scale=labels.scale,
        label_offset=labels.offset,
    )


def public_sizes(scenario: Scenario, dataset: Dataset) -> dict[str, int]:
    """The number of training records that each silo's public numbers are computed from, at least 1.

    A declared size, less the share held out, where one is declared; noisy counts, where the scenario pays for them;
    else, where the relation makes them public or the scenario declares them so, the true sizes of the shards.

    Raises:
        ScenarioError: where a silo has no declared size, or a size is declared for no silo.
    """
    if scenario.privacy.size_epsilon is not None:
        from scenarios._released import foreseen  # needs this module

        return {name: max(1, int(count[0])) for name, count in foreseen(scenario, dataset, "size").items()}
    declared, fraction = scenario.silos.declared_size, scenario.evaluation.test_fraction
    kept = 1.0 if fraction == "source" else 1.0 - fraction
    if declared is None:
        if scenario.privacy.relation is Relation.ADD_OR_REMOVE_ONE and not scenario.sizes_declared_public:
            raise scenario.error("silos.declared_size", "is required under add-or-remove-one")
        by_individual = scenario.training.sampling == "individuals"
        sizes = {
            name: shard.individual_count if by_individual else len(shard) for name, shard in dataset.shards.items()
        }
        return {name: max(1, size) for name, size in sizes.items()}
    if isinstance(declared, int):
        declared = dict.fromkeys(dataset.records, declared)
    for name in dataset.records:
        if name not in declared:
            raise scenario.error("silos.declared_size", f"has no size for silo {name!r}")
    sizes = {name: max(1, round(declared[name] * kept)) for name in dataset.records}
    return {POOLED: sum(sizes.values())} if scenario.silos.pooled else sizes


def held_out_shard(dataset: Dataset, silo: str, name: str) -> Shard:
    """A silo's held-out records, as the silo keeps them, under a name."""
    rows = np.flatnonzero((dataset.test_silos == silo) | (silo not in dataset.records))
    return Shard(
        name=name,
        features=dataset.test_features[rows],
        labels=dataset.test_labels[rows],
        individuals=rows.astype(np.str_),
    )


def is_held_out(individual: str, *, seed: int, fraction: float) -> bool:
    """Whether an individual is held out: a keyed hash of the id, as a number in [0, 1), is below the fraction."""
    digest = blake2b(individual.encode(), key=seed.to_bytes(8, "big"), person=b"silodp split", digest_size=8).digest()
    return int.from_bytes(digest, "big") < fraction * 2**64


def _features(scenario: Scenario, source: Source) -> NDArray[np.float32]:
    features = scenario.data.features or source.features
    if not features:
        raise scenario.error(
            "data.features",
            "is required for this source: name the input columns, each with public bounds or categories, as in "
            "age = { low = 18, high = 90 }",
        )
    try:
        return encode_features(source.columns, features, blank=scenario.data.incomplete == "blank")
    except BadColumn as error:
        raise scenario.error(("data", "features", error.column), str(error)) from None


def _labels(scenario: Scenario, source: Source) -> Labels:
    label = scenario.data.label or source.label
    if label is None:
        raise scenario.error("data.label", "is required for this source: name the label's column and its rule")
    if scenario.data.label is None and scenario.data.task != ("multiclass" if label.classes else "binary"):
        raise scenario.error("data.label", f"is required for task {scenario.data.task!r} on this source")
    with _telling(scenario, "data.label.column"):
        return encode_labels(source.columns, label, scenario.data.task)


def _individuals(scenario: Scenario, source: Source, records: int) -> NDArray[np.str_]:
    """Ids by record; without a column of ids, a record's place in the source."""
    if scenario.data.individual is None:
        return np.arange(records).astype(np.str_)
    with _telling(scenario, "data.individual"):
        return texts(source.columns, scenario.data.individual)


def _silos(scenario: Scenario, source: Source, labels: Labels, individuals: NDArray[np.str_]) -> NDArray[np.str_]:
    """The name of each record's silo."""
    if source.silos is not None:
        return source.silos
    if scenario.silos.column is not None:
        with _telling(scenario, "silos.column"):
            return texts(source.columns, scenario.silos.column)
    _, first, owner = np.unique(individuals, return_index=True, return_inverse=True)
    seed = scenario.seed if scenario.silos.seed is None else scenario.silos.seed
    generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_PARTITION_STREAM,)))
    try:
        dealt = deal(scenario.silos, labels.values[first], generator)
    except InvalidValue as error:
        raise scenario.error("silos.count", f"= {scenario.silos.count} is too large: {error}") from None
    return np.array(silo_names(scenario.silos.count or 0), dtype=np.str_)[dealt[owner]]


def _held_out(scenario: Scenario, source: Source, individuals: NDArray[np.str_]) -> NDArray[np.bool_]:
    fraction = scenario.evaluation.test_fraction
    if fraction == "source":
        if source.held_out is None:
            raise scenario.error("evaluation.test_fraction", '= "source": this source has no test split; give a number')
        return source.held_out
    chosen = [is_held_out(individual, seed=scenario.seed, fraction=fraction) for individual in individuals.tolist()]
    return np.array(chosen, dtype=np.bool_)


def _check_membership(scenario: Scenario, silos: NDArray[np.str_], individuals: NDArray[np.str_]) -> None:
    """Enforce the declared caps: silos of an individual, and records of one in a silo."""
    pairs, records = np.unique(np.stack([individuals, silos]), axis=1, return_counts=True)
    cap = scenario.data.records_per_individual
    if scenario.protects_individuals and records.max(initial=0) > cap:
        individual, silo = pairs[:, records.argmax()].tolist()
        raise scenario.error(
            "data.records_per_individual",
            f"= {cap}, but individual {individual!r} has {records.max()} records in silo {silo!r}",
        )
    most = {"disjoint": 1, "at-most": scenario.silos.max_silos, "unknown": None}[scenario.silos.membership]
    names, held = np.unique(pairs[0], return_counts=True)
    if most is not None and held.max(initial=0) > most:
        raise scenario.error(
            "silos.membership",
            f'= "{scenario.silos.membership}": at most {most} silo(s) may hold an individual, but {held.max()} hold '
            f"{str(names[held.argmax()])!r}",
        )


def _check_sizes(scenario: Scenario, trained: dict[str, NDArray[np.intp]]) -> None:
    for name, rows in trained.items():
        if len(rows) < LEAST_RECORDS:
            raise scenario.error(
                "silos",
                f"leaves silo {name!r} with {len(rows)} training record(s); allowed: at least {LEAST_RECORDS}. "
                "Merge it with another silo, or hold out less",
            )


def _check_silo_names(scenario: Scenario, silos: list[str]) -> None:
    """Refuse a table of silos that names one that is not there: it would be an empty silo."""
    if WHOLE in silos:
        raise scenario.error(
            "silos", f'has a silo named "{WHOLE}", the word for the whole federation in metrics; rename it'
        )
    declared = scenario.silos.declared_size
    for *section, table in (
        ("silos", "declared_size", declared if isinstance(declared, dict) else {}),
        ("privacy", "silos", scenario.privacy.silos),
        *(("privacy", "groups", name, group.silos or ()) for name, group in scenario.privacy.groups.items()),
    ):
        for name in table:
            if name not in silos:
                raise scenario.error(
                    (*section, name), f"names a silo without records;{nearest(name, silos)} silos: {_cut(silos)}"
                )


def _cut(names: list[str]) -> str:
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


@contextmanager
def _telling(scenario: Scenario, key: str) -> Iterator[None]:
    """Tell an unfit column at the key that names it."""
    try:
        yield
    except BadColumn as error:
        raise scenario.error(key, f'= "{error.column}" {error}') from None
