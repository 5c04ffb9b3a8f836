"""Verdicts on a history.

The processes of a kill loop write down what they do (`Event`); the queue says how each job
ended (`Final`) and which attempts it recorded (`Recorded`). The judge compares the two.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

EARLY_US_MAX = 1000
ENDINGS = ("done", "dead", "cancelled")


class Event(NamedTuple):
    """What a process wrote down.

    kind: attempt (a call is about to be enqueued), ack (it is stored), start, finish or raise
    (a handler), kill (the loop killed `process`). process, parent: who wrote it, and who
    started that. number: of the call, unique. job: its id, once it has one.
    """

    kind: str
    t_us: int
    process: int
    parent: int = 0
    number: int = -1
    job: str = ""
    fence: int = 0
    due_us: int = 0


class Final(NamedTuple):
    """How the queue says that a job ended. value: its result, None without one."""

    state: str
    value: int | None = None


class Recorded(NamedTuple):
    """An attempt in the queue's history."""

    job: str
    fence: int
    outcome: str
    ended_us: int


class Report(NamedTuple):
    """What the judge found: counts of what happened, and every fault by its verdict."""

    counts: Mapping[str, int]
    faults: Mapping[str, Sequence[str]]


def judge(
    events: Sequence[Event], finals: Mapping[str, Final], recorded: Sequence[Recorded]
) -> Report:
    """Compare what was done with what the queue says, after it was drained.

    Returns: faults under
      lost: acknowledged, and neither done nor dead. unexpected: ran, never attempted.
      doubled: one call under two ids. early: started before it was due.
      unexplained: started again though nothing that ended the claim before is known.
      finished twice: more than one recorded finish. phantom: done, never started.
      wrong: the result is another job's.
    """
    by_kind: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_kind[event.kind].append(event)
    starts: dict[str, list[Event]] = defaultdict(list)
    for event in by_kind["start"]:
        starts[event.job].append(event)
    acknowledged = {event.job: event for event in by_kind["ack"]}
    reasons = _reasons(by_kind, recorded)
    faults = {
        "lost": [job for job in acknowledged if _state(finals, job) not in ("done", "dead")],
        "unexpected": _unexpected(by_kind),
        "doubled": _doubled(by_kind),
        "early": [e.job for e in by_kind["start"] if e.t_us < e.due_us - EARLY_US_MAX],
        "unexplained": [
            f"{job} after fence {event.fence}"
            for job, some in starts.items()
            for event in _unexplained(some, reasons)
        ],
        "finished twice": _finished_twice(recorded),
        "phantom": [
            job for job, final in finals.items() if final.state == "done" and job not in starts
        ],
        "wrong": _wrong(finals, acknowledged),
    }
    return Report(_counts(by_kind, starts, finals, reasons), faults)


def _state(finals: Mapping[str, Final], job: str) -> str:
    return finals[job].state if job in finals else "gone"


def _unexpected(by_kind: Mapping[str, Sequence[Event]]) -> list[str]:
    attempted = {event.number for event in by_kind["attempt"]}
    return sorted({event.job for event in by_kind["start"] if event.number not in attempted})


def _doubled(by_kind: Mapping[str, Sequence[Event]]) -> list[str]:
    ids: dict[int, set[str]] = defaultdict(set)
    for event in [*by_kind["ack"], *by_kind["start"]]:
        ids[event.number].add(event.job)
    return [f"number {number}: {sorted(jobs)}" for number, jobs in ids.items() if len(jobs) > 1]


def _reasons(
    by_kind: Mapping[str, Sequence[Event]], recorded: Sequence[Recorded]
) -> dict[tuple[str, int], str]:
    """Say why a claim, named by job and fence, was followed by another."""
    reasons = {(one.job, one.fence): "expired" for one in recorded if one.outcome == "crashed"}
    reasons |= {
        (one.job, one.fence): "given back" for one in recorded if one.outcome == "given_back"
    }
    killed = {event.process for event in by_kind["kill"]}
    for event in by_kind["start"]:
        if event.process in killed or event.parent in killed:
            reasons[event.job, event.fence] = "killed"
    for event in by_kind["raise"]:
        reasons[event.job, event.fence] = "raised"
    return reasons


def _unexplained(starts: Sequence[Event], reasons: Mapping[tuple[str, int], str]) -> list[Event]:
    """Pick the starts of a job that another one followed for no known reason."""
    ordered = sorted(starts, key=lambda event: (event.fence, event.t_us))
    found = []
    for event, following in pairwise(ordered):
        if event.fence == following.fence or (event.job, event.fence) not in reasons:
            found.append(event)
    return found


def _finished_twice(recorded: Sequence[Recorded]) -> list[str]:
    ends = Counter(one.job for one in recorded if one.outcome in ENDINGS)
    return [job for job, count in ends.items() if count > 1]


def _wrong(finals: Mapping[str, Final], acknowledged: Mapping[str, Event]) -> list[str]:
    return [
        job
        for job, event in acknowledged.items()
        if _state(finals, job) == "done" and finals[job].value != event.number
    ]


def _counts(
    by_kind: Mapping[str, Sequence[Event]],
    starts: Mapping[str, Sequence[Event]],
    finals: Mapping[str, Final],
    reasons: Mapping[tuple[str, int], str],
) -> dict[str, int]:
    acknowledged = {event.job for event in by_kind["ack"]}
    again = Counter(
        reasons.get((event.job, event.fence), "unexplained")
        for some in starts.values()
        for event in sorted(some, key=lambda event: event.fence)[:-1]
    )
    return {
        "attempted": len(by_kind["attempt"]),
        "acknowledged": len(acknowledged),
        "recovered": len(starts.keys() - acknowledged),
        "done": sum(final.state == "done" for final in finals.values()),
        "dead": sum(final.state == "dead" for final in finals.values()),
        "kills": len(by_kind["kill"]),
        "starts": len(by_kind["start"]),
        **{f"started again: {reason}": count for reason, count in sorted(again.items())},
    }
