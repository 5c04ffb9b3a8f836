"""Tell of shards that are late though somebody serves or reads them.

Nothing is done about them: every worker looks at all shards, and a consumer takes over what no
live member holds. So one that stays late is for somebody to hear of who asks no `doctor`.
"""

from dueline.chores.chore import Report
from dueline.health import neglected, standing
from dueline.queue import Queues
from dueline.recipes.registry import present
from dueline.shards import LATE_US

EVERY_US = LATE_US
QUEUES_A_STEP = 20


def neglect(queues: Queues, after: str | None) -> Report:
    """Tell of the late shards of some queues; behind the last queue, of the groups of streams."""
    names = queues.catalog.names_after(after, QUEUES_A_STEP)
    is_last = len(names) < QUEUES_A_STEP
    late = [*neglected(queues, names, present(queues.store))]
    if is_last:
        late += standing(queues, max_age_us=LATE_US, verdict="warning")
    warnings = [f"{one.name}: {one.finding}" for one in late]
    return Report(len(late), None if is_last else names[-1], warnings=warnings)
