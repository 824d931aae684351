"""The overlap of silos from keyed hashes, and the caps that make a declared membership hold."""

from collections import Counter
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting._errors import InvalidValue
from accounting._membership import AtMost, Disjoint, Sets, Unknown
from accounting._overlap import HashedIds, enforce_cap, hash_ids, overlap
from accounting._relations import Unit

KEY = bytes(range(32))
OTHER_KEY = bytes(range(1, 33))

shards = st.dictionaries(
    st.sampled_from(["north", "south", "east", "west"]), st.lists(st.sampled_from("abcdefgh"), max_size=12), min_size=1
)


def _compare(ids: dict[str, list[str]]):
    return overlap([HashedIds.of(silo, each, KEY) for silo, each in ids.items()])


def test_hashes_are_keyed_blake2b_of_the_length_and_the_text():
    text = b"ann"
    expected = blake2b(len(text).to_bytes(8, "big") + text, key=KEY, digest_size=32, person=b"silodp-ids").hexdigest()
    assert hash_ids(["ann"], KEY) == [expected]


def test_hashes_differ_between_keys():
    assert hash_ids(["ann"], KEY) != hash_ids(["ann"], OTHER_KEY)


def test_spaces_and_unicode_forms_do_not_hide_an_overlap():
    assert len(set(hash_ids(["José", "José ", "Jose\u0301"], KEY))) == 1


@pytest.mark.parametrize("key", [b"", bytes(range(15)), bytes(range(65)), b"ab" * 16])
def test_weak_and_impossible_keys_are_refused(key: bytes):
    with pytest.raises(InvalidValue, match=r"secrets\.token_bytes"):
        hash_ids(["ann"], key)


def test_an_empty_id_is_refused():
    with pytest.raises(InvalidValue, match="to name an individual"):
        hash_ids(["ann", " "], KEY)


@settings(deadline=None, derandomize=True)
@given(shards)
def test_counts_equal_those_of_the_ids_themselves(ids: dict[str, list[str]]):
    found = _compare(ids)
    where = {each: frozenset(silo for silo in ids if each in ids[silo]) for shard in ids.values() for each in shard}
    assert found.individuals == Counter(where.values())
    assert found.most_silos == max((len(silos) for silos in where.values()), default=0)
    assert found.most_records == max((shard.count(each) for shard in ids.values() for each in shard), default=0)


@settings(deadline=None, derandomize=True)
@given(shards)
def test_a_membership_is_violated_exactly_when_an_individual_is_outside_it(ids: dict[str, list[str]]):
    found = _compare(ids)
    sets = [["north", "south"], ["east"], ["west"]]
    where = [{silo for silo in ids if each in ids[silo]} for each in {each for shard in ids.values() for each in shard}]
    assert bool(found.violations(Disjoint())) == any(len(silos) > 1 for silos in where)
    assert bool(found.violations(AtMost(2))) == any(len(silos) > 2 for silos in where)
    assert bool(found.violations(Sets(sets))) == any(not any(silos <= set(each) for each in sets) for silos in where)
    assert not found.violations(Unknown())


def test_a_violated_cap_on_records_is_named_where_the_unit_is_an_individual():
    found = _compare({"north": ["ann", "ann", "ann"]})
    assert found.violations(Disjoint(), Unit()) == ()
    assert found.violations(Disjoint(), Unit(individual=True, records=3)) == ()
    (violation,) = found.violations(Disjoint(), Unit(individual=True, records=2))
    assert "3 records" in violation


def test_no_violation_shows_an_id_or_its_hash():
    ids = ["ann-19841120", "bob-19700101"]
    text = " ".join(_compare({"north": ids, "south": ids}).violations(Disjoint(), Unit(individual=True)))
    assert "2 individuals are in more than 1 silo: 2 in north, south." in text
    assert not any(each in text for each in ids + hash_ids(ids, KEY))


def test_a_file_read_back_is_what_was_written_and_holds_no_id(tmp_path: Path):
    ids = HashedIds.of("north", ["ann", "bob", "bob"], KEY)
    ids.write(tmp_path / "north.jsonl")
    assert HashedIds.read(tmp_path / "north.jsonl") == ids
    assert "ann" not in (tmp_path / "north.jsonl").read_text()


def test_the_file_does_not_show_the_order_of_the_records(tmp_path: Path):
    HashedIds.of("north", ["ann", "bob", "eve", "bob"], KEY).write(tmp_path / "one")
    HashedIds.of("north", ["bob", "eve", "bob", "ann"], KEY).write(tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.parametrize("lines", [0, 1, 2])
def test_a_file_that_was_cut_off_is_refused(tmp_path: Path, lines: int):
    path = tmp_path / "north.jsonl"
    HashedIds.of("north", ["ann", "bob"], KEY).write(path)
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:lines]))
    with pytest.raises(InvalidValue, match=r"north\.jsonl"):
        HashedIds.read(path)


@pytest.mark.parametrize(
    "line", ["not json", "[]", '{"id": "x"}', '{"id": "x", "records": 0}', '{"id": 1, "records": 1}']
)
def test_a_line_that_is_no_hashed_id_is_refused_by_its_number(tmp_path: Path, line: str):
    path = tmp_path / "north.jsonl"
    HashedIds.of("north", ["ann"], KEY).write(path)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(InvalidValue, match="line 3"):
        HashedIds.read(path)


def test_a_missing_or_foreign_file_is_refused_by_its_path(tmp_path: Path):
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name in ("missing", "binary"):
        with pytest.raises(InvalidValue, match=name):
            HashedIds.read(tmp_path / name)


def test_silos_with_different_keys_are_not_compared():
    with pytest.raises(InvalidValue, match="different keys"):
        overlap([HashedIds.of("north", ["ann"], KEY), HashedIds.of("south", ["ann"], OTHER_KEY)])


def test_two_files_of_one_silo_are_not_compared():
    with pytest.raises(InvalidValue, match="different names"):
        overlap([HashedIds.of("north", ["ann"], KEY), HashedIds.of("north", ["bob"], KEY)])


def _kept(ids: dict[str, list[str]], **caps: int) -> dict[str, list[str]]:
    masks = enforce_cap(ids, KEY, **caps)
    return {silo: [each for each, stays in zip(ids[silo], masks[silo], strict=True) if stays] for silo in ids}


@settings(deadline=None, derandomize=True)
@given(shards, st.integers(1, 3), st.integers(1, 3))
def test_enforced_caps_hold_and_drop_no_more_than_they_must(ids: dict[str, list[str]], silos: int, records: int):
    kept = _kept(ids, silos=silos, records=records)
    for each in "abcdefgh":
        before = {silo: shard.count(each) for silo, shard in ids.items() if each in shard}
        after = {silo: shard.count(each) for silo, shard in kept.items() if each in shard}
        assert len(after) == min(len(before), silos)
        assert all(count == min(before[silo], records) for silo, count in after.items())


@settings(deadline=None, derandomize=True)
@given(shards)
def test_without_caps_every_record_stays(ids: dict[str, list[str]]):
    assert _kept(ids) == ids


@settings(deadline=None, derandomize=True)
@given(shards, st.sampled_from("abcdefgh"))
def test_removing_one_individual_changes_nothing_for_the_others(ids: dict[str, list[str]], gone: str):
    neighbour = {silo: [each for each in shard if each != gone] for silo, shard in ids.items()}
    kept = {silo: [each for each in shard if each != gone] for silo, shard in _kept(ids, silos=1, records=2).items()}
    assert _kept(neighbour, silos=1, records=2) == kept


def test_the_cap_prefers_no_silo_and_no_place_in_the_shard():
    ids = {silo: [each for each in map(str, range(300)) for _ in range(3)] for silo in ("north", "south", "east")}
    masks = enforce_cap(ids, KEY, silos=1, records=1)
    by_silo = [int(mask.sum()) for mask in masks.values()]
    by_place = sum(mask.reshape(300, 3).sum(axis=0) for mask in masks.values())
    # 300 fair choices among three: 100 each, standard deviation 8.2; five of them either way.
    assert np.all(np.abs(np.array(by_silo) - 100) < 41)
    assert np.all(np.abs(by_place - 100) < 41)


def test_another_key_keeps_others():
    ids = {"north": ["ann"] * 50}
    first, second = (enforce_cap(ids, key, records=10)["north"] for key in (KEY, OTHER_KEY))
    assert first.sum() == second.sum() == 10
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("caps", [{"silos": 0}, {"records": 0}])
def test_a_cap_below_one_is_refused(caps: dict[str, int]):
    with pytest.raises(InvalidValue, match="integer >= 1"):
        enforce_cap({"north": ["ann"]}, KEY, **caps)
