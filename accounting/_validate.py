"""Range checks whose messages are made from the keyword names."""

import math

from accounting._errors import InvalidValue


def check_in_range(
    *, low: float, high: float, low_open: bool = False, high_open: bool = False, **values: float
) -> None:
    """Refuse any value outside the interval, and nan.

    Args:
        low, high: ends of the allowed interval; either may be infinite.
        low_open, high_open: whether the end itself is refused.
        **values: the values by the name to print.

    Raises:
        InvalidValue: naming the value and the interval, as in ``Expected delta=2 in [0, 1].``
    """
    for name, value in values.items():
        too_low = value <= low if low_open else value < low
        too_high = value >= high if high_open else value > high
        if math.isnan(value) or too_low or too_high:
            interval = f"{'(' if low_open else '['}{low:g}, {high:g}{')' if high_open else ']'}"
            raise InvalidValue(f"Expected {name}={value} in {interval}.")


def check_count(*, low: int = 0, **values: object) -> None:
    """Refuse anything but an integer of at least `low`.

    Raises:
        InvalidValue: as in ``Expected steps=-1 to be an integer >= 0.``
    """
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise InvalidValue(f"Expected {name}={value!r} to be an integer >= {low}.")
