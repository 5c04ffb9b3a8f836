"""Replicas that confirm writes, and sentinels that promote them."""

import os
import re
import signal
import time
from contextlib import closing

import pytest

from dueline.admin.health import examine
from dueline.api.connect import open_store
from dueline.core.clock import SystemClock
from dueline.core.errors import ConfigError, StoreUnavailable, Unknown
from dueline.core.store import Drop
from dueline.store_tests.calls import claim, lane_of, new_job, put_in, rows_in
from tests.harness.queues import queues_on
from tests.harness.redis import StartServer
from tests.harness.redis_cluster import Watching
from tests.harness.redis_load import disturb_during_load, run_around
from tools.redis import Server, Watched
from tools.redis.server import HOST

pytestmark = [pytest.mark.redis, pytest.mark.slow]

FAILOVERS = 10
ANSWER_S = 0.5
"""Time in which a thread notes the answer of a server that was killed since, in seconds."""


def send(server: Server, number: signal.Signals) -> None:
    """Send a signal to a server."""
    pid = server.pid
    assert pid is not None
    os.kill(pid, number)


def test_a_write_that_no_replica_confirms_is_unknown(start_server: StartServer) -> None:
    server, replica = start_server(), start_server()
    with closing(open_store(f"{server.url}?wait=1&timeout=500ms")) as store:
        with pytest.raises(Unknown, match="wait=1") as error:
            store.add([new_job(1)])
        assert "same ids" in error.value.hint
        with pytest.raises(Unknown):
            claim(store, lane_of())
        with pytest.raises(Unknown):
            store.close_until("log", 0, at_us=1)
        assert len(rows_in(store, lane_of())) == 1  # it is there, and may be lost with the server
    with closing(open_store(f"{server.url}?wait=1")) as store:
        replica.ask("REPLICAOF", HOST, str(server.port))
        while "state=online" not in server.info("replication"):
            pass
        put_in(store, new_job(2))
        (job,) = claim(store, lane_of(), token=2).jobs
        assert list(store.settle([Drop(job)])) == [True]
        assert store.close_until("log", 0, at_us=1) == 1
        assert "1 of its replicas" in store.describe()["survives loss of the machine"]


def test_a_user_without_the_right_to_wait_is_told(start_server: StartServer) -> None:
    server = start_server()
    server.ask("ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-wait")
    url = server.url.replace("//", "//app:pw@")
    with closing(open_store(f"{url}?wait=1")) as store, pytest.raises(ConfigError, match="wait"):
        store.add([new_job(1)])
    with closing(open_store(url)) as store:
        put_in(store, new_job(1))


def test_sentinels_name_the_primary(watched: Watched) -> None:
    with closing(open_store(watched.url)) as store:
        put_in(store, new_job(1))
        for sentinel in watched.sentinels[:-1]:
            sentinel.kill()
        put_in(store, new_job(2))
        with closing(open_store(watched.url)) as other:
            assert len(rows_in(other, lane_of())) == 2
        unknown = watched.url.replace("/dueline/", "/other/")
        with closing(open_store(unknown)) as other, pytest.raises(ConfigError, match="other"):
            put_in(other, new_job(3))
        watched.sentinels[-1].kill()
        with closing(open_store(watched.url)) as other, pytest.raises(StoreUnavailable) as error:
            put_in(other, new_job(3))
        assert "sentinel" in str(error.value)


def test_the_password_is_given_to_sentinels_that_want_one(watched: Watched) -> None:
    for server in watched.servers.values():
        server.ask("ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all")
    for sentinel in watched.sentinels[:2]:
        sentinel.ask("ACL", "SETUSER", "app", "on", ">pw", "&*", "+@all")
        sentinel.ask("ACL", "SETUSER", "default", "off")
    with closing(open_store(watched.url.replace("//", "//app:pw@"))) as store:
        put_in(store, new_job(1))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_failovers_lose_nothing_that_a_replica_has_confirmed(watching: Watching) -> None:
    load = disturb_during_load(f"{watching.url}&wait=1", watching.fail_over, times=FAILOVERS)
    print(f"{len(load.lost)} of {load.acknowledged} lost, {load.claims} claims")  # noqa: T201


def offset(server: Server, name: str) -> int:
    """Return how much of the log of its writes a server has sent or applied."""
    match = re.search(rf"\b{name}:(\d+)", server.info("replication"))
    return int(match[1]) if match else 0


@pytest.mark.long
@pytest.mark.timeout(900)
def test_failovers_without_confirmation_lose_what_the_replica_lacked(watching: Watching) -> None:
    spans: list[tuple[float, float]] = []

    def fail_over() -> None:
        primary, replica = watching.pair()
        while True:
            began_s, sent = time.monotonic(), offset(primary, "master_repl_offset")
            if offset(replica, "slave_repl_offset") >= sent:
                break
        primary.kill()
        spans.append((began_s, time.monotonic() + ANSWER_S))
        watching.fail_over()

    load = disturb_during_load(watching.url, fail_over, times=FAILOVERS, may_lose=True)
    assert watching.may_go_back or not load.outside(spans)
    print(f"{len(load.lost)} of {load.acknowledged} lost, {len(load.again)} ran again")  # noqa: T201
    with closing(open_store(watching.url)) as store:
        checks = examine(queues_on(store, SystemClock()).engine).checks
    (check,) = (check for check in checks if check.name == "replicas that confirm")
    assert check.verdict == "warning"
    assert "wait=1" in check.advice


def test_a_worker_continues_after_a_restart(start_server: StartServer) -> None:
    server = start_server("always")

    def restart() -> None:
        server.kill()
        server.start()

    assert run_around(server.url, restart) == [1, 2]


@pytest.mark.long
def test_a_worker_continues_after_a_failover(watched: Watched) -> None:
    assert run_around(f"{watched.url}?wait=1", watched.fail_over) == [1, 2]


@pytest.mark.long
def test_a_primary_that_is_promoted_away_while_it_stands_still(watched: Watched) -> None:
    def stall_primary() -> None:
        before = watched.primary()
        send(before, signal.SIGSTOP)
        while watched.primary() is before:
            pass
        send(before, signal.SIGCONT)
        watched.wait()

    disturb_during_load(f"{watched.url}?wait=1&timeout=1s", stall_primary, times=2)
