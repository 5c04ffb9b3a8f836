"""Enqueueing, waiting and working without blocking the loop."""

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dueline import BadInput, Conflict, Dueline, JobFailed, NotFound, Retry

WAIT_S = 60

STORES = [
    pytest.param("memory://", marks=pytest.mark.memory),
    pytest.param("memory://?transactional=off", marks=pytest.mark.memory),
    pytest.param("sqlite://{folder}/jobs.db?synchronous=NORMAL", marks=pytest.mark.sqlite),
]


@pytest.fixture(params=STORES)
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Dueline]:
    made = Dueline(request.param.format(folder=f"/{tmp_path}"))
    yield made
    made.close()


async def until_waiting(events: list[int], count: int) -> None:
    """Wait until so many handlers are inside."""
    async with asyncio.timeout(WAIT_S):
        while len(events) < count:  # noqa: ASYNC110  (a list's length)
            await asyncio.sleep(0.005)


def test_jobs_are_enqueued_run_and_awaited_on_one_loop(app: Dueline) -> None:
    # A2, C17
    @app.task(name="double")
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return 2 * number

    @app.task(name="fails", retry=Retry(attempts=1))
    def fails() -> None:
        raise ValueError("no")

    async def main() -> None:
        async with app.worker():
            job = await double.aenqueue(4)
            assert await job.aresult(timeout=WAIT_S) == 8
            jobs = await double.using(priority=3).aenqueue_many([(1,), (2,), (3,)], chunk=2)
            results = await asyncio.gather(*(job.aresult(timeout=WAIT_S) for job in jobs))
            assert results == [2, 4, 6]
            with pytest.raises(JobFailed, match="ValueError: no"):
                await (await fails.aenqueue()).aresult(timeout=WAIT_S)

    asyncio.run(main())


def test_awaiting_a_result_ends_in_time(app: Dueline) -> None:
    @app.task(name="later")
    def later() -> None: ...

    async def main() -> None:
        job = await later.using(after=3600).aenqueue()
        with pytest.raises(TimeoutError, match="still scheduled"):
            await job.aresult(timeout=0)
        with pytest.raises(NotFound):
            await app.job("0" * 32).aresult(timeout=WAIT_S)
        with pytest.raises(BadInput):
            await later.aenqueue_many(["no"], chunk=0)

    asyncio.run(main())


@pytest.mark.parametrize("timeout", [float("nan"), float("inf"), "5", True])
def test_a_timeout_that_is_no_duration_is_refused(app: Dueline, timeout: Any) -> None:  # noqa: ANN401
    later = app.task(name="later")(lambda: None)
    job = later.using(after=3600).enqueue()
    with pytest.raises(BadInput, match="is not a duration"):
        job.result(timeout=timeout)
    with pytest.raises(BadInput, match="is not a duration"):
        asyncio.run(job.aresult(timeout=timeout))
    with pytest.raises(TimeoutError):
        job.result(timeout=timedelta(milliseconds=1))


def test_a_slow_store_does_not_block_the_loop(
    app: Dueline, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task(name="plain")
    def plain() -> None: ...

    plain.enqueue()
    go_on = threading.Event()
    add, find = app.store.add, app.store.find

    def slow_add(*args: object) -> object:
        assert go_on.wait(WAIT_S)
        return add(*args)  # type: ignore[arg-type]

    def slow_find(*args: object) -> object:
        assert go_on.wait(WAIT_S)
        return find(*args)  # type: ignore[arg-type]

    async def main() -> None:
        monkeypatch.setattr(app.store, "add", slow_add)
        asking = asyncio.create_task(plain.aenqueue())
        await asyncio.sleep(0.01)  # the loop goes on, or nobody would let the store go on
        go_on.set()
        job = await asking
        go_on.clear()
        monkeypatch.setattr(app.store, "find", slow_find)
        waiting = asyncio.create_task(job.aresult(timeout=0))
        await asyncio.sleep(0.01)
        go_on.set()
        with pytest.raises(TimeoutError):
            await waiting

    asyncio.run(main())


def test_coroutines_share_the_loop_of_the_caller_and_plain_handlers_do_not(app: Dueline) -> None:
    @app.task(name="on_loop")
    async def on_loop() -> int:
        await asyncio.sleep(0)
        return threading.get_ident()

    @app.task(name="in_thread")
    def in_thread() -> int:
        return threading.get_ident()

    async def main() -> None:
        async with app.worker(["default"], concurrency=2):
            first, second = await on_loop.aenqueue(), await in_thread.aenqueue()
            assert await first.aresult(WAIT_S) == threading.get_ident()
            assert await second.aresult(WAIT_S) != threading.get_ident()

    asyncio.run(main())


def test_leaving_the_block_drains(app: Dueline, caplog: pytest.LogCaptureFixture) -> None:
    # R11
    caplog.set_level(logging.INFO, "dueline.worker")
    entered: list[int] = []
    doors: list[asyncio.Event] = []

    @app.task(name="waits")
    async def waits(number: int) -> None:
        entered.append(number)
        await doors[0].wait()

    async def open_when_it_stops() -> None:
        async with asyncio.timeout(WAIT_S):
            while "stops; it holds" not in caplog.text:  # noqa: ASYNC110  (another thread says it)
                await asyncio.sleep(0.005)
        doors[0].set()

    async def main() -> None:
        doors.append(asyncio.Event())
        jobs = await waits.aenqueue_many([(1,), (2,), (3,)])
        async with app.worker(concurrency=2):
            await until_waiting(entered, 2)
            opening = asyncio.create_task(open_when_it_stops())
        await opening
        assert [job.status for job in jobs].count("done") == 2
        assert [job.status for job in jobs].count("ready") == 1

    asyncio.run(main())


def test_a_drain_that_is_cancelled_gives_back_at_once(app: Dueline) -> None:
    # R11
    entered: list[int] = []
    cleaned: list[int] = []

    @app.task(name="forever")
    async def forever() -> None:
        entered.append(1)
        try:
            await asyncio.sleep(3600)
        finally:
            cleaned.append(1)

    async def serve() -> None:
        async with app.worker(drain=3600):
            await until_waiting(entered, 1)
            # What a server does to its lifespan when it is told to stop twice.
            current = asyncio.current_task()
            assert current is not None
            asyncio.get_running_loop().call_later(0.05, current.cancel)

    async def main() -> None:
        job = await forever.aenqueue()
        began_s = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(serve())
        assert time.monotonic() - began_s < WAIT_S
        assert job.status == "ready"
        await asyncio.sleep(0.01)
        assert cleaned == [1]

    asyncio.run(main())


def test_a_worker_that_fails_says_so_at_the_end(
    app: Dueline, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        worker = app.worker()
        async with worker:
            assert worker._worker is not None
            monkeypatch.setattr(worker._worker, "_step", None)
            await asyncio.wait_for(worker._ended.wait(), WAIT_S)

    with pytest.raises(TypeError):
        asyncio.run(main())


def test_a_worker_is_entered_once(app: Dueline) -> None:
    async def main() -> None:
        worker = app.worker()
        async with worker:
            pass
        with pytest.raises(Conflict):
            await worker.__aenter__()
        with pytest.raises(BadInput):
            app.worker([])

    asyncio.run(main())
