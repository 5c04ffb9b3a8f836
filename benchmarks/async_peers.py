"""Coroutine handlers on one Redis server: dueline, taskiq and arq, in turns.

`python -m benchmarks.async_peers PYTHON [ROUNDS]`, where PYTHON is the interpreter of an
environment with the peers (`make .venv-peers/.lock`). Each measurement is a process of its own
with 1,000 slots on an empty server with `appendfsync everysec`: the backlog is enqueued first,
then handlers sleep for 10 ms, 100 ms or 1 s. The time counts from the first start to the last end.
All sides keep results. Prints the median jobs a second, the share of what 1,000 slots can do at
most, and the processor time of the worker's process for each job.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final, cast

PORT: Final = 63796
SLOTS: Final = 1000
COUNTS: Final = {0.01: 20_000, 0.1: 20_000, 1.0: 8_000}
"""Number of jobs, by the time in seconds that a handler sleeps."""

LIMIT_S: Final = 45
"""Time after which a side is stopped whose jobs do not end, in seconds."""

CHUNK: Final = 50
"""Number of jobs that peers enqueue at the same time."""


class Handler:
    """A handler that sleeps, and the time from its first start to its last end."""

    def __init__(self, sleep_s: float, count: int) -> None:
        """Take the sleep and the number of calls."""
        self.sleep_s = sleep_s
        self.left = self.count = count
        self.first_s = self.last_s = self.first_cpu_s = self.cpu_s = 0.0
        self.is_over = asyncio.Event()

    async def __call__(self) -> None:
        """Sleep; note the time."""
        if not self.first_s:
            self.first_s, self.first_cpu_s = time.perf_counter(), time.process_time()
        await asyncio.sleep(self.sleep_s)
        self.left -= 1
        self.last_s, self.cpu_s = time.perf_counter(), time.process_time()
        if not self.left:
            self.is_over.set()

    async def ended(self) -> None:
        """Wait for the last call, up to LIMIT_S."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.is_over.wait(), LIMIT_S)

    def measured(self) -> dict[str, float]:
        """Return what was measured up to the last end; left: jobs that did not start."""
        done, took_s = self.count - self.left, self.last_s - self.first_s
        return {
            "per_s": done / took_s,
            "share": done * self.sleep_s / SLOTS / took_s,
            "cpu_us": (self.cpu_s - self.first_cpu_s) / done * 1e6,
            "left": self.left,
        }


def measure_dueline(handler: Handler, url: str) -> None:
    """Measure dueline with its default settings."""
    from dueline import Dueline  # noqa: PLC0415  (each side is imported alone)

    app = Dueline(url)

    @app.task(name="bench.sleep")
    async def sleep() -> None:
        await handler()

    sleep.enqueue_many([()] * handler.count)
    app.run_worker(burst=True, concurrency=SLOTS)


def measure_taskiq(handler: Handler, url: str) -> None:
    """Measure taskiq on Redis streams, which survive the death of a worker."""
    from taskiq.api import run_receiver_task  # noqa: PLC0415
    from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker  # noqa: PLC0415

    broker = RedisStreamBroker(url).with_result_backend(RedisAsyncResultBackend(url))

    async def handle() -> None:
        await handler()

    sleep: Any = broker.register_task(handle, task_name="bench.sleep")

    async def run() -> None:
        await broker.startup()
        for _ in range(0, handler.count, CHUNK):
            await asyncio.gather(*(sleep.kiq() for _ in range(CHUNK)))
        worker = asyncio.create_task(
            run_receiver_task(broker, max_async_tasks=SLOTS, max_prefetch=SLOTS)
        )
        await handler.ended()
        worker.cancel()

    asyncio.run(run())


def measure_arq(handler: Handler, url: str) -> None:
    """Measure arq, which polls; ten times a second instead of twice."""
    from arq import create_pool, func  # noqa: PLC0415
    from arq.connections import RedisSettings  # noqa: PLC0415
    from arq.worker import Worker  # noqa: PLC0415

    async def sleep(_context: dict[Any, Any]) -> None:
        await handler()

    async def run() -> None:
        settings = RedisSettings.from_dsn(url)
        pool = await create_pool(settings)
        for _ in range(0, handler.count, CHUNK):
            await asyncio.gather(*(pool.enqueue_job("sleep") for _ in range(CHUNK)))
        worker = Worker(
            [func(cast("Any", sleep), name="sleep")], redis_settings=settings,
            max_jobs=SLOTS, poll_delay=0.1, handle_signals=False,
        )  # fmt: skip
        running = asyncio.create_task(worker.async_run())
        await handler.ended()
        running.cancel()

    asyncio.run(run())


SIDES: Final[dict[str, Callable[[Handler, str], None]]] = {
    "dueline": measure_dueline,
    "taskiq": measure_taskiq,
    "arq": measure_arq,
}


def compare(peers: str, rounds: int) -> dict[str, Any]:
    """Measure all sides in turns; return the medians of each."""
    samples: dict[float, dict[str, list[dict[str, float]]]] = {
        sleep_s: {side: [] for side in SIDES} for sleep_s in COUNTS
    }
    for _ in range(rounds):
        for sleep_s, sides in samples.items():
            for side, found in sides.items():
                found.append(measured_alone(peers, side, sleep_s))
    return {
        f"{sleep_s:g} s": {
            side: {key: round(median(one[key] for one in found), 3) for key in found[0]}
            for side, found in sides.items()
        }
        for sleep_s, sides in samples.items()
    }


def measured_alone(peers: str, side: str, sleep_s: float) -> dict[str, float]:
    """Measure one side in a process of its own, on an empty server."""
    from tools.redis import Server  # noqa: PLC0415  (peers do not have it)

    python = sys.executable if side == "dueline" else peers
    with TemporaryDirectory() as folder:
        server = Server("redis", Path(folder), port=PORT, fsync="everysec")
        server.start()
        try:
            words = [python, str(Path(__file__)), "--side", side, str(sleep_s), server.url]
            done = subprocess.run(words, check=True, stdout=subprocess.PIPE, timeout=300)
        finally:
            server.kill()
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def main() -> None:
    """Run one side, or all in turns."""
    if sys.argv[1] == "--side":
        side, sleep_s, url = sys.argv[2], float(sys.argv[3]), sys.argv[4]
        handler = Handler(sleep_s, COUNTS[sleep_s])
        SIDES[side](handler, url)
        print(json.dumps(handler.measured()))
    else:
        rounds = int(sys.argv[2]) if sys.argv[2:] else 3
        print(json.dumps(compare(sys.argv[1], rounds), indent=2))


if __name__ == "__main__":
    main()
