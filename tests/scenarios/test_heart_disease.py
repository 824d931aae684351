"""Four hospitals from their raw files: small silos, missing values, and a budget that pays for everything.

The files are not part of the project; the tests are skipped where no copy lies in `shared/data` beside the checkout.
"""

from pathlib import Path

import numpy as np
import pytest

from scenarios import RunResult, Scenario, ScenarioError, load, make_plan, prepare, public_sizes, run

SCENARIO = Path(__file__).parents[2] / "docs" / "heart-disease.toml"
HELD = [parent / "shared" / "data" / "heart-disease" for parent in Path(__file__).parents]
FOLDER = next((folder for folder in HELD if folder.is_dir()), None)

pytestmark = pytest.mark.skipif(FOLDER is None, reason="the four files are not beside the checkout")


def overrides(*more: str) -> list[str]:
    return [f"data.source=csv:{FOLDER}", *more]


def heart(*more: str) -> Scenario:
    return load(SCENARIO, overrides(*more))


def test_every_patient_of_the_raw_files_is_in_one_hospital() -> None:
    dataset = prepare(heart())
    held_out = {name: int(np.sum(dataset.test_silos == name)) for name in dataset.shards}
    patients = {name: len(shard) + held_out[name] for name, shard in dataset.shards.items()}
    assert patients == {"Cleveland": 303, "Budapest": 294, "Zurich": 123, "Long Beach": 200}


def test_missing_values_leave_every_input_finite_or_blank_the_row() -> None:
    rows = np.concatenate([shard.features for shard in prepare(heart()).shards.values()])
    blank = np.isnan(rows).any(axis=1)
    assert np.isnan(rows[blank]).all()
    assert blank.mean() < 0.02


@pytest.fixture(scope="module")
def priced(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return run(heart("privacy.epsilon=1.0"), out=tmp_path_factory.mktemp("heart") / "run")


def test_a_budget_of_1_pays_for_sizes_training_and_metrics(priced: RunResult) -> None:
    assert 0.99 < priced.guarantee.epsilon <= 1.0
    assert [share.item for share in priced.plan.budget] == ["size", "outcomes (held out)", "loss (held out)", "update"]
    assert all(share.buys for share in priced.plan.budget)
    page = (priced.folder / "report.html").read_text("utf-8")
    assert "What the budget bought" in page
    assert "confusion matrix" in page


def test_noisy_metrics_tell_what_the_oracle_tells(priced: RunResult) -> None:
    rows = priced.metrics[priced.metrics["silo"] == "all"]
    last = dict(zip(rows["metric"].tolist(), rows["value"].tolist(), strict=True))
    assert abs(last["dp-accuracy"] - last["accuracy"]) < 0.15
    assert last["auc"] > 0.7


@pytest.mark.parametrize("epsilon", [1, 5, 10])
@pytest.mark.parametrize("relation", ["add-or-remove-one", "zero-out"])
def test_every_budget_meets_its_target_under_both_relations(relation: str, epsilon: int) -> None:
    scenario = heart(f"privacy.epsilon={epsilon}", f'privacy.relation="{relation}"')
    plan = make_plan(scenario, public_sizes(scenario, prepare(scenario)))
    assert 0.99 * epsilon <= plan.worst.price.epsilon <= epsilon
    assert plan.sizes == ("true" if relation == "zero-out" else "noisy counts (epsilon = 0.1)")


def test_files_whose_columns_differ_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,0\n", "utf-8")
    (tmp_path / "b.csv").write_text("x,z\n1,0\n", "utf-8")
    text = """
[data]
source = "csv:."
task = "binary"
label = { column = "y" }
features = { x = { low = 0, high = 1 } }
[silos]
files = { a = "a.csv", b = "b.csv" }
[training]
rounds = 1
sampling_rate = 0.5
learning_rate = 1.0
[privacy]
epsilon = 1.0
delta = 1e-3
relation = "zero-out"
"""
    (tmp_path / "two.toml").write_text(text, "utf-8")
    with pytest.raises(ScenarioError, match="columns are not those of the other silos"):
        prepare(load(tmp_path / "two.toml"))
