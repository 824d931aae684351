"""From a target (epsilon, delta) to the parameter that meets it and never overshoots.

Each search follows the logarithm of epsilon over the logarithm of the parameter, which is nearly straight, by secants
kept inside a bracket. It starts from the Chernoff bound, which takes a millisecond and lies a little above the PLD.
"""

import contextlib
import math
import warnings
from collections.abc import Callable, Sequence

from accounting._accountant import epsilon as priced_epsilon
from accounting._errors import InvalidValue, Unsupported
from accounting._mechanism import Mechanism
from accounting._parts import directed_parts
from accounting._pld import LossDistribution
from accounting._rdp import OrderGridWarning
from accounting._relations import Relation
from accounting._validate import check_count, check_in_range
from accounting._worst import Method

_ATTEMPTS = 60
_FINEST = 1e-12
"""Relative width of a bracket at which epsilon is taken to jump."""

Cost = Callable[[float], float]


def calibrate_noise_multiplier(
    make: Callable[[float], Sequence[Mechanism]],
    *,
    epsilon: float,
    delta: float,
    relation: Relation,
    method: Method = "auto",
    accuracy: float = 5e-4,
    start: float | None = None,
) -> float:
    """The least noise multiplier whose releases meet (epsilon, delta).

    Args:
        make: the releases at a noise multiplier; more noise must not cost more.
        epsilon: the target, in (0, inf).
        delta: in [0, 1].
        relation: the neighbouring relation.
        method: the accountant, as in `accounting._accountant.epsilon`.
        accuracy: part of the target that may be left unspent, in (0, 1).
        start: a guess, such as the answer for a similar silo.

    Returns:
        A noise multiplier in [1e-3, 1e6] whose epsilon lies in [(1 - accuracy) * epsilon, epsilon]; the least of the
        range where even that costs less.

    Raises:
        InvalidValue: where no noise multiplier up to 1e6 meets the target.
    """

    def at(inverse: float) -> Sequence[Mechanism]:
        return make(1 / inverse)

    guess = 1 / start if start else None
    found = _search(at, 1e-6, 1e3, guess, (epsilon, delta, relation, method, accuracy))
    if found is None:
        raise InvalidValue(f"Expected epsilon={epsilon}, delta={delta} to be in reach of a noise multiplier of 1e6.")
    return 1 / found


def calibrate_sampling_rate(
    make: Callable[[float], Sequence[Mechanism]],
    *,
    epsilon: float,
    delta: float,
    relation: Relation,
    method: Method = "auto",
    accuracy: float = 5e-4,
) -> float:
    """The largest sampling rate, at most 1, whose releases meet (epsilon, delta); 0 where none above 1e-9 does.

    Args:
        make: the releases at a sampling rate; more sampling must not cost less.
        epsilon, delta, relation, method, accuracy: as in `calibrate_noise_multiplier`.
    """
    return _search(make, 1e-9, 1.0, None, (epsilon, delta, relation, method, accuracy)) or 0.0


def calibrate_rounds(
    make: Callable[[int], Sequence[Mechanism]],
    *,
    epsilon: float,
    delta: float,
    relation: Relation,
    method: Method = "auto",
    most: int = 10**6,
) -> int:
    """The largest number of rounds, at most `most`, whose releases meet (epsilon, delta); 0 where not one does.

    Args:
        make: the releases of so many rounds; more rounds must not cost less.
        epsilon, delta, relation, method: as in `calibrate_noise_multiplier`.
        most: an integer >= 1.
    """
    _check(epsilon, delta)
    check_count(low=1, most=most)

    def affordable(rounds: int) -> bool:
        return priced_epsilon(make(rounds), relation=relation, delta=delta, method=method).epsilon <= epsilon

    low, high = 0, 1
    while high <= most and affordable(high):
        low, high = high, min(2 * high, most) if high < most else most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if affordable(middle) else (low, middle)
    return low


def _check(epsilon: float, delta: float) -> None:
    check_in_range(low=0, high=math.inf, low_open=True, high_open=True, epsilon=epsilon)
    check_in_range(low=0, high=1, delta=delta)


def _search(
    make: Callable[[float], Sequence[Mechanism]],
    low: float,
    high: float,
    start: float | None,
    target: tuple[float, float, Relation, Method, float],
) -> float | None:
    """The largest affordable parameter, None where not even `low` is; found first by the Chernoff bound."""
    epsilon, delta, relation, method, accuracy = target
    _check(epsilon, delta)
    check_in_range(low=0, high=1, low_open=True, high_open=True, accuracy=accuracy)

    def cost(value: float) -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OrderGridWarning)
            return priced_epsilon(make(value), relation=relation, delta=delta, method=method).epsilon

    def quick(value: float) -> float:
        return LossDistribution(directed_parts(make(value), relation).remove).chernoff_epsilon(delta)

    if start is None:
        start = math.sqrt(low * high)
        with contextlib.suppress(Unsupported):
            start = _largest(quick, epsilon, low, high, start, 0.05) or start
    return _largest(cost, epsilon, low, high, start, accuracy)


def _largest(cost: Cost, target: float, low: float, high: float, start: float, accuracy: float) -> float | None:
    """The largest value whose cost is at most the target, for a cost that grows; None where that of `low` is more.

    Secants in logarithms, kept inside the bracket; its middle where they leave it or stall. Every value returned has
    been priced and found affordable, also where the attempts run out.
    """
    aim = math.log(target) + math.log1p(-accuracy / 2)
    bottom, top = math.log(low), math.log(high)
    below, above = bottom, top
    x, slope, last = min(max(math.log(start), bottom), top), 1.5, None
    affordable: float | None = None
    for attempt in range(_ATTEMPTS):
        value = min(max(math.exp(x), low), high)
        price = cost(value)
        y = math.log(price) if 0 < price < math.inf else None
        if price > target:
            if x <= bottom:
                return None
            above = x
        else:
            if price >= (1 - accuracy) * target or x >= top or above - x < _FINEST:
                return value
            below, affordable = x, value
        if y is not None and last is not None and x != last[0]:
            slope = min(max((y - last[1]) / (x - last[0]), 0.2), 50.0)
        last = last if y is None else (x, y)
        x = x - 1 if price == math.inf else x + 1
        if y is not None:
            x = last[0] + (aim - y) / slope if last is not None else x
        if not below < x < above:
            one_sided = (below == bottom and x <= bottom) or (above == top and x >= top)
            x = min(max(x, bottom), top) if one_sided else (below + above) / 2
        if attempt % 5 == 4:
            x = (below + above) / 2
    return low if affordable is None and cost(low) <= target else affordable
