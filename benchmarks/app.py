"""The application that a benchmark's workers run: `dueline worker benchmarks.app:app`.

It and `benchmarks.side` use only the public interface, so that they run on other versions too.
The store is that of DUELINE_STORE; the settings of the queue are the defaults without
BENCH_SETTINGS.
"""

import itertools
import json
import os

from benchmarks.marks import write_mark, write_start
from dueline import Dueline

QUEUE = os.environ.get("BENCH_QUEUE", "default")
COUNT = int(os.environ.get("BENCH_COUNT", "0"))
SETTINGS = json.loads(os.environ.get("BENCH_SETTINGS", "{}"))

app = Dueline()
if SETTINGS:
    app.queue(QUEUE, **SETTINGS)


@app.task(name="bench.noop", queue=QUEUE)
def noop(text: str) -> None:
    """Return at once."""
    del text


@app.task(name="bench.counted", queue=QUEUE)
def counted(text: str) -> None:
    """Mark the first and the last of BENCH_COUNT calls, in whatever order jobs run."""
    del text
    number = next(_calls)
    if number == 1:
        write_mark("first")
    if number == COUNT:
        write_mark("last")


@app.task(name="bench.mark", queue=QUEUE)
def mark(path: str) -> None:
    """Write down the time, and the time of the processor that this process has used."""
    write_mark(path)


@app.task(name="bench.start", queue=QUEUE)
def start(due_ns: int) -> None:
    """Write down how late this starts, in nanoseconds."""
    write_start(due_ns)


if "BENCH_COROUTINE" in os.environ:

    @app.task(name="bench.wait", queue=QUEUE)
    async def wait() -> None:
        """Return at once."""


_calls = itertools.count(1)
task, arguments = counted if COUNT else noop, ("x" * 100,)
