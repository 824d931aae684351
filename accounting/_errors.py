"""Every error of the project descends from one root.

```
SilodpError
├── InvalidValue            (also a ValueError) a parameter outside its range
├── Unsupported             a mechanism, relation, unit or method with no licensed price
├── BudgetExhausted         a release that would overspend; nothing was computed
└── LedgerError             a ledger that cannot be opened, written or trusted
    ├── LedgerCorrupt       a row altered, missing, reordered or cut off
    └── LedgerConflict      a second release under one key, or more steps than charged
```

`silos`, `server` and `scenarios` add their own branches under the same root.
"""


class SilodpError(Exception):
    """Root of the hierarchy: catch this to catch whatever the project raises on purpose."""


class InvalidValue(SilodpError, ValueError):
    """A value outside its allowed range; the message names field, value and range."""


class Unsupported(SilodpError):
    """No theorem we know licenses a number here; the message says what would."""


class BudgetExhausted(SilodpError):
    """A release refused before anything was computed.

    Attributes:
        requested: what the release would spend, in the filter's own unit.
        remaining: what is left, in the same unit.
    """

    def __init__(self, message: str, *, requested: float, remaining: float) -> None:
        super().__init__(message)
        self.requested = requested
        self.remaining = remaining


class LedgerError(SilodpError):
    """The ledger cannot be opened, read or written."""


class LedgerCorrupt(LedgerError):
    """The ledger's rows do not form the chain they claim to form."""


class LedgerConflict(LedgerError):
    """The ledger already holds something else under this key."""
