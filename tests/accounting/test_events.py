"""The events file: the parser and the JSON Schema accept and refuse the same documents, and answers are right."""

import copy
import json
import math
from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from scipy.optimize import brentq
from scipy.stats import norm

from accounting import (
    Disjoint,
    InvalidValue,
    Relation,
    SilodpError,
    Unsupported,
    account,
    events_schema,
    mechanisms,
    parse_events,
)

Document = dict[str, Any]

SCHEMA = Draft202012Validator(json.loads(events_schema()))

CONTRACT: Document = json.loads("""
{"relation": "add-or-remove-one", "delta": 1e-5,
 "silos": {"north": [{"mechanism": "sampled-gaussian", "sampling_rate": 0.01, "noise_multiplier": 1.0, "steps": 500,
                      "round": 1}],
           "south": [{"mechanism": "gaussian", "noise_multiplier": 20.0, "steps": 100}]},
 "membership": {"kind": "disjoint"}}
""")


def changed(**top: object) -> Document:
    """The contract's own example with other values at the top; None takes a key away."""
    document = copy.deepcopy(CONTRACT) | top
    return {key: value for key, value in document.items() if value is not None}


def north(**values: object) -> Document:
    """The example with other values in the first release of north; None takes a key away."""
    document = copy.deepcopy(CONTRACT)
    release = document["silos"]["north"][0] | values
    document["silos"]["north"][0] = {key: value for key, value in release.items() if value is not None}
    return document


SELECTION = {
    "mechanism": "repeat-and-select",
    "run": [{"mechanism": "gaussian", "noise_multiplier": 2, "steps": 3}, {"mechanism": "laplace", "scale": 2.0}],
    "mean_runs": 10,
    "runs": "poisson",
}

GOOD: dict[str, Document] = {
    "contract": CONTRACT,
    "sets": changed(membership={"kind": "sets", "sets": [["north", "south"], ["south"]]}),
    "at most": changed(membership={"kind": "at-most", "silos": 2}),
    "unknown": changed(membership={"kind": "unknown"}),
    "replaced": changed(relation="replace-one"),
    "moving": changed(**{"relation": "replace-one", "may-move": True}),
    "zero-out": changed(relation="zero-out"),
    "epsilon": changed(delta=None, epsilon=1),
    "individual": changed(unit="individual", records=1),
    "participation": changed(**{"participation-reacts": True}),
    "reacting data": changed(**{"data-may-react": True, "membership": {"kind": "unknown"}}),
    "no release": changed(silos={"north": []}),
    "default steps": north(steps=None, round=None),
    "an integer written as a float": north(steps=500.0, round=1.0),
    "claim": changed(silos={"north": [{"mechanism": "pure-epsilon", "epsilon": 1, "relation": "add-or-remove-one"}]}),
    "selection": changed(silos={"north": [SELECTION]}),
    "optional null": changed(silos={"north": [{"mechanism": "laplace", "scale": 3.0, "replace_sensitivity": None}]}),
}

BAD: dict[str, tuple[Document, str]] = {
    "rate": (north(sampling_rate=1.5), r"silos\.north\[0\]\.sampling_rate = 1\.5: expected in \[0, 1\]"),
    "noise": (north(noise_multiplier=-1), r"silos\.north\[0\]\.noise_multiplier = -1"),
    "text": (north(noise_multiplier="1"), r"silos\.north\[0\]\.noise_multiplier = '1': expected a number"),
    "truth": (north(noise_multiplier=True), r"silos\.north\[0\]\.noise_multiplier = True: expected a number"),
    "half a step": (north(steps=1.5), r"silos\.north\[0\]\.steps = 1\.5: expected an integer"),
    "steps": (north(steps=-3), r"silos\.north\[0\]\.steps = -3: expected an integer >= 0"),
    "round": (north(round=-1), r"silos\.north\[0\]\.round = -1: expected an integer >= 0"),
    "field": (north(sigma=2.0), r"silos\.north\[0\]\.sigma: unknown field of sampled-gaussian; known: .*noise_mult"),
    "missing field": (north(sampling_rate=None), r"silos\.north\[0\]\.sampling_rate: missing"),
    "missing mechanism": (north(mechanism=None), r"silos\.north\[0\]\.mechanism: missing"),
    "mechanism": (north(mechanism="magic"), r"silos\.north\[0\]\.mechanism = 'magic': unknown; known: .*gaussian"),
    "release": (changed(silos={"north": [3]}), r"silos\.north\[0\] = 3: expected an object"),
    "releases": (changed(silos={"north": {}}), r"silos\.north = {}: expected a list of releases"),
    "silos": (changed(silos=[]), r"silos = \[\]: expected an object"),
    "no silo": (changed(silos={}), "silos: empty"),
    "nested": (
        changed(silos={"north": [SELECTION | {"run": [{"mechanism": "gaussian", "noise_multiplier": -2}]}]}),
        r"silos\.north\[0\]\.run\[0\]\.noise_multiplier = -2",
    ),
    "law": (changed(silos={"north": [SELECTION | {"runs": "lucky"}]}), r"silos\.north\[0\]\.runs = 'lucky'"),
    "relation": (
        changed(relation="swap"),
        "relation = 'swap': expected one of add-or-remove-one, zero-out, replace-one",
    ),
    "no relation": (changed(relation=None), "relation: missing"),
    "no membership": (changed(membership=None), "membership: missing"),
    "kind": (changed(membership={"kind": "some"}), r"membership\.kind = 'some': expected one of disjoint"),
    "cap": (changed(membership={"kind": "at-most", "silos": 0}), r"membership\.silos = 0: expected an integer >= 1"),
    "no cap": (changed(membership={"kind": "at-most"}), r"membership\.silos: missing"),
    "sets": (changed(membership={"kind": "sets", "sets": [[]]}), r"membership\.sets\[0\] = \[\]"),
    "membership key": (changed(membership={"kind": "unknown", "silos": 2}), r"membership\.silos: unknown key"),
    "membership": (changed(membership="disjoint"), "membership = 'disjoint': expected an object"),
    "both": (changed(epsilon=1.0), "either delta or epsilon"),
    "neither": (changed(delta=None), "either delta or epsilon"),
    "delta": (changed(delta=2), r"delta = 2(\.0)?: expected in \[0, 1\]"),
    "epsilon": (changed(delta=None, epsilon=-1), r"epsilon = -1(\.0)?: expected in \[0, inf\]"),
    "delta text": (changed(delta="1e-5"), "delta = '1e-5': expected a number"),
    "key": (changed(relations="x"), "relations: unknown key; known: .*relation"),
    "unit": (changed(unit="person"), "unit = 'person': expected one of record, individual"),
    "silo as unit": (changed(unit="silo"), "unit = 'silo'"),
    "records": (changed(records=2), "records = 2: the cap belongs to the unit individual"),
    "flag": (changed(**{"may-move": 1}), "may-move = 1: expected true or false"),
    "moving without replacing": (changed(**{"may-move": True}), "may-move = True: needs the relation replace-one"),
}

BEYOND_THE_SCHEMA: dict[str, tuple[Document, str]] = {
    "set of strangers": (
        changed(membership={"kind": "sets", "sets": [["north", "south"], ["east"]]}),
        r"membership\.sets: silo 'east' has no releases",
    ),
    "silo in no set": (
        changed(membership={"kind": "sets", "sets": [["north"]]}),
        r"membership\.sets: silo 'south' is in no declared set",
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_good_documents_pass_both(name: str) -> None:
    SCHEMA.validate(GOOD[name])
    parse_events(GOOD[name])


@pytest.mark.parametrize("name", BAD)
def test_bad_documents_fail_both_and_the_parser_names_the_place(name: str) -> None:
    document, message = BAD[name]
    assert not SCHEMA.is_valid(document)
    with pytest.raises((InvalidValue, Unsupported), match=message):
        parse_events(document)


@pytest.mark.parametrize("name", BEYOND_THE_SCHEMA)
def test_silos_of_sets_are_checked_by_the_parser(name: str) -> None:
    document, message = BEYOND_THE_SCHEMA[name]
    with pytest.raises(InvalidValue, match=message):
        parse_events(document)


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(json.loads(events_schema()))


def test_the_schema_knows_every_mechanism_and_its_fields() -> None:
    definitions = json.loads(events_schema())["$defs"]
    assert set(definitions["release"]["properties"]["mechanism"]["enum"]) == set(mechanisms())
    for name, kind in mechanisms().items():
        required = {
            field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING
        }
        assert set(definitions[name]["properties"]) == {field.name for field in fields(kind)} | {"mechanism"}, name
        assert set(definitions[name]["required"]) == required | {"mechanism"}, name


def places(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place inside a document."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield (*path, key)
        yield from places(child, (*path, key))


FUZZED = [GOOD[name] for name in ("contract", "at most", "moving", "epsilon", "individual", "claim", "selection")]

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.floats(-3, 3),
    st.sampled_from(["record", "zero-out", "unknown", "gaussian", "poisson", "silo", [], {}, 0.5, 2.0]),
)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_whatever_one_value_becomes_parser_and_schema_agree(data: st.DataObject) -> None:
    document = copy.deepcopy(data.draw(st.sampled_from(FUZZED)))
    path = data.draw(st.sampled_from(list(places(document))))
    inside: Any = document
    for key in path[:-1]:
        inside = inside[key]
    if data.draw(st.booleans()):
        inside[path[-1]] = data.draw(VALUES)
    elif isinstance(inside, dict):
        inside[data.draw(st.sampled_from(["more", "steps", "records", "relation"]))] = data.draw(VALUES)
    else:
        del inside[path[-1]]
    try:
        parse_events(document)
        accepted = True
    except InvalidValue:
        accepted = False
    except Unsupported as error:
        accepted = " = " not in str(error)
    assert accepted == SCHEMA.is_valid(document)


def epsilon_of_mu(mu: float, delta: float) -> float:
    """Balle, Wang 2018, Theorem 8, solved for epsilon."""
    return float(
        brentq(
            lambda e: norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu) - delta, 0, 60, xtol=1e-12
        )
    )


def gaussians(**top: object) -> Document:
    """Two silos of Gaussians: mu = 0.5 over four steps of 0.25, and mu = 0.2."""
    return {
        "relation": "add-or-remove-one",
        "delta": 1e-5,
        "silos": {
            "north": [{"mechanism": "gaussian", "noise_multiplier": 4.0, "steps": 4, "round": 1}],
            "south": [{"mechanism": "gaussian", "noise_multiplier": 5.0, "round": 1}],
        },
        "membership": {"kind": "disjoint"},
    } | top


@pytest.mark.parametrize(
    ("top", "mu", "worst"),
    [
        ({}, 0.5, {"north"}),
        ({"membership": {"kind": "unknown"}}, math.sqrt(0.29), {"north", "south"}),
        ({"membership": {"kind": "at-most", "silos": 2}}, math.sqrt(0.29), {"north", "south"}),
        ({"membership": {"kind": "sets", "sets": [["north"], ["south"]]}}, 0.5, {"north"}),
        ({"relation": "replace-one"}, 1.0, {"north"}),
        ({"relation": "replace-one", "may-move": True}, 1.0, {"north"}),
    ],
)
def test_answers_are_the_closed_form(top: Document, mu: float, worst: set[str]) -> None:
    answer = account(gaussians(**top))
    assert answer["epsilon"] == pytest.approx(epsilon_of_mu(mu, 1e-5), rel=1e-3)
    assert set(answer["worst"]) == worst
    factor = 2 if "replace-one" in top.values() else 1
    assert answer["per_silo"]["north"] == pytest.approx(epsilon_of_mu(0.5 * factor, 1e-5), rel=1e-3)


def test_the_answer_has_what_the_contract_says_and_is_json() -> None:
    answer = account(CONTRACT)
    keys = {"epsilon", "delta", "relation", "unit", "method", "upper_bound", "worst", "per_silo", "ladder"}
    assert keys <= set(answer)
    assert (answer["delta"], answer["relation"], answer["unit"]) == (1e-5, "add-or-remove-one", "record")
    assert (answer["method"], answer["upper_bound"]) == ("pld", False)
    assert answer["ladder"][0]["method"] == "parallel"
    assert answer["ladder"][0]["epsilon"] == answer["epsilon"]
    json.dumps(answer, allow_nan=False)


def test_epsilon_in_place_of_delta_gives_the_delta() -> None:
    document = gaussians(epsilon=1.0)
    del document["delta"]
    answer = account(document)
    truth = norm.cdf(0.25 - 2) - math.e * norm.cdf(-0.25 - 2)
    assert truth <= answer["delta"] <= 1.01 * truth
    assert answer["epsilon"] == 1.0


def test_an_infinite_epsilon_is_the_word_inf() -> None:
    answer = account(changed(silos={"north": [{"mechanism": "non-private"}]}))
    assert answer["epsilon"] == "inf"
    assert "no guarantee" in answer["sentence"]
    json.dumps(answer, allow_nan=False)


def test_the_method_can_be_chosen() -> None:
    by_renyi = account(CONTRACT, method="rdp")
    assert (by_renyi["method"], by_renyi["upper_bound"]) == ("rdp", True)
    assert by_renyi["epsilon"] > account(CONTRACT)["epsilon"]


def test_data_that_react_refuse_the_max_rule() -> None:
    with pytest.raises(Unsupported, match=r"2411\.03299"):
        account(changed(**{"data-may-react": True}))


def test_what_was_read_is_what_was_written() -> None:
    events = parse_events(GOOD["contract"])
    assert events.federation.membership == Disjoint()
    assert events.federation.relation is Relation.ADD_OR_REMOVE_ONE
    ((release,), _) = events.federation.releases().values()
    assert (
        release.mechanism.to_json()
        == mechanisms()["sampled-gaussian"](sampling_rate=0.01, noise_multiplier=1.0, steps=500).to_json()
    )
    assert release.round == 1


@pytest.mark.parametrize("document", [None, 3, "events", [CONTRACT]])
def test_anything_but_an_object_is_refused(document: object) -> None:
    with pytest.raises(SilodpError, match="the document"):
        parse_events(document)
