"""One side of a benchmark, as a process of its own: `python -m benchmarks.side KIND COMMAND ...`.

KIND is `dueline` or the module of an application, `huey`, or `raw` (SQLite alone). The side of
another version of dueline is run by that version's interpreter, so only the public interface is
used here; `raw` is of this version. Prints what was measured as JSON.
"""

import importlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

LANES_PAGES = (500, 10_000)
CHUNK = 100_000
PROBES = 100


class Side(NamedTuple):
    """A queue: what puts no-ops in, and jobs that note when they start."""

    put: Callable[[], object]
    put_many: Callable[[int], object]
    mark: Callable[[str], object]
    start: Callable[[int], object]
    schedule: Callable[[int, int], object]
    """The due time in nanoseconds, and how many jobs."""
    close: Callable[[], object]
    has_bulk: bool = True


def ours(module: str) -> Side:
    """Return the side of an application."""
    found = importlib.import_module(module)
    app, task, arguments = found.app, found.task, found.arguments
    start = getattr(found, "start", None)

    def schedule(due_ns: int, count: int) -> None:
        assert start is not None
        start.using(due=instant(due_ns)).enqueue_many([(due_ns,)] * count)

    def put_many(count: int) -> None:
        for begin in range(0, count, CHUNK):
            task.enqueue_many([arguments] * min(CHUNK, count - begin))

    now = getattr(start, "enqueue", print)
    put, mark = partial(task.enqueue, *arguments), found.mark.enqueue
    return Side(put, put_many, mark, now, schedule, app.close)


def hueys() -> Side:
    """Return Huey's side. It has no call for many jobs."""
    found = importlib.import_module("benchmarks.huey_app")
    text = "x" * 100

    def many(count: int) -> None:
        for _ in range(count):
            found.noop(text)

    def schedule(due_ns: int, count: int) -> None:
        for _ in range(count):
            found.start.schedule(args=(due_ns,), eta=instant(due_ns))

    close = found.huey.storage.close
    return Side(
        partial(found.noop, text), many, found.mark, found.start, schedule, close, has_bulk=False
    )


def instant(due_ns: int) -> datetime:
    """Make a datetime, not before the instant."""
    return datetime.fromtimestamp(-(-due_ns // 1000) / 1e6, UTC)


def timed(count: int, run: Callable[[], object]) -> dict[str, float]:
    """Time a call that handles jobs."""
    began, began_cpu = time.perf_counter(), time.process_time()
    run()
    cpu_s, took_s = time.process_time() - began_cpu, time.perf_counter() - began
    return {"per_s": count / took_s, "cpu_us": cpu_s / max(1, count) * 1e6}


def fill(side: Side, folder: Path, count: int, first: int, last: int) -> dict[str, float]:
    """Enqueue jobs in bulk, with a mark before the job `first` and one before the job `last`."""
    side.mark(str(folder / "warm"))  # makes or reaches the queue
    measured = timed(first, lambda: side.put_many(first)) if first else {}
    side.mark(str(folder / "first"))
    measured = timed(last - first, lambda: side.put_many(last - first))
    side.mark(str(folder / "last"))
    if count > last:
        side.put_many(count - last)
    return measured


def singles(side: Side, count: int, callers: int) -> dict[str, float]:
    """Enqueue one by one, each durable when its call returns, from one thread or several."""
    side.put()

    def run() -> None:
        for _ in range(count // callers):
            side.put()

    if callers == 1:
        return timed(count, run)
    threads = [Thread(target=run) for _ in range(callers)]

    def all_of_them() -> None:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return timed(count // callers * callers, all_of_them)


def produce(side: Side, seconds: float) -> dict[str, float]:
    """Enqueue one by one for some seconds, from the moment that a line is read."""
    side.put()
    print("ready", flush=True)
    sys.stdin.readline()
    calls, began_cpu, began = 0, time.process_time(), time.perf_counter()
    while (took_s := time.perf_counter() - began) < seconds:
        side.put()
        calls += 1
    return {"per_s": calls / took_s, "cpu_us": (time.process_time() - began_cpu) / calls * 1e6}


def pickups(side: Side, count: int, every_s: float) -> dict[str, float]:
    """Enqueue jobs that note when they start, one after the other."""
    for _ in range(count):
        side.start(time.time_ns())
        time.sleep(every_s)
    return {}


def schedule(side: Side, count: int, every_s: float, lead_s: float) -> dict[str, float]:
    """Enqueue jobs for the near future: all for one instant, or some time apart."""
    if not side.has_bulk:
        lead_s += 2 * count / timed(PROBES, lambda: side.put_many(PROBES))["per_s"]
    began_ns = time.time_ns() + round(lead_s * 1e9)
    if not every_s:
        side.schedule(began_ns, count)
    else:
        for number in range(count):
            side.schedule(began_ns + round(number * every_s * 1e9), 1)
    assert time.time_ns() < began_ns, "enqueuing took longer than there was time"
    return {}


def lanes(folder: Path, count: int, many: int, page: int) -> dict[str, float]:
    """Insert rows into many lanes, a page at once, with a mark before all and one behind all.

    No public call takes jobs of many tenants without a transaction, so this makes the store's rows
    as Spark's writers do. The modules of them have moved since the first versions.
    """
    found = importlib.import_module("benchmarks.app")
    found.mark.using(priority=1).enqueue(str(folder / "first"))
    found.mark.using(priority=-1).enqueue(str(folder / "last"))
    job, lane = _either("job").Job, _either("lane")
    now_us = time.time_ns() // 1000
    ids = _either("ids").Ids().many(count, now_us)
    bucket = lane.bucket_of(now_us, 86_400_000_000)
    rows = [
        job(lane.Lane(found.QUEUE, 0, bucket, 0, f"tenant{number % many}"), now_us, one, 0,
            now_us, now_us, "bench.noop", _either("codec").JSON, b'["x"]', b"", now_us)
        for number, one in enumerate(ids)
    ]  # fmt: skip

    def run() -> None:
        for begin in range(0, count, page):
            assert all(found.app.store.add(rows[begin : begin + page]))

    return timed(count, run)


def transaction(count: int, many: int) -> dict[str, float]:
    """Enqueue jobs of many tenants in one transaction."""
    found = importlib.import_module("benchmarks.app")
    found.task.enqueue(*found.arguments)

    def run() -> None:
        with found.app.transaction() as tx:
            for number in range(many):
                some = found.task.using(tenant=f"tenant{number}", tx=tx)
                some.enqueue_many([found.arguments] * (count // many))

    return timed(count // many * many, run)


def _either(name: str) -> Any:  # noqa: ANN401  (a module)
    try:
        return importlib.import_module(f"dueline.core.{name}")
    except ImportError:
        return importlib.import_module(f"dueline.{name}")


def raws(command: str, values: Sequence[str]) -> dict[str, float]:
    """Measure SQLite alone, on a file that an application has made."""
    from benchmarks import raw  # noqa: PLC0415  (of this version only)

    path, synchronous, *rest = values
    database = raw.open_raw(Path(path), synchronous)
    if command == "drain":
        jobs, before = int(rest[0]), Path(rest[1])
        left = raw.left_behind(Path(rest[2]), before, jobs) if rest[2:] else []
        began = time.process_time()
        took_s = raw.drain(database, jobs, left)
        return {"per_s": jobs / took_s, "cpu_us": (time.process_time() - began) / jobs * 1e6}
    inserts = raw.Inserts(database)
    rows = inserts.rows(int(float(rest[0])))
    if command == "bulk":
        return timed(len(rows), lambda: inserts.many(rows, 500))
    ready = iter(rows)
    side = Side(lambda: inserts.one(next(ready)), print, print, print, print, print)
    if command == "singles":
        return timed(len(rows), lambda: inserts.singly(rows))
    return produce(side, float(rest[1]))


def main(kind: str, command: str, values: Sequence[str]) -> dict[str, float]:
    """Run a command of a side."""
    if kind == "raw":
        return raws(command, values)
    numbers = [float(value) for value in values if not value.startswith("/")]
    if command == "lanes":
        return lanes(Path(values[0]), *map(int, numbers))
    if command == "transaction":
        return transaction(*map(int, numbers))
    side = hueys() if kind == "huey" else ours(kind)
    commands: dict[str, Callable[[], dict[str, float]]] = {
        "fill": lambda: fill(side, Path(values[0]), *map(int, numbers)),
        "put": lambda: timed(int(numbers[0]), lambda: side.put_many(int(numbers[0]))),
        "singles": lambda: singles(side, *map(int, numbers)),
        "produce": lambda: produce(side, *numbers),
        "pickups": lambda: pickups(side, int(numbers[0]), numbers[1]),
        "schedule": lambda: schedule(side, int(numbers[0]), *numbers[1:]),
    }
    measured = commands[command]()
    side.close()
    return measured


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], sys.argv[3:])))
