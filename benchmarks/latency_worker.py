"""The worker of a side of the latency benchmark.

`python -m benchmarks.latency_worker SIDE FOLDER [FILE]`: with a file, it counts reads once it is
idle; ours are then a hundred workers, who share some of what they read. A module beside
`latency`, since huey finds a task by the name of its module, which must be the same where it is
enqueued.
"""

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from benchmarks import latency, ours
from dueline.stores.sqlite.store import SqliteStore

READS = ("lanes", "read", "find", "scan", "tail", "claim", "prefetch")


def _count(store: object, reads: Sequence[str], log: Path, workers: int) -> None:
    """Count the calls of some methods once all are idle; write down how many are one worker's."""
    calls = [0]

    def counted(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:  # noqa: ANN401  (passed on)
            calls[0] += 1
            return method(*args, **more)

        return call

    for read in reads:
        setattr(store, read, counted(getattr(store, read)))

    def watch() -> None:
        time.sleep(latency.IDLE_AFTER_S)
        before = calls[0]
        time.sleep(latency.IDLE_S)
        log.write_text(f"{(calls[0] - before) / workers}\n")

    threading.Thread(target=watch, daemon=True).start()


def _work(name: str, folder: Path, counts: Path | None) -> None:
    """Be the worker, with the defaults of its kind."""
    if name == "huey":
        from huey import SqliteHuey  # noqa: PLC0415  (a peer need not be installed)

        huey = SqliteHuey("bench", filename=str(folder / "huey.db"))
        latency.huey_task(huey, folder)
        if counts:
            _count(huey.storage, ("dequeue", "read_schedule"), counts, 1)
        huey.create_consumer().run()
    elif counts:
        _count(SqliteStore, READS, counts, latency.IDLE_WORKERS)
        asyncio.run(_be_idle(name, folder))
    else:
        app, _ = latency.our_task(name, folder)
        app.run_worker([ours.QUEUE])


async def _be_idle(name: str, folder: Path) -> None:
    """Be many workers, each as it would be in a process of its own."""
    async with AsyncExitStack() as stack:
        for _ in range(latency.IDLE_WORKERS):
            app, _ = latency.our_task(name, folder)
            await stack.enter_async_context(app.worker([ours.QUEUE], concurrency=1))
        await asyncio.Event().wait()


if __name__ == "__main__":
    _work(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]) if sys.argv[3:] else None)
