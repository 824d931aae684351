"""Nothing that leaves a silo depends on its shard but through the output of a priced mechanism."""

import functools
import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from boundary_checks import check_non_interference, check_sums_move_within_sensitivity
from taped import (
    blanked,
    cut,
    halved,
    taped_run,
    with_blank_last,
    without_last,
    without_last_held_out,
    without_last_individual,
)

from accounting import Relation
from scenarios import Scenario, load, names
from scenarios.data._dataset import Dataset, prepare

COMMON = ["training.rounds=2", "training.local_steps=2", "training.sampling_rate=0.5", "privacy.noise_multiplier=1.5"]
STRATEGIES = [("fedavg", "opacus"), ("fedavg", "auto"), ("fedavgm", "auto"), ("fedadam", "auto")]
CASES = [
    (name, strategy, engine)
    for name in names()
    for strategy, engine in STRATEGIES
    if (name, strategy, engine) != ("fashion-mnist-silos", "fedavg", "auto")  # auto leaves its network to Opacus
] + [
    ("hsb82-schools", "alone", "auto"),
    ("chem97-authorities", "mr-mtl", "auto"),
    ("cps-regions", "fedprox", "opacus"),
    ("hsb82-schools", "ditto", "auto"),
    ("digits-dirichlet", "ditto", "opacus"),
    ("chem97-authorities", "scaffold", "auto"),
    ("digits-dirichlet", "scaffold", "opacus"),
    ("hsb82-schools", "krum", "auto"),
]


def write_fashion(folder: Path) -> None:
    """Sixty pictures in the four files of Fashion-MNIST."""
    generator = np.random.default_rng(0)
    for part, records in (("train", 40), ("t10k", 20)):
        pictures, labels = generator.integers(0, 256, (records, 28, 28)), np.arange(records) % 10
        for kind, values in (("images-idx3", pictures), ("labels-idx1", labels)):
            header = bytes([0, 0, 8, values.ndim]) + b"".join(size.to_bytes(4, "big") for size in values.shape)
            path = folder / f"{part}-{kind}-ubyte.gz"
            path.write_bytes(gzip.compress(header + values.astype(np.uint8).tobytes()))


@pytest.fixture(scope="module")
def find(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str, str], tuple[Scenario, Dataset]]:
    """A shipped scenario, made short, with a strategy, an engine and its data."""
    fashion = tmp_path_factory.mktemp("fashion")
    write_fashion(fashion)

    @functools.cache
    def data(name: str) -> Dataset:
        return cut(prepare(scenario(name, "fedavg", "auto")), silos=4, records=40)

    def scenario(name: str, strategy: str, engine: str) -> Scenario:
        own = [f"data.source=fashion-mnist:{fashion}", "silos.count=3"] if name == "fashion-mnist-silos" else []
        return load(name, [*COMMON, *own, f"training.strategy.name={strategy}", f"training.engine={engine}"])

    return lambda name, strategy, engine: (scenario(name, strategy, engine), data(name))


@pytest.mark.parametrize(("name", "strategy", "engine"), CASES)
def test_every_byte_that_leaves_is_the_same_for_neighbouring_and_for_far_shards(
    find: Callable[[str, str, str], tuple[Scenario, Dataset]], tmp_path: Path, name: str, strategy: str, engine: str
) -> None:
    scenario, dataset = find(name, strategy, engine)
    silo = list(dataset.shards)[1]
    removed = scenario.privacy.relation is Relation.ADD_OR_REMOVE_ONE
    neighbour = without_last(dataset, silo) if removed else with_blank_last(dataset, silo)
    far = halved(dataset) if removed else blanked(dataset)
    seen = [taped_run(scenario, data, tmp_path / str(place)) for place, data in enumerate((dataset, neighbour, far))]
    check_non_interference(seen[0], seen[1])
    check_non_interference(seen[0], seen[2])
    check_sums_move_within_sensitivity(seen[0], seen[1])


@pytest.mark.parametrize("engine", ["opacus", "auto"])
def test_numbers_declared_public_are_all_that_may_differ(scenario_file: Path, tmp_path: Path, engine: str) -> None:
    public = ["individuals", "held-out-records"]
    declared = ["privacy.relation=add-or-remove-one", "silos.declared_size=90", f"silos.public={public}"]
    scenario = load(scenario_file, [*COMMON, *declared, f"training.engine={engine}"])
    dataset = prepare(scenario)
    others = [without_last(dataset, "south"), halved(dataset)]
    seen = [taped_run(scenario, data, tmp_path / str(place)) for place, data in enumerate((dataset, *others))]
    for other in seen[1:]:
        check_non_interference(seen[0], other, public)
        assert seen[0].left() != other.left()


def test_true_sizes_declared_public_let_nothing_else_out(scenario_file: Path, tmp_path: Path) -> None:
    declared = ["privacy.relation=add-or-remove-one", "silos.public=['records']", "training.expected_batch=30"]
    scenario = load(scenario_file, [*(one for one in COMMON if "rate" not in one), *declared])
    dataset = prepare(scenario)
    # Shards of the same sizes that hold something else: sizes are taken as known, and all else stays as it was.
    others = [with_blank_last(dataset, "west"), blanked(dataset)]
    seen = [taped_run(scenario, data, tmp_path / str(place)) for place, data in enumerate((dataset, *others))]
    for other in seen[1:]:
        check_non_interference(seen[0], other)


PRIVATE = [
    "privacy.relation=add-or-remove-one",
    "privacy.noise_multiplier=1.5",
    "training.rounds=2",
    "privacy.size_epsilon=0.5",
    "data.standardise=dp",
    "data.standardise_epsilon=0.5",
    "evaluation.silo_metrics=true",
    "evaluation.metric_epsilon=1.0",
    "evaluation.oracle=false",
]


@pytest.mark.parametrize(
    "more", [[], ["training.sampling=individuals"], ["training.strategy.name=mr-mtl", "training.fine_tune_rounds=1"]]
)
def test_sizes_moments_and_metrics_leave_as_priced_counts_alone(
    scenario_file: Path, tmp_path: Path, more: list[str]
) -> None:
    scenario = load(scenario_file, [*PRIVATE, *more])
    individuals = scenario.training.sampling == "individuals"
    dataset = prepare(scenario)
    # Coins are dealt in the order of records, or of ids; without the last, the others keep theirs.
    neighbour = (without_last_individual if individuals else without_last)(dataset, "south")
    others = [neighbour, without_last_held_out(dataset), halved(dataset)]
    seen = [taped_run(scenario, data, tmp_path / str(place)) for place, data in enumerate((dataset, *others))]
    for near in seen[1:3]:
        check_sums_move_within_sensitivity(seen[0], near)
    assert seen[0].left() == seen[2].left()
    for other in (seen[1], seen[3]):
        check_non_interference(seen[0], other)
    counts = [
        sum(not np.array_equal(a, b) for (a, _), (b, _) in zip(seen[0].counts, one.counts, strict=True)) for one in seen
    ]
    assert min(counts[1:]) > 0
