"""The events file: what was released, as JSON, for people who train elsewhere.

A public contract; `events.schema.json` beside this module says the same in JSON Schema, and a test holds both together.

```json
{"relation": "add-or-remove-one", "delta": 1e-5,
 "silos": {"north": [{"mechanism": "sampled-gaussian", "sampling_rate": 0.01, "noise_multiplier": 1.0,
                      "steps": 500, "round": 1}],
           "south": [{"mechanism": "gaussian", "noise_multiplier": 20.0, "steps": 100}]},
 "membership": {"kind": "disjoint"}}
```

| key | value | when left out |
|---|---|---|
| relation | add-or-remove-one, zero-out, replace-one | required |
| delta, or epsilon in its place | the one that is given; the other is the answer | one is required |
| silos | each silo's releases: a mechanism, its parameters, steps (1), and the round if known | required |
| membership | disjoint; sets, with sets; at-most, with silos; unknown | required |
| unit | record, individual | record |
| records | public cap on the records of one individual in one silo | 1 |
| may-move | beside replace-one: whether the individual may move to other silos | false |
| data-may-react | whether records may change in reaction to releases | false |
| participation-reacts | whether stopping or taking part may; list the declared maximum schedule then | false |

Errors name the place in the document, as in ``silos.north[0].sampling_rate = 1.5: expected in [0, 1].``
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from importlib import resources
from types import NoneType, UnionType
from typing import Literal, Union, cast, get_args, get_origin, get_type_hints

from accounting._errors import InvalidValue, Unsupported
from accounting._federation import Federation
from accounting._guarantee import Guarantee
from accounting._mechanism import Mechanism, mechanism_from_json, mechanisms
from accounting._membership import Membership, membership_from_json
from accounting._questions import DeltaAt, EpsilonAt
from accounting._relations import Relation, Unit
from accounting._release import Release
from accounting._worst import Method

_REQUIRED = {"relation", "silos", "membership"}
_FLAGS = ("may-move", "data-may-react", "participation-reacts")
_KNOWN = _REQUIRED | {"delta", "epsilon", "unit", "records", *_FLAGS}
_UNITS = ("record", "individual")

_SAYS = re.compile(r"Expected (?P<field>\w+)=(?P<value>.+?) (?:to be )?(?P<allowed>(?:in|an|a) .+)", re.DOTALL)
"""How `accounting._validate` words a refusal."""


@dataclass(frozen=True, kw_only=True)
class Events:
    """An events file as it was understood.

    Args:
        federation: the releases under their membership, relation and unit.
        delta, epsilon: the one that was given; the other is None.
    """

    federation: Federation
    delta: float | None = None
    epsilon: float | None = None

    def guarantee(self, method: Method = "auto") -> Guarantee:
        """The answer in full."""
        return self.federation.guarantee(delta=self.delta, epsilon=self.epsilon, method=method)


def account(events: Mapping[str, object], *, method: Method = "auto") -> dict[str, object]:
    """Answer an events file.

    Args:
        events: the parsed JSON document.
        method: ``pld``, ``rdp``, or ``auto``.

    Returns:
        Plain values for `json.dumps`: epsilon (a number, or ``"inf"``), delta, relation, unit, method, upper_bound,
        worst (silos), per_silo (each silo's own epsilon), ladder (the methods side by side, the best first), and
        whatever else `Guarantee.to_json` says.

    Raises:
        InvalidValue: for a document that breaks the contract, naming the place.
        Unsupported: where no theorem licenses an answer.
    """
    understood = parse_events(events)
    guarantee = understood.guarantee(method)
    return guarantee.to_json() | {"ladder": [rung.to_json() for rung in understood.federation.ladder(guarantee.delta)]}


def events_schema() -> str:
    """The JSON Schema of the events file, as text."""
    return resources.files("accounting").joinpath("events.schema.json").read_text(encoding="utf-8")


def parse_events(document: object) -> Events:
    """Read an events file.

    Raises:
        InvalidValue: for a document that breaks the contract, naming the place.
        Unsupported: for a mechanism or unit without a price.
    """
    events = _mapping(document, "the document")
    for key in sorted(_REQUIRED - set(events)):
        raise InvalidValue(f"{key}: missing.")
    for key in sorted(set(events) - _KNOWN):
        raise InvalidValue(f"{key}: unknown key; known: {', '.join(sorted(_KNOWN))}.")
    if ("delta" in events) == ("epsilon" in events):
        raise InvalidValue("Expected either delta or epsilon, and not both.")
    flags = [_flag(events, key) for key in _FLAGS]
    silos = _mapping(events["silos"], "silos")
    if not silos:
        raise InvalidValue("silos: empty.")
    relation = _relation(events["relation"])
    if flags[0] and relation is not Relation.REPLACE_ONE:
        raise InvalidValue(f"may-move = True: needs the relation replace-one, not {relation}.")
    federation = Federation(
        {silo: _releases(releases, f"silos.{silo}") for silo, releases in silos.items()},
        _membership(events["membership"], list(silos)),
        relation,
        _unit(events),
        may_move=flags[0],
        data_may_react=flags[1],
        participation_reacts=flags[2],
    )
    if "delta" in events:
        return Events(federation=federation, delta=_within("delta", events["delta"], EpsilonAt))
    return Events(federation=federation, epsilon=_within("epsilon", events["epsilon"], DeltaAt))


def _within(key: str, value: object, question: type[EpsilonAt] | type[DeltaAt]) -> float:
    number = _number(value, key)
    try:
        question(number)
    except InvalidValue as error:
        raise _placed(error, key) from error
    return number


def _releases(values: object, place: str) -> list[Release]:
    if not isinstance(values, list):
        raise InvalidValue(f"{place} = {values!r}: expected a list of releases.")
    return [_release(value, f"{place}[{index}]") for index, value in enumerate(cast(list[object], values))]


def _release(value: object, place: str) -> Release:
    values = dict(_mapping(value, place))
    if "round" not in values:
        return Release(mechanism=_mechanism(values, place))
    number = values.pop("round")
    if not _is_integer(number) or cast(float, number) < 0:
        raise InvalidValue(f"{place}.round = {number!r}: expected an integer >= 0.")
    return Release(mechanism=_mechanism(values, place), round=int(cast(float, number)))


def _mechanism(values: Mapping[str, object], place: str) -> Mechanism:
    """A mechanism, with any refusal placed in the document."""
    if "mechanism" not in values:
        raise InvalidValue(f"{place}.mechanism: missing.")
    name = values["mechanism"]
    kind = mechanisms().get(name) if isinstance(name, str) else None
    if kind is None:
        raise Unsupported(f"{place}.mechanism = {name!r}: unknown; known: {', '.join(mechanisms())}.")
    hints = get_type_hints(kind)
    known = [field.name for field in fields(kind)]
    for key in values:
        if key not in known and key != "mechanism":
            raise InvalidValue(f"{place}.{key}: unknown field of {name}; known: {', '.join(sorted(known))}.")
    for field in fields(kind):
        if field.name not in values and field.default is MISSING and field.default_factory is MISSING:
            raise InvalidValue(f"{place}.{field.name}: missing.")
    typed = {key: _typed(value, hints[key], f"{place}.{key}") for key, value in values.items() if key != "mechanism"}
    try:
        return mechanism_from_json({"mechanism": name} | typed)
    except InvalidValue as error:
        raise _placed(error, place) from error


def _typed(value: object, hint: object, place: str) -> object:
    """A field's value, if it has the type that the field declares."""
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if value is None and NoneType in options:
        return None
    if isinstance(value, list) and any(get_origin(option) is tuple for option in options):
        items = [(each, f"{place}[{index}]") for index, each in enumerate(cast(list[object], value))]
        return tuple(_mechanism(_mapping(each, where), where) for each, where in items)
    words = any(get_origin(one) is Literal or (isinstance(one, type) and issubclass(one, str)) for one in options)
    if (isinstance(value, str) and words) or (isinstance(value, bool) and bool in options):
        return value
    if float in options and isinstance(value, int | float) and not isinstance(value, bool):
        return _number(value, place)
    if int in options and _is_integer(cast(object, value)):
        return int(cast(float, value))
    raise InvalidValue(f"{place} = {value!r}: expected {_described(options, words)}.")


def _described(options: Sequence[object], words: bool) -> str:
    if float in options:
        return "a number"
    if int in options:
        return "an integer"
    if bool in options:
        return "true or false"
    return "a string" if words else "a list of mechanisms"


def _placed(error: InvalidValue, place: str) -> InvalidValue:
    """The same refusal, with its field as a place in the document."""
    match = _SAYS.fullmatch(str(error))
    if match is None:
        return InvalidValue(f"{place}: {error}")
    where = place if place.endswith(match["field"]) else f"{place}.{match['field']}"
    return InvalidValue(f"{where} = {match['value']}: expected {match['allowed']}")


def _membership(value: object, silos: Sequence[str]) -> Membership:
    try:
        membership = membership_from_json(_mapping(value, "membership"))
        membership.check(silos)
        return membership
    except InvalidValue as error:
        text = str(error)
        raise InvalidValue(text if text.startswith("membership =") else f"membership.{text}") from error


def _relation(value: object) -> Relation:
    if value not in list(Relation):
        raise InvalidValue(f"relation = {value!r}: expected one of {', '.join(Relation)}.")
    return Relation(cast(str, value))


def _unit(events: Mapping[str, object]) -> Unit:
    word, records = events.get("unit", "record"), events.get("records", 1)
    if word == "silo":
        raise Unsupported("unit = 'silo': a guarantee for records says nothing about a whole silo.")
    if word not in _UNITS:
        raise InvalidValue(f"unit = {word!r}: expected one of {', '.join(_UNITS)}.")
    if not _is_integer(records) or cast(float, records) < 1:
        raise InvalidValue(f"records = {records!r}: expected an integer >= 1.")
    if word == "record" and records != 1:
        raise InvalidValue(f"records = {records!r}: the cap belongs to the unit individual.")
    return Unit(individual=word == "individual", records=int(cast(float, records)))


def _flag(events: Mapping[str, object], key: str) -> bool:
    value = events.get(key, False)
    if not isinstance(value, bool):
        raise InvalidValue(f"{key} = {value!r}: expected true or false.")
    return value


def _mapping(value: object, place: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise InvalidValue(f"{place} = {value!r}: expected an object.")
    return cast(Mapping[str, object], value)


def _number(value: object, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidValue(f"{place} = {value!r}: expected a number.")
    try:
        return float(value)
    except OverflowError as error:
        raise InvalidValue(f"{place}: too large.") from error


def _is_integer(value: object) -> bool:
    """As JSON Schema has it: 500.0 is an integer, true is not."""
    if isinstance(value, float):
        return value.is_integer()
    return isinstance(value, int) and not isinstance(value, bool)
