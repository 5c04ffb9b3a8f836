"""A history of everything."""

from dueline.admin.search import attempts_of
from dueline.core.clock import SECOND_US
from dueline.jobs.history import (
    attempts,
)
from dueline.jobs.queue import Queues
from tests.harness.calls import call, put
from tests.harness.clocks import NOW_US, HandClock


def told(queues: Queues, queue: str = "default") -> list[tuple[str, str]]:
    """Read what was told, in order: what happened, and to which job."""
    found = attempts(queues.engine.store, queue, 1, everything=True)
    return [(one.outcome, one.job) for one in found]


def words(queues: Queues) -> list[str]:
    """Read what happened, in order."""
    return [word for word, _ in told(queues)]


def changes_are_told(queues: Queues, clock: HandClock) -> None:
    (job,) = put(queues, call(1, due_us=NOW_US + 60 * SECOND_US))
    for change in (
        lambda: queues.reschedule(job.id, NOW_US + 90 * SECOND_US),
        lambda: queues.change(job.id, priority=5),
        lambda: queues.retry(job.id),
        lambda: queues.cancel(job.id),
    ):
        clock.advance(1)
        change()
    assert words(queues) == ["enqueued", "changed", "changed", "changed", "cancelled"]
    past = attempts_of(queues.engine, job.id, "default", limit=10)
    assert past.attempts[0].outcome == "cancelled"
    assert past.attempts[0].priority == 5
