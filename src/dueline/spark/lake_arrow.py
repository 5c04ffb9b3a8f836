"""The same tables as `lake`, without Spark.

For one machine, and for tests: it shares the names of the rules with `lake`, and no line of code.
Rows are plain mappings, as `pyarrow.Table.to_pylist` makes them, instants in microseconds.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute

from dueline.checker import EARLY_US_MAX
from dueline.spark.lake_arrow_promises import Run, crowded, passed_by
from dueline.spark.rules import (
    ENDED,
    NO_PROMISES,
    OUTCOMES,
    RULES,
    SPAN_COLUMNS,
    Audited,
    Promises,
    audited,
)

Line = Mapping[str, Any]

_MINUTE_US: Final = 60_000_000
_NOT_IN_SILVER: Final = ("at", "id", "codec", "payload_bytes", "payload")


def lines_of(table: pa.Table) -> list[Line]:
    """Read the rows of a table, instants as microseconds."""
    for place, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            instants = compute.cast(table.column(place), pa.timestamp("us", "UTC"))
            table = table.set_column(place, field.name, instants.cast(pa.int64()))
    rows: list[Line] = table.to_pylist()
    return rows


def lines_in(batches: Iterable[pa.RecordBatch]) -> Iterator[Line]:
    """Read the rows of batches, one batch after the other."""
    for batch in batches:
        yield from lines_of(pa.Table.from_batches([batch]))


def silver(attempts: Iterable[Line]) -> list[Line]:
    """Make one row of each attempt; see `lake.silver`."""
    found: list[Line] = []
    for told in _lives(attempts).values():
        before = None
        for line in _once(told):
            started = line["started"]
            spans: dict[str, Any] = dict.fromkeys(SPAN_COLUMNS)
            if started is not None:
                spans["wait_us"] = started - max(line["due"], line["enqueued"])
                spans["lateness_us"] = started - line["due"]
                spans["run_us"] = line["ended"] - started
            takeover = {"is_takeover": before == "crashed"}
            kept = {name: value for name, value in line.items() if name not in _NOT_IN_SILVER}
            found.append(kept | spans | takeover)
            before = line["outcome"]
    return found


def gold_minute(silver_attempts: Iterable[Line]) -> list[Line]:
    """Count what ended in each minute; see `lake.gold_minute`."""
    counts: dict[tuple[str, str, int], Counter[str]] = defaultdict(Counter)
    for line in silver_attempts:
        cell = counts[_cell_of(line)]
        cell.update(attempts=1, takeovers=int(line["is_takeover"]))
        cell[line["outcome"]] += 1
        cell.update({name: line[name] or 0 for name in SPAN_COLUMNS})
    names = ("attempts", *OUTCOMES, "takeovers", *SPAN_COLUMNS)
    return [
        {"queue": queue, "tenant": tenant, "minute": minute} | {name: cell[name] for name in names}
        for (queue, tenant, minute), cell in counts.items()
    ]


def gold_lateness(silver_attempts: Iterable[Line]) -> list[Line]:
    """Count the lateness of starts, in steps that double; see `lake.gold_lateness`."""
    return _steps(silver_attempts, "lateness_us")


def gold_run(silver_attempts: Iterable[Line]) -> list[Line]:
    """Count how long handlers ran; see `lake.gold_run`."""
    return _steps(silver_attempts, "run_us")


def _steps(silver_attempts: Iterable[Line], name: str) -> list[Line]:
    counts = Counter(
        (*_cell_of(line), max(0, line[name]).bit_length())
        for line in silver_attempts
        if line[name] is not None
    )
    names = ("queue", "tenant", "minute", "step")
    return [dict(zip(names, key, strict=True)) | {"attempts": n} for key, n in counts.items()]


def audit(
    attempts: Iterable[Line],
    *,
    living: Collection[str | Run] | None = None,
    expected: Collection[str | Run] | None = None,
    promises: Promises = NO_PROMISES,
    moved: Collection[str | Run] = (),
) -> Audited:
    """Find what must not be; see `lake.audit`.

    Jobs are given by their ids, for any of their runs (of `living`: the last), or as runs.
    """
    lives = _lives(attempts)
    newest: dict[str, int] = {}
    for job_id, enqueued in lives:
        newest[job_id] = max(newest.get(job_id, enqueued), enqueued)
    once: list[Line] = []
    findings: list[Line] = []

    def find(rule: str, job_id: str, enqueued: int | None, attempt: int) -> None:
        verdict, words = RULES[rule]
        found = {"verdict": verdict, "job_id": job_id, "enqueued": enqueued, "attempt": attempt}
        findings.append(found | {"words": words})

    for run, told in lives.items():
        life = _once(told)
        once += life
        for rule, attempt in _faults(told, life):
            find(rule, *run, attempt)
        last = life[-1]
        has_ended = any(line["outcome"] in ENDED for line in told)
        if living is not None and not has_ended:
            lives_on = run in living or (run[0] in living and run[1] == newest[run[0]])
            if not lives_on:
                find(
                    "dead and gone" if last["outcome"] == "dead" else "gone", *run, last["attempt"]
                )
        if expected is not None and run not in expected and run[0] not in expected:
            find("nobody asked", *run, last["attempt"])
    if living is not None and expected is not None:
        alive = {one if isinstance(one, str) else one[0] for one in living} | newest.keys()
        for one in expected:
            if isinstance(one, str):
                if one not in alive:
                    find("no trace", one, None, 0)
            elif one not in lives and one not in living and one[0] not in living:
                find("no trace", *one, 0)
    for line in crowded(once, promises.capacities):
        find("crowded", line["job_id"], line["enqueued"], line["attempt"])
    if promises.passed is not None:
        for line in passed_by(once, moved, promises.passed):
            find("passed by", line["job_id"], line["enqueued"], line["attempt"])
    return audited(
        findings,
        has_living=living is not None,
        has_expected=expected is not None,
        promises=promises,
    )


def judge(
    bronze: Iterable[Line],
    *,
    living: Collection[Run],
    whole: Collection[str],
    expected: Collection[str] | None = None,
    promises: Promises = NO_PROMISES,
) -> Audited:
    """Audit all rows of a history; see `lake.judge`."""
    attempts: list[Line] = []
    accounted = set(living)
    known: set[Run] = set()
    moved: set[Run] = set()
    for line in bronze:
        run = line["job_id"], line["enqueued"]
        if line["worker"]:
            attempts.append(line)
            if expected is None:
                known.add(run)
        elif line["outcome"] in ENDED:
            accounted.add(run)
        elif line["outcome"] == "enqueued" and line["queue"] in whole and expected is None:
            known.add(run)
        elif line["outcome"] == "changed":
            moved.add(run)
        if line["queue"] not in whole:
            accounted.add(run)
    said = audit(
        attempts,
        living=accounted if whole else None,
        expected=known if expected is None else expected,
        promises=promises,
        moved=moved,
    )
    return said if expected is not None else said.without("unexpected")


def _faults(told: Sequence[Line], life: Sequence[Line]) -> Iterable[tuple[str, int]]:
    """Name the rules that a job's life, each attempt once, breaks, each with the attempt."""
    for line in life:
        attempt = line["attempt"]
        claims = {(one["claimed"], one["worker"]) for one in told if one["attempt"] == attempt}
        if len(claims) > 1:
            yield "one fence", attempt
        if line["started"] is not None and line["started"] < line["due"] - EARLY_US_MAX:
            yield "early", attempt
    ends = [line["attempt"] for line in life if line["outcome"] in ENDED]
    for line in life:
        if ends and line["attempt"] > ends[0]:
            yield "two ends" if line["outcome"] in ENDED else "after its end", line["attempt"]
    for before, line in pairwise(life):
        if before["outcome"] == "crashed":
            if line["claimed"] < before["ended"]:
                yield "before the lease ended", line["attempt"]
        elif before["ended"] > line["claimed"] + EARLY_US_MAX:
            yield "late verdict", line["attempt"]
        if line["claimed"] < before["claimed"] - EARLY_US_MAX:
            yield "time went back", line["attempt"]


def _lives(attempts: Iterable[Line]) -> dict[Run, list[Line]]:
    lives: dict[Run, list[Line]] = defaultdict(list)
    for line in attempts:
        lives[line["job_id"], line["enqueued"]].append(line)
    return lives


def _once(told: Sequence[Line]) -> list[Line]:
    """Take the first telling of each attempt, in their order."""
    first: dict[int, Line] = {}
    for line in sorted(told, key=lambda line: (line["attempt"], line["at"], line["outcome"])):
        first.setdefault(line["attempt"], line)
    return list(first.values())


def _cell_of(line: Line) -> tuple[str, str, int]:
    return line["queue"], line["tenant"], line["ended"] // _MINUTE_US * _MINUTE_US
