"""What every test needs: a small real-looking table of two kinds of silos, and a scenario over it."""

import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # as the command line does, before numpy is loaded

import numpy as np
import pandas as pd
import pytest

SCENARIO = """
seed = 3

[data]
source = "csv:people.csv"
task = "binary"
individual = "id"
label = { column = "sick", positive = 1 }

[data.features]
age = { low = 20, high = 80 }
dose = { low = -3, high = 3 }
sex = { categories = ["f", "m"] }

[silos]
column = "hospital"

[model]
kind = "mlp"
hidden = [4]

[training]
rounds = 4
local_steps = 3
sampling_rate = 0.3
learning_rate = 0.5

[privacy]
epsilon = 2.0
delta = 1e-3
relation = "zero-out"
"""


def people(records: int = 240, seed: int = 0) -> pd.DataFrame:
    """Three hospitals of unequal sizes; being sick depends on age and dose."""
    generator = np.random.default_rng(seed)
    age, dose = generator.integers(20, 81, records), generator.normal(size=records)
    logits = (age - 50) / 10 + dose
    return pd.DataFrame(
        {
            "id": [f"p{number}" for number in range(records)],
            "hospital": generator.choice(["north", "south", "west"], records, p=[0.5, 0.3, 0.2]),
            "age": age,
            "dose": dose,
            "sex": generator.choice(["f", "m"], records),
            "sick": (generator.random(records) < 1 / (1 + np.exp(-logits))).astype(int),
        }
    )


@pytest.fixture
def scenario_file(tmp_path: Path) -> Path:
    """The scenario above beside its table, in a folder of its own."""
    return _written(tmp_path / "hospitals")


@pytest.fixture(scope="module")
def module_scenario_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, for what the tests of a module share."""
    return _written(tmp_path_factory.mktemp("module") / "hospitals")


def _written(folder: Path) -> Path:
    folder.mkdir()
    people().to_csv(folder / "people.csv", index=False)
    path = folder / "hospitals.toml"
    path.write_text(SCENARIO, "utf-8")
    return path
