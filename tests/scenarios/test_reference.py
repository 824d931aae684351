"""The page of scenario keys says what the keys say."""

import re
from pathlib import Path

from scenarios import load, make_plan, prepare, public_sizes
from scenarios.spec._reference import reference

PAGE = Path(__file__).parents[2] / "docs" / "scenarios.md"


def test_the_page_is_what_the_keys_say() -> None:
    assert PAGE.read_text("utf-8") == reference(), "python -m scenarios.spec._reference > docs/scenarios.md"


def test_every_key_has_a_description() -> None:
    rows = [line.split(" | ") for line in reference().splitlines() if line.startswith("| `")]
    assert len(rows) > 50
    assert all(row[2].removesuffix(" |").strip() for row in rows)


def test_the_example_loads_and_plans(tmp_path: Path) -> None:
    rows = [
        f"p{n},{n % 90},{'fm'[n % 2]},{'north' if n % 3 else 'south'},{'yes' if n % 5 else 'no'}" for n in range(300)
    ]
    (tmp_path / "people.csv").write_text("\n".join(["id,age,sex,hospital,sick", *rows]))
    (tmp_path / "example.toml").write_text(re.findall(r"```toml\n(.*?)```", reference(), re.DOTALL)[0])
    scenario = load(tmp_path / "example.toml")
    plan = make_plan(scenario, public_sizes(scenario, prepare(scenario)))
    assert [part.silo for part in plan.silos] == ["north", "south"]
    assert 1.99 < plan.epsilon <= 2.0
