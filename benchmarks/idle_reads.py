"""How many reads a second idle workers make: `python -m benchmarks.idle_reads STORE|huey`.

Ours are a hundred workers in one process, which share some of what they read. Of huey one worker is
counted: a hundred would read a hundred times as much, since each polls for itself.
"""

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from benchmarks import ours
from benchmarks.commands import HERE, Place, Sample
from dueline import Dueline

READS = ("lanes", "read", "find", "scan", "walk", "tail", "claim", "prefetch")
CLOCK = "clock_us"
"""Reads on a server only: the clock of SQLite is this machine's."""

WORKERS = 100
IDLE_AFTER_S = 100.0
"""After this time, each worker has counted the others when all had started."""

IDLE_S = 60.0
READS_MAX = 20.0


def measure(folder: Path) -> Mapping[str, Sample]:
    """Count the reads of both sides, in processes of their own."""
    stores = {"ours": f"sqlite:///{folder / 'ours.db'}", "huey, one worker": "huey"}
    return {name: reads_of(store, folder) for name, store in stores.items()}


def reads_of(store: str, folder: Path) -> Sample:
    """Count the reads of idle workers of a store, in a process of their own."""
    place = Place(HERE, folder, {"BENCH_FILE": str(folder / "huey.db")})
    return {"reads_per_s": float(place.read([sys.executable, "-m", __name__, store]))}


def _count(store: object, reads: Sequence[str], stop: Callable[[], object]) -> None:
    """Count the calls of some methods once all is idle; print how many there are a second."""
    calls = [0]

    def counted(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:  # noqa: ANN401  (passed on)
            calls[0] += 1
            return method(*args, **more)

        return call

    for read in reads:
        setattr(store, read, counted(getattr(store, read)))

    def watch() -> None:
        time.sleep(IDLE_AFTER_S)
        before = calls[0]
        time.sleep(IDLE_S)
        print((calls[0] - before) / IDLE_S, flush=True)
        stop()

    threading.Thread(target=watch, daemon=True).start()


async def _be_idle(url: str) -> None:
    """Be many workers, each with an application of its own as in a process of its own."""
    done, loop = asyncio.Event(), asyncio.get_running_loop()
    first = Dueline(url)
    kind = type(first.queues.engine.store)
    first.close()
    reads = READS if url.startswith("sqlite:") else (*READS, CLOCK)
    _count(kind, reads, lambda: loop.call_soon_threadsafe(done.set))
    async with AsyncExitStack() as stack:
        for _ in range(WORKERS):
            app = Dueline(url)

            @app.task(name="bench.noop", queue=ours.QUEUE)
            def noop() -> None:
                """Return at once."""

            await stack.enter_async_context(app.worker([ours.QUEUE], concurrency=1))
        await done.wait()


def _huey() -> None:
    from benchmarks.huey_app import huey  # noqa: PLC0415  (a peer, with a file of its own)

    consumer = huey.create_consumer(periodic=False)
    ended = threading.Event()
    _count(huey.storage, ("dequeue", "read_schedule"), ended.set)
    consumer.start()
    ended.wait()
    consumer.stop()


if __name__ == "__main__":
    if sys.argv[1] == "huey":
        _huey()
    else:
        asyncio.run(_be_idle(sys.argv[1]))
