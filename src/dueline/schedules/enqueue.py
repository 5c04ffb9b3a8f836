"""Store the jobs of schedules, before they are due."""

from dueline.core.chore import Report
from dueline.core.clock import SECOND_US
from dueline.jobs.queue import Queues
from dueline.schedules.scheduler import see_to_all

EVERY_US = 10 * SECOND_US
"""Often enough: jobs are stored a minute before their time."""

SOONEST_US = SECOND_US
"""Where a time makes no job while the one before it lives, that is decided at the time."""


def recur(queues: Queues, after: str | None) -> Report:
    """See to all schedules; one read while none has anything to do."""
    del after  # all of them are one step
    acts, look_us = see_to_all(queues)
    rest_us = EVERY_US if look_us is None else look_us - queues.engine.time.earliest_us()
    if rest_us >= EVERY_US:
        return Report(acts)
    return Report(acts, after="", rest_us=max(rest_us, SOONEST_US))
