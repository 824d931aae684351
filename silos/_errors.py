"""Errors of a silo, under the project's root.

```
SilodpError
├── ModelRefused    (also an InvalidValue) a model that has no per-record gradients, or cannot be averaged
├── Declined        a request the silo will not serve; nothing was computed and nothing charged
├── ReleaseRefused  an item that may not leave the silo
└── DataUnreadable  a data file that is absent or not of its format
```
"""

from accounting import InvalidValue, SilodpError


class ModelRefused(InvalidValue):
    """A model that DP-SGD cannot train; the message says what is allowed instead."""


class Declined(SilodpError):
    """A request the silo will not serve: nothing was computed, nothing was charged.

    The message goes back to the server, so it names public values only.
    """


class ReleaseRefused(SilodpError):
    """An item of a reply that no mechanism priced and no scenario declared public."""


class DataUnreadable(SilodpError):
    """A silo's own data file that is absent or not of its format; the message names the file."""
