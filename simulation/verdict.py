"""Verdicts on a run."""

import traceback
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from dueline.core.job import Job, JobId, State
from dueline.core.store import Store
from dueline.jobs import results
from dueline.jobs.completion import stored
from dueline.jobs.history import attempts
from simulation.data import Data
from simulation.judge import Final, Recorded, judge, number_in
from simulation.scenario import QUEUE, Scenario
from simulation.shop import RunLog
from simulation.world import BEGIN_US

PREFETCH = 1000


class Judged(NamedTuple):
    """Counts of events, and descriptions of faults by verdict.

    Verdicts of the judge, and twice: started twice in an at-most-once queue.
    """

    counts: Mapping[str, int]
    faults: dict[str, list[str]]


def judged(data: Data, diary: RunLog, scenario: Scenario) -> Judged:
    """Compare recorded events with the store after the run."""
    rows: dict[str, Job] = {}
    for row in data.rows({event.id for event in diary.events if event.f == "enqueue"}):
        rows[row.id.hex()] = row
    finals: dict[str, Final] = {}
    tried = {event.id for event in diary.events if event.f == "settle"}
    started = {event.id for event in diary.events if event.f == "start"}
    for event in diary.events:
        job = event.id
        if event.f != "enqueue" or job in finals:
            continue
        finals[job] = _final(data.store, job, rows.get(job))
        is_kept = scenario.settings.keep_us > 0
        if not is_kept and finals[job].state == "gone" and job in tried:
            # No result is kept, so an attempt to end the job must suffice.
            ended = Final("done", number_in(event)) if job in started else Final("cancelled")
            finals[job] = ended
        elif not is_kept and finals[job] == Final("done"):  # ended, but its row still exists
            finals[job] = Final("done", number_in(event))
    recorded = [
        Recorded(attempt.job, attempt.fence, attempt.outcome)
        for attempt in attempts(data.store, QUEUE, scenario.settings.shards)
    ]
    report = judge(diary.events, finals, recorded, prefetch=PREFETCH)
    faults = {verdict: list(stories) for verdict, stories in report.faults.items() if stories}
    if scenario.settings.is_once:
        twice = _twice(diary)
        if twice:
            faults["twice"] = twice
    return Judged(report.counts, faults)


def _final(store: Store, job: str, row: Job | None) -> Final:
    """Return how a job ended according to its queue."""
    if row is not None:
        if row.outcome:
            outcome = stored(row).finish.outcome
            return Final(outcome.state, _number(outcome.value))
        return Final("dead" if row.state == State.DEAD else "alive")
    kept = results.read(store, JobId(bytes.fromhex(job)))
    if kept is None:
        return Final("gone")
    return Final(kept.state, _number(kept.value))


def _number(value: str) -> int | None:
    """Return a result as a number; None for no result, or a collected one."""
    return int(value) if value.isdecimal() else None


def _twice(diary: RunLog) -> list[str]:
    """Return the jobs of an at-most-once queue that started more than once."""
    revived = {event.id for event in diary.events if event.f == "carry"}
    starts = Counter(event.id for event in diary.events if event.f == "start")
    return [job for job, count in starts.items() if count > 1 and job not in revived]


def stalled(data: Data, diary: RunLog) -> str:
    """Describe the jobs that have not ended in time."""
    rows = data.living(diary)
    if not rows:
        return "A producer is still running."
    row = rows[0]
    first = f"at {(row.at_us - BEGIN_US) / 1e6:.6f} s, claim {row.fence}, state {row.state}"
    return f"{len(rows)} jobs have not ended, the first of them {row.id.hex()}: {first}, {row.lane}"


def raised_by(who: str, error: BaseException) -> str:
    """Describe an unexpected exception of a process."""
    lines = traceback.format_exception(error)
    return f"{who}: {''.join(lines)[-3000:]}"
