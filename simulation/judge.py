"""Verdicts of the kill tests: those of the checker, and those of the workload."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from checker import check
from checker.journal import Event

ENDINGS = ("done", "dead", "cancelled")
FOREVER_US = 2**63
DECIDED = "its end is decided"
"""Note of the recorder for such a claim."""


class Final(NamedTuple):
    """State in which a job ended according to the queue. value: its result, or None."""

    state: str
    value: int | None = None


class Recorded(NamedTuple):
    """An attempt in the queue's history."""

    job: str
    fence: int
    outcome: str


class Report(NamedTuple):
    """Counts of events, and descriptions of faults by verdict."""

    counts: Mapping[str, int]
    faults: Mapping[str, Sequence[str]]


def judge(
    events: Sequence[Event],
    finals: Mapping[str, Final],
    recorded: Sequence[Recorded],
    *,
    prefetch: int,
) -> Report:
    """Compare the events with the state of the empty queue.

    An enqueue's note is the number of the call, which is its result, then its unique key.

    Returns: faults by the checker's verdicts, and by
      doubled: one call with two ids. phantom: done, never started. wrong: the result of another
      job. recorded twice: two ends of a job in the queue's history. beside: two live jobs with
      one unique key.
    """
    # An ended row is claimed only for cleanup. Meanwhile its job may be redriven in another row,
    # with the same fence.
    known = [event for event in events if event.f != "claim" or event.note != DECIDED]
    report = check(known, {job: final.state for job, final in finals.items()}, prefetch=prefetch)
    numbers = _numbers(events)
    faults: dict[str, list[str]] = {str(verdict): [] for verdict in report.by_verdict()}
    for finding in report.findings:
        faults[finding.verdict].append(finding.story())
    started = {event.id for event in events if event.f == "start"}
    done = {job: final.value for job, final in finals.items() if final.state == "done"}
    faults |= {
        "doubled": doubled(events),
        "phantom": [job for job in done if job not in started],
        "wrong": [f"{job}: {value}" for job, value in done.items() if value != numbers.get(job)],
        "recorded twice": _recorded_twice(events, recorded),
        "beside": _beside(events),
    }
    return Report(report.counts, faults)


def _numbers(events: Sequence[Event]) -> dict[str, int]:
    """Return the numbers of the calls, by the ids of their jobs."""
    return {event.id: number_in(event) for event in events if event.f == "enqueue" and event.note}


def doubled(events: Sequence[Event], most: Callable[[int], int] = lambda _: 1) -> list[str]:
    """Return the calls that were stored, or ran, with too many ids.

    most: how many ids the call of a number may have.
    """
    numbers = _numbers(events)
    ids: dict[int, set[str]] = defaultdict(set)
    for event in events:
        if event.id in numbers and (
            event.f == "start" or (event.f == "enqueue" and event.type == "ok")
        ):
            ids[numbers[event.id]].add(event.id)
    return [
        f"number {number}: {sorted(jobs)}"
        for number, jobs in ids.items()
        if len(jobs) > most(number)
    ]


def _beside(events: Sequence[Event]) -> list[str]:
    """Return the jobs that were stored while another with their key was certainly live.

    A job is certainly live from its acknowledgement to the first attempt to end it.
    """
    keys = {event.id: _key_in(event) for event in events if _key_in(event)}
    asked: dict[str, int] = {}
    stored: dict[str, int] = {}
    over: dict[str, int] = {}
    for event in events:
        if event.id not in keys:
            continue
        if event.f == "enqueue" and event.type == "invoke":
            asked[event.id] = min(event.t, asked.get(event.id, event.t))
        elif event.f == "enqueue" and event.type == "ok":
            stored[event.id] = min(event.t, stored.get(event.id, event.t))
        elif event.f == "settle" and event.type == "invoke":
            over[event.id] = min(event.t, over.get(event.id, event.t))
    faults = []
    for key in set(keys.values()):
        jobs = sorted((job for job in stored if keys[job] == key), key=lambda job: asked[job])
        alive_us, last = 0, ""
        for job in jobs:
            if asked[job] > stored.get(last, 0) and stored[job] < alive_us:
                faults.append(f"{key}: {job} beside {last}")
            if over.get(job, FOREVER_US) > alive_us:
                alive_us, last = over.get(job, FOREVER_US), job
    return faults


def number_in(event: Event) -> int:
    """Return the number of a call from the note of its enqueue."""
    return int(event.note.partition(" ")[0])


def _key_in(event: Event) -> str:
    return event.note.partition(" ")[2] if event.f == "enqueue" else ""


def _recorded_twice(events: Sequence[Event], recorded: Sequence[Recorded]) -> list[str]:
    revived = {event.id for event in events if event.f == "carry"}
    ends = Counter(record.job for record in recorded if record.outcome in ENDINGS)
    return [job for job, count in ends.items() if count > 1 and job not in revived]
