"""What comes out of a parcel is what went in, and arrays travel in memory alone."""

import os
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from silos import Job, Schedule, Shard, Streams, Weights, from_record, to_record
from silos._parcel import SharedMemory, pack, unpack


@pytest.fixture
def job(make_shard: Callable[..., Shard], make_schedule: Callable[..., Schedule], streams: Streams) -> Job:
    weights: Weights = {"a": np.arange(12.0).reshape(3, 4), "none": np.empty((0, 2)), "b": np.float32([1, np.nan])}
    return Job(
        weights=weights,
        shard=make_shard(),
        schedule=make_schedule(),
        sampling=streams.generator("north", 1, "sampling"),
        noise=np.random.default_rng(4),
    )


def arrived(job: Job, memory: SharedMemory, *, in_place: bool = True) -> Job:
    """The job, out of another mapping of the same memory."""
    parcel = pack(job, memory, {job.shard: 7})
    found = unpack(parcel, SharedMemory(os.dup(memory.descriptor)), {7: job.shard}, in_place=in_place)
    assert isinstance(found, Job)
    return found


def test_a_job_arrives_as_it_was_sent_with_its_shard_where_it_stays(job: Job) -> None:
    job.sampling.random(5)
    job.sampling.integers(2**32, dtype=np.uint32)  # half a draw is left for the next
    found = arrived(job, SharedMemory())
    assert found.shard is job.shard
    assert found.schedule == job.schedule
    assert list(found.weights) == list(job.weights)
    for name, array in job.weights.items():
        np.testing.assert_array_equal(found.weights[name], array)
        assert found.weights[name].dtype == array.dtype
    for one, other in ((found.sampling, job.sampling), (found.noise, job.noise)):
        assert one.integers(2**32, size=3, dtype=np.uint32).tobytes() == (
            other.integers(2**32, size=3, dtype=np.uint32).tobytes()
        )
        assert one.standard_normal(9).tobytes() == other.standard_normal(9).tobytes()


def test_arrays_are_not_in_the_pickle_and_shared_ones_are_written_once(job: Job) -> None:
    sizes = []
    for length in (10, 10**6):
        memory, array = SharedMemory(), np.ones(length)
        for _ in range(2):  # for two processes
            parcel = pack(
                [replace(job, weights={"a": array, "same": array}, noise=job.sampling)] * 3, memory, {job.shard: 0}
            )
            assert len(set(parcel.spans)) == 1
            assert parcel.spans[0] == (0, array.nbytes)
        sizes.append(len(parcel.pickled))
    assert abs(sizes[0] - sizes[1]) < 16


def test_a_memory_that_grew_is_read_by_whoever_mapped_less_of_it() -> None:
    memory = SharedMemory()
    other = SharedMemory(os.dup(memory.descriptor))
    for length in (3, 10**5, 4):
        memory.clear()
        parcel = pack(np.arange(length), memory, {})
        np.testing.assert_array_equal(unpack(parcel, other, {}, in_place=True), np.arange(length))


def test_what_is_copied_outlives_the_next_round(job: Job) -> None:
    memory = SharedMemory()
    kept, lent = arrived(job, memory, in_place=False), arrived(job, memory)
    memory.clear()
    pack(np.full(12, -1.0), memory, {})
    assert kept.weights["a"][0, 1] == 1
    assert lent.weights["a"][0, 1] == -1


def test_weights_of_a_record_travel_as_a_plain_dict(job: Job) -> None:
    received = from_record(to_record(job.weights))
    assert type(arrived(replace(job, weights=received), SharedMemory()).weights) is dict
