"""Groups of streams that make no progress."""

from collections.abc import Iterator

from dueline.core.check import Check, Verdict
from dueline.core.durations import span_text
from dueline.core.engine import Engine
from dueline.streams import groups, resharding


def standing(engine: Engine, *, max_age_us: int, verdict: Verdict) -> Iterator[Check]:
    """Find groups of streams that make no progress: one that is stuck still beats."""
    store, now_us = engine.store, engine.time.latest_us()
    for stream, settings in resharding.streams(store):
        for group in groups.registered(store, stream):
            members = groups.members(store, stream, group)
            busy = [one for one in members if one.busy_us and now_us - one.busy_us > max_age_us]
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
                yield Check(name, verdict, finding, advice)
