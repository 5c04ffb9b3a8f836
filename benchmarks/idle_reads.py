"""How many reads a second idle workers make: `python -m benchmarks.idle_reads FOLDER [huey]`.

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
from dueline.stores.sqlite.store import SqliteStore

READS = ("lanes", "read", "find", "scan", "tail", "claim", "prefetch")
WORKERS = 100
IDLE_AFTER_S = 40.0
IDLE_S = 45.0
READS_MAX = 25.0


def measure(folder: Path) -> Mapping[str, Sample]:
    """Count the reads of both sides, in processes of their own."""
    found: dict[str, Sample] = {}
    for name, words in (("ours", ()), ("huey, one worker", ("huey",))):
        place = Place(HERE, folder, {"BENCH_FILE": str(folder / "huey.db")})
        program = [sys.executable, "-m", __name__, str(folder), *words]
        found[name] = {"reads_per_s": float(place.read(program))}
    return found


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


async def _be_idle(path: Path) -> None:
    """Be many workers, each with an application of its own as in a process of its own."""
    done, loop = asyncio.Event(), asyncio.get_running_loop()
    _count(SqliteStore, READS, lambda: loop.call_soon_threadsafe(done.set))
    async with AsyncExitStack() as stack:
        for _ in range(WORKERS):
            app = Dueline(f"sqlite:///{path}")

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
    if sys.argv[2:]:
        _huey()
    else:
        asyncio.run(_be_idle(Path(sys.argv[1]) / "ours.db"))
