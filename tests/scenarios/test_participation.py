"""What befalls a silo: the state of its ledger, the model without it, and the price of what was executed."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import scenarios._runner
import scenarios._simulation
from accounting import Ledger, epsilon
from scenarios import ScenarioError, load, run
from scenarios._account import account_ledgers
from scenarios._outcome import headline
from scenarios._participation import fates
from scenarios._runner import RunResult
from scenarios.reports._report import render_report
from scenarios.spec._events import KINDS

SHORT = ["training.rounds=3", "training.local_steps=2", "privacy.noise_multiplier=1.5"]


@pytest.fixture(autouse=True)
def _no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing the report takes longer than these runs."""
    monkeypatch.setattr(scenarios._runner, "render_report", lambda *_: "")


def play(scenario_file: Path, out: Path, overrides: Sequence[str]) -> RunResult:
    return run(load(scenario_file, [*SHORT, *overrides]), out=out)


def states(result: RunResult, silo: str) -> list[str]:
    """Round and state of each charge in the silo's ledger."""
    with Ledger.open(result.folder / "ledger.db", read_only=True) as ledger:
        return [f"{one.key.round} {one.state}" for one in ledger.charges(silo)]


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ("offline", ["1 released", "3 released"]),
        ("crash_before_charge", ["1 released", "3 released"]),
        ("crash_after_charge", ["1 released", "2 charged", "3 released"]),
        ("crash_after_release", ["1 released", "2 released", "3 released"]),
        ("late", ["1 released", "2 released", "3 released"]),
    ],
)
def test_each_event_leaves_its_state_in_the_ledger_and_the_round_goes_on_without_the_silo(
    scenario_file: Path, tmp_path: Path, event: str, expected: list[str]
) -> None:
    result = play(scenario_file, tmp_path / "run", [f"events.silos.west.{event}=[2]"])
    assert states(result, "west") == expected
    assert states(result, "north") == ["1 released", "2 released", "3 released"]
    assert result.failures.to_numpy().tolist() == [[2, "west", event.replace("_", "-")]]
    with Ledger.open(result.folder / "ledger.db", read_only=True) as ledger:
        spent = epsilon(ledger.releases("west"), relation=result.plan.relation, delta=result.plan.delta).epsilon
    steps = 2 * len(expected)
    assert result.guarantee.per_silo["west"] == pytest.approx(spent)
    whole = epsilon(
        [result.plan.silos[2].schedule.mechanism().repeated(steps)], relation=result.plan.relation, delta=1e-3
    )
    assert spent == pytest.approx(whole.epsilon, rel=1e-3)


def test_whatever_keeps_a_silo_away_the_model_is_made_of_the_others(
    scenario_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenarios._simulation, "run_key", lambda *_: b"the same noise in all of these runs")
    models = [
        play(scenario_file, tmp_path / kind, ["training.rounds=1", f"events.silos.west.{kind}=[1]"]).model
        for kind in KINDS
    ]
    whole = play(scenario_file, tmp_path / "whole", ["training.rounds=1"]).model
    for name, array in models[0].items():
        assert all(np.array_equal(array, model[name]) for model in models)
        assert not np.array_equal(array, whole[name])


def test_a_round_without_any_silo_leaves_the_model_and_costs_nothing(scenario_file: Path, tmp_path: Path) -> None:
    away = [f"events.silos.{silo}.offline=[1, 2, 3]" for silo in ("north", "south", "west")]
    result = play(scenario_file, tmp_path / "run", away)
    assert result.guarantee.epsilon == 0
    assert len(result.failures) == 9
    values = result.metrics.query("metric == 'auc' and silo == 'all'")["value"]
    assert len(set(values)) == 1


def test_random_events_come_from_the_seed_and_more_rounds_change_none_before(scenario_file: Path) -> None:
    kinds = ["events.offline=0.2", "events.late=0.3", "events.crash_after_charge=0.1"]
    silos = ["north", "south", "west"]
    short, longer = (fates(load(scenario_file, [f"training.rounds={n}", *kinds]), silos) for n in (200, 400))
    for silo in silos:
        assert {number: event for number, event in longer[silo].items() if number <= 200} == short[silo]
    assert fates(load(scenario_file, ["training.rounds=200", *kinds], seed=9), silos) != short
    events = [event for silo in silos for event in longer[silo].values()]
    for event, share in (("offline", 0.2), ("late", 0.3), ("crash-after-charge", 0.1)):
        assert events.count(event) / 1200 == pytest.approx(share, abs=5 * math.sqrt(share / 1200))
    assert set(events) == {"offline", "late", "crash-after-charge"}


def test_a_run_with_events_is_the_same_twice_and_after_a_kill(scenario_file: Path, tmp_path: Path) -> None:
    events = ["events.offline=0.3", "events.crash_after_charge=0.3", 'training.strategy.name="fedavgm"']
    first = play(scenario_file, tmp_path / "run", events)
    (first.folder / "checkpoint.safetensors").unlink()
    again = run(first.scenario, out=tmp_path / "run", resume=True)
    assert again.guarantee == first.guarantee
    assert again.failures.equals(first.failures)
    assert len(first.failures) > 0
    for name, array in first.model.items():
        assert np.array_equal(array, again.model[name])


def test_a_silo_without_budget_declines_visibly_and_the_run_goes_on(scenario_file: Path, tmp_path: Path) -> None:
    silo = "privacy.silos.west={ noise_multiplier = 1.5, budget = 1.6 }"
    result = play(scenario_file, tmp_path / "run", ["training.rounds=5", silo])
    held = len(states(result, "west"))
    assert 1 <= held < 5
    assert list(result.failures["silo"]) == ["west"] * (5 - held)
    assert result.failures["reason"].str.contains("declined.*remain").all()
    assert states(result, "north") == [f"{number} released" for number in range(1, 6)]
    assert result.guarantee.per_silo["west"] <= 1.6 < result.guarantee.per_silo["north"]
    assert f"admits {held} of its 5 rounds" in result.plan.warnings[-1]


def test_stopping_on_results_prices_the_declared_maximum(scenario_file: Path, tmp_path: Path) -> None:
    whole = play(scenario_file, tmp_path / "whole", [])
    early = play(scenario_file, tmp_path / "early", ["training.stop_at=0.01"])
    assert early.metrics["round"].max() < whole.metrics["round"].max() == 3
    assert headline(early.scenario, early.guarantee, early.metrics).startswith(
        f"After {early.metrics['round'].max()} r"
    )
    assert early.guarantee.epsilon == pytest.approx(whole.guarantee.epsilon, rel=1e-6)
    assert "(the price of all 3 declared rounds)" in headline(early.scenario, early.guarantee, early.metrics)
    prices = pd.DataFrame([(1, "north", 0.5)], columns=["round", "silo", "epsilon"])
    pages = [render_report(one, prices) for one in (early, whole)]
    for words in ("had these rounds been fixed", "It is no guarantee"):
        assert [words in page for page in pages] == [True, False]
    assert any("declared maximum" in line for line in early.guarantee.assumptions)
    answer = account_ledgers([early.folder], delta=1e-3, epsilon=None, relation=None, membership=None, method="auto")
    assert answer["epsilon"] == pytest.approx(whole.guarantee.epsilon, rel=1e-6)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("events.silos.east.offline=[1]", r"events\.silos\.east"),
        ("events.offline=1.5", r"events\.offline = 1\.5"),
        ("events={ offline = 0.7, late = 0.7 }", "more than 1"),
        ("events.silos.west={ offline = [1], late = [1] }", "two things"),
        ("events.silos.west.offline=[0]", r"events\.silos\.west\.offline"),
        ("events.of=1", "offline"),
    ],
)
def test_events_that_cannot_be_are_told(scenario_file: Path, tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        play(scenario_file, tmp_path / "run", [override])


def test_stopping_on_results_needs_results(scenario_file: Path) -> None:
    with pytest.raises(ScenarioError, match=r"training\.stop_at.*oracle"):
        load(scenario_file, ["training.stop_at=0.9", "evaluation.oracle=false"])
