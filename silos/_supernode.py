"""A silo's SuperNode, which runs no app but the one that the silo approved.

A SuperLink sends each SuperNode the app it is to run, and whoever holds the SuperLink, or can submit runs to it, could
send another one, which would read the shard and say nothing to the ledger. Flower refuses apps that no trusted entity
signed, yet its SuperLinks know only signatures of Flower's own registry. So the silo signs what it approves with a key
that it throws away, keeps the signature in its folder, and adds it to the app when it arrives; Flower then checks it as
any other. An app that was not approved is answered with an error and never unpacked.

A SuperLink also takes a SuperNode that was killed for alive until its heartbeats are overdue, for a minute, and admits
no other with its key. So the SuperNode writes down its number, and begins by signing off the one before it.

`python -m silos._supernode` takes the flags of `flower-supernode` and is run in the silo's folder.
"""

import base64
import fcntl
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from accounting._errors import InvalidValue

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
    from flwr.supercore.fab import Fab

APPROVED = "approved.json"
"""The signature of the approved app."""

TRUSTED = "trusted.yaml"
"""The public key it is checked by, in the form of Flower's ``--trusted-entities``."""

NUMBER, LOCK = "supernode.number", "supernode.lock"
"""The number that the SuperLink gave the node, and what keeps two SuperNodes from serving one silo."""

_SIGNER = "fpk_silo"
_PAUSE = 1.0


def approve(folder: Path, app: bytes) -> str:
    """Approve an app, in place of the one approved before.

    Args:
        folder: the silo's.
        app: the app's bundle, as `flwr build` makes it.

    Returns:
        The app's SHA-256, by which it is known.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
    from flwr.supercore.primitives.asymmetric_ed25519 import create_message_to_sign

    key, signed_at = Ed25519PrivateKey.generate(), int(time.time())
    digest = sha256(app)
    signature = base64.urlsafe_b64encode(key.sign(create_message_to_sign(digest.digest(), signed_at))).decode()
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    record = {"app": digest.hexdigest(), "signed_at": signed_at, "signature": signature}
    (folder / TRUSTED).write_text(json.dumps({_SIGNER: public}) + "\n", "utf-8")
    (folder / APPROVED).write_text(json.dumps(record) + "\n", "utf-8")
    return digest.hexdigest()


def approved(folder: Path) -> str:
    """SHA-256 of the approved app.

    Raises:
        InvalidValue: where none is approved.
    """
    return str(_read(folder)["app"])


def _read(folder: Path) -> dict[str, object]:
    try:
        return dict(json.loads((folder / APPROVED).read_text("utf-8")))
    except (OSError, ValueError) as error:
        raise InvalidValue(f"{folder / APPROVED}: no app is approved here: {error}") from None


def _vouching(get_fab: "Callable[[str, int], Fab]", record: dict[str, object]) -> "Callable[[str, int], Fab]":
    """Like `get_fab`, with the silo's signature on the approved app and no signature on any other."""

    def get(fab_hash: str, run_id: int) -> "Fab":
        fab = get_fab(fab_hash, run_id)
        known = sha256(fab.content).hexdigest() == record["app"]
        signed = json.dumps({name: record[name] for name in ("signed_at", "signature")})
        fab.verifications = {"valid_license": "none needed", _SIGNER: signed} if known else {}
        return fab

    return get


def _sign_off(
    address: str, root: bytes | str | None, keys: "tuple[EllipticCurvePrivateKey, EllipticCurvePublicKey] | None"
) -> None:
    """Tell the SuperLink that the SuperNode before this one, if any, has ended; wait for the SuperLink to answer."""
    import httpx
    from flwr.proto.fleet_pb2 import DeactivateNodeRequest
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
    from flwr.supernode.fleet_http_client import FleetHttpClient
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

    if keys is None or not Path(NUMBER).exists():
        return
    interceptors = [RuntimeVersionHttpInterceptor(component_name="SuperNode"), NodeAuthHttpInterceptor(*keys)]
    with FleetHttpClient.from_server_address(address, False, root, interceptors=interceptors) as client:
        while True:
            try:
                client.DeactivateNode(DeactivateNodeRequest(node_id=int(Path(NUMBER).read_text("utf-8"))))
            except httpx.TransportError:
                time.sleep(_PAUSE)
            except (httpx.HTTPStatusError, ValueError):
                return  # it had signed off itself, or this SuperLink never knew it
            else:
                return


def main() -> None:
    """Start the SuperNode. Should Flower ever fetch apps by another way, it refuses them all: none is signed.

    Raises:
        SystemExit: where a SuperNode of this folder is running.
    """
    from flwr.supernode import start_client_internal as internals
    from flwr.supernode.cli import flower_supernode

    lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise SystemExit(f"{Path().absolute()}: a SuperNode of this silo is running.") from None
    record = _read(Path())
    connect = internals.http_request_response  # pyright: ignore[reportPrivateImportUsage]

    @contextmanager
    def connecting(
        address: str,
        insecure: bool,
        root: bytes | str | None,
        keys: "tuple[EllipticCurvePrivateKey, EllipticCurvePublicKey] | None",
        *limits: float | None,
    ) -> Iterator[tuple[object, ...]]:
        _sign_off(address, root, keys)
        with connect(address, insecure, root, keys, *limits) as found:  # pyright: ignore[reportArgumentType]
            Path(NUMBER).write_text(str(found[0]), "utf-8")
            yield (*found[:4], _vouching(found[4], record), *found[5:])

    internals.http_request_response = connecting  # pyright: ignore
    sys.argv += ["--trusted-entities", TRUSTED]
    flower_supernode()


if __name__ == "__main__":
    main()
