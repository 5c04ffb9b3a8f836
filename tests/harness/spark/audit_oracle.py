"""The audit of a history in plain Python, a row at a time: what its SQL is compared with.

It shares the words of the rules with the SQL, but no code.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from operator import itemgetter
from typing import Any, NamedTuple

from dueline.core.attempt import SECTION_KEPT_US, digest_of
from dueline.jobs.audit_rules import (
    AHEAD_US_MAX,
    EARLY_US_MAX,
    ENDED,
    FINAL,
    NO_PROMISES,
    NOTHING_KNOWN,
    RULES,
    SEEN_US,
    Audited,
    Known,
    Promises,
    audited,
)

Line = Mapping[str, Any]
Key = tuple[str, int]
"""The key of a run: the job's id and its enqueue time."""

Fault = tuple[str, int]
"""A rule that is broken, and the attempt that breaks it."""


class Run(NamedTuple):
    """A job from its enqueue call to its end.

    Attributes:
        claims: All rows of attempts.
        attempts: One row of each attempt, in the order of fences.
        events: All other rows.
        crashed: Fences of attempts whose worker died, as recorded by another worker.
    """

    claims: Sequence[Line]
    attempts: Sequence[Line]
    events: Sequence[Line]
    crashed: Collection[int]

    def fences(self, *outcomes: str) -> list[int]:
        """Return the fences of the events with one of these outcomes."""
        return [event["attempt"] for event in self.events if event["outcome"] in outcomes]

    def has_ended(self) -> bool:
        """Return whether some row ends the job for good."""
        return any(line["outcome"] in ENDED for line in chain(self.claims, self.events))


def audit(
    attempts: Iterable[Line],
    *,
    living: Collection[str | Key] | None = None,
    expected: Collection[str] | None = None,
    results: Iterable[Line] | None = None,
    promises: Promises = NO_PROMISES,
    known: Known = NOTHING_KNOWN,
) -> Audited:
    """Find violations; see `audit_queries.audit`.

    Jobs are given by id; those that have a row also by id and enqueue time.
    """
    runs = _runs(attempts)
    last = dict(sorted(runs))
    lives = None if living is None else set(living)
    ids = {place if isinstance(place, str) else place[0] for place in living or ()}
    findings: list[Line] = []

    def find(rule: str, key: tuple[str, int | None], queue: str | None, attempt: int) -> None:
        findings.append(
            {
                "verdict": RULES[rule].verdict, "queue": queue, "job_id": key[0],
                "enqueued": key[1], "attempt": attempt, "words": RULES[rule].words,
            }
        )  # fmt: skip

    for key, run in runs.items():
        job_id, enqueued = key
        queue = (run.attempts or run.events)[-1]["queue"]
        is_alive = lives is None or key in lives or (job_id in lives and last[job_id] == enqueued)
        if known.whole is not None and queue not in known.whole:
            is_alive = True
        faults = chain(_faults(run, promises, known), () if is_alive else _loss(run))
        for rule, attempt in faults:
            find(rule, key, queue, attempt)
        if expected is not None and job_id not in expected and run.attempts:
            find("nobody asked", key, queue, run.attempts[-1]["attempt"])
    if lives is not None and expected is not None:
        for job_id in set(expected) - ids - last.keys():
            find("no trace", (job_id, None), None, 0)
    for rule, line in chain(_unkept(runs, promises), _changed_results(runs, results)):
        find(rule, (line["job_id"], line["enqueued"]), line["queue"], line["attempt"])
    return audited(
        findings,
        has_living=living is not None,
        has_expected=expected is not None,
        has_results=results is not None,
        promises=promises,
        known=known,
    )


def _runs(rows: Iterable[Line]) -> dict[Key, Run]:
    claims: dict[Key, list[Line]] = defaultdict(list)
    events: dict[Key, list[Line]] = defaultdict(list)
    for line in rows:
        if line["worker"] or line["outcome"] != "skipped":  # a skipped occurrence was never a job
            (claims if line["worker"] else events)[line["job_id"], line["enqueued"]].append(line)
    return {
        key: Run(
            claims.get(key, ()),
            first_rows(claims.get(key, ())),
            events.get(key, ()),
            {claim["attempt"] for claim in claims.get(key, ()) if _is_of_dead_worker(claim)},
        )
        for key in dict.fromkeys(chain(claims, events))
    }


def first_rows(claims: Sequence[Line]) -> list[Line]:
    """Return the first row of each attempt, in the order of fences."""
    first: dict[int, Line] = {}
    order = itemgetter("attempt", "at", "outcome", "id", "worker")
    for line in sorted(claims, key=order):
        first.setdefault(line["attempt"], line)
    return list(first.values())


def _faults(run: Run, promises: Promises, known: Known) -> Iterator[Fault]:
    for line in run.attempts:
        yield from ((rule, line["attempt"]) for rule in _of_row(line, known))
    yield from _of_claims(run)
    yield from _of_order(run)
    yield from _of_ends(run, known)
    yield from _of_sections(run, known)
    yield from _of_events(run, known)
    yield from _of_place(run)
    yield from _of_retries(run, promises)


def _of_row(line: Line, known: Known) -> Iterator[str]:
    """Yield the rules that a row breaks by itself."""
    started, ended = line["started"], line["ended"]
    if line["outcome"] == "done" and started is None and line["task"]:
        yield "no start"
    if started is not None:
        if ended < started - EARLY_US_MAX:
            yield "ended first"
        if started < line["claimed"] - EARLY_US_MAX:
            yield "started first"
        if started < line["enqueued"] - EARLY_US_MAX:
            yield "started before enqueued"
    if (
        known.now_us is not None
        and line["outcome"] != "crashed"  # such a row has the end of the lease
        and ended > known.now_us + AHEAD_US_MAX
    ):
        yield "in the future"


def _of_claims(run: Run) -> Iterator[Fault]:
    """Yield the rules that several rows of one attempt break."""
    rows: dict[int, list[Line]] = defaultdict(list)
    for claim in run.claims:
        rows[claim["attempt"]].append(claim)
    changed = run.fences("changed")
    for line in run.attempts:
        attempt = line["attempt"]
        if len({(claim["claimed"], claim["worker"]) for claim in rows[attempt]}) > 1:
            yield "one fence", attempt
        # A worker that was presumed dead may have written its own row, too (rule F3).
        own = [claim for claim in rows[attempt] if not _is_of_dead_worker(claim)]
        final = {(claim["outcome"], claim["error"]) for claim in own if claim["outcome"] in FINAL}
        others = {claim["outcome"] for claim in own if claim["outcome"] not in FINAL}
        if len({claim["ended"] for claim in own}) > 1 or len(final) > 1 or len(others) > 1:
            yield "another end", attempt
        is_moved = any(fence < attempt for fence in changed)
        started = line["started"]
        if started is not None and not is_moved and started < line["due"] - EARLY_US_MAX:
            yield "early", attempt


def _of_order(run: Run) -> Iterator[Fault]:
    """Yield the rules that an attempt breaks in relation to the previous attempt."""
    for before, line in pairwise(run.attempts):
        attempt = line["attempt"]
        if before["outcome"] == "crashed":
            if line["claimed"] < before["ended"]:
                yield "before the lease ended", attempt
        elif before["outcome"] in ("suspended", "restarted", "stopped", "given_back"):
            continue
        elif before["ended"] > line["claimed"] + EARLY_US_MAX:
            yield "late verdict", attempt
        if line["claimed"] < before["claimed"] - EARLY_US_MAX:
            yield "time went back", attempt


def _of_ends(run: Run, known: Known) -> Iterator[Fault]:
    """Yield the rules that an attempt breaks after an end."""
    ends = [line["attempt"] for line in run.attempts if line["outcome"] in ENDED]
    ends += run.fences(*ENDED)
    end = min(ends, default=None)
    for line in run.attempts:
        if end is not None and line["attempt"] > end:
            yield "two ends" if line["outcome"] in ENDED else "after its end", line["attempt"]
    refused, last = max(run.fences("refused"), default=0), run.attempts[-1:]
    if end is not None and refused > max([end, *(line["attempt"] for line in last)]):
        yield "after its end", refused
    changed = run.fences("changed")
    for before, line in pairwise(run.attempts):
        is_retried = any(before["attempt"] <= fence < line["attempt"] for fence in changed)
        if before["outcome"] == "dead" and not is_retried and line["queue"] in known.exact:
            yield "after its death", line["attempt"]


def _of_sections(run: Run, known: Known) -> Iterator[Fault]:
    """Yield the attempts that follow sections that must not repeat."""
    sections: dict[int, list[Line]] = defaultdict(list)
    for line in run.events:
        if line["outcome"] == "section" and line["queue"] in known.exact:
            sections[line["attempt"]].append(line)
    changed, faults = run.fences("changed"), set[Fault]()
    for attempt, lines in sections.items():
        is_open = 2 * sum(line["error"] == "began" for line in lines) > len(lines)
        over = max((line["ended"] for line in lines if line["error"] == "ended"), default=None)
        for line in run.claims if is_open else ():
            has_started = line["started"] is not None or line["outcome"] == "crashed"
            is_after = line["attempt"] > attempt and has_started
            if is_after or (
                line["attempt"] >= attempt and line["outcome"] in ("cancelled", "expired", "lost")
            ):
                faults.add(("went on", line["attempt"]))
        for later, others in sections.items():
            begins = [line["ended"] for line in others if line["error"] == "began"]
            if (
                later > attempt
                and over is not None
                and min(begins, default=over) < over + SECTION_KEPT_US
            ):
                faults.add(("repeated", later))
        faults -= {
            (rule, later) for rule, later in faults
            if any(attempt <= fence < later for fence in changed)
        }  # fmt: skip
    yield from faults


def _of_events(run: Run, known: Known) -> Iterator[Fault]:
    """Yield the rules that need the events of a job in addition to its attempts."""
    enqueue_events = {event["id"] for event in run.events if event["outcome"] == "enqueued"}
    if len(enqueue_events) > 1 and run.events[0]["queue"] in known.exact:
        yield "enqueued twice", 0
    exact = known.exact
    if run.attempts and not enqueue_events and run.attempts[-1]["queue"] in exact:
        yield "not enqueued", run.attempts[-1]["attempt"]
    fences = set(run.fences("changed", *ENDED))
    last = 0
    for line in run.attempts:
        attempt = line["attempt"]
        left = attempt - last - 1 - sum(last < fence < attempt for fence in fences)
        if left > 0 and line["queue"] in exact and not _is_of_dead_worker(line):
            yield "missing", attempt
        last = attempt


def _is_of_dead_worker(line: Line) -> bool:
    """Return whether another worker wrote the row because the attempt's own worker had died.

    That worker may have died, too, before it wrote a row for the previous attempt.
    """
    return line["outcome"] == "crashed" or (
        line["outcome"] in ("dead", "lost") and line["started"] is None
    )


def _of_place(run: Run) -> Iterator[Fault]:
    """Yield attempts with another task, queue or tenant than before."""
    placed = [event for event in run.events if event["outcome"] in ("enqueued", "changed")]
    if not any(event["outcome"] == "enqueued" for event in placed):
        placed += run.attempts[:1]
    for name in ("task", "queue", "tenant"):
        values = {event[name] for event in placed}
        for line in run.attempts:
            if line[name] not in values:
                yield f"another {name}", line["attempt"]


def _of_retries(run: Run, promises: Promises) -> Iterator[Fault]:
    """Yield the attempt that used up its task's attempts without ending the job."""
    failures = 0
    for line in run.attempts:
        if line["outcome"] == "dead":  # a retry by hand starts again from 0
            failures = 0
        elif line["outcome"] == "retried" and line["attempt"] not in run.crashed:
            failures += 1
            if failures == promises.attempts.get(line["task"]):
                yield "over attempts", line["attempt"]


def _loss(run: Run) -> Iterator[Fault]:
    """Yield the rule that a job without a row breaks."""
    if run.has_ended():
        return
    if not run.attempts:
        yield "no trace", 0
        return
    last = run.attempts[-1]
    yield "dead and gone" if last["outcome"] == "dead" else "gone", last["attempt"]


def _unkept(runs: Mapping[Key, Run], promises: Promises) -> Iterator[tuple[str, Line]]:
    """Yield attempts that break promises, each with its rule."""
    once = [line for run in runs.values() for line in run.attempts]
    for line in crowded(once, promises.capacities):
        yield "crowded", line
    if promises.passed is not None:
        moved = {job_id for (job_id, _), run in runs.items() if run.fences("changed")}
        for line in passed_by(once, moved, promises.passed):
            yield "passed by", line


def _changed_results(
    runs: Mapping[Key, Run], results: Iterable[Line] | None
) -> Iterator[tuple[str, Line]]:
    """Yield attempts whose stored result differs from the one that they had."""
    kept = {(row["job_id"], row["finished"]): row["value"] for row in results or ()}
    if not kept:
        return
    for run in runs.values():
        for line in run.attempts:
            value = kept.get((line["job_id"], line["ended"]))
            if line["outcome"] != "done" or value is None or not line.get("digest"):
                continue
            if digest_of(value.encode()) != line["digest"]:
                yield "another result", line


def crowded(attempts: Iterable[Line], capacities: Mapping[str, int]) -> Iterator[Line]:
    """Find attempts that started while the allowed number of their task was running."""
    changes: dict[str, list[tuple[int, int, tuple[str, int, int], Line]]] = defaultdict(list)
    for line in attempts:
        if line["task"] not in capacities or line["outcome"] == "crashed":
            continue
        begin, end = line["started"], line["ended"] - EARLY_US_MAX
        if begin is not None and begin < end:
            who = line["job_id"], line["enqueued"], line["attempt"]
            changes[line["task"]] += [(begin, 1, who, line), (end, -1, who, line)]
    for task, steps in changes.items():
        running = 0
        for _, step, _, line in sorted(steps, key=itemgetter(0, 1, 2)):
            running += step
            if step > 0 and running > capacities[task]:
                yield line


def passed_by(attempts: Iterable[Line], moved: Collection[str | Key], most: int) -> Iterator[Line]:
    """Find jobs that were ready while too many less urgent jobs were claimed."""
    lanes: dict[tuple[str, int, str], list[Line]] = defaultdict(list)
    for line in attempts:
        lanes[line["queue"], line["shard"], line["tenant"]].append(line)
    for lines in lanes.values():
        claims: dict[int, list[int]] = {}
        for level in {line["priority"] for line in lines}:
            claims[level] = sorted(line["claimed"] for line in lines if line["priority"] < level)
        for line in lines:
            run = line["job_id"], line["enqueued"]
            if line["attempt"] != 1 or run[0] in moved or run in moved:
                continue
            ready = max(line["due"], line["enqueued"]) + SEEN_US
            below = claims[line["priority"]]
            if bisect_left(below, line["claimed"]) - bisect_right(below, ready) > most:
                yield line
