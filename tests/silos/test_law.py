"""A law is read whole or not at all, and what is wrong with it is told by key and value."""

import math
from pathlib import Path

import pytest
from lying import TOML

import silos._law
from accounting import Relation, SampledGaussian, epsilon
from silos._errors import LawBroken, Reason
from silos._law import BudgetLaw, EngineLaw, InsecureTestSeed, Law, Limits, SiloData


@pytest.mark.parametrize(
    ("written", "instead", "told"),
    [
        ('name = "north"', "", r"silo\.toml: name: Field required"),
        ('name = "north"', 'name = ""', r"name = '': .*at least 1"),
        ("rounds = 4", "rounds = 0", r"limits\.rounds = 0: .*greater than or equal to 1"),
        ("rounds = 4", "rounds = 4.0", r"limits\.rounds = 4\.0: .*valid integer"),
        ("noise_multiplier = 1.5", "noise_multiplier = -1", r"limits\.noise_multiplier = -1"),
        ("noise_multiplier = 1.5", "noise_multiplier = nan", r"limits\.noise_multiplier = nan: .*finite"),
        ("noise_multiplier = 1.5", "noise = 1.5", r"limits\.noise = 1\.5: .*not permitted"),
        ("delta = 1e-5", "delta = 0", r"budget\.delta = 0: .*greater than 0"),
        ("epsilon = 6.0", "epsilon = nan", r"budget\.epsilon = nan"),
        ('task = "binary"', 'task = "multiclass"', r"data: classes goes with task"),
        ('kind = "linear"', 'kind = "os.system"', r"models\.0\.kind = 'os\.system'"),
        ('relation = "add-or-remove-one"', 'relation = "whatever"', r"relation = 'whatever'"),
        ("[data]", "records = 3\n[data]", r"the law: records goes with unit"),
        ("[data]", 'releases = ["size"]\n[data]', r"releases\.0 = 'size'"),
        ("[data]", 'releases = ["update", "loss"]\n[data]', r"data\.held_out names"),
        ("[data]", 'membership = "at-most:0"\n[data]', r"membership = 'at-most:0'"),
        ("steps = 3", 'steps = 3\nsampling = "individuals"', r"the law: limits\.sampling"),
        ("[limits]", "[limits", r"is not valid TOML"),
    ],
)
def test_a_law_that_is_none_is_refused_by_its_key(written: str, instead: str, told: str) -> None:
    assert TOML.count(written) == 1
    with pytest.raises(LawBroken, match=told):
        Law.parse(TOML.replace(written, instead))


def test_a_law_written_down_is_the_same_law() -> None:
    example = (silos._law.__doc__ or "").split("```")[1].removeprefix("toml")
    for text in (TOML, example, TOML.replace("epsilon = 6.0", "epsilon = inf")):
        law = Law.parse(text)
        assert Law.parse(law.to_toml()) == law


def test_a_law_that_is_not_there_is_told_by_its_path(tmp_path: Path) -> None:
    with pytest.raises(LawBroken, match=r"silo\.toml: cannot be read"):
        Law.read(tmp_path / "silo.toml")


def test_the_filter_admits_what_another_accountant_prices_within_the_budget_and_not_twice_that() -> None:
    law = Law.parse(TOML)
    limit, paid = law.filter(), []
    round = SampledGaussian(sampling_rate=0.2, noise_multiplier=1.5, steps=3)
    while limit.spent([*paid, round]) <= limit.total:
        paid.append(round)
    price = epsilon(paid, relation=Relation.ADD_OR_REMOVE_ONE, delta=law.budget.delta, method="pld").epsilon
    assert law.budget.epsilon / 2 < price <= law.budget.epsilon


def test_a_budget_that_no_release_fits_in_is_no_law() -> None:
    with pytest.raises(LawBroken, match=r"budget\.epsilon = 1e-12"):
        Law.parse(TOML.replace("epsilon = 6.0", "epsilon = 1e-12")).filter()
    assert Law.parse(TOML.replace("epsilon = 6.0", "epsilon = 0.0")).filter().total == 0
    assert math.isinf(Law.parse(TOML.replace("epsilon = 6.0", "epsilon = inf")).filter().total)


def test_the_reference_names_every_key_and_every_reason() -> None:
    page = (Path(silos._law.__file__).parents[1] / "docs" / "silo-law.md").read_text("utf-8")
    sections = {"data": SiloData, "budget": BudgetLaw, "limits": Limits, "engine": EngineLaw}
    sections["insecure_test_seed"] = InsecureTestSeed
    keys = set(Law.model_fields) - set(sections)
    keys |= {f"{name}.{key}" for name, section in sections.items() for key in section.model_fields}
    assert [key for key in sorted(keys) if f"`{key}`" not in page] == []
    assert [word for word in Reason if f"| `{word}` |" not in page] == []
    assert Law.parse(page.split("```toml\n")[1].split("```")[0]).name == "north"
