"""How soon jobs start, beside huey, each with a worker in a process of its own."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import ours, peers, raw
from dueline import Dueline

OURS = ("NORMAL", "FULL")
"""Our sides, by how they flush. Huey's default does not flush at all."""

DEFAULT = "FULL"

PICKUPS = 150
PICKUP_EVERY_S = 0.05
SCHEDULED = 250
SCHEDULED_EVERY_S = 0.02
SETTLE_S = 3.0
IDLE_AFTER_S = 40.0
IDLE_WORKERS = 100
IDLE_S = 45.0
WAIT_S_MAX = 30.0

IDLE_READS_MAX = 25.0
PICKUP_P50_MS_MAX = 3.0
LATENESS_P99_MS_MAX = 20.0


class Side(NamedTuple):
    """A queue with its worker: what puts a job in, at once or for an instant."""

    put: Callable[[int], object]
    schedule: Callable[[int], object]


def measure(folder: Path) -> Mapping[str, object]:
    """Measure the sides in turn, each in a folder of its own, and the disk before them."""
    found: dict[str, object] = {"flushes": _flushes(folder)}
    for name in [*OURS, *(["huey"] if peers.has_huey() else [])]:
        place = folder / name
        place.mkdir()
        found[name] = _measured(name, place)
    return found


def bars(found: Mapping[str, Any]) -> list[Mapping[str, object]]:
    """Judge our sides: what is to be reached, and whether it was."""
    rows: list[Mapping[str, object]] = []
    for way in OURS:
        mine = found[way]
        for what, most, measured in (
            ("pickup p50, ms", PICKUP_P50_MS_MAX, mine["pickup"]["p50_ms"]),
            ("lateness p99, ms", LATENESS_P99_MS_MAX, mine["lateness"]["p99_ms"]),
            ("started early", 0, mine["lateness"]["early"]),
            ("idle reads/s, 100 workers", IDLE_READS_MAX, mine["idle_reads_per_s_of_100_workers"]),
        ):
            row = {"what": what, "synchronous": way, "at_most": most, "measured": measured}
            row |= {"is_default": way == DEFAULT, "huey": _of_huey(found, what)}
            rows.append({**row, "is_met": measured <= most})
    return rows


def _of_huey(found: Mapping[str, Any], what: str) -> float | None:
    """Give what huey, which does not flush, was measured to do in the same run."""
    theirs = found.get("huey")
    if theirs is None:
        return None
    by_name: Mapping[str, float] = {
        "pickup p50, ms": theirs["pickup"]["p50_ms"],
        "lateness p99, ms": theirs["lateness"]["p99_ms"],
        "started early": theirs["lateness"]["early"],
        "idle reads/s, 100 workers": theirs["idle_reads_per_s_of_100_workers"],
    }
    return by_name[what]


def _flushes(folder: Path) -> Mapping[str, float]:
    """Time single rows that are committed and flushed: a pickup with FULL has two of them."""
    database = raw.open_raw(folder / "raw.db", "FULL")
    took_ns = []
    for row in raw.rows(PICKUPS, b"[1]"):
        began_ns = time.perf_counter_ns()
        raw.insert_singly(database, [row])
        took_ns.append(time.perf_counter_ns() - began_ns)
        time.sleep(PICKUP_EVERY_S / 5)
    database.close()
    return _spread(took_ns)


def _measured(name: str, folder: Path) -> Mapping[str, object]:
    log = folder / "starts"
    log.touch()
    with _worker(name, folder):
        side = _side(name, folder)
        side.put(time.time_ns())
        _wait_for(log, 1)
        time.sleep(SETTLE_S)
        for _ in range(PICKUPS):
            side.put(time.time_ns())
            time.sleep(PICKUP_EVERY_S)
        pickups = _wait_for(log, 1 + PICKUPS)[1:]
        begin_ns = time.time_ns() + round(1e9)
        for number in range(SCHEDULED):
            side.schedule(begin_ns + round(number * SCHEDULED_EVERY_S * 1e9))
        lates = _wait_for(log, 1 + PICKUPS + SCHEDULED)[1 + PICKUPS :]
    late = {**_spread(lates), "early": sum(one < 0 for one in lates)}
    return {
        "pickup": _spread(pickups),
        "lateness": late,
        "idle_reads_per_s_of_100_workers": _idle_reads(name, folder),
    }


def _idle_reads(name: str, folder: Path) -> float:
    """Count what a worker reads that has had nothing to do for a while; times a hundred.

    Ours are a hundred workers indeed: they share some of what they read.
    """
    log = folder / "reads"
    with _worker(name, folder, log):
        give_up_s = time.monotonic() + IDLE_AFTER_S + IDLE_S + WAIT_S_MAX
        while not (log.exists() and log.read_text().endswith("\n")):
            assert time.monotonic() < give_up_s, "the worker has not counted"
            time.sleep(0.1)
    return round(100 * float(log.read_text()) / IDLE_S, 1)


def _side(name: str, folder: Path) -> Side:
    if name == "huey":
        from huey import SqliteHuey  # noqa: PLC0415  (a peer need not be installed)

        return _huey_side(huey_task(SqliteHuey("bench", filename=str(folder / "huey.db")), folder))
    app, task = our_task(name, folder)
    app.queues  # noqa: B018  (opens the store)

    def schedule(due_ns: int) -> None:
        task.using(due=_instant(due_ns)).enqueue(due_ns)

    return Side(task.enqueue, schedule)


def our_task(synchronous: str, folder: Path) -> tuple[Any, Any]:
    """Give the application and its task that notes how late it starts."""
    app = Dueline(ours.sqlite(folder / "ours.db", synchronous))
    app.queue(ours.QUEUE, keep=0)
    write = _writer(folder)

    @app.task(name="bench.start", queue=ours.QUEUE)
    def start(due_ns: int) -> None:
        write(due_ns)

    return app, start


def huey_task(huey: Any, folder: Path) -> Any:  # noqa: ANN401  (untyped)
    """Give huey's task that notes how late it starts."""
    write = _writer(folder)

    @huey.task(name="start")  # type: ignore[untyped-decorator]  # huey has no types
    def start(due_ns: int) -> None:
        write(due_ns)

    return start


def _huey_side(start: Any) -> Side:  # noqa: ANN401  (untyped)
    return Side(start, lambda due_ns: start.schedule(args=(due_ns,), eta=_instant(due_ns)))


def _instant(due_ns: int) -> datetime:
    """Make a datetime, not before the instant."""
    return datetime.fromtimestamp(-(-due_ns // 1000) / 1e6, UTC)


def _writer(folder: Path) -> Callable[[int], None]:
    """Note how late a start is, a line each."""
    descriptor = os.open(folder / "starts", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(due_ns: int) -> None:
        os.write(descriptor, b"%d\n" % (time.time_ns() - due_ns))

    return write


def _wait_for(log: Path, count: int) -> list[int]:
    give_up_s = time.monotonic() + WAIT_S_MAX
    while len(lines := log.read_text().split()) < count:
        assert time.monotonic() < give_up_s, "jobs are missing"
        time.sleep(0.1)
    return [int(line) for line in lines]


def _spread(late_ns: list[int]) -> Mapping[str, float]:
    ordered = sorted(late_ns)
    p50, p99 = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
    return {"p50_ms": round(p50 / 1e6, 2), "p99_ms": round(p99 / 1e6, 2)}


@contextmanager
def _worker(name: str, folder: Path, *counts: Path) -> Iterator[None]:
    """Run a worker; with a file for it, one that counts its reads."""
    more = [str(place) for place in (folder, *counts)]
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.latency_worker", name, *more])
    try:
        yield
    finally:
        process.terminate()
        process.wait()
