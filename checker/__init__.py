"""Verdicts on recorded histories.

`check` compares the events that processes recorded (`journal.py`) with how the jobs ended. It does
not depend on the engine: simulations, kill tests and other workers can record events.

A missing response proves nothing: the call may or may not have taken effect. Two calls that
overlap in time may have taken effect in either order.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from checker.ends import ENDED, finished_twice, lost, refenced, stale
from checker.journal import Event, text_of
from checker.order import unexplained
from checker.reads import crossed, fallen, late_of, regranted
from checker.starts import EARLY_US_MAX, early, illegitimate, repeated
from checker.timeline import Fault, JobEvents, RunFacts, is_ok

__all__ = [
    "EARLY_US_MAX", "ENDED", "PREFETCH_MAX", "VERDICTS", "Finding", "Report", "Verdict", "check",
]  # fmt: skip

PREFETCH_MAX = 1000
"""Maximum number of jobs in one poll after less urgent ones: the size of a worker's buffer."""

STORY_EVENTS_MAX = 20

Verdict = Literal[
    "lost", "unexpected", "illegitimate", "stale", "finished twice", "early", "order",
    "backwards", "crossed", "repeated", "unexplained",
]  # fmt: skip
VERDICTS: tuple[Verdict, ...] = (
    "lost", "unexpected", "illegitimate", "stale", "finished twice", "early", "order",
    "backwards", "crossed", "repeated", "unexplained",
)  # fmt: skip
"""lost: acknowledged, and has not ended. unexpected: ran, but was never enqueued.
illegitimate: started again although nothing ended the claim before, or after its end.
stale: an outcome was accepted although its token was no longer the row's. finished twice: has
more than one end. early: started before its due time. order: one poll returned too many jobs
after less urgent ones. backwards: a fence, an epoch or a watermark did not increase. crossed:
the watermark `swept` was above `closed`. repeated: ran again after a section that must not repeat.
unexplained: none of these, but no order of the job's
claims and outcomes explains their responses."""


class Finding(NamedTuple):
    """A fault of a job, a watermark or a poll: its description, and the events that show it."""

    verdict: Verdict
    id: str
    words: str
    events: Sequence[Event]

    def story(self) -> str:
        """Return the events as text, one a line, in seconds since the first."""
        events = sorted(self.events, key=lambda event: event.t)[:STORY_EVENTS_MAX]
        lines = [f"{self.verdict}: {self.id} {self.words}"]
        lines += [f"  {(event.t - events[0].t) / 1e6:+.6f} s  {text_of(event)}" for event in events]
        return "\n".join(lines)


class Report(NamedTuple):
    """Counts of events, and all faults."""

    counts: Mapping[str, int]
    findings: Sequence[Finding]

    def by_verdict(self) -> dict[Verdict, int]:
        """Count the findings by verdict, including verdicts without findings."""
        found = Counter(finding.verdict for finding in self.findings)
        return {verdict: found[verdict] for verdict in VERDICTS}


def check(  # noqa: PLR0912  (one branch for each fault)
    history: Iterable[Event], final: Mapping[str, str], *, prefetch: int = PREFETCH_MAX
) -> Report:
    """Check the history of an empty queue.

    Args:
      history: all events; those of one process in the order in which it recorded them.
      final: state in which each job ended according to the queue, by id; for other jobs the
        outcomes in the history count.
      prefetch: maximum number of jobs in one poll after less urgent ones.
    """
    seen = RunFacts()
    polls: dict[tuple[str, str, str], list[Event]] = defaultdict(list)
    marks: dict[str, list[Event]] = defaultdict(list)
    grants: dict[str, list[Event]] = defaultdict(list)
    lives: dict[str, JobEvents] = {}
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
                life = lives[event.id] = JobEvents()
            getattr(life, event.f).append(event)
            if event.f == "claim" and event.type == "ok":
                polls[event.proc, event.token, event.shard].append(event)
    findings: list[Finding] = []
    for job, life in lives.items():
        found = list(_judged(job, life, seen, final))
        if not found:  # these are more precise
            found = [Finding("unexplained", job, *fault) for fault in unexplained(life, seen)]
        findings += found
    inversions = {key: late_of(poll) for key, poll in polls.items() if len(poll) > 1}
    for (proc, _, shard), late in inversions.items():
        if len(late) > prefetch:
            words = f"returned {len(late)} jobs after less urgent ones; {prefetch} are allowed"
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


def _judged(
    job: str, life: JobEvents, seen: RunFacts, final: Mapping[str, str]
) -> Iterator[Finding]:
    fault = lost(life, final.get(job))
    if fault:
        yield Finding("lost", job, *fault)
    if life.start and not life.is_attempted():
        yield Finding("unexpected", job, "ran, but was never enqueued", life.all())
    rules: tuple[tuple[Verdict, Callable[[JobEvents, RunFacts], Iterable[Fault]]], ...] = (
        ("illegitimate", illegitimate),
        ("stale", stale),
        ("finished twice", finished_twice),
        ("early", early),
        ("backwards", refenced),
        ("repeated", repeated),
    )
    for verdict, rule in rules:
        for words, events in rule(life, seen):
            yield Finding(verdict, job, words, events)


def _counts(
    lives: Mapping[str, JobEvents], seen: RunFacts, final: Mapping[str, str]
) -> dict[str, int]:
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
