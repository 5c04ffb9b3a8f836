"""Cancel, retry, redrive: also while the row changes under the hand (C20)."""

from collections.abc import Callable
from typing import TypeVar

import pytest

from dueline.core.attempt import Outcome
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.errors import Conflict, EnqueueUnknown, NotFound, StoreUnavailable
from dueline.core.job import Job, State
from dueline.core.store import Drop, Move, Store
from dueline.core.wakeup import LocalWakeups, Signal
from dueline.jobs import cancel_requests, pauses
from dueline.jobs.completion import Finished, finish, finish_of
from dueline.jobs.history import attempts
from dueline.jobs.queue import Queues
from tests.harness.calls import (
    LEASE_US,
    WIDTH_US,
    call,
    calls,
    claim_all,
    number_of,
    numbers,
    put,
    row_in,
)
from tests.harness.clocks import NOW_US, HandClock
from tests.harness.failing_store import FailingStore, Fault
from tests.harness.queues import queues_on
from tests.harness.swaps import swap


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
        assert finish(engine.store, [Finished(job, end)]) == [True]
    else:
        at_us = NOW_US
        move = Move(job, at_us, engine.ids.token(), at_us // WIDTH_US, errors=1, crashes=0)
        assert engine.store.settle([move]) == [True]


Answer = TypeVar("Answer")


class RacingStore(FailingStore):
    """Lets something happen just before a verdict, as another process might.

    meanwhile: one for each of the next verdicts.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store, {})
        self.meanwhile: list[Callable[[], object]] = []

    def settle(self, verdicts):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        self._happen()
        return super().settle(verdicts)

    def together(self, groups):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        self._happen()
        return super().together(groups)

    def _happen(self) -> None:
        if self.meanwhile:
            self.meanwhile.pop(0)()


class AskedTooLate(FailingStore):
    """Lets something happen just after the first wish was written."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, {})
        self.meanwhile: Callable[[], object] | None = None

    def commit(self, partition, writes):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        held = super().commit(partition, writes)
        if partition.startswith("cancels-at") and self.meanwhile:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        return held


@pytest.fixture
def racing(store: Store, clock: HandClock) -> tuple[Queues, RacingStore]:
    """Make an engine whose verdicts can be overtaken."""
    racing = RacingStore(store)
    return queues_on(racing, clock), racing


def moved(queues: Queues, job: Job, at_us: int) -> Job:
    """Move a job as a failure does; returns the row after it."""
    move = Move(job, at_us, queues.engine.ids.token(), at_us // WIDTH_US, errors=1, crashes=0)
    assert queues.engine.store.settle([move]) == [True]
    return row_in(queues.engine.store, job.id)


def dead(queues: Queues, job: Job, error: str = "OSError: no") -> Job:
    """End a job as its last failure does; returns the row among the dead."""
    outcome = Outcome("dead", queues.engine.time.latest_us(), error=error)
    settings = queues.engine.catalog.settings("default")
    end = finish_of(job._replace(errors=8, crashes=2), outcome, None, settings)
    assert finish(queues.engine.store, [Finished(job, end)]) == [True]
    return row_in(queues.engine.store, job.id)


# --- cancel ----------------------------------------------------------------------------------


def test_a_job_that_is_cancelled_never_runs(queues: Queues) -> None:
    # C19
    ready, later = put(queues, call(1), call(2, due_us=NOW_US + 5))
    for job in (ready, later):
        queues.cancel(job.id)
        assert queues.find(job.id).outcome == Outcome("cancelled", NOW_US)
        assert queues.find(job.id).status == "cancelled"
    assert list(queues.engine.jobs_of("default")) == []


def test_a_job_that_waits_for_its_retry_can_be_cancelled(queues: Queues) -> None:
    (job,) = put(queues, call(1))
    moved(queues, job, NOW_US + DAY_US)
    queues.cancel(job.id)
    assert queues.find(job.id).status == "cancelled"


def test_the_end_of_a_running_job_is_asked_for(queues: Queues) -> None:
    # C19
    (job,) = put(queues, call(1))
    (taken,) = claim_all(queues)
    assert not queues.cancel(job.id)
    assert row_in(queues.engine.store, job.id) == taken
    assert cancel_requests.of_worker(queues.engine.store, taken.worker) == {taken.claim(): False}
    assert cancel_requests.asked(queues.engine.store, [job.id]).keys() == {job.id}


def test_a_wish_is_read_until_it_was_noted_and_holds_for_later_claims(queues: Queues) -> None:
    job, other = put(queues, call(1), call(2))
    claim_all(queues)
    queues.cancel(job.id)
    (claim,) = cancel_requests.of_worker(queues.engine.store, "worker")
    assert cancel_requests.of_worker(queues.engine.store, "worker") == {claim: False}
    assert cancel_requests.of_worker(queues.engine.store, "another") == {}
    cancel_requests.note(queues.engine.store, "worker", [claim])
    assert cancel_requests.of_worker(queues.engine.store, "worker") == {}
    assert cancel_requests.asked(queues.engine.store, [job.id, other.id]).keys() == {job.id}


def test_a_retry_by_hand_takes_back_the_wish_for_an_end(queues: Queues, clock: HandClock) -> None:
    waiting, buried = put(queues, call(1), call(2))
    for job in claim_all(queues):
        queues.cancel(job.id)
    clock.advance(us=LEASE_US)
    row = dead(queues, row_in(queues.engine.store, buried.id))
    queues.retry(waiting.id)
    assert cancel_requests.asked(queues.engine.store, [waiting.id, buried.id]).keys() == {buried.id}
    assert queues.retry_all([row]) == 1
    assert cancel_requests.asked(queues.engine.store, [waiting.id, buried.id]) == {}


def test_a_retry_leaves_the_request_for_a_later_claim(queues: Queues) -> None:
    """Claim and cancel a job after a retry by hand has read its row."""
    # rule P12
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


def test_a_request_that_came_too_late_ends_no_later_retry(queues: Queues) -> None:
    """Let a job die after a cancel has read its row."""
    # rule P12
    (job,) = put(queues, call(1))
    (taken,) = claim_all(queues)
    with pytest.MonkeyPatch.context() as patch:
        just_before("ask", lambda: _fail(queues, taken, for_good=True), patch)
        with pytest.raises(Conflict, match="dead"):
            queues.cancel(job.id)
    assert cancel_requests.asked(queues.engine.store, [job.id]) == {}


def test_a_request_reaches_the_claim_that_holds(queues: Queues, clock: HandClock) -> None:
    """Let another worker claim a job after a cancel has read its row."""
    # rule P11
    (job,) = put(queues, call(1))
    claim_all(queues)

    def meanwhile() -> None:
        clock.advance(us=LEASE_US)
        claim_all(queues, worker="second")

    with pytest.MonkeyPatch.context() as patch:
        just_before("ask", meanwhile, patch)
        assert not queues.cancel(job.id)
    claims = cancel_requests.of_worker(queues.engine.store, "second")
    assert [claim.fence for claim in claims] == [2]


@pytest.mark.parametrize("then", ["ends", "is claimed again", "waits again"])
def test_a_job_that_changes_hands_while_its_end_is_asked_for(
    store: Store, clock: HandClock, then: str
) -> None:
    # C19: a wish is seen by the claim that holds the job, or by every later one
    racing = AskedTooLate(store)
    queues = queues_on(racing, clock)
    (job,) = put(queues, call(1))
    (taken,) = claim_all(queues)

    def change() -> None:
        if then == "ends":
            assert queues.engine.store.settle([Drop(taken)]) == [True]
        elif then == "is claimed again":
            clock.advance(us=LEASE_US)
            claim_all(queues, worker="second")
        else:
            moved(queues, taken, clock.wall_us())

    racing.meanwhile = change
    if then == "ends":
        with pytest.raises(NotFound):
            queues.cancel(job.id)
    elif then == "waits again":
        assert queues.cancel(job.id)
        assert queues.find(job.id).status == "cancelled"
    else:
        assert not queues.cancel(job.id)
        assert [claim.fence for claim in cancel_requests.of_worker(store, "second")] == [2]


def test_a_job_that_has_ended_is_not_cancelled(queues: Queues) -> None:
    ended, buried = put(queues, call(1), call(2))
    queues.cancel(ended.id)
    row = dead(queues, buried)
    with pytest.raises(Conflict, match="is cancelled and cannot be cancelled"):
        queues.cancel(ended.id)
    with pytest.raises(Conflict, match="is dead and cannot be cancelled"):
        queues.cancel(buried.id)
    assert row_in(queues.engine.store, buried.id) == row


def test_what_is_not_known_is_neither_cancelled_nor_retried(queues: Queues) -> None:
    job_id = queues.engine.ids.one(NOW_US)
    with pytest.raises(NotFound):
        queues.cancel(job_id)
    with pytest.raises(NotFound):
        queues.retry(job_id)


def test_nothing_is_kept_of_a_cancelled_job_where_results_are_not(queues: Queues) -> None:
    queues.engine.catalog.configure("default", keep_us=0)
    (job,) = put(queues, call(1))
    queues.cancel(job.id)
    with pytest.raises(NotFound):
        queues.find(job.id)


def test_a_claim_that_comes_first_wins_against_a_cancel(
    racing: tuple[Queues, RacingStore],
) -> None:
    # invariant 2
    queues, store = racing
    (job,) = put(queues, call(1))
    taken: list[Job] = []
    store.meanwhile = [lambda: taken.extend(claim_all(queues))]
    assert not queues.cancel(job.id)
    assert [row_in(store, job.id)] == taken


def test_a_cancel_is_repeated_on_a_row_that_moved_meanwhile(
    racing: tuple[Queues, RacingStore],
) -> None:
    queues, store = racing
    (job,) = put(queues, call(1))
    store.meanwhile = [lambda: moved(queues, job, NOW_US + DAY_US)]
    queues.cancel(job.id)
    assert queues.find(job.id).status == "cancelled"


def test_cancel_and_retry_give_up_on_a_row_that_never_stands_still(
    racing: tuple[Queues, RacingStore],
) -> None:
    queues, store = racing
    (job,) = put(queues, call(1))

    def move() -> None:
        pending, store.meanwhile = store.meanwhile, []
        moved(queues, row_in(store, job.id), NOW_US + DAY_US)
        store.meanwhile = pending

    for change in (queues.cancel, queues.retry):
        store.meanwhile = [move] * 5
        with pytest.raises(Conflict, match="is changing"):
            change(job.id)
    assert queues.find(job.id).status == "retrying"


# --- retry and redrive -----------------------------------------------------------------------


def test_a_job_that_waits_runs_at_once_when_it_is_retried(queues: Queues) -> None:
    scheduled, retrying = put(queues, call(1, due_us=NOW_US + 5 * DAY_US), call(2))
    moved(queues, retrying, NOW_US + 5 * DAY_US)
    for job in (scheduled, retrying):
        queues.retry(job.id)
        assert queues.find(job.id).status == "ready"
    row = row_in(queues.engine.store, retrying.id)
    assert (row.errors, row.at_us) == (1, NOW_US)
    assert row_in(queues.engine.store, scheduled.id).due_us == NOW_US
    assert numbers(queues.peek("default", 9)) == [2, 1]
    assert sorted(numbers(claim_all(queues))) == [1, 2]


def test_a_job_that_is_ready_keeps_its_place_when_it_is_retried(
    queues: Queues, clock: HandClock
) -> None:
    first, second = put(queues, call(1), call(2))
    clock.advance(1)
    queues.retry(first.id)
    assert numbers(claim_all(queues)) == [1, 2]
    assert row_in(queues.engine.store, second.id).fence == 1


def test_a_running_job_is_not_retried(queues: Queues) -> None:
    (job,) = put(queues, call(1))
    (taken,) = claim_all(queues)
    with pytest.raises(Conflict, match="is running and cannot be retried"):
        queues.retry(job.id)
    assert row_in(queues.engine.store, job.id) == taken


def test_a_job_that_has_ended_is_not_retried(queues: Queues) -> None:
    (job,) = put(queues, call(1))
    queues.cancel(job.id)
    with pytest.raises(Conflict, match="is cancelled and cannot be retried"):
        queues.retry(job.id)


def test_the_dead_are_kept_with_their_reason_where_no_worker_looks(
    queues: Queues, clock: HandClock
) -> None:
    # R3
    (job,) = put(queues, call(1, priority=4, tenant="acme"))
    row = dead(queues, job)
    assert queues.find(job.id).status == "dead"
    assert (row.lane.queue, row.state, row.error) == ("default!dead", State.DEAD, "OSError: no")
    assert (row.errors, row.crashes, row.hop) == (8, 2, 1)
    assert row.lane[3:] == (4, "acme")
    assert (row.at_us, row.due_us, row.body) == (NOW_US, job.due_us, job.body)
    clock.advance(us=DAY_US)
    assert list(queues.engine.jobs_of("default")) == []
    assert claim_all(queues) == []


def test_a_dead_job_is_redriven_to_its_lane_and_counts_from_nothing(
    queues: Queues, clock: HandClock
) -> None:
    # R3
    (job,) = put(queues, call(1, priority=4, tenant="acme"))
    dead(queues, job)
    clock.advance(us=3 * DAY_US)
    queues.retry(job.id)
    (row,) = claim_all(queues)
    assert number_of(row) == 1
    assert row.lane == job.lane._replace(bucket=(NOW_US + 3 * DAY_US) // WIDTH_US)
    assert (row.errors, row.crashes, row.alone, row.error, row.hop) == (0, 0, False, "", 2)
    assert (row.due_us, row.enqueued_us) == (job.due_us, job.enqueued_us)
    assert list(queues.engine.jobs_of("default!dead")) == []


def test_of_two_who_redrive_a_dead_job_one_puts_it_back(
    racing: tuple[Queues, RacingStore],
) -> None:
    queues, store = racing
    (job,) = put(queues, call(1))
    dead(queues, job)
    store.meanwhile = [lambda: queues.retry(job.id)]
    queues.retry(job.id)
    assert numbers(list(queues.engine.jobs_of("default"))) == [1]
    assert len(claim_all(queues)) == 1


@pytest.mark.long
def test_redriving_many_leaves_those_that_changed_meanwhile(queues: Queues) -> None:
    rows = [dead(queues, job) for job in put(queues, calls(0, 1200))]
    queues.retry(rows[3].id)
    assert queues.retry_all(rows) == 1199
    assert sorted(numbers(claim_all(queues, limit=2000))) == list(range(1200))
    assert queues.retry_all([]) == 0


# --- writes of unknown fate ------------------------------------------------------------------


@pytest.mark.parametrize("fault", Fault)
def test_a_job_of_unknown_fate_is_enqueued_again_neither_lost_nor_doubled(
    store: Store, clock: HandClock, fault: Fault
) -> None:
    plan: dict[int, Fault] = {}
    failing = FailingStore(store, plan)
    queues = queues_on(failing, clock)
    queues.engine.catalog.settings("default")
    queues.engine.time.sample()
    for place in (1, 2):  # also the second time may be of unknown fate
        plan[failing.calls + place] = fault
    with pytest.raises(EnqueueUnknown, match=r"whether 3 job\(s\) were stored") as raised:
        put(queues, calls(1, 4))
    jobs = raised.value.jobs
    assert isinstance(raised.value, StoreUnavailable)
    with pytest.raises(EnqueueUnknown) as again:
        queues.enqueue_again(jobs)
    assert list(again.value.jobs) == list(jobs)
    clock.advance(us=2 * SECOND_US)
    queues.enqueue_again(jobs)
    assert numbers(claim_all(queues)) == [1, 2, 3]
    queues.enqueue_again(jobs)
    assert claim_all(queues) == []


def test_only_those_of_unknown_fate_are_named(queues: Queues) -> None:
    class Unsure(FailingStore):
        def add(self, jobs):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            return [number_of(job) != 2 for job in jobs]

    swap(queues, store=Unsure(queues.engine.store, {}))
    with pytest.raises(EnqueueUnknown, match=r"whether 1 job\(s\)") as raised:
        put(queues, calls(1, 4))
    assert numbers(raised.value.jobs) == [2]
    assert raised.value.jobs[0].id.hex() in raised.value.message


def test_changes_write_no_history_of_attempts(queues: Queues) -> None:
    (job,) = put(queues, call(1))
    queues.cancel(job.id)
    assert list(attempts(queues.engine.store, "default", 1)) == []


# --- who hears of it

Act = Callable[[Queues, Job], object]


def sooner(queues: Queues, job: Job, act: Act) -> None:
    """Do something to a job that is due far in the future."""
    act(queues, moved(queues, job, NOW_US + DAY_US))


def from_the_dead(queues: Queues, job: Job, act: Act) -> None:
    """Do something to a dead job."""
    act(queues, dead(queues, job))


def paused(queues: Queues, job: Job, act: Act) -> None:
    """Do something to a job whose queue is paused."""
    pauses.pause(queues.engine, "default")
    act(queues, job)


AWAKENING: dict[str, tuple[Callable[[Queues, Job, Act], object], Act]] = {
    "reschedule": (sooner, lambda queues, job: queues.reschedule(job.id, NOW_US + 1)),
    "retry": (sooner, lambda queues, job: queues.retry(job.id)),
    "retry the dead": (from_the_dead, lambda queues, job: queues.retry(job.id)),
    "retry all": (sooner, lambda queues, job: queues.retry_all([job])),
    "retry all the dead": (from_the_dead, lambda queues, job: queues.retry_all([job])),
    "priority": (
        lambda queues, job, act: act(queues, job),
        lambda queues, job: queues.change(job.id, priority=3),
    ),
    "resume": (paused, lambda queues, _: pauses.resume(queues.engine, "default")),
    "pause": (
        lambda queues, job, act: act(queues, job),
        lambda queues, _: pauses.pause(queues.engine, "default"),
    ),
}


@pytest.mark.parametrize(("before", "act"), AWAKENING.values(), ids=AWAKENING)
def test_workers_are_woken_by_each_change_by_hand(
    queues: Queues, before: Callable[[Queues, Job, Act], object], act: Act
) -> None:
    (job,) = put(queues, call(1))
    wakeups = LocalWakeups()
    swap(queues, wakeups=wakeups)
    listener = wakeups.listen(["default"], Signal())

    def act_and_hear(queues: Queues, job: Job) -> None:
        listener.take()
        act(queues, job)
        assert [wakeup.channel for wakeup in listener.take()] == ["default"]

    before(queues, job, act_and_hear)
