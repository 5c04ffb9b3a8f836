"""Connections that swallow what passes, and servers that take over from each other."""

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from dueline.api.connect import open_store
from dueline.core.clock import SECOND_US
from dueline.core.errors import StoreUnavailable, Unknown
from dueline.core.store import Drop, Store
from dueline.store_tests.calls import (
    LEASE_US,
    NOW_US,
    claim,
    lane_of,
    new_job,
    new_jobs,
    put_in,
    row_of,
    rows_in,
)
from tests.harness.redis import StartServer
from tests.harness.relay import Relay, relay_to
from tools.redis import Server

pytestmark = [pytest.mark.redis, pytest.mark.slow]


@pytest.fixture
def server(start_server: StartServer) -> Server:
    return start_server("always")


@pytest.fixture
def relay(server: Server) -> Iterator[Relay]:
    with relay_to(server.url, server.port) as relay:
        yield relay


@pytest.fixture
def store(server: Server, relay: Relay) -> Iterator[Store]:
    with closing(open_store(f"{relay.url(server.url)}?timeout=500ms")) as store:
        yield store


def offset_of(server: Server) -> int:
    """Return how far a server has come in its replication; -1 without a link."""
    facts = server.info("replication")
    if "master_link_status:down" in facts:
        return -1
    return int(facts.partition("master_repl_offset:")[2].partition("\r")[0] or -1)


def follow(replica: Server, primary: Server) -> None:
    """Make a server the replica of another one, and wait until it has its data."""
    replica.ask("REPLICAOF", "127.0.0.1", str(primary.port))
    wanted = offset_of(primary)
    while offset_of(replica) < wanted:
        pass


def test_outcomes_whose_answers_are_swallowed_are_read(store: Store, relay: Relay) -> None:
    put_in(store, *new_jobs(3))
    (held, other, _) = claim(store, lane_of()).jobs
    relay.mute(requests=False)
    assert list(store.settle([Drop(held)])) == [True]
    relay.mute(requests=False)
    assert list(store.settle([Drop(held), Drop(other)])) == [False, True]
    relay.mute(requests=False)
    assert list(store.append([row_of(1)])) == [NOW_US]
    assert len(rows_in(store, lane_of())) == 1


def test_a_claim_whose_answer_is_swallowed_is_unknown(store: Store, relay: Relay) -> None:
    put_in(store, new_job(1))
    relay.mute(requests=False)
    with pytest.raises(Unknown):
        claim(store, lane_of())
    assert claim(store, lane_of(), token=2).jobs == []
    (job,) = claim(store, lane_of(), now_us=NOW_US + LEASE_US, token=3).jobs
    assert list(store.settle([Drop(job)])) == [True]


def test_calls_that_never_arrive_write_nothing(store: Store, relay: Relay) -> None:
    put_in(store, new_job(1))
    relay.mute()
    with pytest.raises(StoreUnavailable) as error:
        store.add([new_job(2)])
    assert not isinstance(error.value, Unknown)
    put_in(store, new_job(3))
    assert len(rows_in(store, lane_of())) == 2


def test_a_connection_may_be_lost_at_any_answer(store: Store, relay: Relay, server: Server) -> None:
    put_in(store, *new_jobs(20))
    jobs = claim(store, lane_of()).jobs
    for job in jobs:
        relay.cut_after(b"\0\0\0\x01")  # in the answer: the number of groups
        assert list(store.settle([Drop(job)])) == [True]
    assert rows_in(store, lane_of()) == []


def test_a_promoted_replica_continues_with_higher_fences(
    start_server: StartServer, server: Server, relay: Relay, store: Store
) -> None:
    replica = start_server()
    put_in(store, *new_jobs(2))
    (first,) = claim(store, lane_of(), limit=1).jobs
    follow(replica, server)
    server.kill()
    replica.ask("REPLICAOF", "NO", "ONE")
    relay.target = ("127.0.0.1", replica.port)
    put_in(store, new_job(3))
    jobs = claim(store, lane_of(), now_us=NOW_US + LEASE_US, token=2).jobs
    assert {job.id for job in jobs} == {new_job(number).id for number in (1, 2, 3)}
    assert min(job.fence for job in jobs) > first.fence + 10**4


def test_a_primary_that_comes_back_gives_no_fence_again(
    start_server: StartServer, server: Server
) -> None:
    replica = start_server()
    follow(replica, server)
    with closing(open_store(server.url)) as old, closing(open_store(replica.url)) as new:
        put_in(old, new_job(1))
        follow(replica, server)
        replica.ask("REPLICAOF", "NO", "ONE")
        assert len(rows_in(new, lane_of())) == 1  # a process has greeted the new primary
        follow(server, replica)
        server.ask("REPLICAOF", "NO", "ONE")  # what follows is lost
        (lost,) = claim(new, lane_of()).jobs
        (job,) = claim(old, lane_of(), now_us=NOW_US + 1, token=2).jobs
        assert job.id == lost.id
        assert job.fence > lost.fence


def test_two_primaries_that_begin_the_same_epoch_give_different_fences(
    start_server: StartServer, server: Server
) -> None:
    replica = start_server()
    with closing(open_store(server.url)) as old, closing(open_store(replica.url)) as new:
        put_in(old, new_job(1))
        server.kill()
        server.start()
        assert len(rows_in(old, lane_of())) == 1  # an epoch begins
        follow(replica, server)
        replica.ask("REPLICAOF", "NO", "ONE")
        (lost,) = claim(new, lane_of()).jobs
        server.kill()  # with all that the other one has not
        end_us = new.clock_us() + SECOND_US  # no failover is shorter
        while new.clock_us() < end_us:
            pass
        server.start()
        (job,) = claim(old, lane_of(), token=2).jobs
        assert job.id == lost.id
        assert job.fence > lost.fence


def find_forever(store: Store) -> None:
    """Read a job again and again, until that fails."""
    while True:
        store.find([new_job(1).id])


def test_primaries_that_take_turns_at_one_address_are_named(server: Server) -> None:
    with closing(open_store(server.url)) as store:
        put_in(store, new_job(1))
        stop = threading.Event()

        def greet() -> None:  # as the other primary does, whose data are the same
            number = 0
            while not stop.is_set():
                number += 1
                server.ask("HSET", "{dueline}:about", "run", str(number))

        other = threading.Thread(target=greet)
        other.start()
        try:
            with pytest.raises(StoreUnavailable) as error:
                find_forever(store)
        finally:
            stop.set()
            other.join()
        assert "Several primaries" in error.value.hint
        put_in(store, new_job(2))


def test_fences_go_up_also_if_the_clock_of_the_next_server_is_behind(server: Server) -> None:
    ahead = 2**30
    with closing(open_store(server.url)) as store:
        put_in(store, new_job(1))
        server.kill()
        server.start()
        put_in(store, new_job(2))
        server.ask("HSET", "{dueline}:about", "floor", str(ahead))
        (job, _) = claim(store, lane_of()).jobs
        assert job.fence == ahead
        server.kill()
        server.start()
        (again, _) = claim(store, lane_of(), now_us=NOW_US + LEASE_US, token=2).jobs
        assert again.fence > job.fence + 1
