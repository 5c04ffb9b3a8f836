"""Other queues, where they are installed."""

import importlib.util
import signal
import time
from pathlib import Path
from typing import Any

from benchmarks.rounds import Rounds

WORKERS = 4


def has_huey() -> bool:
    """Tell whether huey can be had."""
    return importlib.util.find_spec("huey") is not None


def run_huey(rounds: Rounds, folder: Path, *, jobs: int, text: str, synchronous: str) -> None:
    """Time huey on SQLite with the flushes that ours has: it enqueues one by one; threads drain.

    Its own option knows FULL (which is its default, too) and OFF; NORMAL is put in beneath it.
    """
    from huey import Huey  # noqa: PLC0415  (a peer need not be installed)
    from huey.storage import SqliteStorage  # noqa: PLC0415

    class Storage(SqliteStorage):  # type: ignore[misc]  # huey has no types
        def _create_connection(self) -> Any:  # noqa: ANN401
            connection = super()._create_connection()
            connection.execute(f"PRAGMA synchronous = {synchronous}")
            return connection

    huey = Huey("bench", storage_class=Storage, filename=str(folder / "huey.db"), results=False)
    done: list[None] = []

    @huey.task()  # type: ignore[untyped-decorator]  # huey has no types
    def noop(text: str) -> None:
        del text
        done.append(None)

    with rounds.timed("huey enqueue", jobs):
        for _ in range(jobs):
            noop(text)
    with rounds.timed("huey drain", jobs):
        _consume(huey, done, jobs)
    huey.storage.close()


def _consume(huey: Any, done: list[None], jobs: int) -> None:  # noqa: ANN401  (untyped)
    handlers: dict[int, Any] = {
        number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)
    }
    consumer = huey.create_consumer(workers=WORKERS, periodic=False, initial_delay=0.01)
    consumer.start()
    while len(done) < jobs:
        time.sleep(0.005)
    consumer.stop(graceful=True)
    for number, handler in handlers.items():
        signal.signal(number, handler)
