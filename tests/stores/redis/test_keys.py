"""What stands in the keys of a store: nothing that is left over, and nothing that stops a lane."""

from collections.abc import Iterator
from contextlib import closing

import pytest
import redis

from dueline.api.connect import open_store
from dueline.core.store import Drop, Group, Lease, Store, Want
from dueline.core.store_capabilities import SupportsPrefetch
from dueline.store_tests.calls import (
    LEASE_US,
    NOW_US,
    claim,
    id_of,
    ids_of,
    lane_of,
    new_job,
    new_jobs,
    put_in,
    token_of,
)
from dueline.stores.redis.rows import INLINE_BYTES_MAX, lane_key
from tests.harness.redis import NAMES, new_url, server_url

pytestmark = pytest.mark.redis
LONG = b"x" * (INLINE_BYTES_MAX + 1)


@pytest.fixture(params=NAMES)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    server_url(name)
    return name


@pytest.fixture
def url(kind: str) -> str:
    return new_url(kind)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with closing(open_store(url)) as store:
        yield store


def key(url: str, name: bytes) -> bytes:
    prefix = url.partition("prefix=")[2].partition("&")[0]
    return b"{%s}:%s" % (prefix.encode(), name)


def bodies_in(url: str) -> int:
    with redis.Redis.from_url(url.partition("?")[0]) as server:
        count: int = server.hlen(key(url, b"b"))
    return count


def test_a_place_without_a_row_is_dropped_by_a_claim(url: str, store: Store) -> None:
    put_in(store, *new_jobs(3))
    soon_us = NOW_US + 2_000
    put_in(store, new_job(9, at_us=soon_us, lane=lane_of()))
    with redis.Redis.from_url(url.partition("?")[0]) as server:
        server.hdel(key(url, b"j"), id_of(2), id_of(9))
        assert ids_of(claim(store, lane_of()).jobs) == ids_of([new_job(1), new_job(3)])
        lease = Lease(NOW_US, LEASE_US, "w", token_of(2))
        assert isinstance(store, SupportsPrefetch)
        want = Want(lane_of(), 5)
        assert store.prefetch([want], limit=5, until_us=soon_us, lease=lease).jobs == []
        assert server.zcard(key(url, b"z:" + lane_key(lane_of()))) == 2


def test_long_bodies_go_with_their_rows(url: str, store: Store) -> None:
    jobs = [new_job(number, body=LONG) for number in (1, 2)]
    put_in(store, *jobs)
    assert bodies_in(url) == 2
    first, second = claim(store, lane_of()).jobs
    assert first.body == LONG
    assert list(
        store.together([Group([Drop(first)]), Group([Drop(second)], jobs=[new_job(2)])])
    ) == [True, True]
    assert bodies_in(url) == 0


def test_a_long_body_that_is_inserted_and_deleted_by_one_call_is_not_kept(
    url: str, store: Store
) -> None:
    job = new_job(1, body=LONG)
    assert list(store.together([Group(jobs=[job]), Group([Drop(job)])])) == [True, True]
    assert bodies_in(url) == 0
