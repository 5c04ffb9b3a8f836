"""Endings become verdicts and effects, together."""

import random
from collections.abc import Mapping
from contextlib import suppress

from dueline.core.attempt import (
    Attempt,
    Done,
    Ended,
    Ending,
    Failed,
)
from dueline.core.call_options import CallOptions, Rule
from dueline.core.errors import Duplicate
from dueline.core.job import Job
from dueline.core.retry import Retry
from dueline.jobs.history import attempts
from dueline.jobs.queue import Queues
from dueline.tasks.handler import Handler
from dueline.worker.settler import Settler
from tests.harness.calls import call, claim_all, put
from tests.harness.clocks import NOW_US, HandClock

RUN_US = 250_000


FAILED = Failed("ValueError", "no", "Traceback …\nValueError: no", retry=True, retry_after_us=None)


def settler_of(queues: Queues, retry: Retry | None = None) -> Settler:
    """Make a settler of one task."""
    handlers: Mapping[str, Handler] = {}
    if retry is not None:
        handler = Handler(lambda _: None, name="tests.task", retry=retry, timeout_us=None)
        handlers = {"tests.task": handler}
    return Settler(queues.engine, handlers, random.Random(1))


def ended(job: Job, ending: Ending) -> Ended:
    """End an attempt of a claimed job now."""
    return Ended(job, ending, NOW_US + 5, NOW_US + RUN_US)


def told(queues: Queues) -> list[Attempt]:
    """Read the history."""
    return list(attempts(queues.engine.store, "default", 1))


def words(queues: Queues) -> list[str]:
    """Read what history calls the attempts."""
    return [attempt.outcome for attempt in told(queues)]


def retried_in_a_batch(queues: Queues, clock: HandClock) -> None:
    """End two jobs and retry one with a unique key, all at once; call with the key again."""
    keyed = call(3)._replace(opts=CallOptions(unique=Rule("order 7", "reject", 0)).to_bytes())
    put(queues, call(1), call(2), keyed)
    jobs = claim_all(queues)
    clock.advance(us=RUN_US)
    ends = [ended(job, FAILED if job.opts else Done(b"7")) for job in jobs]
    assert settler_of(queues, Retry(attempts=3)).settle(ends, []) == []
    with suppress(Duplicate):
        put(queues, keyed)
        raise AssertionError("the key of a job that is retried was released")
    assert sorted(words(queues)) == ["done", "done", "retried"]
