"""Jobs in a transaction that the caller has open on a connection of its own (C11)."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from dueline import Dueline, Unique, pipeline
from dueline.core.errors import BadInput, Duplicate, StoreUnavailable
from tests.harness.postgres import expect_server, statement
from tests.harness.woken_workers import WORKER, app_on

expect_server()

import psycopg  # noqa: E402
from psycopg.rows import dict_row  # noqa: E402

pytestmark = pytest.mark.postgres

WAIT_S = 60.0


@pytest.fixture
def app(url: str) -> Iterator[Dueline]:
    app = app_on(url)
    yield app
    app.close()


@pytest.fixture
def connection(url: str) -> Iterator[Any]:
    with psycopg.connect(url.partition("?")[0]) as connection:
        yield connection


def jobs_in(url: str) -> int:
    """Count the jobs that another session sees."""
    schema = url.partition("schema=")[2]
    return int(statement(url, f"SELECT count(*) FROM {schema}.jobs")[0][0])  # noqa: S608


def test_a_job_is_stored_with_the_commit(app: Dueline, connection: Any, url: str) -> None:  # noqa: ANN401
    echo = app.task_named("tests.echo")
    echo.using(tx=connection).enqueue("one")
    connection.execute("SELECT 1")
    assert jobs_in(url) == 0
    connection.commit()
    assert jobs_in(url) == 1


@pytest.mark.parametrize("level", list(psycopg.IsolationLevel))
@pytest.mark.parametrize("options", [{}, {"priority": 7}, {"tenant": "new"}])
def test_a_transaction_of_any_isolation_takes_jobs(
    app: Dueline,
    connection: Any,  # noqa: ANN401
    url: str,
    options: dict[str, Any],
    level: Any,  # noqa: ANN401
) -> None:
    echo = app.task_named("tests.echo")
    echo.enqueue("one")  # the queue is there
    connection.isolation_level = level
    connection.execute("SELECT 1")  # the snapshot is older than the new lanes
    echo.using(tx=connection, **options).enqueue("two")
    connection.execute("SELECT 1")
    echo.using(tx=connection, **options).enqueue_many([("three",), ("four",)])
    connection.commit()
    assert jobs_in(url) == 4


@pytest.mark.parametrize("level", list(psycopg.IsolationLevel))
def test_the_first_job_of_a_queue_may_be_the_first_statement_of_a_transaction(
    app: Dueline,
    connection: Any,  # noqa: ANN401
    url: str,
    level: Any,  # noqa: ANN401
) -> None:
    connection.isolation_level = level
    app.task_named("tests.echo").using(tx=connection).enqueue("one")
    connection.commit()
    assert jobs_in(url) == 1


def test_a_snapshot_that_is_older_than_the_queue_is_an_error_that_says_so(
    app: Dueline,
    connection: Any,  # noqa: ANN401
    url: str,
) -> None:
    echo = app.task_named("tests.echo")
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    connection.execute("SELECT 1")
    with pytest.raises(StoreUnavailable, match="repeat"):
        echo.using(tx=connection).enqueue("one")
    connection.rollback()
    connection.execute("SELECT 1")
    echo.using(tx=connection).enqueue("two")
    connection.commit()
    assert jobs_in(url) == 1


def test_a_connection_with_another_encoding_is_refused(
    app: Dueline,
    connection: Any,  # noqa: ANN401
    url: str,
) -> None:
    connection.execute("SET client_encoding = 'LATIN1'")
    with pytest.raises(BadInput, match="client_encoding=UTF8"):
        app.task_named("tests.echo").using(tx=connection).enqueue("one")
    connection.rollback()
    assert jobs_in(url) == 0


def test_a_job_is_gone_with_a_rollback(app: Dueline, connection: Any, url: str) -> None:  # noqa: ANN401
    echo = app.task_named("tests.echo")
    echo.using(tx=connection).enqueue("one")
    connection.rollback()
    assert jobs_in(url) == 0
    echo.enqueue("two")
    assert jobs_in(url) == 1


def test_a_cursor_and_other_row_factories_do_too(app: Dueline, url: str) -> None:
    echo = app.task_named("tests.echo")
    plain = url.partition("?")[0]
    with (
        psycopg.connect(plain, autocommit=True, row_factory=dict_row) as connection,
        connection.transaction(),
        connection.cursor() as cursor,
    ):
        echo.using(tx=cursor).enqueue_many([("one",), ("two",)])
        assert cursor.execute("SELECT 7 AS n").fetchone() == {"n": 7}
    assert jobs_in(url) == 2


def test_what_is_no_open_transaction_is_refused(app: Dueline, url: str) -> None:
    echo = app.task_named("tests.echo")
    plain = url.partition("?")[0]
    with psycopg.connect(plain, autocommit=True) as connection:
        with pytest.raises(BadInput, match="no transaction open"):
            echo.using(tx=connection)
        with pytest.raises(BadInput, match="must be a transaction"):
            echo.using(tx="a string")
    with psycopg.connect(plain) as failed:
        with pytest.raises(psycopg.Error):
            failed.execute("SELECT nonsense(")
        with pytest.raises(BadInput, match="has failed"):
            echo.using(tx=failed)
        failed.rollback()


def test_a_connection_to_another_database_is_refused(app: Dueline, url: str) -> None:
    echo = app.task_named("tests.echo")
    plain = url.partition("?")[0]
    statement(url, "DROP DATABASE IF EXISTS elsewhere")
    statement(url, "CREATE DATABASE elsewhere")
    with (
        psycopg.connect(f"{plain.rpartition('/')[0]}/elsewhere") as other,
        pytest.raises(BadInput, match="another database"),
    ):
        echo.using(tx=other)
    statement(url, "DROP DATABASE elsewhere WITH (FORCE)")


def test_a_job_that_commits_late_starts_at_once(
    app: Dueline,
    connection: Any,  # noqa: ANN401
    url: str,
) -> None:
    """Other producers do not wait for it; the worker, which never polls twice, is notified."""
    echo = app.task_named("tests.echo")
    worker = subprocess.Popen([sys.executable, "-c", WORKER, url], stdout=subprocess.PIPE)
    try:
        late = echo.using(tx=connection).enqueue("late")
        for text in ("a", "b", "c"):
            assert echo.enqueue(text).result(timeout=WAIT_S) == text
        connection.commit()
        assert late.result(timeout=WAIT_S) == "late"
    finally:
        worker.kill()
        worker.communicate()


def test_events_and_workflows_are_stored_with_the_commit(
    app: Dueline,
    connection: Any,  # noqa: ANN401
    url: str,
) -> None:
    """An event of a late commit is read once, behind those that it was appended before."""
    events, echo = app.stream("orders"), app.task_named("tests.echo")
    events.append("late", tx=connection)
    flow = app.start(pipeline(echo.step("a"), echo.step()), tx=connection)
    assert jobs_in(url) == 0
    other = Dueline(url)
    other.stream("orders").append("soon")  # waits for nothing
    assert [event.value for event in events.read()] == []  # nor is it read before the late one
    connection.commit()
    assert [event.value for event in events.read()] == ["late", "soon"]
    app.run_worker(burst=True)
    assert flow.result(timeout=WAIT_S) == "a"
    events.append("never", tx=connection)
    connection.rollback()
    assert [event.value for event in events.read()] == ["late", "soon"]
    other.close()


def test_sessions_and_connections_of_sqlalchemy(app: Dueline, url: str) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    orm = pytest.importorskip("sqlalchemy.orm")
    echo = app.task_named("tests.echo")
    engine = sqlalchemy.create_engine(url.partition("?")[0].replace("://", "+psycopg://", 1))
    with orm.Session(engine) as session:
        echo.using(tx=session).enqueue("one")
        assert jobs_in(url) == 0
        session.commit()
        echo.using(tx=session).enqueue("two")
        session.rollback()
    assert jobs_in(url) == 1
    with engine.begin() as connection:
        echo.using(tx=connection).enqueue("three")
    assert jobs_in(url) == 2
    engine.dispose()


def _engine(url: str, driver: str) -> Any:  # noqa: ANN401
    asynchronous = pytest.importorskip("sqlalchemy.ext.asyncio")
    pytest.importorskip(driver)
    return asynchronous.create_async_engine(
        url.partition("?")[0].replace("://", f"+{driver}://", 1)
    )


DRIVERS = pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])


@DRIVERS
def test_a_session_of_sqlalchemy_that_is_asynchronous(app: Dueline, url: str, driver: str) -> None:
    asynchronous = pytest.importorskip("sqlalchemy.ext.asyncio")
    echo = app.task_named("tests.echo")

    async def enqueue() -> None:
        engine = _engine(url, driver)
        async with asynchronous.AsyncSession(engine) as session:
            job = await echo.using(tx=session).aenqueue("one")
            await echo.using(tx=session, priority=3).aenqueue_many([("two",), ("three",)])
            assert jobs_in(url) == 0
            await session.commit()
            assert jobs_in(url) == 3
            assert await job.astatus() == "ready"
            await echo.using(tx=session).aenqueue("four")
            await app.aenqueue_many([echo.call("five")], tx=session)
            await app.astart(pipeline(echo.step("a"), echo.step()), tx=session)
            await session.rollback()
            assert jobs_in(url) == 3
            flow = await app.astart(pipeline(echo.step("a"), echo.step()), tx=session)
            await session.commit()
            assert await flow.astatus() == "running"
            with pytest.raises(BadInput, match=r"AsyncSession as `tx` is asynchronous.*aenqueue"):
                echo.using(tx=session).enqueue("six")
            await session.run_sync(lambda own: echo.using(tx=own).enqueue("seven"))
            await session.rollback()
        await engine.dispose()

    asyncio.run(enqueue())
    assert jobs_in(url) == 5


@DRIVERS
def test_a_connection_of_sqlalchemy_that_is_asynchronous(
    app: Dueline, url: str, driver: str
) -> None:
    echo = app.task_named("tests.echo")

    async def enqueue() -> None:
        engine = _engine(url, driver)
        async with engine.begin() as connection:
            await echo.using(tx=connection).aenqueue("one")
            assert jobs_in(url) == 0
        assert jobs_in(url) == 1
        async with engine.connect() as connection:  # without a transaction of its own
            await echo.using(tx=connection).aenqueue("two")
            assert jobs_in(url) == 1
            await connection.commit()
            assert jobs_in(url) == 2
            await echo.using(tx=connection).aenqueue("three")
        assert jobs_in(url) == 2
        alone = engine.execution_options(isolation_level="AUTOCOMMIT")
        async with alone.connect() as connection:
            with pytest.raises(BadInput, match="no transaction open"):
                await echo.using(tx=connection).aenqueue("four")
        await engine.dispose()

    asyncio.run(enqueue())


def test_a_connection_of_asyncpg(app: Dueline, url: str) -> None:
    asyncpg = pytest.importorskip("asyncpg")
    echo = app.task_named("tests.echo")
    unique = Unique("{text}")

    async def enqueue() -> None:
        connection = await asyncpg.connect(url.partition("?")[0])
        with pytest.raises(BadInput, match="no transaction open"):
            await echo.using(tx=connection).aenqueue("one")
        async with connection.transaction():
            await echo.using(tx=connection, unique=unique, tags=["a"], tenant="t").aenqueue("one")
            with pytest.raises(Duplicate):
                await echo.using(tx=connection, unique=unique).aenqueue("one")
            await echo.using(tx=connection).aenqueue_many([(str(n),) for n in range(700)])
            assert jobs_in(url) == 0
        assert jobs_in(url) == 701
        undone = connection.transaction()
        await undone.start()
        await echo.using(tx=connection).aenqueue("two")
        await undone.rollback()
        for level in ("repeatable_read", "serializable"):
            async with connection.transaction(isolation=level):
                await connection.fetch("SELECT 1")
                await echo.using(tx=connection).aenqueue(level)
        assert jobs_in(url) == 703
        failed = connection.transaction()
        await failed.start()
        with suppress(asyncpg.UndefinedFunctionError):
            await connection.fetch("SELECT nonsense()")
        with pytest.raises(BadInput, match="has failed"):
            await echo.using(tx=connection).aenqueue("three")
        await failed.rollback()
        await connection.close()
        async with (
            asyncpg.create_pool(url.partition("?")[0], min_size=1, max_size=1) as pool,
            pool.acquire() as pooled,
            pooled.transaction(),
        ):
            await echo.using(tx=pooled).aenqueue("four")
        assert jobs_in(url) == 704

    asyncio.run(enqueue())


def test_an_asynchronous_connection_of_psycopg(app: Dueline, url: str) -> None:
    echo = app.task_named("tests.echo")

    async def enqueue() -> None:
        async with await psycopg.AsyncConnection.connect(url.partition("?")[0]) as connection:
            await echo.using(tx=connection).aenqueue("one")
            assert jobs_in(url) == 0
        assert jobs_in(url) == 1

    asyncio.run(enqueue())


def test_a_cancelled_call_leaves_the_connection_usable(app: Dueline, url: str) -> None:
    """Cancel a call at each of its steps; the transaction goes on."""
    asyncpg = pytest.importorskip("asyncpg")
    echo = app.task_named("tests.echo")
    echo.enqueue("zero")

    async def enqueue() -> None:
        connection = await asyncpg.connect(url.partition("?")[0])
        for steps in range(0, 40, 3):
            async with connection.transaction():
                call = asyncio.ensure_future(echo.using(tx=connection).aenqueue("one"))
                for _ in range(steps):
                    await asyncio.sleep(0)
                call.cancel()
                with suppress(asyncio.CancelledError):
                    await call
                await connection.fetch("SELECT 1")
        await connection.close()

    asyncio.run(enqueue())


def test_an_asynchronous_connection_to_another_store_is_refused() -> None:
    app = Dueline("memory://")
    task = app.task(name="echo")(lambda text: text)
    connection = type("Connection", (), {"__module__": "asyncpg.connection"})()
    with pytest.raises(BadInput, match="must be a transaction"):
        task.using(tx=connection)


@pytest.mark.filterwarnings("ignore:Accessing the database during app:RuntimeWarning")
def test_the_connection_of_django(app: Dueline, url: str) -> None:
    pytest.importorskip("django")
    from django.conf import settings  # noqa: PLC0415
    from django.db.backends.postgresql.base import DatabaseWrapper  # noqa: PLC0415

    if not settings.configured:
        settings.configure(USE_TZ=True)
    parts = psycopg.conninfo.conninfo_to_dict(url.partition("?")[0])
    wrapper = DatabaseWrapper(
        {
            "ENGINE": "django.db.backends.postgresql", "NAME": parts["dbname"],
            "USER": parts["user"], "PASSWORD": parts["password"], "HOST": parts["host"],
            "PORT": parts["port"], "OPTIONS": {}, "TIME_ZONE": None, "CONN_MAX_AGE": 0,
            "CONN_HEALTH_CHECKS": False, "AUTOCOMMIT": True, "ATOMIC_REQUESTS": False,
        }
    )  # fmt: skip
    echo = app.task_named("tests.echo")
    try:
        with pytest.raises(BadInput, match="no transaction open"):
            echo.using(tx=wrapper)
        wrapper.set_autocommit(False)
        echo.using(tx=wrapper).enqueue("one")
        with wrapper.cursor() as cursor:
            cursor.execute("SELECT 1")
        assert jobs_in(url) == 0
        wrapper.commit()
        assert jobs_in(url) == 1
    finally:
        wrapper.close()
