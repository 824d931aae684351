"""Datasets: public encodings, splits that look at ids alone, stable order."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting._errors import InvalidValue
from scenarios.data._dataset import is_held_out, prepare, public_sizes
from scenarios.data._encode import encode_features, encode_labels
from scenarios.spec._data import CategoryFeature, Label, NumericFeature
from scenarios.spec._load import load

FINITE = st.floats(-1e9, 1e9)


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=30), FINITE, st.floats(1e-3, 1e9)
)
def test_numbers_never_leave_the_public_range(values: list[float], low: float, width: float) -> None:
    feature = NumericFeature(low=low, high=low + width)
    inputs = encode_features({"x": np.array(values)}, {"x": feature})
    assert inputs.dtype == np.float32
    assert inputs.min() >= -1
    assert inputs.max() <= 1


@given(st.lists(st.floats(0, 10), min_size=2, max_size=30), st.data())
def test_a_records_inputs_depend_on_that_record_alone(values: list[float], data: st.DataObject) -> None:
    features = {"x": NumericFeature(low=1, high=7), "c": CategoryFeature(categories=("a", "b", "c"))}
    letters = np.array([data.draw(st.sampled_from("abc")) for _ in values], dtype=object)
    whole = encode_features({"x": np.array(values), "c": letters}, features)
    for row in range(len(values)):
        alone = encode_features({"x": np.array(values[row : row + 1]), "c": letters[row : row + 1]}, features)
        assert np.array_equal(whole[row : row + 1], alone)


def test_bounds_map_to_the_ends_and_the_middle_to_zero() -> None:
    inputs = encode_features({"x": np.array([-5.0, 2, 4, 6, 99])}, {"x": NumericFeature(low=2, high=6)})
    assert inputs[:, 0].tolist() == [-1, -1, 0, 1, 1]


def test_a_missing_number_becomes_its_public_value_and_an_indicator() -> None:
    feature = NumericFeature(low=0, high=4, missing=3)
    inputs = encode_features({"x": np.array(["1", None, "3"], dtype=object)}, {"x": feature})
    assert inputs.tolist() == [[-0.5, 0], [0.5, 1], [0.5, 0]]


@pytest.mark.parametrize("infinite", [np.inf, -np.inf])
def test_an_infinite_number_is_a_missing_one(infinite: float) -> None:
    columns = {"x": np.array([1.0, infinite, 3.0])}
    stand_in = NumericFeature(low=0, high=4, missing=3)
    assert encode_features(columns, {"x": stand_in}).tolist() == [[-0.5, 0], [0.5, 1], [0.5, 0]]
    bare = NumericFeature(low=0, high=4)
    blank = encode_features(columns, {"x": bare}, blank=True)
    assert np.isnan(blank).ravel().tolist() == [False, True, False]
    with pytest.raises(InvalidValue, match="infinite"):
        encode_features(columns, {"x": bare})
    for task, label in (("regression", Label(column="x", low=0, high=4)), ("binary", Label(column="x", above=2))):
        with pytest.raises(InvalidValue, match="infinite"):
            encode_labels(columns, label, task)
    with pytest.raises(InvalidValue, match="infinite"):
        encode_features({"x": columns["x"][:, None]}, {"x": bare}, blank=True)


def test_a_missing_category_has_an_input_of_its_own() -> None:
    feature = CategoryFeature(categories=("u", "v"), missing=True)
    inputs = encode_features({"x": np.array(["v", None, "u"], dtype=object)}, {"x": feature})
    assert inputs.tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]


def test_categories_are_in_the_declared_order_and_numbers_match_text() -> None:
    feature = CategoryFeature(categories=(3, 1))
    for column in (np.array([1, 3]), np.array([1.0, 3.0]), np.array(["1", "3.0"], dtype=object)):
        assert encode_features({"x": column}, {"x": feature}).tolist() == [[0, 1], [1, 0]]


def test_unknown_categories_are_refused() -> None:
    with pytest.raises(InvalidValue, match="'w' in record 2; declared: u, v"):
        encode_features({"x": np.array(["u", "w"], dtype=object)}, {"x": CategoryFeature(categories=("u", "v"))})


def test_regression_labels_come_back_in_their_own_unit() -> None:
    values = np.array([-3.0, 0, 11, 25, 40])
    labels = encode_labels({"y": values}, Label(column="y", low=-3, high=25), "regression")
    assert labels.values.dtype == np.float32
    assert np.allclose(labels.values * labels.scale + labels.offset, np.clip(values, -3, 25), atol=1e-5)
    assert np.abs(labels.values).max() <= 1


def test_binary_rules_are_public_thresholds_or_values() -> None:
    columns = {"y": np.array([7.0, 7.5, 8.0]), "z": np.array(["no", "yes", "no"], dtype=object)}
    assert encode_labels(columns, Label(column="y", above=7.5), "binary").values.tolist() == [0, 0, 1]
    assert encode_labels(columns, Label(column="z", positive="yes"), "binary").values.tolist() == [0, 1, 0]


def test_classes_are_numbered_in_the_declared_order() -> None:
    columns = {"y": np.array(["b", "a", "c"], dtype=object)}
    labels = encode_labels(columns, Label(column="y", classes=("c", "a", "b")), "multiclass")
    assert (labels.values.tolist(), labels.outputs) == ([2, 1, 0], 3)


@given(st.text("aé1", max_size=8), st.integers(0, 2**63 - 1), st.floats(0, 0.99), st.floats(0, 0.99))
def test_a_larger_share_holds_out_everyone_that_a_smaller_one_does(
    individual: str, seed: int, one: float, other: float
) -> None:
    if is_held_out(individual, seed=seed, fraction=min(one, other)):
        assert is_held_out(individual, seed=seed, fraction=max(one, other))
    assert not is_held_out(individual, seed=seed, fraction=0)


def test_the_share_held_out_is_the_share_asked_for() -> None:
    """Binomial: 20,000 ids at 0.2 have standard deviation 57; six of them are 340."""
    held = sum(is_held_out(str(individual), seed=5, fraction=0.2) for individual in range(20_000))
    assert abs(held - 4_000) < 340


SCENARIO = """\
[data]
source = "csv:t.csv"
task = "binary"
individual = "who"
records_per_individual = 3
label = { column = "ill" }
[data.features]
dose = { low = 0, high = 100 }
[silos]
column = "site"
[training]
rounds = 1
sampling_rate = 0.5
learning_rate = 0.1
[privacy]
epsilon = 1
delta = 1e-5
relation = "zero-out"
"""


def rows(records: int = 120) -> list[str]:
    return [f"p{i // 2},{['9', '10', '2'][i // 2 % 3]},{i % 100},{i % 2}" for i in range(records)]


def read(folder: Path, lines: list[str], *overrides: str) -> tuple[dict[str, set[str]], set[str]]:
    """Individuals of each shard, and those that are in none."""
    (folder / "t.csv").write_text("who,site,dose,ill\n" + "\n".join(lines) + "\n")
    (folder / "s.toml").write_text(SCENARIO)
    shards = prepare(load(folder / "s.toml", overrides)).shards
    trained = {name: set(shard.individuals.tolist()) for name, shard in shards.items()}
    return trained, {line.split(",")[0] for line in lines}.difference(*trained.values())


def test_silos_are_in_natural_order(tmp_path: Path) -> None:
    assert list(read(tmp_path, rows())[0]) == ["2", "9", "10"]


@pytest.mark.parametrize("removed", [0, 17, 119])
def test_removing_a_record_moves_nobody_to_the_other_side(tmp_path: Path, removed: int) -> None:
    trained, held_out = read(tmp_path, rows())
    fewer = [row for place, row in enumerate(rows()) if place != removed]
    assert 5 < len(held_out) < 30
    assert read(tmp_path, fewer) == (trained, held_out)


def test_changing_values_moves_nobody_to_the_other_side(tmp_path: Path) -> None:
    changed = [",".join([*row.split(",")[:2], "50", "1"]) for row in rows()]
    assert read(tmp_path, changed) == read(tmp_path, rows())


def test_the_order_of_records_moves_nobody_to_the_other_side(tmp_path: Path) -> None:
    assert read(tmp_path, rows()[::-1]) == read(tmp_path, rows())


def test_another_seed_holds_out_others(tmp_path: Path) -> None:
    assert read(tmp_path, rows(), "seed=2")[1] != read(tmp_path, rows())[1]


@pytest.mark.parametrize("partition", ["iid", "quantity", "dirichlet", "by-class"])
def test_partitions_keep_an_individuals_records_in_one_silo(tmp_path: Path, partition: str) -> None:
    extra = {"by-class": ["silos.classes_per_silo=2"], "iid": []}.get(partition, ["silos.alpha=0.5"])
    overrides = [f"silos.partition={partition}", "silos.count=4", "evaluation.test_fraction=0", *extra]
    trained, held_out = read(tmp_path, rows(), *overrides)
    assert not held_out
    assert sum(map(len, trained.values())) == len(set.union(*trained.values())) == 60


def test_a_fixed_partition_seed_outlives_the_scenarios_seed() -> None:
    def dealt(*overrides: str) -> list[set[str]]:
        shards = prepare(load("digits-dirichlet", ["evaluation.test_fraction=0", *overrides])).shards
        return [set(shard.individuals.tolist()) for shard in shards.values()]

    assert dealt("silos.seed=9", "seed=1") == dealt("silos.seed=9", "seed=2")
    assert dealt("seed=1") != dealt("seed=2")


def test_an_individual_in_two_silos_passes_where_membership_allows_it(tmp_path: Path) -> None:
    moved = [*rows(), "p0,2,50,1"]
    trained, held_out = read(tmp_path, moved, "silos.membership=at-most", "silos.max_silos=2")
    assert "p0" in held_out or sum("p0" in silo for silo in trained.values()) == 2
    assert read(tmp_path, moved, "silos.membership=unknown") == (trained, held_out)


def test_a_dataset_reads_the_same_twice() -> None:
    first, second = (prepare(load("digits-dirichlet")) for _ in range(2))
    assert [shard.fingerprint(b"k") for shard in first.shards.values()] == [
        shard.fingerprint(b"k") for shard in second.shards.values()
    ]
    assert np.array_equal(first.test_features, second.test_features)


def test_shards_and_held_out_records_partition_the_data() -> None:
    dataset = prepare(load("digits-dirichlet"))
    trained = np.concatenate([shard.individuals for shard in dataset.shards.values()])
    assert len(trained) == len(set(trained.tolist()))
    assert len(trained) + len(dataset.test_labels) == 1797
    assert set(dataset.test_silos.tolist()) <= set(dataset.shards)


def test_declared_sizes_hide_the_true_ones_and_lose_the_share_held_out() -> None:
    scenario = load("cps-regions", ["silos.declared_size=1000", "evaluation.test_fraction=0.25"])
    sizes = public_sizes(scenario, prepare(scenario))
    assert sizes == dict.fromkeys(["Midwest", "Northeast", "South", "West"], 750)


def test_under_zero_out_the_true_sizes_are_public() -> None:
    scenario = load("digits-dirichlet")
    dataset = prepare(scenario)
    assert public_sizes(scenario, dataset) == {name: len(shard) for name, shard in dataset.shards.items()}


def test_hsb82_has_its_known_counts() -> None:
    """7,185 pupils in 160 schools, 14 to 67 in each (Raudenbush, Bryk 2002)."""
    dataset = prepare(load("hsb82-schools", ["evaluation.test_fraction=0"]))
    sizes = [len(shard) for shard in dataset.shards.values()]
    assert (len(sizes), sum(sizes), min(sizes), max(sizes)) == (160, 7185, 14, 67)
    assert (dataset.label_scale, dataset.label_offset) == (14, 11)
