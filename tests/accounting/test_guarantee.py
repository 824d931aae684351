"""A guarantee says what it knows, and nothing that is not so."""

import json
import math
import re
from dataclasses import replace

import pytest

from accounting import (
    AtMost,
    Disjoint,
    Federation,
    Gaussian,
    Guarantee,
    InvalidValue,
    Membership,
    Relation,
    Sets,
    Unit,
    Unknown,
    round_up,
)

EXAMPLE = Guarantee(
    epsilon=1.23456,
    delta=1e-5,
    unit=Unit(),
    relation=Relation.ADD_OR_REMOVE_ONE,
    membership="The unit is in one silo only.",
    method="pld",
    upper_bound=False,
    worst=("north",),
    per_silo={"north": 1.23456, "south": 0.5},
    heads={"north": "ab" * 32, "south": "cd" * 32},
)


@pytest.mark.parametrize("epsilon", [0.0, 1.23456, 812.0, math.inf])
def test_json_gives_the_same_guarantee_back(epsilon: float) -> None:
    guarantee = replace(EXAMPLE, epsilon=epsilon, unit=Unit(individual=True, records=3), worst=("north", "south"))
    text = json.dumps(guarantee.to_json(), allow_nan=False)
    assert Guarantee.from_json(json.loads(text)) == guarantee


def test_the_sentence_names_unit_relation_method_scope_and_numbers() -> None:
    sentence = EXAMPLE.sentence()
    for part in ("any one record", "adding or removing", "add-or-remove-one", "PLD", "silo north", "1e-05", "1.235"):
        assert part in sentence
    assert "the server together with all silos that do not hold it" in sentence
    assert "every released byte" in sentence


@pytest.mark.parametrize(
    ("membership", "said"),
    [
        (Disjoint(), "; the unit is in one silo only; "),
        (AtMost(2), "; the unit is in at most 2 silos; "),
        (Sets([["a", "b"]]), "; the unit is in silos of one declared set only (a, b); "),
        (Unknown(), "; nothing is assumed about which silos hold the unit; "),
    ],
)
@pytest.mark.parametrize("sigma", [0.0, 1.0])
def test_the_sentence_says_which_silos_may_hold_the_unit(membership: Membership, said: str, sigma: float) -> None:
    silos = {silo: [Gaussian(noise_multiplier=sigma)] for silo in ("a", "b")}
    assert said in Federation(silos, membership, Relation.ADD_OR_REMOVE_ONE).guarantee(delta=1e-5).sentence()


@pytest.mark.parametrize("epsilon", [0.0, 0.01234567, 1.23456, 6.8999, 9.87654, 123.456])
def test_no_number_of_the_sentence_is_rounded_down(epsilon: float) -> None:
    sentence = replace(EXAMPLE, epsilon=epsilon).sentence()
    shown = re.search(r"at most (\S+) times .* \(epsilon = (\S+),", sentence)
    assert shown is not None
    factor, printed = shown.groups()
    assert epsilon <= float(printed) <= epsilon * 1.001
    if factor.startswith("e^"):
        assert float(factor[2:]) >= epsilon
    else:
        assert math.exp(epsilon) <= float(factor) <= 1.01 * math.exp(epsilon)


@pytest.mark.parametrize("relation", list(Relation))
def test_a_record_is_never_called_an_individual(relation: Relation) -> None:
    guarantee = replace(EXAMPLE, relation=relation)
    assert "individual" not in guarantee.sentence()
    federation = Federation({"a": [Gaussian(noise_multiplier=1.0)]}, Disjoint(), relation)
    assert "individual" not in json.dumps(federation.guarantee(delta=1e-5).to_json())


def test_an_individual_is_named_with_its_cap_on_records() -> None:
    assert (
        "any one individual with at most 4 records per silo"
        in replace(EXAMPLE, unit=Unit(individual=True, records=4)).sentence()
    )


def test_an_infinite_epsilon_says_that_there_is_no_guarantee() -> None:
    sentence = replace(EXAMPLE, epsilon=math.inf).sentence()
    assert "no guarantee" in sentence
    assert "times as probable" not in sentence
    assert "no guarantee" in replace(EXAMPLE, epsilon=0.0, delta=1.0).sentence()


def test_an_upper_bound_is_called_one() -> None:
    assert "upper bound" in replace(EXAMPLE, method="rdp", upper_bound=True).sentence()
    assert "upper bound" not in EXAMPLE.sentence()


def test_assumptions_of_the_design_are_listed() -> None:
    federation = Federation({"a": [Gaussian(noise_multiplier=1.0)]}, Disjoint(), Relation.ADD_OR_REMOVE_ONE)
    assumptions = " ".join(federation.guarantee(delta=1e-5).assumptions)
    for part in ("adversary", "fixed before round 1", "stay inside the silo", "round to round", "one silo", "executed"):
        assert part in assumptions
    reacting = replace(federation, participation_reacts=True).guarantee(delta=1e-5).assumptions
    assert any("declared maximum" in line for line in reacting)
    assert not any("independently" in line for line in reacting)


def test_a_notebook_shows_the_table_of_silos_worst_first_and_escaped() -> None:
    shown = replace(EXAMPLE, per_silo={"<b>": 0.5, "north": 1.0}, worst=("<b>",))._repr_html_()
    assert "<b>" not in shown
    assert shown.index("<td>north</td>") < shown.index("<td>&lt;b&gt;</td>")
    assert EXAMPLE.table()[0] == ("north", "1.235", "ab" * 32)


@pytest.mark.parametrize("change", [{"epsilon": -1.0}, {"epsilon": math.nan}, {"delta": 1.5}, {"method": "magic"}])
def test_values_out_of_range_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(InvalidValue, match=next(iter(change))):
        replace(EXAMPLE, **change)


def test_a_document_of_another_shape_is_refused() -> None:
    document = EXAMPLE.to_json()
    for key in set(document) - {"sentence"}:
        with pytest.raises(InvalidValue, match=key):
            Guarantee.from_json({name: value for name, value in document.items() if name != key})
    with pytest.raises(InvalidValue):
        Guarantee.from_json(document | {"per_silo": 3})


def test_exactly_one_of_delta_and_epsilon_is_asked_for() -> None:
    federation = Federation({"a": [Gaussian(noise_multiplier=1.0)]}, Disjoint(), Relation.ADD_OR_REMOVE_ONE)
    for both in ({}, {"delta": 1e-5, "epsilon": 1.0}):
        with pytest.raises(InvalidValue, match="either delta or epsilon"):
            federation.guarantee(**both)


@pytest.mark.parametrize("asked", [{"epsilon": math.inf}, {"delta": 0.0}])
def test_no_guarantee_does_not_say_that_none_exists(asked: dict[str, float]) -> None:
    """An epsilon asked for as infinite, or one that the accountant cannot bound, proves nothing of the release."""
    federation = Federation({"a": [Gaussian(noise_multiplier=1.0)]}, Disjoint(), Relation.ADD_OR_REMOVE_ONE)
    sentence = federation.guarantee(**asked).sentence()
    assert "no finite epsilon is proven here" in sentence
    assert "bounds what was released" not in sentence


@pytest.mark.parametrize("value", [0.0, 1e-300, 0.1, 0.12344999, 0.999951, 2 / 3, 12345.678, math.inf])
@pytest.mark.parametrize("digits", [1, 4, 6])
def test_rounding_up_never_rounds_down_nor_far(value: float, digits: int) -> None:
    shown = float(round_up(value, digits))
    assert value <= shown
    assert math.isinf(value) or shown <= value * (1 + 10 ** (1 - digits))
