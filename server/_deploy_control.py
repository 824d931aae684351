"""Asking a SuperLink: which nodes it knows, and what became of a run.

This and `server._flower` are the pages that touch Flower's internals: the `flwr` command does the same through the same
client, but takes seconds to start and prints tables.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.cli.cli_client_interceptor import CliClientHttpInterceptor
from flwr.common.serde import fab_to_proto, user_config_to_proto
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListRunsRequest,
    RegisterNodeRequest,
    StartRunRequest,
    StopRunRequest,
)
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from accounting import InvalidValue, SilodpError

RunValue = str | int | float | bool


class SuperLinkUnreachable(SilodpError):
    """No SuperLink answers at the address, or not over TLS with the certificate it should have."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A registered SuperNode.

    Attributes:
        number: its id.
        name: under which its key was registered.
        key: its public key, as bytes that compare.
        online: whether it sent a heartbeat lately.
    """

    number: int
    name: str
    key: bytes
    online: bool


@dataclass(frozen=True, kw_only=True)
class RunState:
    """A run as the SuperLink sees it.

    Attributes:
        status: ``pending``, ``starting``, ``running`` or ``finished``.
        outcome: of a finished run: ``completed``, ``failed`` or ``stopped``; else empty.
        details: what Flower says of a failure.
    """

    status: str
    outcome: str
    details: str

    @property
    def finished(self) -> bool:
        """Whether it has come to an end."""
        return self.status == "finished"


class SuperLink:
    """The SuperLink at an address; a context manager.

    Args:
        address: ``host:port``.
        ca: file of the certificate to check it by.

    Every method raises `SuperLinkUnreachable` where no answer comes.
    """

    def __init__(self, address: str, ca: Path) -> None:
        self._address = address
        self._client = ControlHttpClient.from_server_address(
            server_address=address,
            insecure=False,
            root_certificates=ca.read_bytes(),
            interceptors=[CliClientHttpInterceptor(), RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._client.close()

    def nodes(self) -> list[Node]:
        """The registered nodes."""
        with _telling(self._address):
            listed = self._client.ListNodes(ListNodesRequest()).nodes_info
        return [
            Node(number=one.node_id, name=one.name, key=one.public_key, online=one.status == "online")
            for one in listed
            if one.status != "unregistered"
        ]

    def register(self, public_key: Path, name: str) -> None:
        """Register a SuperNode's public key; one that is registered stays so."""
        key = load_node_key(public_key)
        if key not in {node.key for node in self.nodes()}:
            with _telling(self._address):
                self._client.RegisterNode(RegisterNodeRequest(public_key=key, name=name))

    def start(self, fab: bytes, config: Mapping[str, RunValue]) -> int:
        """Submit an app and return the run's id.

        Args:
            fab: the app.
            config: the run's config, of keys that the app has.
        """
        request = StartRunRequest(
            fab=fab_to_proto(Fab(sha256(fab).hexdigest(), fab, {})), override_config=user_config_to_proto(dict(config))
        )
        with _telling(self._address):
            answer = self._client.StartRun(request)
        if not answer.HasField("run_id"):
            raise SilodpError(f"The SuperLink at {self._address} did not take the app.")
        return answer.run_id

    def run(self, run_id: int) -> RunState:
        """What became of a run."""
        with _telling(self._address):
            runs = self._client.ListRuns(ListRunsRequest(run_id=run_id)).run_dict
        if run_id not in runs:
            raise InvalidValue(f"The SuperLink at {self._address} knows no run {run_id}.")
        status = runs[run_id].status
        return RunState(status=status.status, outcome=status.sub_status, details=status.details)

    def stop(self, run_id: int) -> None:
        """Stop a run that is not finished."""
        with _telling(self._address):
            self._client.StopRun(StopRunRequest(run_id=run_id))


def load_node_key(path: Path) -> bytes:
    """A silo's public key in the form in which a SuperLink keeps it.

    Raises:
        InvalidValue: for a file that holds no such key.
    """
    try:
        key = load_ssh_public_key(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidValue(f"{path}: cannot be read as a public key: {error}") from None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise InvalidValue(f"{path}: is not a key on an elliptic curve.")
    return public_key_to_bytes(key)


@contextmanager
def _telling(address: str) -> Iterator[None]:
    """Turn an error of the connection into one that names the address."""
    try:
        yield
    except httpx.HTTPStatusError as error:
        said = f"{error.response.status_code} {error.response.text[:300]}"
        raise SilodpError(f"The SuperLink at {address} refused: {said}") from error
    except httpx.HTTPError as error:
        raise SuperLinkUnreachable(f"No SuperLink answers at {address}: {error}. Is the deployment up?") from error
