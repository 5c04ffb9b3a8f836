"""A store in a cluster: slots that move, nodes that fail, identity."""

import os
import re
import signal
from contextlib import closing
from pathlib import Path

import pytest

from dueline.admin.health import examine
from dueline.api.connect import open_store
from dueline.core.clock import SystemClock
from dueline.core.errors import ConfigError, StoreReplaced, StoreUnavailable
from dueline.core.store import Commit, Drop, Group, Put
from dueline.store_tests.calls import (
    claim,
    lane_of,
    new_job,
    new_jobs,
    put_in,
    records_in,
    row_of,
    rows_in,
    stream_of,
)
from tests.harness.queues import queues_on
from tests.harness.redis import StartServer, new_url
from tests.harness.redis_cluster import SlotMove
from tests.harness.redis_load import disturb_during_load, run_around
from tools.redis import Slots, slot_of

pytestmark = [pytest.mark.redis, pytest.mark.slow]

MOVES = 3
SLOT = slot_of("dueline")
PAGE = Path("docs/operations/redis.md")


@pytest.fixture(scope="module")
def url() -> str:
    """Return the URL of an empty store on a cluster that runs for all tests."""
    return new_url("redis-cluster")


def test_nothing_is_torn_while_a_slot_moves(cluster: Slots) -> None:
    with closing(open_store(cluster.url)) as store:
        put_in(store, *new_jobs(3))
        first, second, _ = claim(store, lane_of()).jobs
        group = Group(
            verdicts=[Drop(first)],
            commits=[Commit("p", [Put("a", b"1", b"1")])],
            jobs=[new_job(9)],
            rows=[row_of(1)],
        )
        move = SlotMove(cluster, SLOT)
        move.begin()
        for rest in (b":j", b":about", b""):
            with pytest.raises(StoreUnavailable):
                store.together([group])
            with pytest.raises(StoreUnavailable):
                claim(store, lane_of(), token=2)
            move.move_keys(but=rest)
        move.end()
        assert len(rows_in(store, lane_of())) == 3
        assert (records_in(store, "p"), stream_of(store)) == ([], [])
        assert list(store.together([group])) == [True]
        assert stream_of(store) == [row_of(1)]
        assert list(store.settle([Drop(first), Drop(second)])) == [False, True]


def test_a_load_goes_on_while_slots_move(cluster: Slots) -> None:
    first = cluster.primary_of(SLOT)
    disturb_during_load(
        f"{cluster.url}?timeout=1s", lambda: SlotMove(cluster, SLOT).run(), times=MOVES
    )
    assert cluster.primary_of(SLOT) is not first


def test_a_planned_failover_loses_nothing(cluster: Slots) -> None:
    first = cluster.primary_of(SLOT)

    def fail_over() -> None:
        before, replica = cluster.pair(SLOT)
        assert replica.ask("CLUSTER", "FAILOVER") == "+OK"
        while cluster.primary_of(SLOT) is before:
            pass
        cluster.wait()

    disturb_during_load(f"{cluster.url}?timeout=1s", fail_over, times=1)
    assert cluster.primary_of(SLOT) is not first


@pytest.mark.long
def test_a_load_goes_on_when_a_primary_stands_still(cluster: Slots) -> None:
    def stall_primary() -> None:
        before = cluster.primary_of(SLOT)
        pid = before.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        while cluster.primary_of(SLOT) is before:
            pass
        os.kill(pid, signal.SIGCONT)
        cluster.wait()

    disturb_during_load(f"{cluster.url}?wait=1&timeout=1s", stall_primary, times=2)


def test_a_worker_continues_after_a_failover(cluster: Slots) -> None:
    first = cluster.primary_of(SLOT)
    assert run_around(f"{cluster.url}?wait=1", lambda: cluster.fail_over(SLOT)) == [1, 2]
    assert cluster.primary_of(SLOT) is not first


def test_another_node_is_asked_where_the_first_is_gone(cluster: Slots) -> None:
    slot = SLOT
    primary, _ = cluster.pair(slot)
    first = next(server for server in cluster.servers if server is not primary)
    first.kill()
    others = [server for server in cluster.servers if server is not first]
    places = ",".join(f"127.0.0.1:{server.port}" for server in (first, *others))
    with closing(open_store(f"redis+cluster://{places}")) as store:
        put_in(store, new_job(1))
        for server in others:
            server.kill()
        with pytest.raises(StoreUnavailable, match="failed"):
            put_in(store, new_job(2))


def test_a_node_is_not_taken_for_a_server(url: str, start_server: StartServer) -> None:
    place = url.partition("://")[2].partition(",")[0]
    with (
        closing(open_store(f"redis://{place}/0")) as store,
        pytest.raises(ConfigError, match="a node of a cluster"),
    ):
        put_in(store, new_job(1))
    alone = start_server().url.removesuffix("/0").replace("redis://", "redis+cluster://")
    with (
        closing(open_store(alone)) as store,
        pytest.raises(ConfigError, match="cluster support disabled"),
    ):
        put_in(store, new_job(1))


def test_a_store_that_was_replaced_is_refused(cluster: Slots) -> None:
    with closing(open_store(cluster.url)) as store, closing(open_store(cluster.url)) as other:
        put_in(store, new_job(1))
        put_in(other, new_job(2))
        primary, _ = cluster.pair(SLOT)
        primary.ask("FLUSHALL")
        with pytest.raises(StoreReplaced):
            put_in(store, new_job(3))
        with closing(open_store(cluster.url)) as new:
            put_in(new, new_job(3))
        cluster.fail_over(SLOT)
        for known in (store, other):
            with pytest.raises(StoreReplaced):
                claim(known, lane_of())


def test_the_rights_of_the_page_suffice_in_a_cluster(cluster: Slots) -> None:
    with closing(open_store(cluster.url)) as store:
        put_in(store, new_job(1))
    (rules,) = re.findall(r"ACL SETUSER dueline (.*)", PAGE.read_text())
    for server in cluster.servers:
        server.ask("ACL", "SETUSER", "dueline", *rules.replace("PASSWORD", "pw").split())
    url = cluster.url.replace("//", "//dueline:pw@")
    with closing(open_store(url)) as store:
        with pytest.raises(ConfigError, match="cluster"):
            put_in(store, new_job(2))
        for server in cluster.servers:
            server.ask("ACL", "SETUSER", "dueline", "+cluster|slots")
        put_in(store, new_job(2))
        assert "state unknown" in store.describe()["cluster"]


@pytest.mark.long
@pytest.mark.parametrize("cluster", ["valkey"], indirect=True)
def test_a_load_goes_on_while_a_slot_moves_as_a_whole(cluster: Slots) -> None:
    def move() -> None:
        slot_move = SlotMove(cluster, SLOT)
        number = slot_move.target.lines("CLUSTER", "MYID")[1]
        slot = str(SLOT)
        answer = slot_move.source.ask(
            "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", number
        )
        assert answer == "+OK"
        while cluster.primary_of(SLOT) is slot_move.source:
            pass

    disturb_during_load(f"{cluster.url}?timeout=1s", move, times=MOVES)


def test_doctor_names_the_slot(url: str) -> None:
    with closing(open_store(url)) as store:
        put_in(store, new_job(1))
        facts = store.describe()
        checks = examine(queues_on(store, SystemClock()).engine).checks
    assert "slot" in facts["cluster"]
    verdicts = {check.name: check.verdict for check in checks}
    assert (verdicts["cluster"], verdicts["replicas that confirm"]) == ("good", "warning")
