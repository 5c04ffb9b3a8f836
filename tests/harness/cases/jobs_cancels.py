"""Cancelling and retrying a job at the same time."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dueline.core.attempt import Outcome
from dueline.core.errors import Conflict
from dueline.core.job import Job
from dueline.core.store import Move
from dueline.jobs import cancel_requests
from dueline.jobs.completion import Finished, finish, finish_of
from dueline.jobs.queue import Queues
from tests.harness.calls import LEASE_US, WIDTH_US, call, claim_all, put
from tests.harness.clocks import NOW_US, HandClock
from tests.harness.queues import queues_on
from tests.harness.world import store_on


def just_before(name: str, act: Callable[[], object], patch: pytest.MonkeyPatch) -> None:
    """Let something happen just before the next call of a function of `cancel_requests`."""
    function = getattr(cancel_requests, name)

    def call(*args: object, **terms: object) -> object:
        patch.setattr(cancel_requests, name, function)
        act()
        return function(*args, **terms)

    patch.setattr(cancel_requests, name, call)


def _fail(queues: Queues, job: Job, *, for_good: bool = False) -> None:
    engine = queues.engine
    if for_good:
        outcome = Outcome("dead", engine.time.latest_us(), error="OSError: no")
        end = finish_of(job, outcome, None, engine.catalog.settings("default"))
        assert finish(engine.store, [Finished(job, end)], ()) == [True]
    else:
        at_us = NOW_US
        move = Move(job, at_us, engine.ids.token(), at_us // WIDTH_US, errors=1, crashes=0)
        assert engine.store.settle([move]) == [True]


def a_retry_leaves_the_request_for_a_later_claim(queues: Queues, _clock: HandClock) -> None:
    """Claim and cancel a job after a retry by hand has read its row."""
    (job,) = put(queues, call(1))
    (taken,) = claim_all(queues)
    _fail(queues, taken)

    def meanwhile() -> None:
        claim_all(queues)
        assert not queues.cancel(job.id)

    with pytest.MonkeyPatch.context() as patch:
        just_before("withdraw", meanwhile, patch)
        with pytest.raises(Conflict, match="running"):
            queues.retry(job.id)
    assert cancel_requests.asked(queues.engine.store, [job.id]).keys() == {job.id}


def a_request_that_came_too_late_ends_no_later_retry(queues: Queues, _clock: HandClock) -> None:
    """Let a job die after a cancel has read its row."""
    (job,) = put(queues, call(1))
    (taken,) = claim_all(queues)
    with pytest.MonkeyPatch.context() as patch:
        just_before("ask", lambda: _fail(queues, taken, for_good=True), patch)
        with pytest.raises(Conflict, match="dead"):
            queues.cancel(job.id)
    assert cancel_requests.asked(queues.engine.store, [job.id]) == {}


def a_request_reaches_the_claim_that_holds(queues: Queues, clock: HandClock) -> None:
    """Let another worker claim a job after a cancel has read its row."""
    (job,) = put(queues, call(1))
    claim_all(queues)

    def meanwhile() -> None:
        clock.advance(us=LEASE_US)
        claim_all(queues, worker="second")

    with pytest.MonkeyPatch.context() as patch:
        just_before("ask", meanwhile, patch)
        assert not queues.cancel(job.id)
    found = cancel_requests.of_worker(queues.engine.store, "second")
    assert [claim.fence for claim in found] == [2]


def in_memory() -> tuple[Queues, HandClock]:
    """Make an engine, and its clock."""
    clock = HandClock()
    return queues_on(store_on("memory", Path(), clock), clock), clock
