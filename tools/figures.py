"""Write the figures of docs/performance.md and README.md from benchmarks/recorded.json.

`python -m tools.figures` writes the generated parts, which stand between `<!-- generated: NAME -->`
and `<!-- end -->`; `tools/pictures.py` draws the plots from the same file. `python -m benchmarks
--record` renews the file.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = (ROOT / "docs" / "performance.md", ROOT / "README.md")
_PART: Final = re.compile(r"(<!-- generated: ([a-z ]+) -->\n).*?(<!-- end -->)", re.DOTALL)

Measured = Mapping[str, float]
"""A median, the least and the most of a measure."""


class Recorded:
    """What a full run has recorded.

    Args:
        path: The file.
    """

    def __init__(self, path: Path = ROOT / "benchmarks" / "recorded.json") -> None:
        self._found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))

    @property
    def machine(self) -> Mapping[str, Any]:
        """Return the description of the machine."""
        machine: Mapping[str, Any] = self._found["machine"]
        return machine

    @property
    def asked(self) -> Mapping[str, Any]:
        """Return the sizes of the run."""
        asked: Mapping[str, Any] = self._found["asked"]
        return asked

    def date(self, row: str) -> str:
        """Return the date on which a row was recorded."""
        return str(self._found["rows"].get(row, {}).get("date", ""))

    def side(self, row: str, side: str, measure: str) -> Measured | None:
        """Return a measure of a side; None if it was not recorded."""
        return self._of(row, "sides", side, measure)

    def ratio(self, row: str, to: str, measure: str) -> Measured | None:
        """Return the ratio of our side to another one; None if it was not recorded."""
        return self._of(row, "ratios", to, measure)

    def value(self, row: str, side: str, measure: str) -> float | None:
        """Return the median of a measure."""
        measured = self.side(row, side, measure)
        return measured["median"] if measured else None

    def _of(self, row: str, *names: str) -> Measured | None:
        measured: Any = self._found["rows"].get(row, {})
        for name in names:
            measured = measured.get(name, {})
        return measured or None


def rounded(value: float) -> str:
    """Write a number with three digits, and thousands with a comma."""
    if value >= 1000:
        digits = len(str(int(value)))
        return f"{round(value, 3 - digits):,.0f}"
    return f"{value:.3g}"


def _ratio(measured: Measured | None) -> str:
    if not measured:
        return ""
    return f"{measured['median']:.2g} ({measured['min']:.2g} to {measured['max']:.2g})"


def _cell(value: float | None, unit: str = "") -> str:
    return "" if value is None else rounded(value) + unit


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


DRAINS: Final = (
    ("readme", "the README's application, which returns a string", "`FULL`"),
    ("default", "no-op jobs, default settings", "`FULL`"),
    ("default-normal", "no-op jobs, default settings", "`NORMAL`"),
    ("processes", "no-op jobs, `--processes 2`", "`FULL`"),
    ("mixed", "no-op jobs next to a coroutine task", "`FULL`"),
    ("history", "without results (`keep=0`)", "`FULL`"),
    ("bare", "without results and history", "`FULL`"),
)
HUEYS: Final = ("huey 1w FULL", "huey 4w FULL", "huey 1w NORMAL", "huey 1w OFF")
ENQUEUES: Final = (
    ("single-full", "one `enqueue` per call, `FULL`"),
    ("single-normal", "one `enqueue` per call, `NORMAL`"),
    ("processes-8", "one `enqueue` per call, 8 processes, `FULL`"),
    ("threads-8", "one `enqueue` per call, 8 threads, `FULL`"),
    ("bulk", "`enqueue_many`, `FULL`"),
)
LATENCIES: Final = (
    ("pickup-full", "ours", "enqueue to start, dueline, `FULL`"),
    ("pickup-normal", "ours", "enqueue to start, dueline, `NORMAL`"),
    ("pickup-full", "huey", "enqueue to start, Huey"),
    ("pickup-full", "huey, polls each 5 ms", "enqueue to start, Huey, polls each 5 ms"),
    ("schedule", "ours", "due time to start, a job each 20 ms, dueline"),
    ("schedule", "huey", "due time to start, a job each 20 ms, Huey"),
    ("due-at-once", "ours", "due time to start, 10,000 jobs at one instant, dueline"),
    ("due-at-once", "huey", "due time to start, 10,000 jobs at one instant, Huey"),
)
OTHERS: Final = (
    ("memory", "ours", "rss_mb", "peak memory of a worker that drains 100,000 jobs", " MiB"),
    ("memory", "huey", "rss_mb", "the same, Huey", " MiB"),
    ("start-up", "ours", "import_ms", "`import dueline`", " ms"),
    ("start-up", "ours", "version_ms", "`dueline --version`", " ms"),
    ("start-up", "ours", "first_job_ms", "start of a worker to the start of its first job", " ms"),
    ("start-up", "huey", "first_job_ms", "the same, Huey", " ms"),
    ("idle", "ours", "cpu_percent", "processor of an idle worker", " %"),
)
CASSANDRA: Final = (
    ("cassandra-default", "ours", "per_s", "drain, default settings", " jobs/s"),
    ("cassandra-history", "ours", "per_s", "drain with history, without results", " jobs/s"),
    ("cassandra-pickup", "ours", "p50_ms", "enqueue to start, p50", " ms"),
    ("cassandra-pickup", "ours", "p95_ms", "enqueue to start, p95", " ms"),
    ("cassandra-pickup", "by polling", "p50_ms", "enqueue to start without wake-ups, p50", " ms"),
    ("cassandra-demo", "ours", "per_s", "`make demo`", " jobs/s"),
    ("cassandra-demo", "SQLite", "per_s", "`make demo` on SQLite, in the same run", " jobs/s"),
)


def drains(recorded: Recorded) -> str:
    """Return the table of drains."""
    heads = ["one worker", "synchronous", "jobs/s", "processor, µs a job", "of the raw loop"]
    rows = [
        [title, way, _cell(rate), _cell(recorded.value(row, "ours", "cpu_us")),
         _ratio(recorded.ratio(row, "raw", "per_s"))]
        for row, title, way in DRAINS
        if (rate := recorded.value(row, "ours", "per_s")) is not None
    ]  # fmt: skip
    rows += [
        [f"Huey, {_workers(side)}, without results", f"`{side.rpartition(' ')[2]}`",
         _cell(rate), _cell(recorded.value("default", side, "cpu_us")), ""]
        for side in HUEYS
        if (rate := recorded.value("default", side, "per_s")) is not None
    ]  # fmt: skip
    return _table(heads, rows)


def _workers(side: str) -> str:
    return "1 worker" if " 1w " in side else "4 workers"


def enqueues(recorded: Recorded) -> str:
    """Return the table of enqueues."""
    heads = ["", "jobs/s", "processor, µs a job", "of raw inserts", "Huey, jobs/s"]
    rows = [
        [title, _cell(rate), _cell(recorded.value(row, "ours", "cpu_us")),
         _ratio(recorded.ratio(row, "raw", "per_s")), _cell(recorded.value(row, "huey", "per_s"))]
        for row, title in ENQUEUES
        if (rate := recorded.value(row, "ours", "per_s")) is not None
    ]  # fmt: skip
    return _table(heads, rows)


def latencies(recorded: Recorded) -> str:
    """Return the table of latencies."""
    heads = ["", "p50", "p99", "early", "processor of the worker, µs a job"]
    rows = [
        [title, _cell(p50, " ms"), _cell(recorded.value(row, side, "p99_ms"), " ms"),
         _cell(recorded.value(row, side, "early")), _cell(recorded.value(row, side, "cpu_us"))]
        for row, side, title in LATENCIES
        if (p50 := recorded.value(row, side, "p50_ms")) is not None
    ]  # fmt: skip
    return _table(heads, rows)


def backlogs(recorded: Recorded) -> list[tuple[int, float]]:
    """Return the rates by the size of the backlog, smallest first."""
    sizes = sorted(map(int, recorded.asked.get("backlogs", ())), reverse=True)
    sides = ["ours", *(f"{size:,}" for size in sizes[1:])]
    rates = [(size, recorded.value("backlog", side, "per_s")) for size, side in zip(
             sizes, sides, strict=False)]  # fmt: skip
    return sorted((size, rate) for size, rate in rates if rate is not None)


def _backlog(recorded: Recorded) -> str:
    rows = [[f"{size:,}", rounded(rate)] for size, rate in backlogs(recorded)]
    return _table(["jobs that wait", "jobs/s"], rows)


def _values(recorded: Recorded, lines: Sequence[tuple[str, str, str, str, str]]) -> str:
    rows = [
        [title, rounded(value) + unit]
        for row, side, measure, title, unit in lines
        if (value := recorded.value(row, side, measure)) is not None
    ]
    return _table(["", "median"], rows)


def _run(recorded: Recorded) -> str:
    machine, asked = recorded.machine, recorded.asked
    dates = sorted({recorded.date(row) for row, *_ in (*DRAINS, *LATENCIES)} - {""})
    return (
        f"- Recorded on {' and '.join(dates)}: `make bench-docs`, up to"
        f" {asked['rounds']} rounds of each row, {asked['jobs']:,} jobs of each drain.\n"
        f"- Machine: {machine['cpus']} cores ({machine['machine']}), Python {machine['python']},"
        f" SQLite {machine['sqlite']}; a flush took {machine['flush_ms']:.2g} ms.\n"
    )


def _speed(recorded: Recorded) -> str:
    """Return the sentence of the README."""
    readme = recorded.value("readme", "ours", "per_s")
    rate = readme or recorded.value("default", "ours", "per_s") or 0
    what = "jobs a second of the application above" if readme else "no-op jobs a second"
    single = recorded.value("single-full", "ours", "per_s") or 0
    pickup = recorded.value("pickup-full", "ours", "p50_ms") or 0
    return (
        f"`dueline worker` runs {rounded(rate)} {what} on SQLite, with default settings"
        f" (results, history, and a flush for each commit). One process enqueues"
        f" {rounded(single)} jobs a second one by one, and an idle worker starts a job"
        f" {pickup:.2g} ms after the call ({recorded.machine['cpus']} cores,"
        f" Python {recorded.machine['python'].rpartition('.')[0]}).\n"
    )


PARTS: Final[Mapping[str, Callable[[Recorded], str]]] = {
    "drains": drains,
    "enqueues": enqueues,
    "latencies": latencies,
    "backlog": _backlog,
    "others": lambda recorded: _values(recorded, OTHERS),
    "cassandra": lambda recorded: _values(recorded, CASSANDRA),
    "run": _run,
    "speed": _speed,
}


def rendered(page: str, recorded: Recorded) -> str:
    """Return a page with its generated parts up to date."""
    return _PART.sub(lambda part: f"{part[1]}\n{PARTS[part[2]](recorded)}\n{part[3]}", page)


def parts_of(page: str) -> Iterator[str]:
    """Yield the names of a page's generated parts."""
    return (part[2] for part in _PART.finditer(page))


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(rendered(page.read_text(encoding="utf-8"), Recorded()), encoding="utf-8")
        print(page)
