"""A silo's folder: all that a deployed silo is, on disk.

Flower starts a new process for each message, so nothing of a silo lives in memory.

| file              | what it is                                                                          |
|-------------------|-------------------------------------------------------------------------------------|
| `silo.toml`       | the law (`silos._law`)                                                              |
| the data          | what `data.path` and `data.held_out` name                                           |
| `ledger.db`       | the ledger, made with the first charge                                              |
| `ledger.heads`    | the last row of each chain after the last release: a ledger without it was cut off  |
|                   | or put back, and the silo declines rather than forget what it gave away             |
| `silo.key`        | the secret that freezes the shard, mode 0600, made at first use                     |
| `released/`       | the bytes of each release by their hash, for a request that comes again; where they |
|                   | were deleted it is declined                                                         |
| `lock`            | held by the process that serves a message; another one waits                        |

The optimiser starts afresh in each round and sampling is without memory, so there is no more to keep between rounds.
"""

import fcntl
import json
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from accounting import Ledger
from silos._errors import Declined, Reason
from silos._files import write_atomically
from silos._frozen import silo_key
from silos._law import LAW, Law
from silos._records import hash_weights
from silos._weights import Weights

LEDGER = "ledger.db"
HEADS = "ledger.heads"
KEY = "silo.key"
RELEASED = "released"
LOCK = "lock"


@dataclass(frozen=True)
class SiloFolder:
    """The folder of one silo.

    Args:
        path: where it is; it belongs to the silo alone and exists.
    """

    path: Path

    def law(self) -> Law:
        """The law as it is now.

        Raises:
            LawBroken: for a file that is no law.
        """
        return Law.read(self.path / LAW)

    @property
    def ledger(self) -> Path:
        """Where the ledger is."""
        return self.path / LEDGER

    def open_ledger(self) -> Ledger:
        """The ledger, made where nothing was released yet.

        Raises:
            Declined: for a ledger that does not hold all that the silo released.
            LedgerError: for one that cannot be used.
        """
        if self.ledger.exists() or not (self.path / HEADS).exists():
            ledger = Ledger.open(self.ledger, create=True)
            if self.whole(ledger):
                return ledger
            ledger.close()
        raise Declined("The ledger of this silo does not hold all that it released. Put it back as it was.", Reason.LAW)

    def whole(self, ledger: Ledger) -> bool:
        """Whether a ledger holds all that the silo released: at least the rows that `remember` wrote down."""
        try:
            heads = (self.path / HEADS).read_text("utf-8").split()
        except FileNotFoundError:
            return True
        # Rows are read after their heads: some may be added in between, none may be lost.
        return set(heads) <= {row.hash for row in ledger.all_rows()}

    def remember(self, ledger: Ledger) -> None:
        """Write down how far the ledger is; to be called before a reply leaves."""
        write_atomically(self.path / HEADS, "".join(f"{head}\n" for head in ledger.heads().values()).encode())

    def key(self) -> bytes:
        """The silo's secret, made where there is none yet."""
        return silo_key(self.path / KEY)

    @contextmanager
    def locked(self) -> Generator[None]:
        """Hold the folder for this process alone; wait while another one holds it.

        The operating system lets go of it when a process ends, however it ends.
        """
        held = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield
        finally:
            os.close(held)

    def keep(self, released: Mapping[str, NDArray[np.generic]]) -> None:
        """Store what is about to be released, durably."""
        folder = self.path / RELEASED
        folder.mkdir(mode=0o700, exist_ok=True)
        order = {"order": json.dumps(list(released))}  # safetensors sorts, and the hash goes by order
        content = save({name: np.asarray(array, order="C") for name, array in released.items()}, metadata=order)
        write_atomically(folder / f"{hash_weights(released)}.safetensors", content)

    def kept(self, output: str) -> Weights | None:
        """What was stored under this hash; None where it is gone or damaged."""
        try:
            with safe_open(self.path / RELEASED / f"{output}.safetensors", framework="numpy") as file:
                found: Weights = {name: file.get_tensor(name) for name in json.loads(file.metadata()["order"])}
        except (OSError, SafetensorError):
            return None
        return found if hash_weights(found) == output else None
