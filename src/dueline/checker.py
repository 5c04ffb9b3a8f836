"""Verdicts on a history.

`check` compares what processes wrote down (diary.py) with how the jobs ended. It relies on
nothing of the engine: simulations, kill loops and other people's workers may write diaries.

An answer that never came is no evidence of anything: what was asked may or may not have
happened. Two calls that overlap in time may have happened in either order.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple

from dueline.diary import Event, told
from dueline.readings import fallen, late_of

EARLY_US_MAX = 1000
PREFETCH_MAX = 1000
"""At most so many more urgent jobs may come late in one poll: what a worker's buffer holds."""

ENDED = ("done", "dead", "cancelled", "expired", "lost")

STORY_EVENTS_MAX = 20

Verdict = Literal[
    "lost", "unexpected", "illegitimate", "stale", "finished twice", "early", "order", "backwards"
]
VERDICTS: tuple[Verdict, ...] = (
    "lost", "unexpected", "illegitimate", "stale", "finished twice", "early", "order", "backwards",
)  # fmt: skip
"""lost: acknowledged, and has not ended. unexpected: ran, and nobody enqueued it.
illegitimate: started again though nothing ended the claim before, or after its end.
stale: a verdict was accepted whose token was no longer the row's. finished twice: ended for
good more than once. early: started before it was due. order: one poll brought too many jobs
after less urgent ones. backwards: a fence, an epoch or a mark did not grow."""


class Finding(NamedTuple):
    """What is wrong with a job (or a mark, or a poll), in words, and the events that show it."""

    verdict: Verdict
    id: str
    words: str
    events: Sequence[Event]

    def story(self) -> str:
        """Tell it, an event a line, in seconds since the first."""
        events = sorted(self.events, key=lambda event: event.t)[:STORY_EVENTS_MAX]
        lines = [f"{self.verdict}: {self.id} {self.words}"]
        lines += [f"  {(event.t - events[0].t) / 1e6:+.6f} s  {told(event)}" for event in events]
        return "\n".join(lines)


class Report(NamedTuple):
    """Counts of what happened, and all that is wrong."""

    counts: Mapping[str, int]
    findings: Sequence[Finding]

    def by_verdict(self) -> dict[Verdict, int]:
        """Count the findings, by verdict; those without any are 0."""
        found = Counter(finding.verdict for finding in self.findings)
        return {verdict: found[verdict] for verdict in VERDICTS}


def check(
    history: Iterable[Event], final: Mapping[str, str], *, prefetch: int = PREFETCH_MAX
) -> Report:
    """Judge a history whose queue was drained.

    Args:
      history: all events; those of one process in the order in which it wrote them.
      final: how the queue says that each job ended, by id; for a job that is not in it the
        verdicts of the history count.
      prefetch: how many jobs of one poll may come after less urgent ones.
    """
    seen = _Seen()
    polls: dict[tuple[str, str, str], list[Event]] = defaultdict(list)
    marks: dict[str, list[Event]] = defaultdict(list)
    lives: dict[str, _Life] = {}
    for event in history:
        if event.f == "mark":
            marks[event.id].append(event)
        elif event.f == "crash":
            seen.crashes[event.proc].append(event.t)
        elif not event.id:
            seen.asked[event.token] = event.t
        else:
            life = lives.get(event.id)
            if life is None:
                life = lives[event.id] = _Life()
            getattr(life, event.f).append(event)
            if event.f == "claim" and event.type == "ok":
                polls[event.proc, event.token, event.shard].append(event)
    findings: list[Finding] = []
    for job, life in lives.items():
        findings += _judged(job, life, seen, final)
    inversions = {key: late_of(poll) for key, poll in polls.items() if len(poll) > 1}
    for (proc, _, shard), late in inversions.items():
        if len(late) > prefetch:
            words = f"brought {len(late)} jobs after less urgent ones; {prefetch} may be"
            findings.append(Finding("order", f"a poll of {proc} in {shard}", words, late))
    for name, readings in marks.items():
        findings += [Finding("backwards", name, *fault) for fault in fallen(readings)]
    counts = _counts(lives, seen, final)
    counts["polls"] = len(polls)
    counts["inversions"] = sum(map(len, inversions.values()))
    return Report(counts, findings)


@dataclass(slots=True)
class _Life:
    """A job's events, by what was asked; the lists are named as `Event.f` is."""

    enqueue: list[Event] = field(default_factory=list)
    claim: list[Event] = field(default_factory=list)
    start: list[Event] = field(default_factory=list)
    settle: list[Event] = field(default_factory=list)
    release: list[Event] = field(default_factory=list)
    extend: list[Event] = field(default_factory=list)
    carry: list[Event] = field(default_factory=list)

    def all(self) -> list[Event]:
        """Give all of them, for a story."""
        return [
            *self.enqueue, *self.claim, *self.start, *self.settle, *self.release, *self.extend,
            *self.carry,
        ]  # fmt: skip

    def is_acknowledged(self) -> bool:
        """Tell whether somebody was told that the job is stored."""
        return any(map(_is_ok, self.enqueue))

    def is_attempted(self) -> bool:
        """Tell whether the job may have been stored."""
        types = [event.type for event in self.enqueue]
        return "ok" in types or "unknown" in types or types.count("invoke") > types.count("no")

    def is_revived(self, after_us: int, before_us: int) -> bool:
        """Tell whether the job was brought back to life in between."""
        return any(after_us <= event.t <= before_us and _may_be(event) for event in self.carry)


@dataclass(slots=True)
class _Seen:
    """What is not about one job: when processes died, when claims were asked for, by token."""

    crashes: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    asked: dict[str, int] = field(default_factory=dict)
    again: Counter[str] = field(default_factory=Counter)


_Fault = tuple[str, Sequence[Event]]


def _judged(job: str, life: _Life, seen: _Seen, final: Mapping[str, str]) -> Iterator[Finding]:
    fault = _lost(life, final.get(job))
    if fault:
        yield Finding("lost", job, *fault)
    if life.start and not life.is_attempted():
        yield Finding("unexpected", job, "ran, and nobody enqueued it", life.all())
    rules: tuple[tuple[Verdict, Callable[[_Life, _Seen], Iterable[_Fault]]], ...] = (
        ("illegitimate", _illegitimate),
        ("stale", _stale),
        ("finished twice", _finished_twice),
        ("early", _early),
        ("backwards", _refenced),
    )
    for verdict, rule in rules:
        for words, events in rule(life, seen):
            yield Finding(verdict, job, words, events)


def _lost(life: _Life, state: str | None) -> _Fault | None:
    if not life.is_acknowledged():
        return None
    if state is None and any(event.type == "ok" for event in life.settle):
        return None
    if state in ENDED:
        return None
    return f"was acknowledged, and is {state or 'gone'}", life.all()


def _illegitimate(life: _Life, seen: _Seen) -> Iterator[_Fault]:
    if len(life.start) < 2 and not life.settle:  # noqa: PLR2004
        return
    starts = sorted(life.start, key=lambda event: (event.attempt, event.t))
    for place, start in enumerate(starts):
        end = _end_before(start, life, seen)
        if end is not None:
            yield f"was started under claim {start.attempt} after its end", [end, start]
        elif place:
            before = starts[place - 1]
            if before.attempt == start.attempt:
                yield f"was started twice under claim {start.attempt}", [before, start]
                continue
            reason = _reason(before, start, life, seen)
            if reason is None:
                words = (f"was started under claim {start.attempt} though nothing is known that"
                        f" ended claim {before.attempt}")  # fmt: skip
                yield words, life.all()
            else:
                seen.again[reason] += 1


def _end_before(start: Event, life: _Life, seen: _Seen) -> Event | None:
    """Find the end of the job that came before a later claim was taken and started."""
    for end in life.settle:
        if end.type == "ok" and end.attempt < start.attempt and end.t <= start.t:
            claim = _claim(life, start.attempt)
            is_stale = claim is not None and claim.t <= _began(end, life.settle, seen)
            if not is_stale and not life.is_revived(end.t, start.t):
                return end
    return None


def _reason(before: Event, start: Event, life: _Life, seen: _Seen) -> str | None:
    """Say what ended the claim of one start before the next, None where nothing is known."""
    attempt = before.attempt
    for given in (life.release, life.carry):
        for event in given:
            if event.attempt == attempt and event.t <= start.t and not _is_refused(event, given):
                return "released"
    claim = _claim(life, attempt)
    since_us = min(before.t, claim.t) if claim else before.t
    for proc in {before.proc, claim.proc if claim else before.proc}:
        if any(since_us <= died_us <= start.t for died_us in seen.crashes.get(proc, ())):
            return "crashed"
    if claim is None:
        return None
    if claim.type == "unknown":
        return "claimed without an answer"
    following = _claim(life, start.attempt)
    taken_us = following.t if following and following.type == "ok" else start.t
    return "expired" if 0 < _lease_end(claim, life) <= taken_us else None


def _lease_end(claim: Event, life: _Life) -> int:
    ends = [event.at for event in life.extend if event.attempt == claim.attempt and _is_ok(event)]
    return max([claim.at, *ends])


def _stale(life: _Life, seen: _Seen) -> Iterator[_Fault]:
    if not life.release and len({event.attempt for event in (*life.claim, *life.start)}) < 2:  # noqa: PLR2004
        return
    attempts = {event.token: event.attempt for event in life.claim if event.token}
    taken = [event for event in (*life.claim, *life.start) if _is_ok(event)]
    for given in (life.settle, life.release, life.extend, life.carry):
        for verdict in filter(_is_ok, given):
            attempt = attempts.get(verdict.token, verdict.attempt)
            began_us = _began(verdict, given, seen)
            is_last = verdict.f == "settle"
            for later in taken:
                if later.attempt > attempt and (
                    later.t <= began_us or (is_last and later.f == "start" and later.t < verdict.t)
                ):
                    words = f"took a verdict ({verdict.f}) of claim {attempt} after claim"
                    yield f"{words} {later.attempt}", life.all()
                    break
            else:
                if verdict.token and _is_released(verdict, life, began_us):
                    words = f"took a verdict ({verdict.f}) of claim {attempt} after its release"
                    yield words, life.all()


def _is_released(verdict: Event, life: _Life, began_us: int) -> bool:
    return any(
        _is_ok(event) and event.token == verdict.token and event.t <= began_us
        for event in life.release
        if event is not verdict
    )


def _finished_twice(life: _Life, seen: _Seen) -> Iterator[_Fault]:  # noqa: ARG001  (a rule)
    ends = sorted(filter(_is_ok, life.settle), key=lambda event: event.t)
    for first, second in pairwise(ends):
        if not life.is_revived(first.t, second.t):
            yield f"ended under claim {first.attempt} and under {second.attempt}", life.all()


def _early(life: _Life, seen: _Seen) -> Iterator[_Fault]:  # noqa: ARG001  (a rule)
    if not life.start:
        return
    due_us = max([event.at for event in life.enqueue], default=0)
    moves = _moves(life)
    claims = {event.token for event in life.claim}
    for start in life.start:
        asked_us = least_us = due_us
        for attempt, _, move in moves:
            if attempt >= start.attempt:
                break
            if move.token in claims:
                least_us = max(asked_us, move.at) if _is_ok(move) else least_us
            elif _is_ok(move):  # while it waited: it is due at another time
                asked_us = least_us = move.at
            else:
                asked_us, least_us = min(asked_us, move.at), min(least_us, move.at)
        if start.t < least_us - EARLY_US_MAX:
            yield f"was started {least_us - start.t} us before its time", life.all()


def _moves(life: _Life) -> list[tuple[int, int, Event]]:
    """List what moved the job, or may have: attempt, when it was asked for, last that is known.

    In the order in which they happened: each names the token that the one before left, and so
    was asked for after that had happened.
    """
    last: dict[tuple[str, str, str, int], tuple[int, int, Event]] = {}
    for event in (*life.release, *life.carry):
        call = (event.f, event.proc, event.token, event.at)
        began_us = event.t if event.type == "invoke" or call not in last else last[call][1]
        last[call] = (event.attempt, began_us, event)
    known = (move for move in last.values() if _may_be(move[2]))
    return sorted(known, key=lambda move: move[:2])


def _refenced(life: _Life, seen: _Seen) -> Iterator[_Fault]:
    if len(life.claim) < 2:  # noqa: PLR2004
        return
    claims = sorted(filter(_is_ok, life.claim), key=lambda event: (event.attempt, event.t))
    for first, second in pairwise(claims):
        if first.attempt == second.attempt:
            yield f"was claimed twice with the fence {first.attempt}", [first, second]
        elif second.t < seen.asked.get(first.token, first.t):
            yield f"was claimed with the fence {second.attempt}, then {first.attempt}", claims


def _claim(life: _Life, attempt: int) -> Event | None:
    for event in life.claim:
        if event.attempt == attempt and _may_be(event):
            return event
    return None


def _began(answer: Event, given: Sequence[Event], seen: _Seen) -> int:
    """Tell when an answer was asked for, at the earliest."""
    if answer.f == "claim":
        return seen.asked.get(answer.token, answer.t)
    asked = [
        event.t
        for event in given
        if event.type == "invoke"
        and event.t <= answer.t
        and (event.proc, event.token, event.at) == (answer.proc, answer.token, answer.at)
    ]
    return max(asked, default=answer.t)


def _is_refused(event: Event, given: Sequence[Event]) -> bool:
    """Tell whether it did not happen: the answer to it, which its process wrote next, says so."""
    if event.type != "invoke":
        return event.type == "no"
    place = given.index(event)
    for other in given[place + 1 :]:
        if (other.proc, other.token) == (event.proc, event.token):
            return other.type == "no"
    return False


def _is_ok(event: Event) -> bool:
    return event.type == "ok"


def _may_be(event: Event) -> bool:
    return event.type != "no"


def _counts(lives: Mapping[str, _Life], seen: _Seen, final: Mapping[str, str]) -> dict[str, int]:
    every = lives.values()
    acknowledged = sum(life.is_acknowledged() for life in every)
    attempted = sum(life.is_attempted() for life in every)
    starts = sum(len(life.start) for life in every)
    states = Counter(final.values())
    return {
        "attempted": attempted,
        "acknowledged": acknowledged,
        "unknown": attempted - acknowledged,
        "recovered": sum(bool(life.start) and not life.is_acknowledged() for life in every),
        "claims": sum(sum(map(_is_ok, life.claim)) for life in every),
        "starts": starts,
        "crashes": sum(map(len, seen.crashes.values())),
        "verdicts refused": sum(
            event.type == "no" for life in every for event in (*life.settle, *life.release)
        ),
        **{state: states[state] for state in ENDED if states[state]},
        **{f"started again: {reason}": count for reason, count in sorted(seen.again.items())},
    }
