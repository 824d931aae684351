"""Guarantee: what a whole run gave away, with everything one must know to read the number.

An epsilon alone says nothing. A guarantee carries its delta, unit, relation, method, scope and assumptions, what is
not covered, and the head hashes of the ledgers it was computed from, so that a ledger that was cut off later no
longer matches. Guarantees are never composed; ledgers are.
"""

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context, Decimal
from typing import cast

from accounting._errors import InvalidValue
from accounting._relations import Relation, Unit
from accounting._validate import check_in_range

SCOPE = "the server together with all silos that do not hold it, seeing every released byte"
"""Whose view the guarantee bounds; "it" is the unit."""

ASSUMPTIONS = (
    "The adversary is the server together with all silos that do not hold the unit, and sees every released byte.",
    "Sampled sets, realised batch sizes, timing, crashes and memory stay inside the silo.",
    "What a silo carries from round to round is public or computed from charged outputs.",
    "Noise is fresh and never shared between silos or rounds.",
)

ORACLE = "a held-out test set used as an oracle"
"""Said unless no oracle was used."""

NOT_COVERED = (
    "side channels: timing, crashes, memory",
    "hyper-parameters tuned on private data outside the ledger",
    ORACLE,
    "floating-point noise from a research generator",
)

_VERBS = {
    Relation.ADD_OR_REMOVE_ONE: "adding or removing",
    Relation.ZERO_OUT: "blanking out",
    Relation.REPLACE_ONE: "replacing",
}

_METHODS = {"pld": "privacy loss distributions (PLD)", "rdp": "Renyi divergences (RDP)"}


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """(epsilon, delta)-differential privacy of everything that was released.

    Args:
        epsilon: in [0, inf]; inf means that there is no guarantee at this delta.
        delta: in [0, 1].
        unit: what is protected.
        relation: how neighbouring datasets differ.
        membership: which silos may hold the unit, as a sentence.
        method: ``pld`` or ``rdp``.
        upper_bound: whether the number may be well above what the composition of the same releases really gives; False
            for PLD of every exposure, whose epsilon is rounded up by 0.1% or so, and its delta by 1% or so.
        worst: the silos of the worst exposure; the worst known one, where the number is an upper bound.
        moved: whether the worst exposure is a move from one silo to another.
        per_silo: each silo's own epsilon at the same delta.
        void: why there is no guarantee, where someone chose so, such as exact statistics that were released.
        scope: whose view is bounded.
        assumptions: what must hold for the number to be true.
        not_covered: what the number does not speak of; the sentence names what is not in `NOT_COVERED` anyway.
        heads: head hash of each silo's ledger, where the releases came from one.
    """

    epsilon: float
    delta: float
    unit: Unit
    relation: Relation
    membership: str
    method: str
    upper_bound: bool
    worst: tuple[str, ...]
    per_silo: Mapping[str, float]
    moved: bool = False
    void: str = ""
    scope: str = SCOPE
    assumptions: tuple[str, ...] = ASSUMPTIONS
    not_covered: tuple[str, ...] = NOT_COVERED
    heads: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        check_in_range(low=0, high=math.inf, epsilon=self.epsilon)
        check_in_range(low=0, high=1, delta=self.delta)
        if self.method not in _METHODS:
            raise InvalidValue(f"Expected method={self.method!r} to be one of {', '.join(_METHODS)}.")

    def sentence(self) -> str:
        """The guarantee in plain English; every word of it holds under the assumptions.

        The printed epsilon and factor are rounded up, never down.
        """
        verb = _VERBS[self.relation]
        what = f"any one {self.unit}"
        method = _METHODS[self.method] + ", an upper bound" * self.upper_bound
        where = self.membership[:1].lower() + self.membership[1:].rstrip(".")
        end = f"Relation: {self.relation}; unit: {self.unit}; {where}; method: {method}; {self._worst_phrase()}."
        if math.isinf(self.epsilon) or self.delta >= 1:
            shown = "1" if self.delta >= 1 else round_up(self.delta, 6)
            why = " it allows any outcome at all" if self.delta >= 1 else " no finite epsilon is proven here"
            why += f". The run is not private: {self.void}" if self.void else ""
            return f"There is no guarantee for {what}: at delta = {shown}{why}. {end}{self._beyond()}"
        factor = round_up(math.exp(self.epsilon), 3) if self.epsilon < 6.9 else f"e^{round_up(self.epsilon, 4)}"
        plus = "" if self.delta == 0 else f", plus {round_up(self.delta, 6)}"
        return (
            f"For {what}, and for anything that {self.scope}, could observe: {verb} that {self._noun} makes it at most "
            f"{factor} times as probable{plus} (epsilon = {round_up(self.epsilon, 4)}, "
            f"delta = {round_up(self.delta, 6)}). {end}{self._beyond()}"
        )

    def _beyond(self) -> str:
        """What this guarantee does not cover and others do."""
        own = [line for line in self.not_covered if line not in NOT_COVERED]
        return f" Not covered: {'; '.join(own)}." if own else ""

    @property
    def _noun(self) -> str:
        return "individual" if self.unit.individual else "record"

    def _worst_phrase(self) -> str:
        if not self.worst:
            return "nothing was released"
        names = ", ".join(self.worst)
        if self.moved:
            return f"worst case: a move among silos {names}"
        return f"worst case: silo{'s' if len(self.worst) > 1 else ''} {names}"

    def to_json(self) -> dict[str, object]:
        """Plain values for `json.dumps`; an infinite epsilon is the string ``"inf"``, as JSON has no such number."""
        return {
            "epsilon": number_to_json(self.epsilon),
            "delta": self.delta,
            "unit": str(self.unit),
            "relation": str(self.relation),
            "membership": self.membership,
            "method": self.method,
            "upper_bound": self.upper_bound,
            "worst": list(self.worst),
            "moved": self.moved,
            "void": self.void,
            "per_silo": {silo: number_to_json(epsilon) for silo, epsilon in self.per_silo.items()},
            "scope": self.scope,
            "assumptions": list(self.assumptions),
            "not_covered": list(self.not_covered),
            "heads": dict(self.heads),
            "sentence": self.sentence(),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, object]) -> "Guarantee":
        """The inverse of `to_json`.

        Raises:
            InvalidValue: for a missing key or a value of the wrong kind.
        """
        try:
            per_silo = cast(Mapping[str, float | str], values["per_silo"])
            return cls(
                epsilon=float(cast(float | str, values["epsilon"])),
                delta=float(cast(float, values["delta"])),
                unit=Unit.parse(cast(str, values["unit"])),
                relation=Relation(cast(str, values["relation"])),
                membership=str(values["membership"]),
                method=str(values["method"]),
                upper_bound=bool(values["upper_bound"]),
                worst=tuple(cast(Sequence[str], values["worst"])),
                moved=bool(values["moved"]),
                void=str(values["void"]),
                per_silo={silo: float(epsilon) for silo, epsilon in per_silo.items()},
                scope=str(values["scope"]),
                assumptions=tuple(cast(Sequence[str], values["assumptions"])),
                not_covered=tuple(cast(Sequence[str], values["not_covered"])),
                heads=dict(cast(Mapping[str, str], values["heads"])),
            )
        except KeyError as error:
            raise InvalidValue(f"Guarantee without {error.args[0]!r}.") from error
        except (TypeError, AttributeError) as error:
            raise InvalidValue(f"Guarantee of the wrong shape: {error}.") from error

    def table(self) -> list[tuple[str, str, str]]:
        """Rows of silo, epsilon and head hash, worst first."""
        ordered = sorted(self.per_silo.items(), key=lambda item: (-item[1], item[0]))
        return [(silo, round_up(epsilon, 4), self.heads.get(silo, "")) for silo, epsilon in ordered]

    def _repr_html_(self) -> str:
        def items(lines: Sequence[str]) -> str:
            return "".join(f"<li>{html.escape(line)}</li>" for line in lines)

        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in self.table()
        )
        return (
            f"<p>{html.escape(self.sentence())}</p>"
            f"<table><thead><tr><th>silo</th><th>epsilon</th><th>ledger head</th></tr></thead><tbody>{rows}</tbody>"
            f"</table><p>Assumed:</p><ul>{items(self.assumptions)}</ul>"
            f"<p>Not covered:</p><ul>{items(self.not_covered)}</ul>"
        )


def number_to_json(value: float) -> float | str:
    """The number itself, or ``"inf"``."""
    return "inf" if math.isinf(value) else value


def round_up(value: float, digits: int) -> str:
    """The value rounded up to some significant digits, never down, as every printed epsilon and delta must be.

    Args:
        value: in [0, inf].
        digits: at least 1.

    >>> from accounting import round_up
    >>> round_up(1.23401, 4)
    '1.235'
    """
    if math.isinf(value):
        return "inf"
    rounded = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(Decimal(repr(value)))
    return f"{float(rounded):.{digits}g}"
