"""Verdicts on a history.

The processes of a kill loop write down what they do (`Event`); the queue says how each job
ended (`Final`) and which attempts it recorded (`Recorded`). The judge compares the two.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

EARLY_US_MAX = 1000
OUTAGE_US_MAX = 30_000_000
"""For so long after its server was killed a store may not be had."""

FOREVER_US = 2**63

ENDINGS = ("done", "dead", "cancelled")


class Event(NamedTuple):
    """What a process wrote down.

    kind: attempt (a call is about to be enqueued), ack (it is stored), unknown (nobody can say,
    it is sent again), start, finish or raise (a handler), kill (the loop killed `process`),
    outage (the loop killed the store's server). process, parent: who wrote it, and who started
    that. number: of the call, unique. job: its id, where it is known.
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
      stale: ended by the verdict of one claim though a later one was started.
      finished twice: more than one recorded finish. phantom: done, never started.
      wrong: the result is another job's.
    """
    by_kind: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_kind[event.kind].append(event)
    starts: dict[str, list[Event]] = defaultdict(list)
    for event in by_kind["start"]:
        starts[event.job].append(event)
    acknowledged = _acknowledged(by_kind)
    reasons = _reasons(by_kind, starts, recorded)
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
        "stale": _stale(starts, recorded),
        "finished twice": _finished_twice(recorded),
        "phantom": [
            job for job, final in finals.items() if final.state == "done" and job not in starts
        ],
        "wrong": _wrong(finals, acknowledged),
    }
    return Report(_counts(by_kind, starts, finals, reasons), faults)


def _acknowledged(by_kind: Mapping[str, Sequence[Event]]) -> dict[str, Event]:
    """Give what was acknowledged, by the job's id, or by the number where no id ever appears."""
    ids = {event.number: event.job for event in [*by_kind["ack"], *by_kind["start"]] if event.job}
    return {
        event.job or ids.get(event.number, f"number {event.number}"): event
        for event in by_kind["ack"]
    }


def _state(finals: Mapping[str, Final], job: str) -> str:
    return finals[job].state if job in finals else "gone"


def _unexpected(by_kind: Mapping[str, Sequence[Event]]) -> list[str]:
    attempted = {event.number for event in by_kind["attempt"]}
    return sorted({event.job for event in by_kind["start"] if event.number not in attempted})


def _doubled(by_kind: Mapping[str, Sequence[Event]]) -> list[str]:
    ids: dict[int, set[str]] = defaultdict(set)
    for event in [*by_kind["ack"], *by_kind["unknown"], *by_kind["start"]]:
        if event.job:
            ids[event.number].add(event.job)
    return [f"number {number}: {sorted(jobs)}" for number, jobs in ids.items() if len(jobs) > 1]


def _reasons(
    by_kind: Mapping[str, Sequence[Event]],
    starts: Mapping[str, Sequence[Event]],
    recorded: Sequence[Recorded],
) -> dict[tuple[str, int], str]:
    """Say why a claim, named by job and fence, was followed by another.

    An outage may keep a worker from its beat, and the next claimer from telling of that.
    """
    killed_us = {event.process: event.t_us for event in by_kind["kill"]}
    outages_us = [event.t_us for event in by_kind["outage"]]
    reasons: dict[tuple[str, int], str] = {}
    for some in starts.values():
        for event, following in pairwise(_in_order(some)):
            died_us = min(
                killed_us.get(event.process, FOREVER_US), killed_us.get(event.parent, FOREVER_US)
            )
            if died_us < following.t_us:
                reasons[event.job, event.fence] = "killed"
            elif any(event.t_us - OUTAGE_US_MAX <= t_us < following.t_us for t_us in outages_us):
                reasons[event.job, event.fence] = "outage"
    words = {"crashed": "expired", "given_back": "given back"}
    for one in recorded:
        if one.outcome in words:
            reasons.setdefault((one.job, one.fence), words[one.outcome])
    for event in by_kind["raise"]:
        reasons[event.job, event.fence] = "raised"
    return reasons


def _unexplained(starts: Sequence[Event], reasons: Mapping[tuple[str, int], str]) -> list[Event]:
    """Pick the starts of a job that another one followed for no known reason."""
    found = []
    for event, following in pairwise(_in_order(starts)):
        if event.fence == following.fence or (event.job, event.fence) not in reasons:
            found.append(event)
    return found


def _in_order(starts: Sequence[Event]) -> Sequence[Event]:
    return sorted(starts, key=lambda event: (event.fence, event.t_us))


def _stale(starts: Mapping[str, Sequence[Event]], recorded: Sequence[Recorded]) -> list[str]:
    """Pick the endings by a claim that another had followed: who claims an ended job sees that."""
    return [
        f"{one.job} ended under fence {one.fence}"
        for one in recorded
        if one.outcome in ENDINGS
        and any(event.fence > one.fence for event in starts.get(one.job, ()))
    ]


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
    acknowledged = _acknowledged(by_kind).keys()
    again = Counter(
        reasons.get((event.job, event.fence), "unexplained")
        for some in starts.values()
        for event in _in_order(some)[:-1]
    )
    return {
        "attempted": len(by_kind["attempt"]),
        "acknowledged": len(acknowledged),
        "unknown at first": len({event.number for event in by_kind["unknown"]}),
        "recovered": len(starts.keys() - acknowledged),
        "done": sum(final.state == "done" for final in finals.values()),
        "dead": sum(final.state == "dead" for final in finals.values()),
        "kills": len(by_kind["kill"]),
        "kills of the server": len(by_kind["outage"]),
        "starts": len(by_kind["start"]),
        **{f"started again: {reason}": count for reason, count in sorted(again.items())},
    }
