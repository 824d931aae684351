"""Silos in the processes of a Ray cluster, reached through Flower's own Ray backend.

Flower's simulation runtime hands each message, with the client app, to an actor of a pool; here our grid does so, and
keeps its order of nodes and replies. An actor builds the run once, from what the driver put into Ray's object store,
and serves whatever silo it is sent a message for.

A silo's ledger is then a file of its own, in `ledgers` beside the run's ledger. Whichever actor serves the silo opens
it for the length of one message: the charge is durable there before anything is computed. What the file holds goes
into the run's ledger before the round is aggregated; what the run's ledger holds beyond it (terms, declarations) goes
into the file before the first message. On a cluster of several machines the run's folder has to be at the same path
for all of them.
"""

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from accounting import LAW_CHAIN, Ledger
from scenarios._asked import held_out_chain
from scenarios._errors import RunError
from scenarios._plan_parts import Plan
from scenarios.data._dataset import Dataset
from scenarios.spec._scenario import Scenario
from server._flower import identify_process
from server._grid import App, Together
from silos import Silo, client_app

if TYPE_CHECKING:
    from flwr.server.superlink.fleet.vce.backend.raybackend import RayBackend
    from ray import ObjectRef  # pyright: ignore[reportMissingImports]  # the extra ray

    from scenarios._simulation import Simulation

Whole = tuple[Scenario, Dataset, Plan]
"""What a run is made from; the dataset as it was read."""

_PATIENCE = 10.0
"""Seconds that a cluster has to answer."""

_PLACE = "partition-id"
"""Flower's name for a silo's number; its backend asks for it."""


class RaySilos:
    """The silos of a run in actors, one actor a core of the cluster.

    Args:
        scenario, dataset, plan: of the run; the dataset as it was read.
        address: of a running cluster; None takes the one that ``RAY_ADDRESS`` names, or starts one on this machine.

    It starts with the first message. Close it after the rounds.
    """

    def __init__(self, scenario: Scenario, dataset: Dataset, plan: Plan, *, address: str | None) -> None:
        self._whole: Whole = (scenario, dataset, plan)
        self._address = address
        self._names = list(dataset.shards)
        self._backend: tuple[RayBackend, ObjectRef[Whole]] | None = None

    def serving(self, ledger: Ledger, find: Callable[[Context], Silo], *, as_read: bool) -> tuple[App, Together]:
        """What serves one message, and what serves many at once, as `InProcessGrid` wants them.

        Args:
            ledger: the run's; what silos charge is in it once their replies are there.
            find: the silo of a node, as this process knows it; it is called when the silo is asked.
            as_read: whether silos answer from their records as they were read, not as they are trained on.

        Both raise:
            RunError: where Ray is not there or fails; the run can be resumed.
        """
        folder = ledger.path.absolute().parent / "ledgers"
        local, begun = client_app(find), False

        def together(messages: Sequence[tuple[Message, Context]]) -> list[Message]:
            nonlocal begun
            if not begun:
                self._hand_over(ledger, folder)
                begun = True
            silos = [find(context).name for _, context in messages]
            replies = self._ask(messages, folder, as_read=as_read)
            for silo in silos:
                with Ledger.open(self._file(folder, silo)) as own:
                    ledger.follow(own)
            return replies

        def one(message: Message, context: Context) -> Message:
            if message.metadata.message_type == "query.silo":
                return local(message, context)
            return together([(message, context)])[0]

        return one, together

    def close(self) -> None:
        """End the actors, and the cluster where it was started here."""
        if self._backend is not None:
            self._backend[0].terminate()
            self._backend = None

    def _file(self, folder: Path, silo: str) -> Path:
        return folder / f"{self._names.index(silo)}.db"

    def _hand_over(self, ledger: Ledger, folder: Path) -> None:
        """Bring the run's ledger and the silos' own to the longer of the two: a killed run left them apart."""
        scenario, dataset, _ = self._whole
        folder.mkdir(exist_ok=True)
        for silo in dataset.shards:
            chains = {chain for payer in (silo, held_out_chain(scenario, silo)) for chain in (payer, payer + LAW_CHAIN)}
            with Ledger.open(self._file(folder, silo), create=True) as own:
                ledger.follow(own, chains)
                own.follow(ledger, chains)

    def _ask(self, messages: Sequence[tuple[Message, Context]], folder: Path, *, as_read: bool) -> list[Message]:
        backend, stored = self._backend or self._start()
        # Flower calls what this returns with a message and a context; no more is asked of an app.
        load = partial(_load, stored, folder, tuple(self._names), as_read)
        backend.app_fn = cast("Callable[[], ClientApp]", load)
        with _told(), ThreadPoolExecutor(backend.num_workers) as threads:
            replies = threads.map(lambda pair: backend.process_message(pair[0], self._placed(pair[1]))[0], messages)
            return list(replies)

    def _placed(self, context: Context) -> Context:
        place = self._names.index(str(context.node_config["silo"]))
        return replace(context, node_config=context.node_config | {_PLACE: place})

    def _start(self) -> "tuple[RayBackend, ObjectRef[Whole]]":
        for name in ("RAY_USAGE_STATS_ENABLED", "RAY_ENABLE_UV_RUN_RUNTIME_ENV", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"):
            os.environ.setdefault(name, "0")
        try:
            import ray  # pyright: ignore[reportMissingImports]  # the extra ray
            from flwr.server.superlink.fleet.vce.backend.raybackend import RayBackend
        except ImportError:
            raise RunError("A run on Ray needs the extra: pip install 'silodp[ray]'.") from None
        init: dict[str, str | bool] = {"log_to_driver": False, "logging_level": "ERROR"}
        if self._address is not None:
            init["address"] = self._address
            _check_answers(self._address)
        try:
            backend = RayBackend({"init_args": dict(init), "client_resources": {"num_cpus": 1, "num_gpus": 0.0}})
        except ConnectionError as error:
            raise RunError(f"--ray-address {self._address}: no cluster answers there: {error}") from None
        backend.build(ClientApp)
        self._backend = backend, ray.put(self._whole)
        return self._backend


def _load(
    stored: "ObjectRef[Whole]", folder: Path, names: Sequence[str], as_read: bool
) -> Callable[[Message, Context], Message]:
    """The app of every silo, in an actor."""

    def app(message: Message, context: Context) -> Message:
        identify_process(context.run_id)
        place = int(context.node_config[_PLACE])
        with Ledger.open(folder / f"{place}.db") as ledger:
            silo = _simulation(stored).silo(names[place], ledger, as_read=as_read)
            return client_app(lambda _: silo)(message, context)

    return app


@lru_cache(maxsize=1)
def _simulation(stored: "ObjectRef[Whole]") -> "Simulation":
    import ray  # pyright: ignore[reportMissingImports]  # the extra ray

    from scenarios._simulation import Simulation

    return Simulation(*ray.get(stored), workers=1)


def _check_answers(address: str) -> None:
    """Ray itself tries for many minutes."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or "://" in address:
        return
    try:
        socket.create_connection((host, int(port)), timeout=_PATIENCE).close()
    except OSError as error:
        raise RunError(f"--ray-address {address}: no cluster answers there: {error}.") from None


@contextmanager
def _told() -> Iterator[None]:
    """Say what an error of Ray means to whoever runs this."""
    from flwr.clientapp.client_app import ClientAppException
    from ray.exceptions import RayError  # pyright: ignore[reportMissingImports]  # the extra ray

    try:
        yield
    except (RayError, ClientAppException) as error:
        first, _, _ = str(error).strip().partition("\n")
        raise RunError(f"A process of Ray failed: {first} Nothing of the round was kept; resume the run.") from error
