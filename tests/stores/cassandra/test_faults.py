"""A node whose answers are mixed up or cut on the way, by a server in between (C1)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from urllib.parse import urlsplit

import pytest

from dueline.admin.store_checks import STREAMS_SAFE, judged
from dueline.api.connect import open_store
from dueline.core.errors import StoreUnavailable, Unknown
from dueline.core.job import Job
from dueline.core.store import Put
from dueline.store_tests.calls import lane_of, new_job
from dueline.stores.cursor_cache import START, Page
from tests.harness.cassandra_frames import RESULT, Frame, answer, overloaded
from tests.harness.cassandra_node import Keyspaces, expect_node, keyspaces_on_a_node, node_url
from tests.harness.cassandra_proxy import Proxy

if find_spec("cassandra") is None:
    pytest.skip("cassandra is absent: the driver is not installed", allow_module_level=True)

from dueline.stores.cassandra import guard
from dueline.stores.cassandra import statements as rows
from dueline.stores.cassandra.store import CassandraStore

expect_node()
pytestmark = pytest.mark.cassandra

VOID = b"\0\0\0\1"


@pytest.fixture(scope="module", autouse=True)
def counts() -> Iterator[None]:
    """Leave the counts of this process as they were: other tests ask for them."""
    strays = guard.STRAY_ANSWERS
    before = strays.dropped, strays.closed
    yield
    strays.dropped, strays.closed = before


@pytest.fixture(scope="module")
def keyspaces() -> Iterator[Keyspaces]:
    with keyspaces_on_a_node(1) as keyspaces:
        yield keyspaces


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with node_url() as address, Proxy(address.rpartition("/")[2]) as proxy:
        yield proxy


@pytest.fixture
def store(keyspaces: Keyspaces, proxy: Proxy) -> Iterator[CassandraStore]:
    """A store that reaches the node by way of the proxy."""
    place = urlsplit(keyspaces.fresh())
    store = open_store(place._replace(netloc=proxy.place).geturl())
    assert isinstance(store, CassandraStore)
    yield store
    store.close()


def with_body(text: bytes) -> Callable[[Frame], bool]:
    """Choose the request that holds a text."""
    return lambda frame: text in frame.body


def lanes(count: int) -> list[Job]:
    return [
        new_job(n, lane=lane_of(tenant=f"t{n}"), body=b'"job %03d"' % n) for n in range(1, count)
    ]


@pytest.mark.long
def test_a_node_that_answers_on_stream_0_confuses_no_read(
    store: CassandraStore, proxy: Proxy
) -> None:
    jobs = lanes(100)
    assert all(store.add(jobs))
    dropped = guard.STRAY_ANSWERS.dropped
    for _ in range(4):
        proxy.send([overloaded()] * 300)  # without the guard, 0 alone is free after that
        for job, row in zip(jobs, store.find([job.id for job in jobs]), strict=True):
            assert row == job
    assert guard.STRAY_ANSWERS.dropped >= dropped + 1200
    told = store.describe()
    count = guard.STRAY_ANSWERS.dropped
    assert told["stream guard"] == "on"
    assert told["stray answers"].startswith(f"{count} dropped")
    assert store.stray_answers() >= count
    verdicts = {check.name: check.verdict for check in judged(told)}
    is_safe = tuple(map(int, told["server"].split("."))) >= STREAMS_SAFE
    assert verdicts["server"] == ("good" if is_safe else "warning")
    assert verdicts["stray answers"] == "warning"


def test_a_node_that_answers_where_none_waits_is_connected_to_anew(
    store: CassandraStore, proxy: Proxy
) -> None:
    jobs = lanes(5)
    assert all(store.add(jobs))
    closed = guard.STRAY_ANSWERS.closed
    proxy.send([answer(250, RESULT, VOID)])
    give_up_s = time.monotonic() + 60
    while guard.STRAY_ANSWERS.closed == closed or not _finds(store, jobs):
        assert time.monotonic() < give_up_s
        time.sleep(0.05)


def _finds(store: CassandraStore, jobs: Sequence[Job]) -> bool:
    try:
        return list(store.find([job.id for job in jobs])) == jobs
    except StoreUnavailable:
        return False


@pytest.mark.parametrize("cut", range(1, 6))
def test_a_node_whose_segments_come_in_pieces_is_understood(
    store: CassandraStore, proxy: Proxy, cut: int
) -> None:
    jobs = lanes(8)
    proxy.cut_bytes = cut
    assert all(store.add(jobs))
    assert list(store.find([job.id for job in jobs])) == jobs


def test_two_reads_whose_answers_are_swapped_are_both_refused(
    store: CassandraStore, proxy: Proxy
) -> None:
    mine, others = lanes(3)
    assert all(store.add([mine, others]))
    calls = [rows.whole_page(job.lane, Page(START, 10)) for job in (mine, others)]
    assert all(isinstance(told, list) for told in store._session.try_read_many(calls))
    proxy.swap_answers(with_body(b"\0\0\0\2t1"), with_body(b"\0\0\0\2t2"))
    for told in store._session.try_read_many(calls):
        assert isinstance(told, StoreUnavailable)
        assert "rows of another partition" in str(told)
    assert list(store.find([mine.id, others.id])) == [mine, others]


def test_an_insert_and_a_decision_whose_answers_are_swapped_are_of_unknown_fate(
    store: CassandraStore, proxy: Proxy
) -> None:
    mine, others = lanes(3)
    assert all(store.add([others]))
    store.commit("swapped", [Put("k", b"1", b'"first"')])
    proxy.swap_answers(with_body(mine.body), with_body(b'"second"'))
    with ThreadPoolExecutor(2) as threads:
        added = threads.submit(store.add, [mine])
        put = threads.submit(store.commit, "swapped", [Put("k", b"2", b'"second"', expect=b"9")])
        assert list(added.result()) == [False]  # not known
        with pytest.raises(Unknown):
            put.result()
    assert list(store.add([mine])) == [True]
    assert [record.value for record in store.read("swapped", after=None, limit=2)] == [b'"first"']
