"""`dueline bench`: measure the throughput and start latency of a store."""

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from dueline import Dueline
from dueline.admin.throughput import throughput_of
from dueline.api.connect import mask
from dueline.api.task import Task
from dueline.cli.errors import Exit
from dueline.cli.options import option
from dueline.cli.output import Entry, Output, Value, note
from dueline.cli.session import session_of
from dueline.coordination.worker_registry import present
from dueline.core.clock import SECOND_US, to_datetime
from dueline.core.errors import Conflict
from dueline.core.queue_settings import check_queue_name
from dueline.jobs.counts import count
from dueline.jobs.history import attempts
from dueline.jobs.queue import Queues
from dueline.terminal.progress_bars import bar

CHUNK = 500
SINGLES_MAX = 200
SCHEDULED = 100
EVERY_US = 20_000
HEAD_START_US = SECOND_US // 2
POLL_S = 0.05
WAIT_US_MAX = 60 * SECOND_US

bench = typer.Typer(help="Measure throughput and start latency.")


@bench.command("run")
def run_bench(
    context: typer.Context,
    *,
    jobs: Annotated[int, option("N", "Number of jobs.", "--jobs", min=1, max=1_000_000)] = 10_000,
    queue: Annotated[str, option("NAME", "Queue to use; must be empty.", "--queue")] = "bench",
    concurrency: Annotated[
        int, option("N", "Maximum number of concurrent handlers.", "--concurrency", min=1)
    ] = 16,
) -> int:
    """Measure throughput and start latency with no-op jobs.

    Uses a temporary SQLite file, or the store of --store without touching its other queues. The
    command enqueues jobs in bulk, then one by one, drains all of them, and then runs a schedule
    with one job every 20 ms.

    Example: dueline bench run --jobs 50000 --store "sqlite:///bench.db?synchronous=NORMAL"
    """
    check_queue_name(queue)
    with _place(session_of(context).store) as url, closing(Dueline(url)) as app:
        check_unused(app.queues, queue)

        @app.task(name="bench.noop", queue=queue)
        def noop() -> None:
            """Return at once."""

        measured: dict[str, Value] = {
            "store": app.queues.engine.store.describe()["store"],
            "jobs": jobs,
        }
        try:
            measured |= _rates(app, noop, queue, jobs, concurrency)
            measured |= _start_latency(app, noop, queue)
        except KeyboardInterrupt:
            note(f"Jobs may be left in the queue: see `dueline queues purge {queue}`.")
            return Exit.INTERRUPTED
        meta = {"command": context.command_path.partition(" ")[2], "store": mask(url)}
        Output(session_of(context).form, app.queues.engine.time.latest_us(), meta).entry(measured)
    return Exit.DONE


def check_unused(queues: Queues, queue: str) -> None:
    """Check that a queue has no jobs and no workers, without creating it.

    Raises: Conflict: the queue is in use; nothing was changed.
    """
    if queue not in queues.engine.catalog.names():
        return
    counts = count(queues.engine, queue, present(queues.engine.store), most=1)
    if counts.living() or counts.dead or counts.workers:
        raise Conflict(
            f"The queue {queue} is in use: it holds jobs, or a worker serves it.",
            hint="Use another --queue, or omit --store.",
        )


@contextmanager
def _place(url: str | None) -> Iterator[str]:
    """Yield the store's URL, or that of a temporary file that is deleted after the block."""
    if url is not None:
        yield url
        return
    with TemporaryDirectory(prefix="dueline-bench-") as folder:
        path = Path(folder) / "jobs.db"
        note(f"Using a temporary file, {path}.")
        yield f"sqlite:///{path}"


def _rates(app: Dueline, noop: Task[[], None], queue: str, jobs: int, concurrency: int) -> Entry:
    """Measure how fast jobs are enqueued and drained.

    Raises: KeyboardInterrupt: a signal stopped the worker.
    """
    clock = app.clock
    app.queues.engine.catalog.settings(queue)  # creates the queue
    began_us = clock.monotonic_us()
    with bar("enqueue", jobs) as show_done:
        for start in range(0, jobs, CHUNK):
            noop.enqueue_many([()] * min(CHUNK, jobs - start))
            show_done(start)
    bulk_us = clock.monotonic_us() - began_us
    singles = min(SINGLES_MAX, jobs)
    began_us = clock.monotonic_us()
    for _ in range(singles):
        noop.enqueue()
    single_us = clock.monotonic_us() - began_us
    note(f"Draining {jobs + singles} jobs.")
    began_us = clock.monotonic_us()
    if app.run_worker([queue], concurrency=concurrency, burst=True, monitor=False) is not None:
        raise KeyboardInterrupt
    drain_us = clock.monotonic_us() - began_us
    return {
        "bulk_enqueue_per_second": _per_s(jobs, bulk_us),
        "enqueue_per_second": _per_s(singles, single_us),
        "drain_per_second": _per_s(jobs + singles, drain_us),
    }


def _start_latency(app: Dueline, noop: Task[[], None], queue: str) -> Entry:
    """Measure the start latency of a light schedule from the history of the queue."""
    queues = app.queues
    began_us = queues.engine.time.earliest_us()
    noop.enqueue()
    each_us = queues.engine.time.latest_us() - began_us
    due_us = queues.engine.time.latest_us() + HEAD_START_US + 2 * each_us * SCHEDULED
    for number in range(SCHEDULED):
        noop.using(due=to_datetime(due_us + number * EVERY_US)).enqueue()
    asyncio.run(_work(app, queue, until_us=due_us + SCHEDULED * EVERY_US))
    shards = queues.engine.catalog.settings(queue).shards_read
    ended = attempts(queues.engine.store, queue, shards, since_us=began_us)
    scheduled = [attempt for attempt in ended if attempt.due_us >= due_us]
    late = throughput_of(scheduled, SCHEDULED * EVERY_US)
    return {
        "scheduled": len(scheduled),
        "late_p50_ms": _ms(late.late_p50_us),
        "late_p99_ms": _ms(late.late_p99_us),
        "early": sum(attempt.started_us < attempt.due_us for attempt in scheduled),
    }


async def _work(app: Dueline, queue: str, *, until_us: int) -> None:
    """Run a worker until the scheduled jobs have ended, or a minute after the last one."""
    queues = app.queues
    with bar("jobs due every 20 ms", SCHEDULED) as show_done:
        async with app.worker([queue]):
            while left := await asyncio.to_thread(
                lambda: sum(1 for _ in queues.engine.jobs_of(queue))
            ):
                show_done(max(0, SCHEDULED - left))
                if queues.engine.time.earliest_us() > until_us + WAIT_US_MAX:
                    return
                await asyncio.sleep(POLL_S)


def _per_s(jobs: int, took_us: int) -> int:
    return round(jobs * SECOND_US / max(1, took_us))


def _ms(span_us: int | None) -> float | None:
    return None if span_us is None else span_us / 1000
