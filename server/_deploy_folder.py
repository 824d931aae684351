"""The folder of a deployment on one machine: who is in it, on which ports, and how each is started.

| path                | what it is                                                             | whose       |
|---------------------|------------------------------------------------------------------------|-------------|
| `deployment.json`   | names, ports and the token of its processes                            | this folder |
| `server/`           | certificates, the silos' public keys, the app, the SuperLink's database | the server  |
| `silos/NAME/`       | law, shard, ledger, keys: all that is a silo's                         | that silo   |
| `runs/NAME/`        | model, checkpoint and guarantee of a run                               | the server  |

Each of the first two kinds has a `start.sh`, which is all that starts it, here and on a machine of its own.
"""

import json
import re
import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

import tomli_w

from accounting import InvalidValue
from server._deploy_certificates import CA, CERTIFICATE, KEY, NODE_KEY

APP, DATABASE, LOG, NAME, PUBLIC, START = (
    "app.fab",
    "superlink.db",
    "log.txt",
    "deployment.json",
    "public.json",
    "start.sh",
)
"""Files in these folders."""

ENVIRONMENT: Mapping[str, str] = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.25",
    "OMP_NUM_THREADS": "1",
}
"""For all of Flower's processes. Thread counts are fixed: they may change the last bits of a sum."""


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """A deployment.

    Args:
        folder: where it is, absolute.
        silos: the silos' names, in the order of the dataset.
        ports: of 127.0.0.1: the SuperLink's, then one for each SuperNode.
        chosen: whether a person chose the ports; others may change as long as nothing runs.
        token: what its processes are known by.
    """

    folder: Path
    silos: tuple[str, ...]
    ports: tuple[int, ...]
    chosen: bool = False
    token: str = ""

    @classmethod
    def new(cls, folder: Path, silos: Sequence[str], ports: Sequence[int]) -> Self:
        """A deployment that is not written yet."""
        return cls(folder=folder.absolute(), silos=tuple(silos), ports=tuple(ports), token=secrets.token_hex(16))

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The deployment in a folder.

        Raises:
            InvalidValue: where there is none.
        """
        path = folder.absolute() / NAME
        try:
            held = json.loads(path.read_text("utf-8"))
            return cls(
                folder=folder.absolute(),
                silos=tuple(held["silos"]),
                ports=tuple(held["ports"]),
                chosen=held["chosen"],
                token=held["token"],
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidValue(f"{path}: is no deployment ({error}). `silodp deploy init` makes one.") from None

    def write(self) -> None:
        """Write `deployment.json`, the start scripts and the configuration of the `flwr` command."""
        values = {name: value for name, value in asdict(self).items() if name != "folder"}
        (self.folder / NAME).write_text(json.dumps(values, indent=2) + "\n", "utf-8")
        _write_script(self.server, "the SuperLink", superlink_command(self.ports[0]))
        for silo, port in zip(self.silos, self.ports[1:], strict=True):
            _write_script(self.silo(silo), "the silo's SuperNode", supernode_command(self.address, port))
        config = {
            "superlink": {
                "default": "silodp",
                "silodp": {"address": self.address, "root-certificates": str(self.server / CA)},
            }
        }
        (self.server / "flwr").mkdir(exist_ok=True)
        (self.server / "flwr" / "config.toml").write_text(tomli_w.dumps(config), "utf-8")

    def on(self, ports: Sequence[int], *, chosen: bool) -> "Deployment":
        """The same on other ports."""
        return replace(self, ports=tuple(ports), chosen=chosen)

    @property
    def address(self) -> str:
        """Where the SuperLink listens."""
        return f"127.0.0.1:{self.ports[0]}"

    @property
    def server(self) -> Path:
        """The server's folder."""
        return self.folder / "server"

    def silo(self, name: str) -> Path:
        """A silo's folder; names that are no plain file names are numbered."""
        plain = re.fullmatch(r"\w[\w .-]*", name) is not None
        return self.folder / "silos" / (name if plain else f"silo-{self.silos.index(name)}")

    def public_key(self, name: str) -> Path:
        """The server's copy of a silo's public key."""
        return self.server / "keys" / f"{self.silo(name).name}.pub"


def superlink_command(port: int) -> str:
    """How a SuperLink is started, in the server's folder: TLS and authentication of SuperNodes on, installing off."""
    return _line(
        "flower-superlink --host 127.0.0.1 --enable-supernode-auth --disable-runtime-dependency-installation",
        f"--port {port} --database {DATABASE}",
        f"--ssl-ca-certfile {CA} --ssl-certfile {CERTIFICATE} --ssl-keyfile {KEY}",
    )


def supernode_command(address: str, port: int) -> str:
    """How a SuperNode is started, in its silo's folder."""
    return _line(
        f"python -m silos._supernode --superlink {shlex.quote(address)} --root-certificates {CA}",
        f"--auth-supernode-private-key {NODE_KEY} --host 127.0.0.1 --port {port}",
        '--node-config "silo-folder=\\"$PWD\\""',
    )


def _line(*parts: str) -> str:
    return " \\\n  ".join(parts)


def _write_script(folder: Path, what: str, command: str) -> None:
    exports = "\n".join(f"export {name}={value}" for name, value in ENVIRONMENT.items())
    script = (
        f"#!/bin/sh\n# Starts {what}. Needs the environment that silodp is installed in.\nset -eu\n"
        f'cd "$(dirname "$0")"\nexport FLWR_HOME="$PWD/flwr"\n{exports}\nexec {command}\n'
    )
    (folder / START).write_text(script, "utf-8")
    (folder / START).chmod(0o700)
