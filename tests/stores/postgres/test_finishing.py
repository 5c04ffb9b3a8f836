"""Jobs that their handlers finish on connections of their own (C10)."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from dueline import Context, Dueline, Retry
from dueline.core.errors import BadInput, JobFailed
from dueline.jobs.history import attempts
from tests.harness.postgres import expect_server, statement

expect_server()

import psycopg  # noqa: E402

pytestmark = pytest.mark.postgres

WAIT_S = 30.0
ONCE = Retry(attempts=1)


@pytest.fixture
def app(url: str) -> Iterator[Dueline]:
    app = Dueline(url)
    yield app
    app.close()


@pytest.fixture
def products(url: str) -> Iterator[str]:
    name = "public.products_" + url.partition("schema=")[2]
    statement(url, f"CREATE TABLE {name} (n int)")
    yield name
    statement(url, f"DROP TABLE {name}")


def result_of(app: Dueline, job: Any) -> Any:  # noqa: ANN401
    """Run a worker until a job has ended."""

    async def work() -> Any:  # noqa: ANN401
        async with app.worker():
            return await asyncio.to_thread(job.result, timeout=WAIT_S)

    return asyncio.run(work())


def row(table: str, number: int) -> tuple[bytes, tuple[int]]:
    """Give a statement that inserts a product, and its parameters."""
    return f"INSERT INTO {table} VALUES (%s)".encode(), (number,)  # noqa: S608


def outcomes(app: Dueline) -> list[str]:
    return [attempt.outcome for attempt in attempts(app.store, "default", 1)]


def test_a_product_is_committed_with_the_end_of_its_job(
    app: Dueline, url: str, products: str
) -> None:
    @app.task(name="shop.make", retry=ONCE)
    def make(ctx: Context, number: int) -> int:
        with psycopg.connect(url.partition("?")[0]) as connection:
            connection.execute(*row(products, number))
            ctx.finish(connection, number)
        raise RuntimeError("too late")  # what a handler does after the commit changes nothing

    assert result_of(app, make.enqueue(7)) == 7
    assert statement(url, f"SELECT n FROM {products}") == [(7,)]  # noqa: S608
    assert outcomes(app) == ["done"]


@pytest.mark.parametrize("kind", ["asyncpg", "session"])
def test_a_coroutine_finishes_its_job_on_an_asynchronous_connection(
    app: Dueline, url: str, products: str, kind: str
) -> None:
    asyncpg = pytest.importorskip("asyncpg")
    asynchronous = pytest.importorskip("sqlalchemy.ext.asyncio")
    address = url.partition("?")[0]
    insert = f"INSERT INTO {products} VALUES ($1)"  # noqa: S608

    @app.task(name="shop.make", retry=Retry.fixed(0.01, attempts=2))
    async def make(ctx: Context) -> int:
        if kind == "asyncpg":
            connection = await asyncpg.connect(address)
            try:
                async with connection.transaction():
                    await connection.execute(insert, ctx.attempt)
                    await ctx.afinish(connection, ctx.attempt)
                    if ctx.attempt == 1:
                        raise RuntimeError("the first attempt is rolled back")
            finally:
                await connection.close()
            raise RuntimeError("too late")
        engine = asynchronous.create_async_engine(address.replace("://", "+asyncpg://", 1))
        try:
            async with asynchronous.AsyncSession(engine) as session, session.begin():
                await (await session.connection()).exec_driver_sql(insert, (ctx.attempt,))
                with pytest.raises(BadInput, match=r"ctx\.afinish"):
                    ctx.finish(session, 0)
                await ctx.afinish(session, ctx.attempt)
                if ctx.attempt == 1:
                    raise RuntimeError("the first attempt is rolled back")
        finally:
            await engine.dispose()
        return 0

    assert result_of(app, make.enqueue()) == 2
    assert statement(url, f"SELECT n FROM {products}") == [(2,)]  # noqa: S608
    assert outcomes(app) == ["retried", "done"]


def test_a_transaction_that_is_rolled_back_ends_nothing(
    app: Dueline, url: str, products: str
) -> None:
    @app.task(name="shop.make", retry=Retry.fixed(0.01, attempts=2))
    def make(ctx: Context) -> int:
        with psycopg.connect(url.partition("?")[0]) as connection:
            connection.execute(*row(products, ctx.attempt))
            ctx.finish(connection, ctx.attempt)
            if ctx.attempt == 1:
                raise RuntimeError("the first attempt fails")
        return 0

    assert result_of(app, make.enqueue()) == 2
    assert statement(url, f"SELECT n FROM {products}") == [(2,)]  # noqa: S608
    assert outcomes(app) == ["retried", "done"]


def test_a_transaction_that_is_left_open_is_rolled_back(
    app: Dueline, url: str, products: str
) -> None:
    """Otherwise its lock on the job's row would stop the worker."""
    left: list[Any] = []

    @app.task(name="shop.make", retry=ONCE)
    def make(ctx: Context) -> int:
        left.append(psycopg.connect(url.partition("?")[0]))
        left[0].execute(*row(products, 1))
        ctx.finish(left[0], 1)
        return 2

    assert result_of(app, make.enqueue()) == 2
    assert statement(url, f"SELECT n FROM {products}") == []  # noqa: S608
    with pytest.raises(psycopg.OperationalError):
        left[0].execute("SELECT 1")


def test_what_is_no_transaction_is_refused(app: Dueline) -> None:
    @app.task(name="shop.make", retry=ONCE)
    def make(ctx: Context) -> int:
        with pytest.raises(BadInput, match="must be a transaction"):
            ctx.finish("a string", 1)
        raise ValueError("refused")

    with pytest.raises(JobFailed, match="refused"):
        result_of(app, make.enqueue())


def test_a_session_of_sqlalchemy_does_too(app: Dueline, url: str) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    orm = pytest.importorskip("sqlalchemy.orm")
    engine = sqlalchemy.create_engine(url.partition("?")[0].replace("://", "+psycopg://", 1))

    @app.task(name="shop.make", retry=ONCE)
    def make(ctx: Context, number: int) -> int:
        with orm.Session(engine) as session, session.begin():
            return ctx.finish(session, number)

    assert result_of(app, make.enqueue(7)) == 7
    assert outcomes(app) == ["done"]
    engine.dispose()
