"""What was wrong with a life."""

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
    """Counts of what happened, and stories of what was wrong, by verdict.

    Those of the judge, and: twice: started twice in a queue that delivers at most once.
    """

    counts: Mapping[str, int]
    faults: dict[str, list[str]]


def judged(data: Data, diary: RunLog, scenario: Scenario) -> Judged:
    """Compare what was written down with what is stored, once all has ended."""
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
            # Nothing was to be kept of it: that somebody tried to end it must do.
            ended = Final("done", number_in(event)) if job in started else Final("cancelled")
            finals[job] = ended
        elif not is_kept and finals[job] == Final("done"):  # decided, and its row is there yet
            finals[job] = Final("done", number_in(event))
    recorded = [
        Recorded(one.job, one.fence, one.outcome)
        for one in attempts(data.store, QUEUE, scenario.settings.shards)
    ]
    report = judge(diary.events, finals, recorded, prefetch=PREFETCH)
    faults = {verdict: list(told) for verdict, told in report.faults.items() if told}
    if scenario.settings.is_once:
        twice = _twice(diary)
        if twice:
            faults["twice"] = twice
    return Judged(report.counts, faults)


def _final(store: Store, job: str, row: Job | None) -> Final:
    """Say how a job ended, as its queue would."""
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
    """Read a result; None for one of no call: there is none, or it gathers others."""
    return int(value) if value.isdecimal() else None


def _twice(diary: RunLog) -> list[str]:
    """Pick the jobs of a queue that delivers at most once which were started more often."""
    revived = {event.id for event in diary.events if event.f == "carry"}
    starts = Counter(event.id for event in diary.events if event.f == "start")
    return [job for job, count in starts.items() if count > 1 and job not in revived]


def stalled(data: Data, diary: RunLog) -> str:
    """Say what has not ended in time."""
    rows = data.living(diary)
    if not rows:
        return "Somebody is still calling."
    row = rows[0]
    told = f"at {(row.at_us - BEGIN_US) / 1e6:.6f} s, claim {row.fence}, state {row.state}"
    return f"{len(rows)} jobs have not ended, the first of them {row.id.hex()}: {told}, {row.lane}"


def told(who: str, error: BaseException) -> str:
    """Say what somebody raised whom nothing should make raise it."""
    lines = traceback.format_exception(error)
    return f"{who}: {''.join(lines)[-3000:]}"
