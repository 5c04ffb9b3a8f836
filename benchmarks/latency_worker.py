"""The worker of a side of the latency benchmark.

`python -m benchmarks.latency_worker SIDE FOLDER [FILE]`: with a file, it counts its reads once it
is idle. A module beside `latency`, since huey finds a task by the name of its module, which must
be the same where it is enqueued.
"""

import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import latency, ours


def _count(store: object, reads: Sequence[str], log: Path) -> None:
    """Count the calls of some methods once it is idle, and write the sum down."""
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
        log.write_text(f"{calls[0] - before}\n")

    threading.Thread(target=watch, daemon=True).start()


def _work(name: str, folder: Path, counts: Path | None) -> None:
    """Be the worker, with the defaults of its kind."""
    if name == "huey":
        from huey import SqliteHuey  # noqa: PLC0415  (a peer need not be installed)

        huey = SqliteHuey("bench", filename=str(folder / "huey.db"))
        latency.huey_task(huey, folder)
        if counts:
            _count(huey.storage, ("dequeue", "read_schedule"), counts)
        huey.create_consumer().run()
    else:
        app, _ = latency.our_task(name, folder)
        if counts:
            _count(app.store, ("lanes", "read", "find", "scan", "claim"), counts)
        app.run_worker([ours.QUEUE])


if __name__ == "__main__":
    _work(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]) if sys.argv[3:] else None)
