"""Calls with many jobs: several short ones at the server, which does nothing else meanwhile."""

from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest
import redis

from dueline.api.connect import open_store
from dueline.core.errors import StoreUnavailable, Unknown
from dueline.core.job import Job
from dueline.core.store import Drop, Group, Lease, Put, Store, Want
from dueline.store_tests.calls import LEASE_US, NOW_US, lane_of, new_jobs, put_in, row_of, token_of
from dueline.stores.redis.connection import Connections
from dueline.stores.redis.operations import PART
from tests.harness.redis import NAMES, new_url, server_url

pytestmark = pytest.mark.redis
MANY = 2 * PART + 7


@pytest.fixture(params=NAMES)
def url(request: pytest.FixtureRequest) -> str:
    server_url(request.param)
    return new_url(request.param)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with closing(open_store(url)) as store:
        yield store


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note the number of ids, or of other arguments, of each call."""
    sizes: list[int] = []
    command, write = Connections.command, Connections.write

    def noting_command(self: Connections, *arguments: bytes, **options: bool) -> object:
        answer = command(self, *arguments, **options)
        sizes.append(max(len(arguments) - 5, 0))
        sizes.extend(len(part) for part in answer if isinstance(part, list))
        return answer

    def noting_write(self: Connections, function: str, arguments: Sequence[bytes]) -> bytes:
        sizes.append(int(arguments[0]))
        return write(self, function, arguments)

    monkeypatch.setattr(Connections, "command", noting_command)
    monkeypatch.setattr(Connections, "write", noting_write)
    return sizes


def count_of(url: str, name: str) -> int:
    """Return the number of fields of hashes whose names begin so."""
    prefix = url.partition("prefix=")[2].partition("&")[0]
    with redis.Redis.from_url(url.partition("?")[0]) as server:
        keys = list(server.scan_iter(f"{{{prefix}}}:{name}*"))
        return sum(server.hlen(key) for key in keys)


def test_many_jobs_are_inserted_read_and_ended_by_short_calls(
    store: Store, sizes: list[int]
) -> None:
    jobs = new_jobs(MANY)
    assert list(store.add(jobs)) == [True] * MANY
    page = store.scan(lane_of(), after=None, until_us=None, limit=MANY)
    assert ([job.id for job in page.jobs], page.after) == ([job.id for job in jobs], None)
    assert store.find([job.id for job in jobs]) == page.jobs
    page = store.scan(lane_of(), after=None, until_us=None, limit=MANY - 7, skip=3)
    assert page.jobs == jobs[3:-4]
    assert page.after == (jobs[-5].at_us, jobs[-5].id)
    taken: list[Job] = []
    for token in range(1, 4):
        lease = Lease(NOW_US, LEASE_US, "w", token_of(token))
        claimed = store.claim([Want(lane_of(), MANY)], limit=MANY, lease=lease)
        assert claimed.next_at_us == {lane_of(): NOW_US + (LEASE_US if token == 3 else 0)}
        taken += claimed.jobs
    assert [job.id for job in taken] == [job.id for job in jobs]
    assert list(store.settle([Drop(job) for job in taken[:-2]])) == [True] * (MANY - 2)
    dropped = store.together([Group([Drop(job)]) for job in taken])
    assert list(dropped) == [False] * (MANY - 2) + [True] * 2
    assert max(sizes) <= PART + 1


def test_many_rows_are_appended_and_read_by_short_calls(store: Store, sizes: list[int]) -> None:
    rows = [row_of(number, at_us=NOW_US + number) for number in range(MANY)]
    assert store.append(rows) == [row.at_us for row in rows]
    assert list(store.tail("log", 0, after=None, limit=MANY).rows) == rows
    page = store.tail("log", 0, after=None, limit=MANY, skip=MANY - 3)
    assert list(page.rows) == rows[-3:]
    page = store.tail(
        "log", 0, after=(NOW_US, rows[0].id), limit=2, until_us=NOW_US + 6, skip=PART + 1
    )
    assert list(page.rows) == []
    page = store.tail("log", 0, after=(NOW_US, rows[0].id), limit=9, until_us=NOW_US + 6, skip=4)
    assert list(page.rows) == rows[5:7]
    assert max(sizes) <= PART + 1


def test_many_records_are_read_by_short_calls_past_those_that_have_expired(
    store: Store, sizes: list[int]
) -> None:
    past = store.clock_us() - 1
    puts = [
        Put(f"{number:05}", b"1", b"", expires_us=past if number % 3 else None)
        for number in range(2 * MANY)
    ]
    for first in range(0, len(puts), 500):
        assert store.commit("some", puts[first : first + 500])
    kept = [put.key for put in puts if put.expires_us is None]
    for limit in (1, 700, PART + 100):
        keys: list[str] = []
        while page := store.read("some", after=keys[-1] if keys else None, limit=limit):
            keys += [record.key for record in page]
        assert keys == kept
    assert max(sizes) <= 2 * PART


def test_what_was_written_of_a_call_is_unknown_if_its_rest_fails(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in(store)
    jobs, written = new_jobs(MANY), [0]
    write = Connections.write

    def fail(self: Connections, function: str, arguments: Sequence[bytes]) -> bytes:
        written[0] += 1
        if written[0] == 2:
            raise StoreUnavailable("The server does not answer.", hint="")
        return write(self, function, arguments)

    monkeypatch.setattr(Connections, "write", fail)
    with pytest.raises(Unknown, match="does not answer"):
        store.add(jobs)
    assert len(store.scan(lane_of(), after=None, until_us=None, limit=MANY).jobs) == PART
    assert list(store.add(jobs)) == [True] * MANY
    assert len(store.scan(lane_of(), after=None, until_us=None, limit=MANY).jobs) == MANY


def test_expired_records_are_deleted_as_fast_as_others_are_written(url: str, store: Store) -> None:
    past = store.clock_us() - 1
    for part in range(10):
        store.commit("some", [Put(f"{part}-{number}", b"1", b"", expires_us=past)
                              for number in range(300)])  # fmt: skip
    assert count_of(url, "r:some") <= 600
