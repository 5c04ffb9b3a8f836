"""Verdicts on a history.

`check` compares what processes wrote down (diary.py) with how the jobs ended. It relies on
nothing of the engine: simulations, kill loops and other people's workers may write diaries.

An answer that never came is no evidence of anything: what was asked may or may not have
happened. Two calls that overlap in time may have happened in either order.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from checker.ends import ENDED, finished_twice, lost, refenced, stale
from checker.journal import Event, told
from checker.order import unexplained
from checker.reads import crossed, fallen, late_of, regranted
from checker.starts import EARLY_US_MAX, early, illegitimate
from checker.timeline import Fault, Life, Seen, is_ok

__all__ = [
    "EARLY_US_MAX", "ENDED", "PREFETCH_MAX", "VERDICTS", "Finding", "Report", "Verdict", "check",
]  # fmt: skip

PREFETCH_MAX = 1000
"""At most so many more urgent jobs may come late in one poll: what a worker's buffer holds."""

STORY_EVENTS_MAX = 20

Verdict = Literal[
    "lost", "unexpected", "illegitimate", "stale", "finished twice", "early", "order",
    "backwards", "crossed", "unexplained",
]  # fmt: skip
VERDICTS: tuple[Verdict, ...] = (
    "lost", "unexpected", "illegitimate", "stale", "finished twice", "early", "order",
    "backwards", "crossed", "unexplained",
)  # fmt: skip
"""lost: acknowledged, and has not ended. unexpected: ran, and nobody enqueued it.
illegitimate: started again though nothing ended the claim before, or after its end.
stale: a verdict was accepted whose token was no longer the row's. finished twice: ended for
good more than once. early: started before it was due. order: one poll brought too many jobs
after less urgent ones. backwards: a fence, an epoch or a mark did not grow. crossed: the mark
`swept` was above `closed`. unexplained: none of these, and yet no order of a job's claims and
verdicts explains how they were answered."""


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


def check(  # noqa: PLR0912  (one flat branch for each fault)
    history: Iterable[Event], final: Mapping[str, str], *, prefetch: int = PREFETCH_MAX
) -> Report:
    """Judge a history whose queue was drained.

    Args:
      history: all events; those of one process in the order in which it wrote them.
      final: how the queue says that each job ended, by id; for a job that is not in it the
        verdicts of the history count.
      prefetch: how many jobs of one poll may come after less urgent ones.
    """
    seen = Seen()
    polls: dict[tuple[str, str, str], list[Event]] = defaultdict(list)
    marks: dict[str, list[Event]] = defaultdict(list)
    grants: dict[str, list[Event]] = defaultdict(list)
    lives: dict[str, Life] = {}
    for event in history:
        if event.f == "mark":
            marks[event.id].append(event)
        elif event.f == "grant":
            grants[event.id].append(event)
        elif event.f == "crash":
            seen.crashes[event.proc].append(event.t)
        elif not event.id:
            seen.asked[event.token] = event.t
        else:
            life = lives.get(event.id)
            if life is None:
                life = lives[event.id] = Life()
            getattr(life, event.f).append(event)
            if event.f == "claim" and event.type == "ok":
                polls[event.proc, event.token, event.shard].append(event)
    findings: list[Finding] = []
    for job, life in lives.items():
        found = list(_judged(job, life, seen, final))
        if not found:  # those say more exactly what is wrong
            found = [Finding("unexplained", job, *fault) for fault in unexplained(life, seen)]
        findings += found
    inversions = {key: late_of(poll) for key, poll in polls.items() if len(poll) > 1}
    for (proc, _, shard), late in inversions.items():
        if len(late) > prefetch:
            words = f"brought {len(late)} jobs after less urgent ones; {prefetch} may be"
            findings.append(Finding("order", f"a poll of {proc} in {shard}", words, late))
    for name, readings in (*marks.items(), *grants.items()):
        findings += [Finding("backwards", name, *fault) for fault in fallen(readings)]
    for name, readings in grants.items():
        findings += [Finding("backwards", name, *fault) for fault in regranted(readings)]
    findings += [Finding("crossed", name, *fault) for name, fault in crossed(marks)]
    counts = _counts(lives, seen, final)
    counts["polls"] = len(polls)
    counts["inversions"] = sum(map(len, inversions.values()))
    return Report(counts, findings)


def _judged(job: str, life: Life, seen: Seen, final: Mapping[str, str]) -> Iterator[Finding]:
    fault = lost(life, final.get(job))
    if fault:
        yield Finding("lost", job, *fault)
    if life.start and not life.is_attempted():
        yield Finding("unexpected", job, "ran, and nobody enqueued it", life.all())
    rules: tuple[tuple[Verdict, Callable[[Life, Seen], Iterable[Fault]]], ...] = (
        ("illegitimate", illegitimate),
        ("stale", stale),
        ("finished twice", finished_twice),
        ("early", early),
        ("backwards", refenced),
    )
    for verdict, rule in rules:
        for words, events in rule(life, seen):
            yield Finding(verdict, job, words, events)


def _counts(lives: Mapping[str, Life], seen: Seen, final: Mapping[str, str]) -> dict[str, int]:
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
        "claims": sum(sum(map(is_ok, life.claim)) for life in every),
        "starts": starts,
        "crashes": sum(map(len, seen.crashes.values())),
        "outcomes rejected": sum(
            event.type == "no" for life in every for event in (*life.settle, *life.release)
        ),
        **{state: states[state] for state in ENDED if states[state]},
        **({"too long to order": seen.given_up} if seen.given_up else {}),
        **{f"started again: {reason}": count for reason, count in sorted(seen.again.items())},
    }
