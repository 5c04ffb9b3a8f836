"""What `explain` should say of a situation, worked out from the documented rules alone.

Written from docs/guides/observability.md ("Ask why a job does not run") and the guides on queues,
limits, workflows and workers; it shares no code with `dueline.jobs`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations, product
from random import Random
from typing import Any, Final, NamedTuple


@dataclass(frozen=True)
class Situation:
    """Causes that keep one job from running, one for each kind.

    Attributes:
        pause: What is paused.
        limit: How the limit of the job stands. `quota` is full: it holds back calls, not jobs.
        worker: The workers that serve the queue.
        time: When the job is due, and when it expires.
        flow: What its workflow says of it.
        others: What else is in the queue.
        claim: How a worker holds it; then time, flow and others are as of a plain job.
        once: The queue delivers at most once.
    """

    pause: str = "none"
    limit: str = "none"
    worker: str = "live"
    time: str = "now"
    flow: str = "none"
    others: str = "none"
    claim: str = "none"
    once: bool = False

    def __str__(self) -> str:
        """Name the causes."""
        given = [f"{f.name}={v}" for f in fields(self) if (v := getattr(self, f.name)) != f.default]
        return ",".join(given) or "nothing"


class Answer(NamedTuple):
    """What is to be said: each condition as `kind subject`, the next first; how the job ends."""

    conditions: Sequence[str]
    ends_as: str = ""


PAUSES: Final = ("none", "queue", "tenant", "task")
LIMITS: Final = ("none", "full", "zero", "rate", "closed", "stale", "quota")
WORKERS: Final = ("live", "none", "quiet", "stopping", "silent", "unknown", "elsewhere", "knower")
TIMES: Final = ("now", "later", "retry", "snoozed", "snoozed too long", "expires", "deadline")
FLOWS: Final = ("waits", "held", "signal", "sent", "cancelled", "compensation")
OTHERS: Final = ("none", "urgent", "same limit", "slots")
CLAIMS: Final = ("running", "silent", "gone", "gone thrice", "waiting", "stopping", "lapsed")

_AXES: Final[Mapping[str, Mapping[str, Sequence[Any]]]] = {
    "waiting": {"pause": PAUSES, "limit": LIMITS, "worker": WORKERS, "time": TIMES,
                "others": OTHERS, "once": (False, True)},
    "step": {"pause": PAUSES, "limit": LIMITS, "worker": WORKERS, "flow": FLOWS},
    "claimed": {"pause": PAUSES, "worker": ("live", "none", "quiet", "unknown"), "claim": CLAIMS,
                "once": (False, True)},
}  # fmt: skip
KINDS: Final = tuple(_AXES)


def situations() -> list[Situation]:
    """Return situations in which each cause meets each cause of every other kind."""
    return [situation for kind in KINDS for situation in situations_of(kind)]


def situations_of(kind: str) -> list[Situation]:
    """Return those of a job that waits, of one that is claimed, or of a step."""
    return list(_pairwise(_AXES[kind]))


def _pairwise(axes: Mapping[str, Sequence[Any]]) -> Iterator[Situation]:
    """Yield few combinations that have each pair of values of two axes."""
    chance = Random(46)
    names = list(axes)
    every = [dict(zip(names, values, strict=True)) for values in product(*axes.values())]
    left = {pair for situation in every for pair in combinations(situation.items(), 2)}
    while left:
        best = max(
            chance.sample(every, min(200, len(every))),
            key=lambda situation: sum(pair in left for pair in combinations(situation.items(), 2)),
        )
        new = left.intersection(combinations(best.items(), 2))
        if new:
            left -= new
            yield Situation(**best)


def expected(of: Situation, name: str) -> Answer:
    """Return what is to be said of the job; `name` is that of its queue, tenant and limit."""
    if of.claim == "none":
        return _of_waiting(of, name)
    if of.claim in ("running", "stopping"):
        return Answer([])
    if of.claim == "waiting":
        return Answer(["claimed"])
    fate = ""  # a worker died in the handler: once means once, and the third death is the last
    if of.once:
        fate = "lost"
    elif of.claim == "gone thrice":
        fate = "dead"
    if of.claim == "silent":
        return Answer(["worker silent holder"])
    gates = [*_pause(of, name), *_worker(of, name)]
    if of.claim == "lapsed":
        if fate:
            return Answer([], fate)
        is_next = of.pause == "none" and of.worker == "live"
        return Answer(gates if gates or not is_next else [])
    return Answer(["worker gone holder", *([] if fate else gates)], fate)


def _of_waiting(of: Situation, name: str) -> Answer:
    if of.flow == "cancelled":
        return Answer([], "cancelled")  # no part of a cancelled group is run
    if of.flow == "signal":  # a wait has no task, tenant or limit, and any worker ends it
        worker = "live" if of.worker in ("unknown", "knower") else of.worker
        pause = "queue" if of.pause == "queue" else "none"
        of = replace(of, pause=pause, limit="none", worker=worker)
    first = {
        "waits": ["steps"], "compensation": ["steps"], "held": ["held"], "signal": ["signal go"],
    }.get(of.flow, [])  # fmt: skip
    first += {
        "later": ["scheduled"], "retry": ["retrying"], "snoozed": ["put back"],
        "snoozed too long": ["expires"],
    }.get(of.time, [])  # fmt: skip
    pauses, workers, limits = _pause(of, name), _worker(of, name), _limit(of, name)
    ends_as = "expired" if of.time == "snoozed too long" else ""
    if of.time == "expires" and of.limit in ("rate", "closed"):
        ends_as = "expired"  # the limit opens after that
    turn = []
    if not (first or pauses or workers) and _is_behind(of):
        turn = ["waiting"]
    return Answer([*first, *pauses, *workers, *limits, *turn], ends_as)


def _is_behind(of: Situation) -> bool:
    """Return whether others come before a ready job, or no slot is free."""
    if of.others == "same limit":  # more urgent, and needs no more than what the job needs
        return of.limit in ("none", "quota", "full", "zero", "rate", "closed", "stale")
    return of.others in ("urgent", "slots")


def _pause(of: Situation, name: str) -> list[str]:
    subject = {"queue": name, "tenant": name, "task": "tests.task"}.get(of.pause)
    return [] if subject is None else [f"paused {subject}"]


def _worker(of: Situation, name: str) -> list[str]:
    return {
        "live": [],
        "none": [f"no worker {name}"],
        "elsewhere": [f"no worker {name}"],
        "stopping": [f"no worker {name}"],
        "quiet": ["quiet w"],
        "knower": ["quiet w"],
        "silent": ["worker silent w"],
        "unknown": ["task unknown tests.task"],
    }[of.worker]


def _limit(of: Situation, name: str) -> list[str]:
    if of.limit in ("none", "quota"):
        return []  # a quota was asked when the job was enqueued
    if of.limit == "stale" and of.time in ("later", "retry", "snoozed"):
        return []  # the permits of the dead worker expire before the job is due
    return [f"limit {name}"]
