"""Properties of the boundary, each as a check that raises `AssertionError` where it does not hold.

They stand here once: the tests of the boundary run them on the product as it is, and the tests of planted faults run
them on a product with a fault in it, to see that each of them can fail.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from numpy.typing import NDArray
from taped import Seen, halved, taped_run, without_last, without_last_individual

from accounting import Allowance, Budget, Ledger, LedgerConflict, SilodpError
from scenarios import Scenario, load, run
from scenarios._account import account_ledgers
from scenarios.data._dataset import prepare
from scenarios.data._encode import encode_features
from scenarios.spec._data import Feature, NumericFeature
from server import InProcessGrid, ask_public, find_silos
from silos import (
    Declined,
    OpacusEngine,
    Request,
    Schedule,
    Shard,
    Silo,
    Streams,
    Weights,
    build_model,
    client_app,
    weights_of,
)
from silos._drift import Drift
from silos._silo import Charged

FEATURES = 8
SCHEDULE = Schedule(
    sampling_rate=0.3,
    steps=1,
    noise_multiplier=1.3,
    clip_norm=0.5,
    expected_batch=1.0,
    learning_rate=1.0,
)
STREAMS = Streams(b"a key of the boundary's tests")


def check_non_interference(one: Seen, other: Seen, public: Sequence[str] = ()) -> None:
    """Every byte that left is the same for both datasets, while the silos did compute different sums.

    Args:
        one, other: the runs.
        public: numbers declared public, which may differ.
    """
    left, right = one.left(public), other.left(public)
    assert list(left) == list(right), f"what left differs in kind: {set(left) ^ set(right)}"
    for name in left:
        assert left[name] == right[name], f"{name} depends on what a shard holds"
    assert one.sums.keys() == other.sums.keys()
    pairs = [pair for silo in one.sums for pair in zip(one.sums[silo], other.sums[silo], strict=True)]
    assert any(not np.array_equal(before, after) for before, after in pairs), "the shards were not used"


def check_sums_move_within_sensitivity(one: Seen, other: Seen) -> None:
    """For neighbours, each gradient sum moves by at most the clip norm in L2, each statistic as declared in L1."""
    for silo, clip_norms in one.clip_norms.items():
        for before, after, clip_norm in zip(one.sums[silo], other.sums[silo], clip_norms, strict=True):
            moved = float(np.linalg.norm(before - after))
            assert moved <= clip_norm * (1 + 1e-5), f"a record moved a sum by {moved}, declared {clip_norm}"
    for (before, declared), (after, _) in zip(one.counts, other.counts, strict=True):
        moved = float(np.abs(before - after).sum())
        assert moved <= declared * (1 + 1e-9), f"a record moved a statistic by {moved}, declared {declared}"


def check_a_run_lets_out_nothing_unpriced(scenario: Path, folder: Path) -> None:
    """Non-interference for a run under add-or-remove-one, against a neighbour and against shards half as large."""
    private = _hospitals(scenario)
    dataset = prepare(private)
    silo = next(iter(dataset.shards))
    others = [without_last(dataset, silo), halved(dataset)]
    seen = [taped_run(private, data, folder / str(place)) for place, data in enumerate((dataset, *others))]
    for other in seen[1:]:
        check_non_interference(seen[0], other)
    check_sums_move_within_sensitivity(seen[0], seen[1])


def check_the_price_is_of_all_that_was_executed(scenario: Path, folder: Path, strategy: str = "fedavg") -> None:
    """The guarantee's epsilon is the composition, by another library, of every step that an optimiser took."""
    private = _hospitals(scenario, f"training.strategy.name={strategy}")
    seen = taped_run(private, prepare(private), folder / "priced")
    (each,) = {len(sums) for sums in seen.sums.values()}
    assert each == (8 if strategy == "ditto" else 4)
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    step = dp_event.GaussianDpEvent(private.privacy.noise_multiplier or 0.0)
    accountant.compose(dp_event.PoissonSampledDpEvent(private.training.sampling_rate or 0.0, step), each)
    expected, claimed = float(accountant.get_epsilon(private.privacy.delta)), seen.epsilon
    assert 0.99 * expected <= claimed <= 1.02 * expected, f"claimed {claimed}, executed {expected}"


def check_a_record_moves_the_sum_by_at_most_the_clip_norm() -> None:
    """With noise off, removing any record of a hostile shard moves a step's sum by at most the clip norm."""
    shard = _shard(9)
    shard.features[1:3] = shard.features[:1]
    shard.features[0] *= 50  # it outweighs all the others, whose gradients point the other way
    shard.labels[:] = [1, *[0] * 8]
    silent = replace(SCHEDULE, noise_multiplier=0.0, sampling_rate=1.0)
    engine = _engine(FEATURES, "linear")
    whole = _round(shard, silent, engine=engine)
    for row in range(len(shard)):
        moved = float(np.linalg.norm(whole - _round(_without(shard, row), silent, engine=engine)))
        assert moved <= silent.clip_norm * (1 + 1e-5), f"record {row} moved the sum by {moved}"


def check_noise_has_the_declared_deviation() -> None:
    """What an empty shard releases is noise of standard deviation noise_multiplier * clip_norm, within 4%."""
    draws = np.concatenate([_round(_shard(0), SCHEDULE, number=number) for number in range(1, 31)])
    declared = SCHEDULE.noise_multiplier * SCHEDULE.clip_norm
    assert abs(np.std(draws) / declared - 1) < 0.04, f"noise of deviation {np.std(draws)}, declared {declared}"


def check_noise_is_never_shared() -> None:
    """The noise of any two of silos, rounds and attempts is uncorrelated."""
    keys = [(silo, number, attempt) for silo in ("north", "south") for number in (1, 2, 3) for attempt in (0, 1)]
    noise = {key: _round(_shard(0, key[0]), SCHEDULE, number=key[1], attempt=key[2]) for key in keys}
    for one, other in combinations(keys, 2):
        found = np.corrcoef(noise[one], noise[other])[0, 1]
        assert abs(found) < 0.35, f"noise of {one} and {other} has correlation {found}"


def check_samples_are_poisson_at_the_scheduled_rate() -> None:
    """Each record is in a step by a coin of its own at the scheduled rate, as the released sums show.

    Record i has its own input alone, so that an update without noise shows whom the step took.
    """
    records, rounds, rate = 100, 200, 0.64
    shard = Shard(
        name="north",
        features=np.eye(records, dtype=np.float32),
        labels=np.zeros(records, dtype=np.float32),
        individuals=np.arange(records).astype(np.str_),
    )
    schedule = replace(SCHEDULE, noise_multiplier=0.0, sampling_rate=rate)
    engine = _engine(records, "linear")
    taken = np.array(
        [_round(shard, schedule, number=number, engine=engine)[:records] != 0 for number in range(1, rounds + 1)]
    )
    # 20,000 coins: the mean has a standard error of 0.0034; the variance of 200 sizes has one of 10%.
    assert abs(taken.mean() - rate) < 0.02, f"sampled at rate {taken.mean()}, priced at {rate}"
    spread = float(np.var(taken.sum(axis=1))) / (records * rate * (1 - rate))
    assert 0.6 < spread < 1.5, f"sizes of samples vary {spread} times as independent coins do"


def check_an_empty_sample_is_a_step(folder: Path) -> None:
    """A step that samples nobody adds noise, and the ledger holds it as executed."""
    schedule = replace(SCHEDULE, sampling_rate=1e-9, steps=3)
    with Ledger.open(folder / "empty.db", create=True) as ledger:
        before = _initial()
        after = _silo(ledger, _engine(FEATURES)).train(Request(round=1, schedule=schedule, weights=before))
        assert _flat(after).std() > 0.5 * np.sqrt(3) * SCHEDULE.noise_multiplier * SCHEDULE.clip_norm
        assert ledger.charges("north")[0].executed == 3


def check_more_steps_than_charged_never_leave(folder: Path) -> None:
    """A silo whose engine took a step more than the ledger was charged for releases nothing."""
    with Ledger.open(folder / "more.db", create=True) as ledger:
        silo = _silo(ledger, _OneMore(_engine(FEATURES)))
        try:
            silo.train(Request(round=1, schedule=SCHEDULE, weights=_initial()))
        except LedgerConflict:
            return
    raise AssertionError("a step that was not charged has left")


def check_a_second_pass_without_a_charge_never_leaves(folder: Path) -> None:
    """A silo that trains a second time on the charge of the first lets nothing of it out."""
    with Ledger.open(folder / "second.db", create=True) as ledger:
        silo = _silo(ledger, _engine(FEATURES))
        first = Request(round=1, schedule=SCHEDULE, weights=_initial())
        silo.train(first)
        second = replace(first, attempt=1)
        charged = Charged(silo=silo, request=second, charge=ledger.charges("north")[0])
        job = charged.job()
        trained = silo.engine.train(job.weights, job.shard, job.schedule, job.sampling, job.noise)
        try:
            charged.release(*trained)
        except LedgerConflict:
            return
    raise AssertionError("a second pass left on the charge of the first")


def check_a_failed_round_is_charged(folder: Path) -> None:
    """A round that broke on the way counts in full in the price of what the silo gave away."""
    with Ledger.open(folder / "failed.db", create=True) as ledger:
        silo = _silo(ledger, _Broken(_engine(FEATURES)))
        with suppress(MemoryError):
            silo.train(Request(round=1, schedule=SCHEDULE, weights=_initial()))
        found = [one.priced() for one in ledger.charges("north")]
        assert found == ledger.releases("north") == [SCHEDULE.mechanism()], f"a failed round is priced as {found}"


def check_inputs_depend_on_their_record_alone() -> None:
    """Changing one record's values in the source changes no other record's inputs."""
    features: dict[str, Feature] = {"age": NumericFeature(low=0, high=100), "dose": NumericFeature(low=-3, high=3)}
    columns: dict[str, NDArray[np.generic]] = {"age": np.linspace(20, 80, 20), "dose": np.linspace(-2, 2, 20)}
    changed = {name: np.concatenate([values[:-1], values[:1]]) for name, values in columns.items()}
    before, after = encode_features(columns, features), encode_features(changed, features)
    assert np.array_equal(before[:-1], after[:-1]), "another record's inputs moved"


def check_counts_move_as_declared(scenario: Path, folder: Path) -> None:
    """An individual who goes with both of its records moves a noisy count of individuals by one, as declared."""
    table = pd.read_csv(scenario.parent / "people.csv")
    pd.concat([table, table]).to_csv(scenario.parent / "people.csv", index=False)
    paid = ["privacy.relation=add-or-remove-one", "privacy.size_epsilon=0.5", "privacy.noise_multiplier=1.5"]
    unit = ["training.sampling=individuals", "data.records_per_individual=2", "training.rounds=1"]
    private = load(scenario, [*paid, *unit])
    dataset = prepare(private)
    others = (dataset, without_last_individual(dataset, "south"))
    seen = [taped_run(private, data, folder / str(place)) for place, data in enumerate(others)]
    assert {moved for _, moved in seen[0].counts} == {1.0}, "a count of individuals is noised for something else"
    check_sums_move_within_sensitivity(seen[0], seen[1])
    check_non_interference(seen[0], seen[1])


def check_only_what_is_declared_public_leaves(folder: Path) -> None:
    """A silo gives out a number that is declared public, and refuses any other by its name."""
    with Ledger.open(folder / "public.db", create=True) as ledger:
        silo = replace(_silo(ledger, _engine(FEATURES)), public=frozenset({"individuals"}))
        grid = InProcessGrid(client_app(lambda _: silo), ["north"])
        nodes = find_silos(grid, ["north"])
        assert ask_public(grid=grid, silos=nodes, names=["individuals"]) == {"north": {"individuals": 10}}
        for name in ("records", "held-out-records", "loss"):
            said = ""
            try:
                ask_public(grid=grid, silos=nodes, names=[name])
            except SilodpError as error:
                said = str(error)
            assert f"'{name}'" in said, f"{name} left, or was not refused by its name: {said}"


def check_a_guarantee_names_what_is_public(scenario: Path, folder: Path) -> None:
    """Where sizes are true and declared public, the plan, the sentence and `account` say what is not covered."""
    public = ["privacy.relation=add-or-remove-one", "silos.public=['records']", "training.rounds=1"]
    result = run(load(scenario, public), out=folder / "public")
    told = account_ledgers([folder / "public"], delta=None, epsilon=None, relation=None, membership=None, method="auto")
    said = (result.guarantee.sentence(), str(told["sentence"]), *result.plan.warnings[:1])
    for text in said:
        assert "exact number of training records" in text, f"does not say that sizes are out of it: {text}"
    assert "outside the guarantee" in result.plan.sizes


def check_a_changed_shard_is_refused(scenario: Path, folder: Path) -> None:
    """A run does not go on over a ledger that began with another shard."""
    once = load(scenario, ["training.rounds=1"])
    run(once, out=folder / "frozen")
    (folder / "frozen" / "checkpoint.safetensors").unlink()
    table = pd.read_csv(scenario.parent / "people.csv")
    table["dose"] += 0.001
    table.to_csv(scenario.parent / "people.csv", index=False)
    said = ""
    try:
        run(once, out=folder / "frozen", resume=True)
    except Declined as error:
        said = str(error)
    assert "2411.03299" in said, f"another shard went on under the same ledger, or without the reason: {said}"


def check_a_budget_is_never_passed(scenario: Path, folder: Path) -> None:
    """What a silo released, under laws that a count chose, stays within the filter that its ledger fixed."""
    sizes = ["privacy.relation=add-or-remove-one", "privacy.size_epsilon=0.2", "training.expected_batch=30"]
    result = run(load(scenario, [*sizes, "privacy.budget=2.1"]), out=folder / "budget")
    with Ledger.open(result.folder / "ledger.db", read_only=True) as ledger:
        for part in result.plan.silos:
            budget = Budget.from_json(json.loads(ledger.fixed(part.silo, "budget") or ""))
            laws = [one.mechanism for one in ledger.charges(part.silo) if not isinstance(one.mechanism, Allowance)]
            spent = budget.spent(laws)
            assert spent <= budget.total, f"silo {part.silo!r} spent {spent} of {budget.total}"


class _OneMore:
    """An engine that takes one step more than it is asked for, and counts it."""

    def __init__(self, inner: OpacusEngine) -> None:
        self._inner = inner

    @property
    def layout(self) -> Mapping[str, tuple[int, ...]]:
        return self._inner.layout

    def train(
        self,
        weights: Mapping[str, NDArray[np.generic]],
        shard: Shard,
        schedule: Schedule,
        sampling: np.random.Generator,
        noise: np.random.Generator,
        drift: Drift | None = None,
    ) -> tuple[Weights, int]:
        return self._inner.train(weights, shard, replace(schedule, steps=schedule.steps + 1), sampling, noise, drift)


class _Broken(_OneMore):
    """An engine that runs out of memory."""

    def train(self, *_: object, **__: object) -> tuple[Weights, int]:
        raise MemoryError("no room")


def _hospitals(scenario: Path, *more: str) -> Scenario:
    """The small scenario of the tests under add-or-remove-one, of two rounds of two steps by Opacus."""
    private = ["privacy.relation=add-or-remove-one", "silos.declared_size=100", "privacy.noise_multiplier=1.5"]
    return load(scenario, [*private, "training.rounds=2", "training.local_steps=2", "training.engine=opacus", *more])


def _shard(records: int, name: str = "north") -> Shard:
    generator = np.random.default_rng(4)
    return Shard(
        name=name,
        features=generator.normal(size=(records, FEATURES)).astype(np.float32),
        labels=generator.integers(2, size=records).astype(np.float32),
        individuals=np.arange(records).astype(np.str_),
    )


def _without(shard: Shard, row: int) -> Shard:
    kept = np.arange(len(shard)) != row
    return replace(shard, features=shard.features[kept], labels=shard.labels[kept], individuals=shard.individuals[kept])


def _engine(features: int, kind: str = "mlp") -> OpacusEngine:
    model = build_model(kind, input_shape=(features,), outputs=1, seed=1)
    return OpacusEngine(model, task="binary", input_shape=(features,), outputs=1)


def _initial() -> Weights:
    model = build_model("mlp", input_shape=(FEATURES,), outputs=1, seed=1)
    return {name: np.zeros_like(array) for name, array in weights_of(model).items()}


def _silo(ledger: Ledger, engine: OpacusEngine | _OneMore) -> Silo:
    return Silo(run="run", shard=_shard(10), engine=engine, ledger=ledger, streams=STREAMS)


def _round(
    shard: Shard, schedule: Schedule, *, number: int = 1, attempt: int = 0, engine: OpacusEngine | None = None
) -> NDArray[np.float64]:
    """What a round adds to weights of zero, negated: the noisy sum, as learning rate and divisor are one."""
    engine = engine or _engine(FEATURES)
    start = {name: np.zeros(shape, dtype=np.float32) for name, shape in engine.layout.items()}
    sampling = STREAMS.generator(shard.name, number, "sampling", attempt)
    noise = STREAMS.generator(shard.name, number, "noise", attempt)
    return -_flat(engine.train(start, shard, schedule, sampling, noise)[0])


def _flat(weights: Weights) -> NDArray[np.float64]:
    return np.concatenate([array.ravel() for array in weights.values()]).astype(np.float64)
