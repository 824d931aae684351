"""The round loop around Flower's strategies."""

import logging
import random
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, FedMedian

from accounting import InvalidValue, Ledger, SilodpError
from server import STRATEGIES as KNOWN
from server import InProcessGrid, RoundResult, build_strategy, restore_state, run_rounds, save_state
from silos import Schedule, Weights, from_record, hash_weights, request_content, to_record

Federation = Any


def trained(federation: Federation, weights: Weights, round: int) -> dict[str, Weights]:
    """What each silo answers in a round, asked directly."""
    answers: dict[str, Weights] = {}
    for name, silo in federation.silos.items():
        sampling = silo.streams.generator(name, round, "sampling")
        noise = silo.streams.generator(name, round, "noise")
        answers[name], _ = silo.engine.train(weights, silo.shard, federation.schedules[name], sampling, noise)
    return answers


def test_fedavg_is_the_average_by_public_weights(federation: Federation) -> None:
    answers = trained(federation, federation.initial, 1)
    (result,) = federation.run(build_strategy("fedavg"), 1)
    assert result.replied == ("zurich", "aarhus", "madrid")
    assert result.failures == {}
    for name, found in result.weights.items():
        expected = (3 * answers["zurich"][name] + 0.5 * answers["aarhus"][name] + 2 * answers["madrid"][name]) / 5.5
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
        assert found.dtype == np.float32


def test_a_strategy_with_its_own_weight_key_gets_public_weights_too(federation: Federation) -> None:
    theirs = FedAvg(min_train_nodes=3, min_available_nodes=3)
    (ours,) = federation.run(build_strategy("fedavg"), 1)
    (found,) = federation.run(theirs, 1)
    assert theirs.weighted_by_key == "num-examples"
    for name, array in found.weights.items():
        np.testing.assert_allclose(ours.weights[name], array, rtol=0, atol=1e-6)


def test_any_strategy_of_flower_runs(federation: Federation) -> None:
    (result,) = federation.run(FedMedian(), 1)
    answers = trained(federation, federation.initial, 1)
    for name, found in result.weights.items():
        expected = np.median([answer[name] for answer in answers.values()], axis=0)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_every_silo_pays_for_each_round_at_its_executed_steps(federation: Federation) -> None:
    list(federation.run(build_strategy("fedavg"), 3))
    for name, schedule in federation.schedules.items():
        assert federation.ledger.releases(name) == [schedule.mechanism()] * 3
        assert [row.executed for row in federation.ledger.rows(name) if row.event == "released"] == [2, 2, 2]


def test_a_rounds_rows_are_durable_before_anything_is_aggregated(federation: Federation) -> None:
    seen: list[int] = []

    class Watching(FedAvg):
        def aggregate_train(
            self, server_round: int, replies: Iterable[Message]
        ) -> tuple[ArrayRecord | None, MetricRecord | None]:
            with Ledger.open(federation.ledger.path, read_only=True) as reader:
                seen.append(sum(len(reader.rows(name)) for name in reader.silos()))
            return super().aggregate_train(server_round, replies)

    list(federation.run(Watching(), 2))
    assert seen == [3 * 2 * 1, 3 * 2 * 2]


OPTIONS: dict[str, dict[str, float]] = {"fedavgm": {"momentum": 0.7}, "fedadam": {"learning_rate": 0.05}}
STRATEGIES = {name: OPTIONS.get(name, {}) for name in KNOWN}


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("stop", [1, 4])
def test_a_run_resumed_after_any_round_gives_the_same_bytes(federation: Federation, name: str, stop: int) -> None:
    whole = list(federation.run(build_strategy(name, STRATEGIES[name]), 5))
    heads = {silo: federation.ledger.head(silo) for silo in federation.silos}
    before = build_strategy(name, STRATEGIES[name])
    part = list(federation.run(before, stop))[-1]
    after = build_strategy(name, STRATEGIES[name])
    restore_state(after, save_state(before))
    rest = list(federation.run(after, 5, first=stop + 1, weights=part.weights))
    assert [each.round for each in rest] == list(range(stop + 1, 6))
    assert [hash_weights(each.weights) for each in rest] == [hash_weights(each.weights) for each in whole[stop:]]
    assert {silo: federation.ledger.head(silo) for silo in federation.silos} == heads


@pytest.mark.parametrize("name", ["fedavgm", "fedadam", "fedyogi", "fedadagrad", "alone", "mr-mtl", "scaffold"])
def test_a_strategy_that_carries_state_needs_it_to_resume(federation: Federation, name: str) -> None:
    whole = list(federation.run(build_strategy(name, STRATEGIES[name]), 3))
    rest = federation.run(build_strategy(name, STRATEGIES[name]), 3, first=3, weights=whole[1].weights)
    assert hash_weights(next(rest).weights) != hash_weights(whole[2].weights)


def test_weights_keep_the_models_precision_under_every_strategy(federation: Federation) -> None:
    for name, options in STRATEGIES.items():
        result = list(federation.run(build_strategy(name, options), 2))[-1]
        assert {array.dtype for array in result.weights.values()} == {np.dtype("float32")}


def test_one_silos_failure_is_kept_and_the_others_go_on(
    federation: Federation, caplog: pytest.LogCaptureFixture
) -> None:
    federation.engine.broken = {("aarhus", 2): RuntimeError("record 3 is odd")}
    with caplog.at_level(logging.CRITICAL):
        results = list(federation.run(build_strategy("fedavg"), 3))
    assert [result.failures for result in results] == [{}, {"aarhus": "failed: RuntimeError"}, {}]
    assert results[1].replied == ("zurich", "madrid")
    events = [str(row.event) for row in federation.ledger.rows("aarhus")]
    assert events == ["charged", "released", "charged", "failed", "charged", "released"]
    federation.engine.broken = {}
    answers = trained(federation, results[0].weights, 2)
    for name, found in results[1].weights.items():
        expected = (3 * answers["zurich"][name] + 2 * answers["madrid"][name]) / 5
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_when_all_silos_fail_the_model_stays_and_the_run_goes_on(
    federation: Federation, caplog: pytest.LogCaptureFixture
) -> None:
    federation.engine.broken = {(name, 1): RuntimeError("no") for name in federation.silos}
    with caplog.at_level(logging.CRITICAL):
        first, second = federation.run(build_strategy("fedavg"), 2)
    assert hash_weights(first.weights) == hash_weights(federation.initial)
    assert set(first.failures) == set(federation.silos)
    assert first.replied == ()
    assert second.failures == {}
    assert all(len(federation.ledger.releases(name)) == 2 for name in federation.silos)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda array: np.full_like(array, np.nan), "not finite"),
        (lambda array: np.full_like(array, -np.inf), "not finite"),
        (lambda array: array[..., :1], "of shape"),
        (lambda array: array.astype(np.int32), "int32"),
    ],
)
def test_a_reply_that_is_no_model_is_that_silos_failure(
    federation: Federation, change: Callable[[np.ndarray], np.ndarray], fault: str
) -> None:
    federation.engine.broken = {("madrid", 1): {name: change(array) for name, array in federation.initial.items()}}
    (result,) = federation.run(build_strategy("fedavg"), 1)
    assert list(result.failures) == ["madrid"]
    assert result.failures["madrid"].startswith("refused")
    assert fault in result.failures["madrid"]
    assert all(np.isfinite(array).all() for array in result.weights.values())


def rounds_over(app: ClientApp, federation: Federation) -> RoundResult:
    grid = InProcessGrid(_with_names(app), list(federation.silos))
    (result,) = federation.run(build_strategy("fedavg"), 1, grid=grid)
    return result


def _with_names(app: ClientApp) -> ClientApp:
    @app.query("silo")
    def silo(message: Message, context: Any) -> Message:
        return Message(RecordDict({"silo": ConfigRecord({"name": context.node_config["silo"]})}), reply_to=message)

    return app


def test_a_reply_with_a_size_or_a_metric_is_refused(federation: Federation) -> None:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Any) -> Message:
        content = RecordDict({"arrays": message.content["arrays"]})
        if context.node_config["silo"] == "zurich":
            content["metrics"] = MetricRecord({"num-examples": 20})
        return Message(content, reply_to=message)

    result = rounds_over(app, federation)
    assert list(result.failures) == ["zurich"]
    assert "'metrics'" in result.failures["zurich"]


def test_each_silo_gets_its_own_schedule_and_the_round(federation: Federation) -> None:
    seen: dict[str, RecordDict] = {}
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Any) -> Message:
        seen[str(context.node_config["silo"])] = message.content
        return Message(RecordDict({"arrays": message.content["arrays"]}), reply_to=message)

    rounds_over(app, federation)
    assert list(seen) == list(federation.silos)
    for name, content in seen.items():
        arrays = content["arrays"]
        assert isinstance(arrays, ArrayRecord)
        expected = request_content(arrays, federation.schedules[name], round=1, attempt=0, rounds=1)
        assert content["schedule"] == expected["schedule"]
        assert hash_weights(from_record(arrays)) == hash_weights(federation.initial)


def test_a_silo_without_a_schedule_is_not_asked_and_pays_nothing(federation: Federation) -> None:
    def plan(round: int) -> dict[str, Schedule]:
        return {name: each for name, each in federation.schedules.items() if name != "madrid" or round == 2}

    results = list(
        run_rounds(
            grid=federation.grid(),
            silos=dict(enumerate(federation.silos, start=1)),
            strategy=build_strategy("fedavg"),
            plan=plan,
            weights=federation.initial,
            rounds=3,
            ledger=federation.ledger,
        )
    )
    assert [result.replied for result in results] == [
        ("zurich", "aarhus"),
        ("zurich", "aarhus", "madrid"),
        ("zurich", "aarhus"),
    ]
    assert len(federation.ledger.releases("madrid")) == 1


def test_silos_that_hold_the_same_records_still_draw_their_own_noise(federation: Federation) -> None:
    noise: dict[tuple[str, int], np.ndarray] = {}
    for name, silo in federation.silos.items():
        for round in range(1, 60):
            shard = federation.silos["aarhus"].shard
            schedule = federation.schedules["aarhus"]
            streams = (silo.streams.generator(name, round, purpose) for purpose in ("sampling", "noise"))
            weights, _ = silo.engine.train(federation.initial, shard, schedule, *streams)
            noise[name, round] = np.concatenate([array.ravel() for array in weights.values()])
    assert len({array.tobytes() for array in noise.values()}) == len(noise)
    series = [np.concatenate([noise[name, round] for round in range(1, 60)]) for name in federation.silos]
    centred = [(each.reshape(59, -1) - each.reshape(59, -1).mean(axis=0)).ravel() for each in series]
    correlations = np.corrcoef(centred)[np.triu_indices(3, k=1)]
    assert np.abs(correlations).max() < 5 / np.sqrt(len(centred[0]))


def test_nodes_that_a_strategy_samples_do_not_hang_on_the_global_generator(federation: Federation) -> None:
    def chosen(seed: int) -> list[tuple[str, ...]]:
        random.seed(seed)
        state = random.getstate()
        strategy = FedAvg(fraction_train=0.5, min_train_nodes=1, min_available_nodes=1)
        replied = [result.replied for result in federation.run(strategy, 8)]
        assert random.getstate() == state
        return replied

    first = chosen(1)
    assert first == chosen(2)
    assert len(set(first)) > 1


def test_flowers_log_stays_quiet_and_as_it_was(federation: Federation, caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("flwr")
    logger.addHandler(caplog.handler)
    try:
        list(federation.run(build_strategy("fedavg"), 1))
    finally:
        logger.removeHandler(caplog.handler)
    assert caplog.records == []
    assert not logger.disabled


def test_a_strategy_that_would_wait_forever_is_refused(federation: Federation) -> None:
    with pytest.raises(InvalidValue, match="min_available_nodes=9"):
        next(federation.run(FedAvg(min_available_nodes=9), 1))


def test_an_option_that_silos_ignore_is_declined_by_each(federation: Federation) -> None:
    class Asking(FedAvg):
        def configure_train(
            self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
        ) -> Iterable[Message]:
            config["local-epochs"] = 3
            return super().configure_train(server_round, arrays, config, grid)

    (result,) = federation.run(Asking(), 1)
    assert set(result.failures) == set(federation.silos)
    assert all("local-epochs" in reason for reason in result.failures.values())
    assert federation.ledger.silos() == []


def test_an_aggregate_that_is_no_model_stops_the_run(federation: Federation) -> None:
    class Diverging(FedAvg):
        def aggregate_train(
            self, server_round: int, replies: Iterable[Message]
        ) -> tuple[ArrayRecord | None, MetricRecord | None]:
            arrays, metrics = super().aggregate_train(server_round, replies)
            if arrays is None:
                return None, metrics
            return to_record({name: array * np.inf for name, array in from_record(arrays).items()}), metrics

    with pytest.raises(SilodpError, match="round 1"):
        next(federation.run(Diverging(), 1))


def test_rounds_run_without_a_shared_ledger(federation: Federation) -> None:
    results = run_rounds(
        grid=federation.grid(),
        silos=dict(enumerate(federation.silos, start=1)),
        strategy=build_strategy("fedavg"),
        plan=lambda _: federation.schedules,
        weights=federation.initial,
        rounds=1,
    )
    assert next(results).failures == {}
    assert all(len(federation.ledger.releases(name)) == 1 for name in federation.silos)
