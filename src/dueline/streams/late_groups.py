"""Report groups of streams that make no progress.

Nothing is done about them: a consumer takes over what no live member holds. So a group that stays
behind is reported to operators who do not run `dueline doctor`.
"""

from dueline.core.chore import Report
from dueline.core.engine import Engine
from dueline.jobs.shard_status import LATE_US
from dueline.streams.group_health import standing

EVERY_US = LATE_US


def report_late_groups(engine: Engine, after: str | None) -> Report:
    """Report the late groups of all streams, as one step."""
    del after  # all of them are one step
    late = list(standing(engine, max_age_us=LATE_US, verdict="warning"))
    return Report(len(late), warnings=[f"{one.name}: {one.finding}" for one in late])
