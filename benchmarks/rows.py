"""The rows of `make bench`: what is measured of dueline, its peers and the limits, in turn.

Each side is a process of its own. Rates of workers are those between the start of the first job
and the start of the last, which jobs at both ends of the backlog write down; the start and the end
of the process are not in them.
"""

import itertools
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from benchmarks.commands import HERE, ROOT, Checkout, Place, Sample, cpu_s, peak_mb, percentile

Round = Callable[[Path], Mapping[str, Sample]]
Measure = Callable[[Path, Mapping[str, Path]], Sample]
"""Measures a side in a folder of its own; the folders of the earlier sides are there as well."""

APP: Final = "benchmarks.app"
README: Final = "benchmarks.readme_app"
FULL, NORMAL, OFF = "FULL", "NORMAL", "OFF"
PROCESSES: Final = 8
LANES: Final = 1_000
SETTLE_S: Final = 2.0
PICKUP_P50_MS_MAX: Final = 3.0
LATENESS_P99_MS_MAX: Final = 20.0
BULK_TO_SINGLE: Final = 20.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    jobs: int = 100_000
    peer_jobs: int = 10_000
    singles: int = 2_000
    pickups: int = 150
    burst: int = 10_000
    produce_s: float = 1.5
    idle_s: float = 8.0
    cassandra_jobs: int = 10_000
    demo_files: int = 1_000
    backlogs: Sequence[int] = (100_000, 300_000, 1_000_000)


class Limit(NamedTuple):
    """What is promised of a measure, whatever was recorded. to: a side that it is a ratio to."""

    measure: str
    bound: float
    side: str = "ours"
    to: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """Something that is measured in rounds. The first side is ours."""

    name: str
    title: str
    measure: Round
    bars: Sequence[tuple[str, str]] = ()
    """Measures that must stay near the recorded ones: (side to compare with, measure); of the
    side "", the measure itself."""
    limits: Sequence[Limit] = ()
    rounds_max: int = 100
    is_long: bool = False
    """Whether it is measured only when asked for."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Makes the rows. base: another checkout, which is measured beside this one."""

    sizes: Sizes = field(default_factory=Sizes)
    base: Checkout | None = None

    def rows(self) -> list[Row]:
        """Return the rows on SQLite, in the order in which they are measured."""
        return [
            *self._drains(), *self._enqueues(), *self._latencies(), *self._others(),
        ]  # fmt: skip

    def sides(self, measure: Callable[..., Sample], **terms: Any) -> dict[str, Measure]:  # noqa: ANN401  (of a measure)
        """Return our side and that of the base, if there is one."""
        found = {"ours": HERE} | ({"base": self.base} if self.base else {})
        return {name: partial(measure, checkout, **terms) for name, checkout in found.items()}

    def peers(self, sides: dict[str, Measure]) -> dict[str, Measure]:
        """Return sides that are left out beside another checkout, where they have no goal."""
        return {} if self.base else sides

    def _drains(self) -> list[Row]:
        jobs = self.sizes.jobs
        of = partial(self.sides, drain, jobs=jobs)
        raw: dict[str, Measure] = {"raw": partial(raw_drain, jobs=jobs)}
        at_normal: dict[str, Measure] = {"raw": partial(raw_drain, jobs=jobs, way=NORMAL)}
        plain: Measure = partial(drain, HERE, jobs=jobs)
        hueys: dict[str, Measure] = {
            f"huey {workers}w {way}": partial(
                huey_drain, workers=workers, way=way, jobs=self.sizes.peer_jobs
            )
            for workers, way in ((1, FULL), (4, FULL), (1, NORMAL), (1, OFF))
            if way == FULL or self.base is None
        }
        to_raw = [("raw", "per_s"), ("raw", "cpu_us")]
        return [
            Row("readme", "drain of the README's application, `dueline worker`, FULL",
                in_turn(of(module=README) | raw), to_raw),
            Row("default", "drain of no-op jobs, default settings, FULL",
                in_turn(of() | raw | hueys), [*to_raw, ("huey 1w FULL", "per_s")]),
            Row("processes", "drain of no-op jobs with `--processes 2`, FULL",
                in_turn(of(processes=2) | {"threads": plain}), [("threads", "per_s")]),
            Row("mixed", "drain of no-op jobs in an application that has a coroutine task",
                in_turn(of(coroutine=True) | {"without one": plain}), [("without one", "per_s")]),
            Row("default-normal", "drain of no-op jobs, default settings, NORMAL",
                in_turn(of(way=NORMAL) | at_normal), to_raw),
            Row("history", "drain with history, without results, FULL",
                in_turn(of(settings={"keep": 0}) | raw), to_raw),
            Row("bare", "drain without history and results, FULL",
                in_turn(of(settings={"keep": 0, "history": "off"}) | raw), to_raw),
        ]  # fmt: skip

    def _enqueues(self) -> list[Row]:
        count, jobs, seconds = self.sizes.singles, self.sizes.jobs, self.sizes.produce_s
        bars = [("raw", "per_s"), ("huey", "per_s")]

        def single(way: str) -> Round:
            limits: dict[str, Measure] = {
                "raw": partial(raw_singles, count=count, way=way),
                "huey": partial(huey_singles, count=count, way=way),
            }
            sides = self.sides(singles, count=count, way=way)
            return in_turn(sides | (limits if way == FULL else self.peers(limits)))

        threads: dict[str, Measure] = {"one caller": partial(singles, HERE, count=count)}

        def together(way: str) -> Round:
            limits: dict[str, Measure] = {
                kind: partial(produce, HERE, kind=kind, seconds=seconds, way=way)
                for kind in ("raw", "huey")
            }
            return in_turn(self.sides(produce, kind=APP, seconds=seconds, way=way) | limits)

        eight = partial(huey_singles, count=count, way=FULL, callers=8)
        raws: dict[str, Measure] = {"raw": partial(raw_bulk, count=jobs)}
        return [
            Row("single-full", "one durable enqueue a call, new file, FULL", single(FULL), bars),
            Row("single-normal", "one durable enqueue a call, new file, NORMAL",
                single(NORMAL), bars),
            Row("threads-8", "one durable enqueue a call, 8 threads, FULL",
                in_turn(self.sides(singles, count=count, callers=8) | threads | {"huey": eight}),
                [("one caller", "per_s"), ("huey", "per_s")]),
            Row("processes-8", "one durable enqueue a call, 8 processes, FULL",
                together(FULL), bars),
            Row("processes-8-normal", "one durable enqueue a call, 8 processes, NORMAL",
                together(NORMAL), bars),
            Row("bulk", "bulk enqueue, FULL",
                in_turn(self.sides(bulk_enqueue, count=jobs) | raws | threads),
                [("raw", "per_s")], [Limit("per_s", BULK_TO_SINGLE, to="one caller")]),
            Row("lanes", "rows into 1,000 lanes in bulk, FULL",
                in_turn(self.sides(bulk_lanes, count=jobs)), [("", "per_s")]),
        ]  # fmt: skip

    def _latencies(self) -> list[Row]:
        count, burst = self.sizes.pickups, self.sizes.burst
        bars = [("", "p50_ms"), ("", "p99_ms"), ("", "cpu_us")]
        hueys = self.peers(
            {
                "huey": partial(huey_pickups, count=count),
                "huey, polls each 5 ms": partial(huey_pickups, count=count, delay_s=0.005),
            }
        )
        return [
            Row("pickup-full", "from enqueue to start on an idle queue, FULL",
                in_turn(self.sides(pickups, count=count) | hueys), bars,
                [Limit("p50_ms", PICKUP_P50_MS_MAX)]),
            Row("pickup-normal", "from enqueue to start on an idle queue, NORMAL",
                in_turn(self.sides(pickups, count=count, way=NORMAL)), bars,
                [Limit("p50_ms", PICKUP_P50_MS_MAX)]),
            Row("schedule", "from due time to start, a job each 20 ms, FULL",
                in_turn(self.sides(light_schedule) | {"huey": huey_schedule}), [("", "p99_ms")],
                [Limit("p99_ms", LATENESS_P99_MS_MAX), Limit("early", 0)]),
            Row("due-at-once", f"{burst:,} jobs due at one instant, FULL",
                in_turn(self.sides(due_at_once, count=burst)
                        | self.peers({"huey": partial(huey_at_once, count=burst)})),
                [("", "p99_ms")], [Limit("early", 0)]),
        ]  # fmt: skip

    def _others(self) -> list[Row]:
        jobs = self.sizes.jobs
        most, *fewer = sorted(self.sizes.backlogs, reverse=True)
        backlog: dict[str, Measure] = {"ours": partial(backlog_drain, HERE, count=most)}
        backlog |= {f"{count:,}": partial(backlog_drain, HERE, count=count) for count in fewer}
        hueys = self.peers({"huey": partial(huey_memory, jobs=self.sizes.peer_jobs)})
        return [
            Row("memory", "peak resident memory of a worker that drains",
                in_turn(self.sides(memory_of, jobs=jobs) | hueys), [("", "rss_mb")]),
            Row("start-up", "start-up",
                in_turn(self.sides(start_up) | self.peers({"huey": huey_start_up})),
                [("", "import_ms"), ("", "version_ms"), ("", "first_job_ms")]),
            Row("idle", "processor of 8 idle workers",
                in_turn(self.sides(idle_workers, seconds=self.sizes.idle_s)),
                [("", "cpu_percent")]),
            Row("backlog", f"drain of a backlog of {most:,}, and of smaller ones, FULL",
                in_turn(backlog), [(f"{fewer[-1]:,}", "per_s")] if fewer else ()),
        ]  # fmt: skip


def in_turn(sides: Mapping[str, Measure]) -> Round:
    """Measure one side after the other, each in a folder of its own; the base first in turns."""
    turns = itertools.count()

    def measure(folder: Path) -> Mapping[str, Sample]:
        places: dict[str, Path] = {}
        found: dict[str, Sample] = {}
        order = list(sides)
        if next(turns) % 2 and "base" in sides:
            order = ["base", *(name for name in sides if name != "base")]
        for name in order:
            places[name] = folder / f"side{len(places)}"
            places[name].mkdir()
            found[name] = sides[name](places[name], places)
        return {name: found[name] for name in sides}

    return measure


def place_of(checkout: Checkout, folder: Path, way: str = FULL, **more: str) -> Place:
    """Return a place with a queue file of its own."""
    url = f"sqlite:///{folder / 'jobs.db'}"
    settings = {
        "DUELINE_STORE": url if way == FULL else f"{url}?synchronous={way}",
        "BENCH_FILE": str(folder / "huey.db"),
        "BENCH_SYNCHRONOUS": way,
    }
    return Place(checkout, folder, {**settings, **more})


def worker(place: Place, *options: str, module: str = APP) -> list[str]:
    """Return the command line of a worker."""
    return place.checkout.dueline("worker", f"{module}:app", *options)


def huey_worker(place: Place, workers: int = 1, delay_s: float = 0.1) -> list[str]:
    """Return the command line of huey's consumer."""
    most = ("-d", str(delay_s), "-m", str(delay_s)) if delay_s != 0.1 else ()
    words = ["-m", "huey.bin.huey_consumer", "benchmarks.huey_app.huey", "-q", "-n"]
    return [str(place.checkout.python), *words, "-w", str(workers), *most]


def drain(
    checkout: Checkout, folder: Path, places: Mapping[str, Path], *, jobs: int, module: str = APP,
    way: str = FULL, processes: int = 0, settings: Mapping[str, object] | None = None,
    coroutine: bool = False,
) -> Sample:  # fmt: skip
    """Drain a backlog by the worker command."""
    del places
    more = {"BENCH_SETTINGS": json.dumps(settings)} if settings else {}
    more |= {"BENCH_COROUTINE": "1"} if coroutine else {}
    place = place_of(checkout, folder, way, **more)
    (folder / "jobs.py").write_text(readme_program())
    place.side(module, "fill", folder, jobs, 0, jobs)
    shutil.copy(folder / "jobs.db", folder / "before.db")
    options = ("--burst", *(("--processes", str(processes)) if processes else ()))
    used = place.run(worker(place, *options, module=module))
    rate = between(place, jobs)
    if processes:
        empty = place.run(worker(place, *options, module=module))
        rate |= {"cpu_us": (used.cpu_s - empty.cpu_s) / jobs * 1e6}
    return rate


def between(place: Place, jobs: int) -> dict[str, float]:
    """Return the rate between the two marks."""
    first, last = place.mark("first"), place.mark("last")
    cpu_us = (last.cpu_ns - first.cpu_ns) / jobs / 1e3
    return {"per_s": jobs / (last.at_ns - first.at_ns) * 1e9, "cpu_us": cpu_us}


def readme_program() -> str:
    """Return the first program of the README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return text.partition("```python\n")[2].partition("```")[0]


def raw_drain(folder: Path, places: Mapping[str, Path], *, jobs: int, way: str = FULL) -> Sample:
    """Make the same changes to a copy of the file that we have drained."""
    path = folder / "raw.db"
    shutil.copy(places["ours"] / "before.db", path)
    files = (places["ours"] / "before.db", places["ours"] / "jobs.db")
    return place_of(HERE, folder).side("raw", "drain", path, way, jobs, *files)


def huey_drain(
    folder: Path, places: Mapping[str, Path], *, workers: int, way: str, jobs: int
) -> Sample:
    """Drain a backlog by huey's consumer."""
    del places
    place_of(HERE, folder, OFF).side("huey", "fill", folder, jobs, 0, jobs)
    place = place_of(HERE, folder, way)
    with place.running(huey_worker(place, workers)):
        return between(place, jobs)


def singles(
    checkout: Checkout, folder: Path, places: Mapping[str, Path], *, count: int,
    way: str = FULL, callers: int = 1,
) -> Sample:  # fmt: skip
    """Enqueue one by one into a new file."""
    del places
    return place_of(checkout, folder, way).side(APP, "singles", count, callers)


def raw_singles(folder: Path, places: Mapping[str, Path], *, count: int, way: str) -> Sample:
    """Insert the same rows one by one, into a new file of ours."""
    del places
    place = place_of(HERE, folder, way)
    place.side(APP, "singles", 1, 1)
    return place.side("raw", "singles", folder / "jobs.db", way, count)


def huey_singles(
    folder: Path, places: Mapping[str, Path], *, count: int, way: str, callers: int = 1
) -> Sample:
    """Enqueue one by one by huey."""
    del places
    return place_of(HERE, folder, way).side("huey", "singles", count, callers)


def produce(
    checkout: Checkout, folder: Path, places: Mapping[str, Path], *, kind: str, seconds: float,
    way: str = FULL,
) -> Sample:  # fmt: skip
    """Enqueue one by one from several processes at once."""
    del places
    place = place_of(checkout, folder, way)
    values: tuple[object, ...] = (seconds,)
    if kind == "raw":
        place.side(APP, "singles", 1, 1)
        values = (folder / "jobs.db", way, 20_000 if way == FULL else 200_000, seconds)
    started = [place.start(place.side_words(kind, "produce", *values)) for _ in range(PROCESSES)]
    for one in started:
        assert one.stdout
        ready = one.stdout.readline()
        assert ready == "ready\n", (folder / "log").read_text()
    found = [json.loads(_told(one)) for one in _go(started)]
    rates = [one["per_s"] for one in found]
    cpu_us = sum(one["cpu_us"] * one["per_s"] for one in found) / sum(rates)
    return {"per_s": sum(rates), "cpu_us": cpu_us, "slowest_to_mean": min(rates) / sum(rates) * 8}


def _go(started: "list[subprocess.Popen[str]]") -> "list[subprocess.Popen[str]]":
    for one in started:
        assert one.stdin
        one.stdin.write("go\n")
        one.stdin.flush()
    return started


def _told(process: "subprocess.Popen[str]") -> str:
    return process.communicate(timeout=60)[0]


def bulk_enqueue(
    checkout: Checkout, folder: Path, places: Mapping[str, Path], *, count: int
) -> Sample:
    """Enqueue in bulk, 500 a write, which is the default."""
    del places
    return place_of(checkout, folder).side(APP, "fill", folder, count, 0, count)


def raw_bulk(folder: Path, places: Mapping[str, Path], *, count: int) -> Sample:
    """Insert the same rows in bulk, 500 a transaction."""
    del places
    place = place_of(HERE, folder)
    place.side(APP, "singles", 1, 1)
    return place.side("raw", "bulk", folder / "jobs.db", FULL, count)


def bulk_lanes(
    checkout: Checkout, folder: Path, places: Mapping[str, Path], *, count: int
) -> Sample:
    """Insert rows into many lanes: 10,000 a write and 500 a write, and in one transaction."""
    del places
    found: dict[str, float] = {}
    for name, command, page in (("", "lanes", 10_000), ("pages_of_500_", "lanes", 500),
                                ("transaction_", "transaction", 0)):  # fmt: skip
        part = folder / (name or "lanes")
        part.mkdir()
        values = (part, count, LANES, page) if page else (count, LANES)
        one = place_of(checkout, part).side(APP, command, *values)
        found |= {f"{name}per_s": one["per_s"], f"{name}cpu_us": one["cpu_us"]}
    return found


def pickups(
    checkout: Checkout, folder: Path, places: Mapping[str, Path], *, count: int, way: str = FULL
) -> Sample:
    """Time how soon an idle worker starts a job that another process enqueues."""
    del places
    place = place_of(checkout, folder, way, BENCH_STARTS=str(folder / "starts"))
    with place.running(worker(place)) as process_id:
        return picked_up(place, process_id, APP, count)


def huey_pickups(
    folder: Path, places: Mapping[str, Path], *, count: int, delay_s: float = 0.1
) -> Sample:
    """The same by huey."""
    del places
    place = place_of(HERE, folder, BENCH_STARTS=str(folder / "starts"))
    with place.running(huey_worker(place, delay_s=delay_s)) as process_id:
        return picked_up(place, process_id, "huey", count)


def picked_up(
    place: Place, process_id: int, kind: str, count: int, *, every_s: float = 0.05,
    settle_s: float = SETTLE_S,
) -> Sample:  # fmt: skip
    """Enqueue jobs for an idle worker; return how soon they start, and its processor for each."""
    place.side(kind, "pickups", 1, 0)
    place.starts(1)
    time.sleep(settle_s)
    used_s = cpu_s(process_id)
    place.side(kind, "pickups", count, every_s)
    late_ms = place.starts(1 + count)[1:]
    return {**spread(late_ms), "cpu_us": (cpu_s(process_id) - used_s) / count * 1e6}


def spread(late_ms: Sequence[float]) -> dict[str, float]:
    """Return percentiles."""
    parts = {f"p{part}_ms": percentile(late_ms, part / 100) for part in (50, 95, 99)}
    more = {f"p{part}_ms": percentile(late_ms, part / 100) for part in (1, 10, 25, 75, 90)}
    return parts | more


def light_schedule(checkout: Checkout, folder: Path, places: Mapping[str, Path]) -> Sample:
    """Time how soon jobs start after their due time, one each 20 ms."""
    del places
    place = place_of(checkout, folder, BENCH_STARTS=str(folder / "starts"))
    with place.running(worker(place)):
        return on_time(place, APP, 250, 0.02, 2.0)


def huey_schedule(folder: Path, places: Mapping[str, Path]) -> Sample:
    """The same by huey."""
    del places
    place = place_of(HERE, folder, BENCH_STARTS=str(folder / "starts"))
    with place.running(huey_worker(place)):
        return on_time(place, "huey", 250, 0.02, 2.0)


def due_at_once(
    checkout: Checkout, folder: Path, places: Mapping[str, Path], *, count: int
) -> Sample:
    """Time how soon jobs start that are due at one instant."""
    del places
    place = place_of(checkout, folder, BENCH_STARTS=str(folder / "starts"))
    with place.running(worker(place)):
        return on_time(place, APP, count, 0, 3.0)


def huey_at_once(folder: Path, places: Mapping[str, Path], *, count: int) -> Sample:
    """The same by huey."""
    del places
    place = place_of(HERE, folder, BENCH_STARTS=str(folder / "starts"))
    with place.running(huey_worker(place)):
        return on_time(place_of(HERE, folder, OFF), "huey", count, 0, 3.0)


def on_time(place: Place, kind: str, count: int, every_s: float, lead_s: float) -> Sample:
    """Schedule jobs; return how late they start, and how many started early."""
    place.side(kind, "pickups", 1, 0)
    place.starts(1)
    place.side(kind, "schedule", count, every_s, lead_s)
    late_ms = place.starts(1 + count)[1:]
    return {**spread(late_ms), "early": sum(one < 0 for one in late_ms)}


def memory_of(checkout: Checkout, folder: Path, places: Mapping[str, Path], *, jobs: int) -> Sample:
    """Watch the memory of a worker that drains."""
    del places
    place = place_of(checkout, folder)
    place.side(APP, "fill", folder, jobs, 0, jobs)
    return {"rss_mb": place.run(worker(place, "--burst"), watch=True).rss_mb}


def huey_memory(folder: Path, places: Mapping[str, Path], *, jobs: int) -> Sample:
    """The same of huey's consumer."""
    del places
    place = place_of(HERE, folder, OFF)
    place.side("huey", "fill", folder, jobs, 0, jobs)
    with place.running(huey_worker(place)) as process_id:
        place.mark("last")
        return {"rss_mb": peak_mb(process_id)}


def start_up(checkout: Checkout, folder: Path, places: Mapping[str, Path]) -> Sample:
    """Time `import dueline`, `dueline --version`, and a worker until its first job starts."""
    del places
    place = place_of(checkout, folder)
    python = str(checkout.python)
    imports = timed_runs(place, [python, "-c", "import dueline"], 7)
    versions = timed_runs(place, checkout.dueline("--version"), 7)
    place.side(APP, "fill", folder, 0, 0, 0)
    began_ns = time.time_ns()
    place.run(worker(place, "--burst"))
    first_ms = (place.mark("first").at_ns - began_ns) / 1e6
    return {"import_ms": imports, "version_ms": versions, "first_job_ms": first_ms}


def huey_start_up(folder: Path, places: Mapping[str, Path]) -> Sample:
    """The same of huey."""
    del places
    place = place_of(HERE, folder)
    imports = timed_runs(place, [str(HERE.python), "-c", "import huey"], 7)
    place.side("huey", "fill", folder, 0, 0, 0)
    began_ns = time.time_ns()
    with place.running(huey_worker(place)):
        first_ms = (place.mark("first").at_ns - began_ns) / 1e6
    return {"import_ms": imports, "first_job_ms": first_ms}


def timed_runs(place: Place, words: Sequence[str], times: int) -> float:
    """Return the median duration of some runs, in milliseconds."""
    return median(place.run(words).seconds for _ in range(times)) * 1e3


def idle_workers(
    checkout: Checkout, folder: Path, places: Mapping[str, Path], *, seconds: float
) -> Sample:
    """Watch the processor of eight workers without jobs; in per cent of a processor each."""
    del places
    place = place_of(checkout, folder)
    place.side(APP, "fill", folder, 0, 0, 0)
    with ExitStack() as stack:
        workers = [stack.enter_context(place.running(worker(place))) for _ in range(PROCESSES)]
        time.sleep(3 * SETTLE_S)
        used_s = sum(map(cpu_s, workers))
        time.sleep(seconds)
        used_s = sum(map(cpu_s, workers)) - used_s
    return {"cpu_percent": used_s / seconds / PROCESSES * 100}


def backlog_drain(
    checkout: Checkout, folder: Path, places: Mapping[str, Path], *, count: int
) -> Sample:
    """Drain the first part of a backlog."""
    del places
    place = place_of(checkout, folder)
    first = min(10_000, count // 10)  # a worker starts with few threads and a small buffer
    last = first + min(50_000, count * 8 // 10)
    place.side(APP, "fill", folder, count, first, last)
    with place.running(worker(place)):
        return between(place, last - first)
