"""Ids that grow, tokens that do not repeat."""

import os
import threading
import time
import uuid
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dueline.core.ids import Ids, created_us, derived, derived_each
from tests.harness.clocks import NOW_US

# Python 3.12 and later warn of forks beside threads, which is what is tested here.
beside_threads = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

TIMES = st.integers(0, 2**48 * 1000 - 1)


def test_an_id_is_a_uuid_of_version_7_that_carries_its_time() -> None:
    # RFC 9562: 48 bits of milliseconds, version, 12 bits, variant, 62 bits
    made = uuid.UUID(bytes=Ids().one(NOW_US + 123_456))
    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert made.int >> 80 == (NOW_US + 123_456) // 1000
    assert made.int >> 64 & 0xFFF == 456 * 4096 // 1000


@given(TIMES, st.integers(1, 50))
def test_ids_keep_their_layout_at_any_time(now_us: int, count: int) -> None:
    for job_id in Ids().many(count, now_us):
        made = uuid.UUID(bytes=job_id)
        assert (made.version, made.variant) == (7, uuid.RFC_4122)
        assert created_us(job_id) == now_us // 1000 * 1000


@given(st.binary(min_size=8, max_size=8))
@example(b"\xff" * 8)
def test_the_layout_holds_for_any_randomness(randomness: bytes) -> None:
    made = [uuid.UUID(bytes=job_id) for job_id in Ids(lambda _: randomness).many(1000, NOW_US)]
    assert {(each.version, each.variant) for each in made} == {(7, uuid.RFC_4122)}
    assert made == sorted(made)


@given(st.lists(st.tuples(TIMES, st.integers(0, 5)), min_size=1, max_size=20))
def test_ids_only_grow_whatever_the_clock_does(batches: list[tuple[int, int]]) -> None:
    ids = Ids()
    made = [job_id for now_us, count in batches for job_id in ids.many(count, now_us)]
    assert len(made) == sum(count for _, count in batches)
    assert all(one < other for one, other in pairwise(made))


@given(TIMES, TIMES)
def test_ids_of_different_processes_are_ordered_by_time_to_a_quarter_of_a_microsecond(
    one_us: int, other_us: int
) -> None:
    # the 12 bits are a fraction of a millisecond, not random: FIFO holds inside it
    one, other = Ids().one(min(one_us, other_us)), Ids().one(max(one_us, other_us))
    assert one_us == other_us or one < other


def test_threads_never_make_the_same_id() -> None:
    ids = Ids()
    made: list[list[bytes]] = [[] for _ in range(4)]

    def make(mine: list[bytes]) -> None:
        for _ in range(2000):
            mine.extend(ids.many(3, NOW_US))

    threads = [threading.Thread(target=make, args=(mine,)) for mine in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(mine == sorted(mine) for mine in made)
    assert len({job_id for mine in made for job_id in mine}) == 4 * 6000


@beside_threads
def test_a_fork_never_makes_the_ids_of_its_parent() -> None:
    ids = Ids()
    ids.one(NOW_US)
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover  (the child's measurements end with os._exit)
        os.write(write_end, b"".join(ids.many(100, NOW_US)))
        os._exit(0)
    os.close(write_end)
    ours = ids.many(100, NOW_US)
    with os.fdopen(read_end, "rb") as pipe:
        heard = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    theirs = [heard[place : place + 16] for place in range(0, len(heard), 16)]
    assert len(theirs) == 100
    # not merely different: each starts anew, so neither counts towards the other
    assert abs(int.from_bytes(theirs[0]) - int.from_bytes(ours[0])) > 2**40


@beside_threads
def test_a_fork_does_not_inherit_a_lock_that_is_held() -> None:
    ids = Ids()
    with ids._lock:
        child = os.fork()
        if child == 0:  # pragma: no cover  (see above)
            ids.one(NOW_US)
            os._exit(0)
        deadline_s = time.monotonic() + 60
        while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline_s:
            os.sched_yield()
        if ended[0] == 0:
            os.kill(child, 9)
            os.waitpid(child, 0)
    assert ended == (child, 0)


@pytest.mark.slow
def test_a_million_ids_are_made_in_a_moment() -> None:
    took_s: list[float] = []
    while len(took_s) < 5 and min(took_s, default=9) >= 2:  # another may have had the processor
        started_s = time.process_time()
        made = Ids().many(1_000_000, NOW_US)
        took_s.append(time.process_time() - started_s)
        assert len(set(made)) == 1_000_000
    assert min(took_s) < 2  # 0.25 s in November 2026; slower than that would show in bulk enqueue


def test_no_ids_are_made_of_nothing_and_the_next_still_grow() -> None:
    ids = Ids()
    first = ids.one(NOW_US)
    assert ids.many(0, NOW_US + 1000) == []
    assert first < ids.one(NOW_US)


def test_tokens_are_sixteen_random_bytes() -> None:
    ids = Ids()
    tokens = {ids.token() for _ in range(1000)}
    assert len(tokens) == 1000
    assert {len(token) for token in tokens} == {16}


def test_what_follows_from_a_cause_has_the_same_id_every_time() -> None:
    one, other = Ids().many(2, NOW_US)
    assert derived(one, 1) == derived(one, 1)
    assert len({derived(one, 1), derived(one, 2), derived(other, 1), derived(other, 11)}) == 4
    assert uuid.UUID(bytes=derived(one, 1)).version == 5


@given(cause=st.binary(min_size=16, max_size=16), number=st.integers(-(2**63), 2**63))
@example(cause=bytes(16), number=0)
@example(cause=b"\xff" * 16, number=1)
def test_a_derived_id_is_the_uuid_of_version_5(cause: bytes, number: int) -> None:
    assert derived(cause, number) == uuid.uuid5(uuid.UUID(bytes=cause), str(number)).bytes


@given(st.lists(st.binary(max_size=40)))
def test_ids_of_many_causes_are_those_of_each(causes: list[bytes]) -> None:
    assert derived_each(causes) == [derived(one, 0) for one in causes]
