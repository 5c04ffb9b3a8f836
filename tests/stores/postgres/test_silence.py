"""A server, or what is between, that keeps connections open and answers nothing."""

import time
from collections.abc import Iterator
from contextlib import closing, nullcontext
from unittest.mock import Mock

import pytest

from dueline.api.connect import open_store
from dueline.core.clock import SystemClock
from dueline.core.errors import ConfigError, StoreUnavailable, Unknown
from dueline.core.wakeup import Signal, Wakeup
from dueline.store_tests.calls import claim, lane_of, new_job, new_jobs, rows_in
from tests.harness.postgres import expect_server, statement
from tests.harness.relay import Relay, relay_to

expect_server()

import psycopg  # noqa: E402

from dueline.stores.postgres.address import address_of  # noqa: E402
from dueline.stores.postgres.connection import Connections  # noqa: E402
from dueline.stores.postgres.mute_sessions import MuteSessions  # noqa: E402
from dueline.stores.postgres.store import PostgresStore  # noqa: E402

pytestmark = pytest.mark.postgres

PATIENCE_S = 60.0
TIMEOUT = "timeout=500ms"


@pytest.fixture
def relay(url: str) -> Iterator[Relay]:
    with relay_to(url, 5432) as relay:
        yield relay


@pytest.fixture
def store(url: str, relay: Relay) -> Iterator[PostgresStore]:
    store = open_store(f"{relay.url(url)}&{TIMEOUT}")
    assert isinstance(store, PostgresStore)
    yield store
    store.close()


@pytest.mark.parametrize(
    ("requests", "answers"), [(True, True), (True, False), (False, True)],
    ids=["both", "requests", "answers"],
)  # fmt: skip
def test_a_call_on_a_mute_connection_goes_on_with_a_new_one(
    store: PostgresStore, relay: Relay, *, requests: bool, answers: bool
) -> None:
    store.add([new_job(1)])
    assert relay.mute(requests=requests, answers=answers)
    assert [job.id for job in claim(store, lane_of()).jobs] == [new_job(1).id]
    relay.mute(requests=requests, answers=answers)
    assert rows_in(store, lane_of())[0].fence == 1


@pytest.mark.parametrize("requests", [True, False], ids=["both", "answers"])
def test_an_insert_on_a_mute_connection_is_unknown_and_can_be_repeated(
    store: PostgresStore, relay: Relay, *, requests: bool
) -> None:
    store.add([new_job(1)])
    relay.mute(requests=requests)
    with pytest.raises(Unknown):
        store.add([new_job(2)])
    assert list(store.add([new_job(2)])) == [True]
    assert rows_in(store, lane_of()) == new_jobs(2)


def test_a_server_that_answers_nothing_is_unavailable(store: PostgresStore, relay: Relay) -> None:
    store.add([new_job(1)])
    relay.mute(new=True)
    with pytest.raises(StoreUnavailable):
        rows_in(store, lane_of())
    relay.heal()
    assert rows_in(store, lane_of()) == new_jobs(1)


def test_the_session_of_a_mute_connection_holds_no_lock(
    url: str, store: PostgresStore, relay: Relay
) -> None:
    """Requests arrive, so the server has begun a transaction whose client is gone."""
    store.add(new_jobs(2))
    relay.mute(requests=False)
    assert len(claim(store, lane_of(), limit=1).jobs) == 1
    with closing(open_store(url)) as other:
        assert len(claim(other, lane_of(), token=2).jobs) == 1
    left = statement(
        url,
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
        " AND state LIKE 'idle in transaction%%'",
        (url.partition("schema=")[2],),
    )
    assert left == [(0,)]


def test_an_open_transaction_of_a_mute_connection_is_ended(
    url: str, store: PostgresStore, relay: Relay
) -> None:
    """Nothing that is sent arrives, so only the server can end the session and its locks."""

    def transact() -> None:
        with store.transaction() as inside:
            assert len(claim(inside.store, lane_of()).jobs) == 1
            relay.mute()

    store.add([new_job(1)])
    with pytest.raises(StoreUnavailable):
        transact()
    assert rows_in(store, lane_of()) == [new_job(1)]
    with closing(open_store(url)) as other:
        assert len(claim(other, lane_of(), token=2).jobs) == 1


def test_a_slow_server_is_waited_for(url: str, relay: Relay) -> None:
    relay.delay_s = 0.2
    with closing(open_store(f"{relay.url(url)}&timeout=30s")) as store:
        store.add([new_job(1)])
        assert rows_in(store, lane_of()) == [new_job(1)]


def test_a_commit_whose_connection_is_cut_is_read_back(
    url: str, store: PostgresStore, relay: Relay
) -> None:
    store.add([new_job(1)])
    relay.cut_after(b"COMMIT")  # the tag of its answer
    assert [job.fence for job in claim(store, lane_of()).jobs] == [1]
    assert [row.fence for row in rows_in(store, lane_of())] == [1]


def test_a_callers_statement_may_take_longer(store: PostgresStore) -> None:
    with store.transaction() as inside:
        assert list(inside.execute("SELECT 1 FROM pg_sleep(1)", ())) == [(1,)]
        inside.store.add([new_job(1)])
    assert rows_in(store, lane_of()) == [new_job(1)]


@pytest.mark.parametrize("requests", [True, False], ids=["both", "answers"])
def test_the_commit_of_a_callers_transaction_on_a_mute_connection_ends(
    store: PostgresStore, relay: Relay, *, requests: bool
) -> None:
    def transact() -> None:
        with store.transaction() as inside:
            inside.store.add([new_job(1)])
            relay.mute(requests=requests)

    if requests:
        with pytest.raises(StoreUnavailable):
            transact()
    else:  # it was committed, and the server says so
        transact()
    assert rows_in(store, lane_of()) == ([] if requests else [new_job(1)])


def test_a_listener_on_a_mute_connection_is_replaced(
    url: str, store: PostgresStore, relay: Relay
) -> None:
    woken = Signal()
    wakeups = store.wakeups()
    listener = wakeups.listen(["default"], woken)
    relay.mute()
    until_s = time.monotonic() + PATIENCE_S
    with closing(open_store(url)) as other:
        assert isinstance(other, PostgresStore)
        sender = other.wakeups()
        while not woken.is_set():
            assert time.monotonic() < until_s
            woken.clear()
            wakeups.say_idle(["default"])
            sender.wake([Wakeup("default", time.time_ns())])
            woken.wait(0.1)
    listener.close()


@pytest.mark.parametrize("text", ["x", "0", "1h", ""])
def test_a_time_limit_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="timeout"):
        open_store(f"postgresql://host/db?timeout={text}")


@pytest.mark.parametrize("is_lost", [True, False])
def test_mute_sessions_are_kept_for_the_next_connection_if_this_one_is_lost(
    *, is_lost: bool
) -> None:
    """A server that refuses to end them does so for the next connection, too."""
    mute, asked = MuteSessions(), Mock(side_effect=psycopg.OperationalError)
    mute.add(Mock(session=(5, 9), is_quick=True))
    with pytest.raises(psycopg.Error) if is_lost else nullcontext():
        mute.end(Mock(execute=asked, closed=is_lost))
    assert asked.call_count == 1
    assert bool(mute) == is_lost


def test_the_time_limit_follows_the_lease_unless_it_is_set() -> None:
    limits = []
    for options in (dict[str, str](), {"timeout": "4s"}):
        query = "".join(f"?{name}={value}" for name, value in options.items())
        connections = Connections(
            address_of(f"postgresql://host/db{query}", options), SystemClock()
        )
        limits.append(connections.timeout_s)
        for lease_us in (300_000, 6_000_000, 300_000_000):
            connections.follow_lease(lease_us)
            limits.append(connections.timeout_s)
    assert limits == [10, 1, 2, 10, 4, 4, 4, 4]
