"""What a wrong address, a wrong server or one that fails comes to."""

import os
import re
import signal
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
import redis

from dueline.api.connect import open_store
from dueline.core.clock import SECOND_US
from dueline.core.errors import ConfigError, StoreReplaced, StoreUnavailable, Unknown
from dueline.core.store import Commit, Drop, Group, Put, Store
from dueline.store_tests.calls import (
    LEASE_US,
    NOW_US,
    claim,
    ids_of,
    lane_of,
    new_job,
    new_jobs,
    put_in,
    row_of,
    rows_in,
)
from dueline.stores.redis import connection, links
from tests.harness.redis import StartServer, free_port
from tools.redis import Server

pytestmark = [pytest.mark.redis, pytest.mark.slow]


PAGE = Path("docs/operations/redis.md")


def exercise(store: Store) -> None:
    """Use each kind of call."""
    put_in(store, *new_jobs(3), new_job(9, body=b"x" * 2000))
    groups = [
        Group(
            verdicts=[Drop(job)],
            commits=(Commit("some", [Put("key", b"1", b"value", expires_us=job.at_us)]),),
            rows=[row_of(number)],
        )
        for number, job in enumerate(claim(store, lane_of()).jobs)
    ]
    assert list(store.together(groups)) == [True] * 4
    store.close_until("log", 0, at_us=NOW_US)
    store.expire("log", 0, before_us=NOW_US + 1)
    store.sweep("mail", 0, now_us=NOW_US, width_us=1)
    wakeups = store.wakeups()  # type: ignore[attr-defined]
    wakeups.say_idle(["mail"])
    assert store.clock_us()
    assert store.describe()


def url_of(server: Server, *options: str) -> str:
    return "?".join([server.url, "&".join(options)])


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_server_that_evicts_keys_is_refused(start_server: StartServer, policy: str) -> None:
    server = start_server(settings={"maxmemory-policy": policy})
    with (
        closing(open_store(server.url)) as store,
        pytest.raises(ConfigError, match=policy) as error,
    ):
        store.add([new_job(1)])
    assert "noeviction" in error.value.hint


def test_a_server_without_a_file_is_refused_unless_that_is_accepted(
    start_server: StartServer,
) -> None:
    server = start_server(settings={"appendonly": "no"})
    with closing(open_store(server.url)) as store, pytest.raises(ConfigError, match="appendonly"):
        store.add([new_job(1)])
    with closing(open_store(url_of(server, "durability=none"))) as store:
        assert list(store.add([new_job(1)])) == [True]
        assert "may be lost" in store.describe()["survives a process crash"]


@pytest.mark.parametrize(
    ("fsync", "says"), [("always", "nothing is lost"), ("everysec", "second"), ("no", "30 seconds")]
)
def test_what_survives_follows_from_the_servers_settings(
    start_server: StartServer, fsync: str, says: str
) -> None:
    with closing(open_store(start_server(fsync).url)) as store:
        facts = store.describe()
        assert says in facts["survives loss of power"]
        assert facts["survives a process crash"] == "nothing is lost"


def test_a_wrong_password_is_no_outage(start_server: StartServer) -> None:
    server = start_server(settings={"requirepass": "right"})
    for login in ("", ":wrong@"):
        url = server.url.replace("//", f"//{login}")
        with (
            closing(open_store(url)) as store,
            pytest.raises(ConfigError, match="refuses") as error,
        ):
            store.clock_us()
        assert "wrong" not in str(error.value).replace("WRONGPASS", "")
    with closing(open_store(server.url.replace("//", "//:right@"))) as store:
        store.add([new_job(1)])


@pytest.mark.parametrize(
    ("rules", "named"),
    [
        ("~* &* +@all -fcall", "fcall"),
        ("~* &* +@all -function", "function"),
        ("~* &* +@all -info", "info"),
        ("~* &* +@all -time", "time"),
        ("~* &* +@all -client|kill", "client kill"),
        ("~* &* +@all -hdel", "hdel"),
        ("~* &* +@all -zadd", "zadd"),
        ("~* &* +@all -publish", "publish"),
        ("~* &* +@all -subscribe", "subscribe"),
        ("~* &other:* +@all", "publish with {dueline}:wakeups"),
        ("~other:* &* +@all", "key"),
    ],
)
def test_a_user_without_a_right_is_told_which(
    start_server: StartServer, rules: str, named: str
) -> None:
    server = start_server()
    server.ask("ACL", "SETUSER", "app", "on", ">pw", *rules.split())
    url = server.url.replace("//", "//app:pw@")
    with closing(open_store(url)) as store:
        for _ in range(2):
            with pytest.raises(ConfigError, match=f"(?i){named}") as error:
                store.add([new_job(1)])
            assert "ACL SETUSER" in error.value.hint
    with closing(open_store(server.url)) as store:
        assert rows_in(store, lane_of()) == []


def test_the_rights_in_the_documentation_suffice(start_server: StartServer) -> None:
    (rules,) = re.findall(r"ACL SETUSER dueline (.*)", PAGE.read_text())
    server = start_server()
    server.ask("ACL", "SETUSER", "dueline", *rules.replace("PASSWORD", "pw").split())
    with closing(open_store(server.url.replace("//", "//dueline:pw@"))) as store:
        exercise(store)


def test_a_server_that_hides_its_settings_is_used_and_says_so(start_server: StartServer) -> None:
    server = start_server()
    server.ask("ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-config")
    with closing(open_store(server.url.replace("//", "//app:pw@"))) as store:
        assert list(store.add([new_job(1)])) == [True]
        assert "cannot be known" in store.describe()["survives loss of power"]


@pytest.mark.parametrize(
    "setting", [("maxmemory-policy", "allkeys-lru"), ("appendonly", "no")], ids=" ".join
)
def test_a_server_that_hides_its_settings_is_refused_if_it_would_lose_jobs(
    start_server: StartServer, setting: tuple[str, str]
) -> None:
    server = start_server(settings=dict([setting]))
    server.ask("ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-config")
    with (
        closing(open_store(server.url.replace("//", "//app:pw@"))) as store,
        pytest.raises(ConfigError, match=setting[0]),
    ):
        store.add([new_job(1)])


def test_a_replica_is_refused_and_named(start_server: StartServer) -> None:
    server, other = start_server(), start_server()
    server.ask("REPLICAOF", "127.0.0.1", str(other.port))
    store = open_store(server.url)
    with closing(store), pytest.raises(StoreUnavailable, match=r"replica|MASTER|loading"):
        store.add([new_job(1)])


def test_a_server_that_becomes_a_replica_is_not_used_again(start_server: StartServer) -> None:
    server, other = start_server(), start_server()
    with closing(open_store(server.url)) as store:
        put_in(store, new_job(1))
        server.ask("REPLICAOF", "127.0.0.1", str(other.port))
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match=r"replica|MASTER|loading") as error:
                store.add([new_job(2)])
            assert not isinstance(error.value, Unknown)
        server.ask("REPLICAOF", "NO", "ONE")


def test_another_database_is_another_store(start_server: StartServer) -> None:
    server = start_server()
    with (
        closing(open_store(server.url)) as store,
        closing(open_store(server.url.replace("/0", "/1"))) as other,
    ):
        put_in(store, new_job(1))
        put_in(other, new_job(2))
        assert list(other.find([new_job(1).id])) == [None]
        server.ask("SWAPDB", "0", "1")
        for swapped in (store, other):
            with pytest.raises(StoreReplaced):
                swapped.add([new_job(3)])
    url = server.url.replace("/0", "/99")
    with closing(open_store(url)) as store, pytest.raises(ConfigError, match="out of range"):
        store.add([new_job(1)])


def test_a_script_that_blocks_the_server_is_named(start_server: StartServer) -> None:
    server = start_server(settings={"busy-reply-threshold": "50"})
    with closing(open_store(server.url)) as store:
        put_in(store, new_job(1))
        blocker = threading.Thread(target=server.ask, args=("EVAL", "while true do end", "0"))
        blocker.start()
        until_busy(server)
        with pytest.raises(StoreUnavailable, match=r"(?i)busy") as error:
            store.add([new_job(2)])
        assert "SCRIPT KILL" in error.value.hint
        server.ask("SCRIPT", "KILL")
        blocker.join()
        put_in(store, new_job(2))


def until_busy(server: Server) -> None:
    """Wait until a script has blocked the server for some time."""
    while not server.ask("PING").startswith("-BUSY"):
        pass


def test_nothing_that_listens_is_an_outage() -> None:
    store = open_store(f"redis://127.0.0.1:{free_port()}/0")
    with closing(store), pytest.raises(StoreUnavailable) as error:
        store.add([new_job(1)])
    assert not isinstance(error.value, Unknown)


def test_a_store_that_was_deleted_is_not_written_to_again(start_server: StartServer) -> None:
    server = start_server()
    with closing(open_store(server.url)) as store:
        put_in(store, new_job(1))
        server.ask("FLUSHALL")
        for _ in range(2):
            with pytest.raises(StoreReplaced):
                store.add([new_job(2)])
            with pytest.raises(StoreReplaced):
                claim(store, lane_of())
            with pytest.raises(StoreReplaced):
                store.find([new_job(1).id])
    with closing(open_store(server.url)) as store:  # a new process makes a new store
        assert list(store.add([new_job(2)])) == [True]


def test_functions_that_were_deleted_are_loaded_again(start_server: StartServer) -> None:
    server = start_server()
    with closing(open_store(server.url)) as store:
        put_in(store, new_job(1))
        server.ask("FUNCTION", "FLUSH")
        put_in(store, new_job(2))
        assert len(rows_in(store, lane_of())) == 2


def test_full_memory_refuses_new_jobs_and_lets_workers_go_on(start_server: StartServer) -> None:
    server = start_server()
    with closing(open_store(server.url)) as store:
        put_in(store, *new_jobs(10))
        server.ask("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(StoreUnavailable, match="maxmemory") as error:
            store.add([new_job(11)])
        assert "maxmemory" in error.value.hint
        jobs = claim(store, lane_of(), limit=5).jobs
        assert list(store.settle([Drop(job) for job in jobs])) == [True] * 5
        with closing(open_store(server.url)) as other:  # a worker that starts meanwhile
            jobs = claim(other, lane_of(), token=2).jobs
            assert list(other.settle([Drop(job) for job in jobs])) == [True] * 5
        server.ask("CONFIG", "SET", "maxmemory", "0")
        put_in(store, new_job(11))


def test_a_restart_is_survived_and_fences_do_not_go_back(start_server: StartServer) -> None:
    server = start_server("always")
    with closing(open_store(server.url)) as store:
        put_in(store, *new_jobs(2))
        (first,) = claim(store, lane_of(), limit=1).jobs
        server.kill()
        with pytest.raises(StoreUnavailable):
            store.find([first.id])
        server.start()
        (second, again) = claim(store, lane_of(), now_us=NOW_US + LEASE_US, token=2).jobs
        assert ids_of([second, again]) == ids_of(new_jobs(2)[::-1])
        assert first.fence + 10**4 < again.fence < 2**31  # as if claims had been lost
        assert list(store.find([again.id])) == [again]
        (third,) = claim(store, lane_of(), now_us=NOW_US + 2 * LEASE_US, limit=1, token=3).jobs
        assert third.fence == second.fence + 1
        assert list(store.find([third.id])) == [third]


def test_only_jobs_that_a_restart_may_have_lost_have_higher_fences(
    start_server: StartServer,
) -> None:
    server = start_server("always")
    with closing(open_store(server.url)) as store:
        put_in(store, new_job(1, body=b"x" * 2000))
        fences = list[int]()
        for number in range(2, 70):  # of the epochs, the row has the last bits
            if number < 4 or number > 66:
                server.kill()
                server.start()
            else:
                server.ask("HINCRBY", "{dueline}:about", "epoch", "1")
            fresh_us = store.clock_us() + 120 * SECOND_US
            again, new = new_job(100), new_job(number)._replace(enqueued_us=fresh_us)
            put_in(store, again, new)
            jobs = claim(store, lane_of(), now_us=NOW_US + number * LEASE_US, token=number).jobs
            of = {job.id: job for job in jobs}
            assert of[new.id].fence == 1
            assert list(store.settle([Drop(of[new.id]), Drop(of[again.id])])) == [True, True]
            assert list(store.find([new_job(1).id])) == [of[new_job(1).id]]
            assert of[new_job(1).id].body == b"x" * 2000
            fences += (of[again.id].fence, of[new_job(1).id].fence)
        assert fences[1::2] == sorted(set(fences[1::2]))
        assert min(fences) > 10**4


def test_a_connection_that_was_lost_while_it_was_idle_is_replaced(
    start_server: StartServer,
) -> None:
    server = start_server()
    with closing(open_store(server.url)) as store:
        for number in range(5):
            server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            put_in(store, new_job(number))
            assert len(store.append([row_of(number)])) == 1
        assert len(rows_in(store, lane_of())) == 5


def test_an_answer_that_is_lost_is_read_again(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start_server()
    with closing(open_store(server.url)) as store:
        put_in(store, *new_jobs(3))
        (held, stale, _) = claim(store, lane_of()).jobs
        assert list(store.settle([Drop(stale)])) == [True]
        ask, is_lost = links.ask, [False]

        def lose(driver: object, command: Sequence[object]) -> object:
            answer = ask(driver, command)
            if is_lost[0]:
                is_lost[0] = False
                raise redis.ConnectionError("lost")
            return answer

        monkeypatch.setattr(connection, "ask", lose)
        is_lost[0] = True
        assert list(store.settle([Drop(held), Drop(stale)])) == [True, False]
        is_lost[0] = True
        assert list(store.append([row_of(1), row_of(2, at_us=NOW_US + 7)])) == [NOW_US, NOW_US + 7]
        is_lost[0] = True
        assert list(store.add([new_job(9)])) == [True]
        assert not is_lost[0]
        assert len(rows_in(store, lane_of())) == 2


def test_a_server_that_stands_still_is_given_up(start_server: StartServer) -> None:
    server = start_server()
    with closing(open_store(url_of(server, "timeout=1s"))) as store:
        put_in(store, *new_jobs(3))
        (job, *_) = claim(store, lane_of()).jobs
        pid = server.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(Unknown):
                store.settle([Drop(job)])
            with pytest.raises(StoreUnavailable):
                store.find([job.id])
        finally:
            os.kill(pid, signal.SIGCONT)
        # Whatever became of the call, a repetition tells the same as the row.
        is_there = store.find([job.id])[0] is not None
        assert list(store.settle([Drop(job)])) == [is_there]
