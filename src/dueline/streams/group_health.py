"""Groups of streams that make no progress.

They are only reported: a consumer takes over the shards that no live member holds.
"""

from collections.abc import Iterator

from dueline.core.check import Check, Verdict
from dueline.core.durations import span_text
from dueline.core.engine import Engine
from dueline.core.maintenance import StepResult
from dueline.jobs.shard_status import LATE_US
from dueline.streams import groups, resharding, topics

EVERY_US = LATE_US


def stuck_groups(engine: Engine, *, max_age_us: int, verdict: Verdict) -> Iterator[Check]:
    """Find groups of streams that make no progress; stuck members still send heartbeats."""
    store, now_us = engine.store, engine.time.latest_us()
    for stream, settings in resharding.streams(store):
        for group in groups.registered(store, stream):
            members = groups.members(store, stream, group)
            busy = [
                member
                for member in members
                if member.busy_us and now_us - member.busy_us > max_age_us
            ]
            shards = resharding.shards_of(settings)
            waits_us = groups.waits_us(store, stream, group, shards, now_us=now_us) or 0
            name = f"group {stream}/{group}"
            if busy:
                span = span_text(now_us - busy[0].busy_us)
                finding = f"{busy[0].name} has been handling one batch for {span}"
                yield Check(name, verdict, finding, "See what its handler waits for; restart it.")
            elif waits_us > max_age_us:
                finding = f"its oldest event waits for {span_text(waits_us)}"
                finding += "" if members else ", and it has no live member"
                advice = "Start more consumers; or `stream.forget_group` if it is not used."
                if group.startswith(topics.TASK_PREFIX):
                    advice = f"Start a worker that has the {group}; or `dueline topics forget "
                    advice += f"'{group}'` if it no longer subscribes."
                paused = [pause for pause in settings.paused if pause.group in (None, group)]
                if paused:
                    finding += f"; paused: {'; '.join(pause.text for pause in paused)}"
                    advice = f"See `dueline streams resume {stream}`."
                yield Check(name, verdict, finding, advice)


def report_late_groups(engine: Engine, after: str | None) -> StepResult:
    """Report the late groups of all streams, for operators who do not run `dueline doctor`."""
    del after  # all of them are one step
    late = list(stuck_groups(engine, max_age_us=LATE_US, verdict="warning"))
    return StepResult(len(late), warnings=[f"{check.name}: {check.finding}" for check in late])
