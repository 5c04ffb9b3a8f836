"""What the store does when the server or a connection fails, and what it refuses (C11)."""

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest

from dueline import Dueline, JobFailed, Retry
from dueline.api.connect import mask, open_store
from dueline.core.errors import (
    BadInput,
    ConfigError,
    DuelineError,
    SchemaMismatch,
    StoreUnavailable,
    Unknown,
)
from dueline.core.store import Drop, Group, Migratable
from dueline.store_tests.calls import (
    LEASE_US,
    NOW_US,
    claim,
    lane_of,
    new_job,
    new_jobs,
    row_of,
    rows_in,
)
from tests.harness.clocks import HandClock
from tests.harness.postgres import Schemas, expect_server, port_of_own, schemas, server, statement
from tools.postgres import Cluster

expect_server()

import psycopg  # noqa: E402

from dueline.stores.postgres import claims, cursors, trips  # noqa: E402
from dueline.stores.postgres.connection import RESTED_US  # noqa: E402
from dueline.stores.postgres.store import PostgresStore  # noqa: E402

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def made() -> Iterator[Schemas]:
    with schemas() as made:
        yield made


@pytest.fixture
def url(made: Schemas) -> str:
    return made.fresh()


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    store = open_store(url)
    assert isinstance(store, PostgresStore)
    yield store
    store.close()


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run a server that tests may kill."""
    port = port_of_own()
    with server(tmp_path_factory.mktemp("own"), port) as cluster:
        yield cluster


def error_of(url: str) -> DuelineError:
    """Tell how a store is refused."""
    store = open_store(url)
    try:
        store.clock_us()
    except DuelineError as error:
        return error
    finally:
        store.close()
    raise AssertionError("it is not refused")


def end_sessions(url: str) -> None:
    """End the other sessions on the database, as an administrator may, and wait for that."""
    statement(
        url,
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
        " WHERE pid <> pg_backend_pid() AND application_name = %s",
        (url.partition("schema=")[2],),
    )


def sessions_on(url: str) -> int:
    """Count the sessions of a store."""
    with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
        ((count,),) = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s",
            (url.partition("schema=")[2],),
        )
    return int(count)


def lanes_of(url: str) -> list[tuple[tuple[int, str], int]]:
    """Read priority and tenant of the lanes, and how many jobs each has."""
    schema = url.partition("schema=")[2]
    tables = f"{schema}.lanes AS l JOIN {schema}.jobs AS j ON j.lane = l.id"
    query = f"SELECT priority, tenant, count(*) FROM {tables} GROUP BY 1, 2"  # noqa: S608
    with psycopg.connect(url.partition("?")[0], client_encoding="UTF8") as connection:
        rows = connection.execute(query.encode()).fetchall()
    return [((priority, tenant), count) for priority, tenant, count in rows]


def test_connections_that_nobody_needs_are_closed(url: str) -> None:
    clock, many = HandClock(), 5
    store, barrier = open_store(url, clock=clock), threading.Barrier(many)
    assert isinstance(store, PostgresStore)

    def use() -> None:
        with store.transaction():
            barrier.wait(10)

    threads = [threading.Thread(target=use) for _ in range(many)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.clock_us()
    assert sessions_on(url) == many
    clock.advance(us=RESTED_US + 1)
    store.clock_us()
    until_s = time.monotonic() + 10
    while sessions_on(url) > 1 and time.monotonic() < until_s:
        time.sleep(0.01)
    assert sessions_on(url) == 1
    store.close()


ROLE_DEFAULTS = (
    "default_transaction_isolation=serializable",
    "standard_conforming_strings=off",
    "bytea_output=escape",
    "DateStyle=SQL",
)


def test_defaults_of_the_role_do_not_matter(made: Schemas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGOPTIONS", " ".join(f"-c {setting}" for setting in ROLE_DEFAULTS))
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    url = made.fresh()
    inside, outside = Dueline(url), Dueline(url)
    for app in (inside, outside):
        app.task(name="tests.echo")(lambda text: text)
    outside.task_named("tests.echo").enqueue("zero")  # the queue is there
    with inside.transaction() as tx:
        inside.task_named("tests.echo").using(tx=tx, tenant="größe").enqueue("one €")
        outside.task_named("tests.echo").using(priority=7).enqueue("two")
        inside.task_named("tests.echo").using(tx=tx, priority=7).enqueue("three")
    lanes = [lane for lane, count in lanes_of(url) for _ in range(count)]
    assert sorted(lanes) == [(0, ""), (0, "größe"), (7, ""), (7, "")]
    for app in (inside, outside):
        app.close()


# Refusals


def test_a_wrong_password_is_an_error_that_does_not_show_it(url: str) -> None:
    login, _, place = url.rpartition("@")
    wrong = f"{login.rpartition(':')[0]}:s3cret@{place}"
    error = error_of(wrong)
    assert isinstance(error, ConfigError)
    shown = f"{error} {error!r} {error.__cause__} {open_store(wrong).__dict__}"
    assert "s3cret" not in shown
    assert "s3cret" not in mask(wrong)


def test_a_store_without_tables_names_the_command_that_makes_them(url: str) -> None:
    error = error_of(f"{url.partition('?')[0]}?schema=nothing_here")
    assert isinstance(error, ConfigError)
    assert "dueline migrate" in error.hint


def test_tables_of_another_version_are_left_as_they_are(url: str) -> None:
    schema = url.partition("schema=")[2]
    statement(url, f"UPDATE {schema}.about SET value = '999'")  # noqa: S608
    assert isinstance(error_of(url), SchemaMismatch)
    store = open_store(url)
    assert isinstance(store, Migratable)
    with pytest.raises(SchemaMismatch):
        store.migrate()


def test_a_schema_of_another_program_is_not_used(url: str) -> None:
    schema = url.partition("schema=")[2]
    statement(url, f"DROP SCHEMA {schema} CASCADE")
    statement(url, f"CREATE SCHEMA {schema}")
    statement(url, f"CREATE TABLE {schema}.jobs (n int)")
    store = open_store(url)
    assert isinstance(store, Migratable)
    with pytest.raises(ConfigError, match="another program"):
        store.migrate()


def test_tables_are_created_once_by_processes_that_do_so_at_once(url: str) -> None:
    schema = url.partition("schema=")[2]
    statement(url, f"DROP SCHEMA {schema} CASCADE")
    made: list[int] = []

    def migrate() -> None:
        store = open_store(url)
        assert isinstance(store, Migratable)
        made.append(len(store.migrate().made))

    threads = [threading.Thread(target=migrate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made)[:3] == [0, 0, 0]
    assert made.count(0) == 3


def test_a_database_that_is_not_utf8_is_refused(url: str) -> None:
    statement(url, "DROP DATABASE IF EXISTS plain_ascii")
    statement(url, "CREATE DATABASE plain_ascii ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
    head, _, _ = url.partition("?")
    error = error_of(f"{head.rpartition('/')[0]}/plain_ascii")
    assert isinstance(error, ConfigError)
    assert "UTF8" in error.hint
    statement(url, "DROP DATABASE plain_ascii WITH (FORCE)")


@pytest.mark.parametrize("schema", ["Upper", "pg_own", "a-b", "", "x" * 64, 'a"; drop'])
def test_a_name_that_is_no_schema_is_refused(schema: str) -> None:
    with pytest.raises(ConfigError, match="schema"):
        open_store(f"postgresql://host/db?schema={schema}")


def test_a_server_that_is_not_there_is_unavailable() -> None:
    assert isinstance(error_of("postgresql://127.0.0.1:1/db"), StoreUnavailable)


# Lost connections


def test_a_call_after_a_restart_takes_a_new_connection(url: str, store: PostgresStore) -> None:
    store.add(new_jobs(2))
    end_sessions(url)
    assert rows_in(store, lane_of()) == new_jobs(2)
    end_sessions(url)
    assert len(claim(store, lane_of()).jobs) == 2


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_commit_whose_answer_is_lost_is_read_back(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, *, is_committed: bool
) -> None:
    store.add([new_job(1)])
    lost: list[int] = []
    run_each = trips.run_each

    def break_off(connection: Any, statements: Sequence[trips.Statement]) -> Any:  # noqa: ANN401
        if lost:
            return run_each(connection, statements)
        lost.append(1)
        if is_committed:
            run_each(connection, statements)
        connection.close()
        return [None, None], psycopg.OperationalError("the connection was lost")

    monkeypatch.setattr(trips, "run_each", break_off)
    claimed = claim(store, lane_of())
    assert [job.fence for job in claimed.jobs] == [1]
    assert claimed.next_at_us == {lane_of(): NOW_US + (1 if is_committed else LEASE_US)}
    assert [row.fence for row in rows_in(store, lane_of())] == [1]
    assert lost == [1]


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_group_whose_last_statement_is_lost_with_the_commit_is_read_back(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, *, is_committed: bool
) -> None:
    lost: list[int] = []
    run = trips.run

    def break_off(connection: Any, statements: Sequence[trips.Statement]) -> Any:  # noqa: ANN401
        if statements[-1][0] != trips.COMMIT or lost:
            return run(connection, statements)
        lost.append(len(statements))
        if is_committed:
            run(connection, statements)
        connection.close()
        raise psycopg.OperationalError("the connection was lost")

    monkeypatch.setattr(trips, "run", break_off)
    assert list(store.together([Group(rows=[row_of(1)])])) == [True]
    assert list(store.tail("log", 0, after=None, limit=9).rows) == [row_of(1)]
    assert lost == [2]


def test_a_claim_stays_whose_heads_cannot_be_read(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add(new_jobs(2))
    with monkeypatch.context() as patch:
        patch.setattr(cursors, "HEADS", claims.HEADS + " WHERE 1 / (SELECT 0) = 1")
        claimed = claim(store, lane_of(), limit=1)
    assert [job.fence for job in claimed.jobs] == [1]
    assert claimed.next_at_us == {lane_of(): NOW_US + 1}
    assert [job.fence for job in claim(store, lane_of(), limit=9, token=2).jobs] == [1]


def test_an_insert_after_a_restart_takes_a_new_connection(url: str, store: PostgresStore) -> None:
    store.add([new_job(1)])
    end_sessions(url)
    store.add([new_job(2)])
    assert rows_in(store, lane_of()) == new_jobs(2)


@pytest.mark.parametrize("is_committed", [True, False])
def test_an_insert_whose_answer_is_lost_is_read_back(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, *, is_committed: bool
) -> None:
    store.add([new_job(1)])
    run_each = trips.run_each
    lost: list[int] = []

    def break_off(connection: Any, statements: Sequence[trips.Statement]) -> Any:  # noqa: ANN401
        if lost:
            return run_each(connection, statements)
        lost.append(1)
        if is_committed:
            (written, _), _ = run_each(connection, statements)
        else:
            number = b"SELECT 1::bigint, pg_current_xact_id()::text"
            written = trips.run(connection, [(trips.BEGIN, ()), (number, ())])[-1]
        connection.close()
        return [written, None], psycopg.OperationalError("the connection was lost")

    monkeypatch.setattr(trips, "run_each", break_off)
    assert list(store.add([new_job(2)])) == [True]
    assert rows_in(store, lane_of()) == new_jobs(2)
    assert lost == [1]


def test_an_insert_that_gave_no_sign_is_unknown(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add([new_job(1)])

    def break_off(connection: Any, _: object) -> Any:  # noqa: ANN401
        connection.close()
        return [None, None], psycopg.OperationalError("the connection was lost")

    monkeypatch.setattr(trips, "run_each", break_off)
    with pytest.raises(Unknown, match="Repeat the call"):
        store.add([new_job(2)])
    monkeypatch.undo()
    assert list(store.add([new_job(1), new_job(2)])) == [True, True]
    assert rows_in(store, lane_of()) == new_jobs(2)


@pytest.mark.long
@pytest.mark.parametrize("is_reused", [True, False])
def test_a_number_that_a_crash_gives_to_another_transaction_says_nothing(
    own: Cluster, monkeypatch: pytest.MonkeyPatch, *, is_reused: bool
) -> None:
    store = open_store(own.url)
    assert isinstance(store, PostgresStore)
    store.migrate()
    rows = new_jobs(3)[1:] if is_reused else new_jobs(5)[3:]
    store.add([new_job(99)])  # its lane is listed
    run_each = trips.run_each
    lost: list[int] = []

    def crash(connection: Any, statements: Sequence[trips.Statement]) -> Any:  # noqa: ANN401
        if lost:
            return run_each(connection, statements)
        written = trips.run(connection, [(trips.BEGIN, ()), statements[0]])[-1]
        lost.append(int(trips.Results(connection).rows(written)[0][-1]))
        restart(own)
        while is_reused and last_number(own.url) < lost[0]:
            pass
        connection.close()
        return [written, None], psycopg.OperationalError("the connection was lost")

    monkeypatch.setattr(trips, "run_each", crash)
    if is_reused:
        with pytest.raises(Unknown, match="Repeat the call"):
            store.add(rows)
    assert list(store.add(rows)) == [True, True]
    assert {row.id for row in rows} <= {row.id for row in rows_in(store, lane_of())}
    assert len(lost) == 1
    store.close()


@pytest.mark.slow
def test_the_outcome_of_a_callers_transaction_that_a_crash_undid_is_not_that_of_another(
    own: Cluster,
) -> None:
    store = open_store(own.url)
    assert isinstance(store, PostgresStore)
    store.migrate()
    connection = psycopg.connect(own.url)
    connection.execute("SELECT 1")
    inside = store.join(connection).store
    assert isinstance(inside, PostgresStore)
    number = inside.transaction_id()
    restart(own)
    while last_number(own.url) < int(number.partition("/")[0]):
        pass
    with pytest.raises(StoreUnavailable, match="recovered from a crash"):
        store.is_committed(number)
    connection.close()
    store.close()


def restart(cluster: Cluster) -> None:
    """Kill a server and start it again."""
    cluster.kill()
    while cluster.pid is not None:
        pass
    cluster.start()


def last_number(url: str) -> int:
    """Commit a transaction that writes, and return its number."""
    ((number,),) = statement(
        url, "INSERT INTO dueline.about VALUES (gen_random_uuid()::text, '')"
        " RETURNING pg_current_xact_id()::text::bigint"
    )  # fmt: skip
    return int(number)


@pytest.mark.long
def test_a_killed_server_that_comes_back_has_lost_and_doubled_nothing(own: Cluster) -> None:
    store = open_store(own.url)
    assert isinstance(store, Migratable)
    store.migrate()
    stored: list[int] = []
    is_over = threading.Event()

    def produce() -> None:
        for number in range(1, 100_000):
            if is_over.is_set():
                return
            with suppress(StoreUnavailable):
                store.add([new_job(number)])
                stored.append(number)

    thread = threading.Thread(target=produce)
    thread.start()
    for _ in range(2):
        before = len(stored)
        while len(stored) < before + 50:
            assert thread.is_alive()
        restart(own)
    before = len(stored)
    while len(stored) < before + 50:
        assert thread.is_alive()
    is_over.set()
    thread.join()
    assert isinstance(store, PostgresStore)
    present = {int.from_bytes(row.id) for row in rows_in(store, lane_of())}
    assert set(stored) <= present
    store.close()


def test_an_error_whose_text_no_column_takes_is_stored_escaped(url: str) -> None:
    """A worker would end with it, and so would the next one."""
    app = Dueline(url)

    @app.task(name="tests.fail", retry=Retry(attempts=1))
    def fail() -> None:
        raise ValueError("a\0b, \ud800")

    job = fail.enqueue()
    app.run_worker(burst=True)
    with pytest.raises(JobFailed, match=r"ValueError: a\\x00b, \\ud800"):
        job.result(timeout=0)
    app.close()


def test_what_is_rolled_back_was_never_there(store: PostgresStore) -> None:
    with suppress(ZeroDivisionError), store.transaction() as inside:
        inside.store.together([Group(jobs=[new_job(1)], rows=[row_of(1)])])
        raise ZeroDivisionError
    assert rows_in(store, lane_of()) == []
    assert list(store.tail("log", 0, after=None, limit=9).rows) == []


def test_a_transaction_takes_the_callers_statements_too(store: PostgresStore, url: str) -> None:
    schema = url.partition("schema=")[2]
    store.add([new_job(1)])
    (job,) = claim(store, lane_of()).jobs
    with store.transaction() as inside:
        inside.execute("CREATE TABLE public.products (n int)", ())
        inside.execute("INSERT INTO public.products VALUES (%s)", (7,))
        assert list(inside.store.settle([Drop(job)])) == [True]
        foreign = f"DELETE FROM {schema}.jobs"  # noqa: S608
        for refused in ("COMMIT", foreign, "SELECT nonsense("):
            with pytest.raises(BadInput):
                inside.execute(refused, ())
        with pytest.raises(BadInput):
            store.add([new_job(2)])
    assert statement(url, "SELECT n FROM public.products") == [(7,)]
    statement(url, "DROP TABLE public.products")
    assert rows_in(store, lane_of()) == []


def test_a_cursor_steps_back_to_rows_that_come_behind_it(store: PostgresStore, url: str) -> None:
    """A long lane: another process's row behind the cursor is found after a second at most."""
    store.add([new_job(number, at_us=NOW_US + number, lane=lane_of()) for number in range(1, 100)])
    now_us = NOW_US + 1000
    assert len(claim(store, lane_of(), limit=10, now_us=now_us).jobs) == 10
    assert len(claim(store, lane_of(), limit=10, now_us=now_us, token=2).jobs) == 10
    store.add([new_job(500, at_us=NOW_US, lane=lane_of())])  # its own is found at once
    assert new_job(500).id in [
        job.id for job in claim(store, lane_of(), limit=1, now_us=now_us, token=3).jobs
    ]
    other = open_store(url)
    other.add([new_job(501, at_us=NOW_US, lane=lane_of())])
    ids: set[bytes] = set()
    for token in range(4, 90):
        ids |= {job.id for job in claim(store, lane_of(), limit=1, now_us=now_us, token=token).jobs}
    assert new_job(501).id in ids
    other.close()


@pytest.mark.slow
def test_a_forked_child_uses_connections_of_its_own(store: PostgresStore) -> None:
    store.add([new_job(1)])
    child = os.fork()
    if child == 0:  # pragma: no cover
        with suppress(BaseException):
            store.add([new_job(2)])
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    store.add([new_job(3)])
    assert rows_in(store, lane_of()) == new_jobs(3)
