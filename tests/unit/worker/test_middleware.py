"""Middleware: context managers around handlers (A11)."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, NoReturn

import pytest

from dueline import BadInput, BatchOptions, Call, Context, Dueline, Job, Retry, Snooze

STORES = ("memory://", "memory://?transactional=off", "sqlite://{folder}/jobs.db")

seen: list[str] = []


@pytest.fixture(params=STORES, autouse=True)
def app(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[Dueline]:  # noqa: ANN401
    seen.clear()
    made = Dueline(request.param.format(folder=f"/{tmp_path}"))
    yield made
    made.close()


def noting(name: str) -> Callable[[Context], Any]:
    @contextmanager
    def wrap(ctx: Context) -> Iterator[None]:
        seen.append(f"{name} {ctx.task} {ctx.attempt} {ctx.tenant} {ctx.priority}")
        try:
            yield
        except BaseException as error:
            seen.append(f"{name} {type(error).__name__}")
            raise
        seen.append(f"{name} ends")

    return wrap


@asynccontextmanager
async def awaiting(ctx: Context) -> AsyncIterator[None]:
    await asyncio.sleep(0)
    seen.append(f"awaits {ctx.task}")
    yield
    await asyncio.sleep(0)
    seen.append("awaited")


class Both:
    """A manager of both kinds."""

    def __init__(self, ctx: Context) -> None:
        self.name = ctx.task

    def __enter__(self) -> None:
        seen.append(f"{self.name} plain")

    async def __aenter__(self) -> None:
        seen.append(f"{self.name} async")

    def __exit__(self, *_: object) -> None: ...
    async def __aexit__(self, *_: object) -> None: ...


class RefusedError(Exception):
    pass


@contextmanager
def refusing_to_commit(ctx: Context) -> Iterator[None]:
    yield
    if ctx.attempt == 1:
        raise RefusedError


def work(app: Dueline) -> None:
    app.run_worker(concurrency=1, burst=True)


def test_the_tenant_of_a_job_with_limits_is_the_one_of_its_call(app: Dueline) -> None:
    app.semaphore("api", capacity=2)
    add = app.task(name="add", limits=["api"], middleware=[noting("a")])(lambda: None)
    add.using(tenant="acme").enqueue()
    work(app)
    assert seen[0] == "a add 1 acme 0"


def test_middleware_of_the_app_is_outside_that_of_the_task(app: Dueline) -> None:
    app.middleware(noting("first"))
    app.middleware(noting("second"))

    @app.task(name="send", middleware=[noting("own"), noting("inner")])
    def send() -> str:
        seen.append("runs")
        return "sent"

    job = send.using(tenant="acme", priority=3).enqueue()
    work(app)
    assert job.result(timeout=5) == "sent"
    names = ["first", "second", "own", "inner"]
    entered = [f"{name} send 1 acme 3" for name in names]
    assert seen == [*entered, "runs", *(f"{name} ends" for name in reversed(names))]


def test_it_sees_what_the_handler_raises(app: Dueline) -> None:
    @app.task(name="fails", retry=Retry.fixed(0, attempts=2), middleware=[noting("own")])
    def fails() -> NoReturn:
        raise ValueError

    @app.task(name="snoozes", middleware=[noting("own")])
    def snoozes() -> NoReturn:
        raise Snooze(60)

    jobs: list[Job[Any]] = [fails.enqueue(), snoozes.enqueue()]
    work(app)
    assert [job.status for job in jobs] == ["dead", "scheduled"]
    assert seen.count("own ValueError") == 2
    assert seen.count("own Snooze") == 1


def test_it_wraps_coroutine_functions_asynchronously(app: Dueline) -> None:
    @app.task(name="slow", middleware=[noting("own"), awaiting, Both], timeout=5)
    async def slow() -> int:
        await asyncio.sleep(0)
        return 7

    @app.task(name="quick", middleware=[Both])
    def quick() -> None: ...

    job = slow.enqueue()
    work(app)
    quick.enqueue()
    work(app)
    assert job.result(timeout=5) == 7
    own = "own slow 1  0"
    assert seen == [own, "awaits slow", "slow async", "awaited", "own ends", "quick plain"]


def test_its_errors_are_those_of_the_handler(app: Dueline) -> None:
    retry = Retry.fixed(0, attempts=2)

    @app.task(name="commits", retry=retry, middleware=[refusing_to_commit])
    def commits() -> None:
        seen.append("runs")

    @app.task(
        name="gathers",
        retry=retry,
        middleware=[refusing_to_commit],
        batch=BatchOptions(2, within=0.01),
    )
    def gathers(calls: list[Call[int]]) -> None:
        seen.append("runs")

    @app.task(name="unable", retry=retry, middleware=[awaiting])  # checked where it is visible
    async def unable() -> None: ...

    jobs: list[Job[Any]] = [commits.enqueue(), gathers.enqueue(1), unable.enqueue()]
    work(app)
    assert [job.status for job in jobs] == ["done", "done", "done"]
    assert seen.count("runs") == 4


def test_it_may_suppress_an_error_and_then_the_job_is_done(app: Dueline) -> None:
    app.middleware(lambda _: suppress(ValueError))

    @app.task(name="fails")
    def fails() -> NoReturn:
        raise ValueError

    @app.task(name="afails")
    async def afails() -> NoReturn:
        raise ValueError

    @app.task(name="batch", batch=BatchOptions(2, within=0.01))
    def batch(calls: list[Call[int]]) -> NoReturn:
        raise ValueError

    @app.task(name="abatch", batch=BatchOptions(2, within=0.01))
    async def abatch(calls: list[Call[int]]) -> NoReturn:
        raise ValueError

    jobs: list[Job[Any]] = [fails.enqueue(), afails.enqueue(), batch.enqueue(1), abatch.enqueue(1)]
    work(app)
    assert [job.status for job in jobs] == ["done"] * 4


def test_a_batch_is_wrapped_once(app: Dueline) -> None:
    app.middleware(noting("app"))

    @app.task(name="index", batch=BatchOptions(size=3))
    def index(calls: list[Call[int]]) -> list[int]:
        return [call.value for call in calls]

    jobs = index.enqueue_many([(1,), (2,), (3,)])
    work(app)
    assert [job.result(timeout=5) for job in jobs] == [1, 2, 3]
    assert seen == ["app index 1  0", "app ends"]


def test_what_it_reports_is_kept_for_the_next_attempt(app: Dueline) -> None:
    @contextmanager
    def reporting(ctx: Context) -> Iterator[None]:
        seen.append(str(ctx.last_progress and ctx.last_progress.done))
        ctx.progress(ctx.attempt, 2)
        yield

    @app.task(name="fails", retry=Retry.fixed(0, attempts=2), middleware=[reporting])
    def fails() -> NoReturn:
        raise ValueError

    fails.enqueue()
    work(app)
    assert seen == ["None", "1.0"]


def test_what_wraps_nothing_is_refused(app: Dueline) -> None:
    with pytest.raises(BadInput, match="return context managers"):
        app.middleware(5)  # type: ignore[type-var]
    with pytest.raises(BadInput, match="awaiting is asynchronous"):
        app.task(name="plain", middleware=[awaiting])(lambda: None)
    with pytest.raises(BadInput, match="return context managers"):
        app.task(name="plain", middleware=noting)(lambda: None)  # type: ignore[call-overload]
    app.middleware(awaiting)
    job = app.task(name="plain", retry=Retry(attempts=1))(lambda: None).enqueue()
    work(app)
    assert "context manager protocol" in str(job.explain())
