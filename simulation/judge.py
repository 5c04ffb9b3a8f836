"""The loop's verdicts: the checker's, and those that only its workload allows."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from checker import check
from checker.journal import Event

ENDINGS = ("done", "dead", "cancelled")
FOREVER_US = 2**63
DECIDED = "its end is decided"
"""What the recorder notes of such a claim."""


class Final(NamedTuple):
    """How the queue says that a job ended. value: its result, None without one."""

    state: str
    value: int | None = None


class Recorded(NamedTuple):
    """An attempt in the queue's own history."""

    job: str
    fence: int
    outcome: str


class Report(NamedTuple):
    """What was found: counts of what happened, and every fault, told, by its verdict."""

    counts: Mapping[str, int]
    faults: Mapping[str, Sequence[str]]


def judge(
    events: Sequence[Event],
    finals: Mapping[str, Final],
    recorded: Sequence[Recorded],
    *,
    prefetch: int,
) -> Report:
    """Compare what was done with what the queue says, after it was drained.

    An enqueue's note is the number of the call, which is its result; then its unique key.

    Returns: faults under the checker's verdicts, and under
      doubled: one call under two ids. phantom: done, never started. wrong: the result is
      another job's. recorded twice: the queue's history has two ends of a job. beside: two jobs
      with one unique key were alive at once.
    """
    # A row whose end is decided is claimed only to be cleared away: while it lies there its job
    # may have been brought back to life in another, with the same fence.
    told = [event for event in events if event.f != "claim" or event.note != DECIDED]
    report = check(told, {job: final.state for job, final in finals.items()}, prefetch=prefetch)
    numbers = {
        event.id: number_in(event) for event in events if event.f == "enqueue" and event.note
    }
    faults: dict[str, list[str]] = {str(verdict): [] for verdict in report.by_verdict()}
    for finding in report.findings:
        faults[finding.verdict].append(finding.story())
    started = {event.id for event in events if event.f == "start"}
    done = {job: final.value for job, final in finals.items() if final.state == "done"}
    faults |= {
        "doubled": _doubled(events, numbers),
        "phantom": [job for job in done if job not in started],
        "wrong": [f"{job}: {value}" for job, value in done.items() if value != numbers.get(job)],
        "recorded twice": _recorded_twice(events, recorded),
        "beside": _beside(events),
    }
    return Report(report.counts, faults)


def _doubled(events: Sequence[Event], numbers: Mapping[str, int]) -> list[str]:
    """Pick the calls that were stored, or ran, under more than one id."""
    ids: dict[int, set[str]] = defaultdict(set)
    for event in events:
        if event.id in numbers and (
            event.f == "start" or (event.f == "enqueue" and event.type == "ok")
        ):
            ids[numbers[event.id]].add(event.id)
    return [f"number {number}: {sorted(jobs)}" for number, jobs in ids.items() if len(jobs) > 1]


def _beside(events: Sequence[Event]) -> list[str]:
    """Pick the jobs that were stored while another of their key was sure to be alive.

    A job is sure to be alive from the acknowledgement to the first try to end it.
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
    found = []
    for key in set(keys.values()):
        jobs = sorted((job for job in stored if keys[job] == key), key=lambda job: asked[job])
        alive_us, last = 0, ""
        for job in jobs:
            if asked[job] > stored.get(last, 0) and stored[job] < alive_us:
                found.append(f"{key}: {job} beside {last}")
            if over.get(job, FOREVER_US) > alive_us:
                alive_us, last = over.get(job, FOREVER_US), job
    return found


def number_in(event: Event) -> int:
    """Read the number of a call off the note of its enqueue."""
    return int(event.note.partition(" ")[0])


def _key_in(event: Event) -> str:
    return event.note.partition(" ")[2] if event.f == "enqueue" else ""


def _recorded_twice(events: Sequence[Event], recorded: Sequence[Recorded]) -> list[str]:
    revived = {event.id for event in events if event.f == "carry"}
    ends = Counter(one.job for one in recorded if one.outcome in ENDINGS)
    return [job for job, count in ends.items() if count > 1 and job not in revived]
