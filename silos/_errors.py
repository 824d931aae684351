"""Errors of a silo, under the project's root.

```
SilodpError
├── ModelRefused    (also an InvalidValue) a model that has no per-record gradients, or cannot be averaged
├── Declined        a request the silo will not serve; nothing was computed and nothing charged
├── LawBroken       (also an InvalidValue) a silo.toml that is no law, or not the one its ledger began under
├── ReleaseRefused  an item that may not leave the silo
├── DataUnreadable  a data file that is absent or not of its format
└── WorkerLost      worker processes that cannot train; the round is undone
```
"""

from enum import StrEnum

from accounting import InvalidValue, SilodpError


class ModelRefused(InvalidValue):
    """A model that DP-SGD cannot train; the message says what is allowed instead."""


class Reason(StrEnum):
    """Why a request is declined, for programs; it stands in front of the text of the reply's error."""

    REQUEST = "request"
    """It is not what a message of its kind holds."""
    MODEL = "model"
    """The weights are of no model that the silo trains."""
    WEIGHTS = "weights"
    """The weights are not finite floats, or not what they say they are."""
    NOISE = "noise"
    """Less noise, or a greater clip norm, than the law allows."""
    RATE = "rate"
    """A greater sampling rate than the law allows, or a batch that is not the declared size at that rate."""
    STEPS = "steps"
    """More steps than the law allows."""
    ROUNDS = "rounds"
    """More rounds than the law allows, or than the run declared."""
    UNIT = "unit"
    """Another relation or unit than the law's."""
    RELEASE = "release"
    """Something that the law does not let out."""
    RUN = "run"
    """A run that is not the one the message belongs to, or that changes what it declared."""
    REPLAY = "replay"
    """Another request under a key that is taken, or a release whose bytes are gone."""
    BUDGET = "budget"
    """Too little is left."""
    LAW = "law"
    """The law was changed under its ledger, or the ledger does not hold all that the silo released."""
    DATA = "data"
    """The shard is not the one that the ledger began with."""


class Declined(SilodpError):
    """A request the silo will not serve: nothing was computed, nothing was charged.

    The message goes back to the server, so it names public values only.

    Args:
        message: what is wrong, and what is allowed.
        reason: the same in one word.
    """

    def __init__(self, message: str, reason: Reason = Reason.REQUEST) -> None:
        super().__init__(message)
        self.reason = reason


class LawBroken(InvalidValue):
    """A silo.toml that is no law; the message names the key. It stays inside the silo."""


class ReleaseRefused(SilodpError):
    """An item of a reply that no mechanism priced and no scenario declared public."""


class DataUnreadable(SilodpError):
    """A silo's own data file that is absent or not of its format; the message names the file."""


class WorkerLost(SilodpError):
    """Worker processes that end again and again, or cannot build the model; nothing of their round was released."""
