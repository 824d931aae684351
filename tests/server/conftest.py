"""A small federation in this process."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from accounting import Ledger
from server import InProcessGrid, RoundResult, find_silos, run_rounds
from silos import OpacusEngine, Schedule, Shard, Silo, Streams, Weights, build_model, client_app, weights_of
from silos._drift import Drift

FEATURES = 4
SCHEDULE = Schedule(
    sampling_rate=0.5,
    steps=2,
    noise_multiplier=0.6,
    clip_norm=0.5,
    expected_batch=8.0,
    learning_rate=0.5,
    momentum=0.5,
)


class BreakingEngine:
    """The Opacus engine, which breaks or answers oddly for the silos and rounds that it is told.

    Args:
        broken: what becomes of a silo's round: an exception to raise, or weights to answer with.
    """

    def __init__(self, inner: OpacusEngine) -> None:
        self._inner = inner
        self.broken: dict[tuple[str, int], Exception | Weights] = {}
        self.calls: dict[str, int] = {}

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
        self.calls[shard.name] = self.calls.get(shard.name, 0) + 1
        fate = self.broken.get((shard.name, self.calls[shard.name]))
        if isinstance(fate, Exception):
            raise fate
        trained, executed = self._inner.train(weights, shard, schedule, sampling, noise, drift)
        return (trained if fate is None else fate), executed


@dataclass(kw_only=True)
class Federation:
    """Silos, their ledger, and the grid that they are on."""

    app: ClientApp
    engine: BreakingEngine
    silos: dict[str, Silo]
    ledger: Ledger
    initial: Weights
    schedules: dict[str, Schedule] = field(default_factory=dict)

    def grid(self) -> InProcessGrid:
        return InProcessGrid(self.app, list(self.silos))

    def run(
        self,
        strategy: Strategy,
        rounds: int,
        *,
        first: int = 1,
        weights: Weights | None = None,
        grid: InProcessGrid | None = None,
    ) -> Iterator[RoundResult]:
        grid = grid or self.grid()
        return run_rounds(
            grid=grid,
            silos=find_silos(grid, list(self.silos)),
            strategy=strategy,
            plan=lambda _: self.schedules,
            weights=self.initial if weights is None else weights,
            rounds=rounds,
            first=first,
            ledger=self.ledger,
        )


@pytest.fixture(scope="session")
def engine() -> OpacusEngine:
    model = build_model("linear", input_shape=(FEATURES,), outputs=1, seed=3)
    return OpacusEngine(model, task="binary", input_shape=(FEATURES,), outputs=1)


@pytest.fixture
def federation(tmp_path: Path, engine: OpacusEngine) -> Iterator[Federation]:
    with Ledger.open(tmp_path / "ledger.sqlite", create=True) as ledger:
        generator = np.random.default_rng(0)
        breaking, streams = BreakingEngine(engine), Streams(b"a key of the tests")
        silos: dict[str, Silo] = {}
        for name, records in (("zurich", 20), ("aarhus", 1), ("madrid", 16)):
            shard = Shard(
                name=name,
                features=generator.normal(size=(records, FEATURES)).astype(np.float32),
                labels=generator.integers(2, size=records).astype(np.float32),
                individuals=np.arange(records).astype(np.str_),
            )
            silos[name] = Silo(run="run", shard=shard, engine=breaking, ledger=ledger, streams=streams)

        def find(context: Context) -> Silo:
            return silos[str(context.node_config["silo"])]

        yield Federation(
            app=client_app(find),
            engine=breaking,
            silos=silos,
            ledger=ledger,
            initial=weights_of(build_model("linear", input_shape=(FEATURES,), outputs=1, seed=3)),
            schedules={name: replace(SCHEDULE, weight=weight) for name, weight in zip(silos, (3, 0.5, 2), strict=True)},
        )
