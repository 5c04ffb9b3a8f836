"""One living job for a key, wherever a producer is stopped."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from dueline.core.attempt import FinalState, Outcome
from dueline.core.call_options import Mode
from dueline.core.clock import SECOND_US, SystemClock
from dueline.core.errors import Conflict, Duplicate, EnqueueUnknown, NotFound, Unknown
from dueline.core.job import Job
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import Drop, Group, Move, Store
from dueline.jobs.decisions import joined
from dueline.jobs.history import attempts
from dueline.jobs.queue import EnqueueRequest, Queues
from tests.harness.calls import LEASE_US, claim_all, row_of
from tests.harness.clocks import NOW_US, HandClock
from tests.harness.lives import Stopped
from tests.harness.queues import queues_on
from tests.harness.unique_jobs import KEEPING_NOTHING, MODES, alive, end_of, keyed, keys_held
from tests.harness.world import EVERY_KIND, store_on

CHANGES = ("add", "settle", "commit", "together", "append")


class Watched:
    """A store, stopped for good before its n-th change, or right after it."""

    def __init__(self, store: Store, *, stop_at: int, after: bool) -> None:
        """Take the store, and where to stop."""
        self._store = store
        self._stop_at = stop_at
        self._after = after
        self.count = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  (whatever the store has)
        value = getattr(self._store, name)
        if name not in CHANGES:
            return value

        def change(*args: object) -> object:
            self.count += 1
            if self.count == self._stop_at and not self._after:
                raise Stopped
            answer = value(*args)
            if self.count == self._stop_at:
                raise Stopped
            return answer

        return change


def a_producer_is_stopped_at_any_call(
    queues: Queues, first: Mode, second: Mode, *, after: bool, held: bool
) -> None:
    # C12: the next one has its job, or is told of one that lives; never two, never none
    clock = queues.engine.catalog._clock
    for stop_at in range(1, 12):
        key = f"key {stop_at}"
        if held:
            queues.enqueue(keyed(10, key=key, due_us=NOW_US + 60 * SECOND_US))
        watched: Any = Watched(queues.engine.store, stop_at=stop_at, after=after)
        defaults = queues.engine.catalog.settings("default")
        stopped = queues_on(watched, clock, defaults)
        is_stopped = True
        try:
            with suppress(Duplicate):
                stopped.enqueue(keyed(1, key=key, mode=first))
            is_stopped = False
        except Stopped:
            pass
        try:
            (stands,) = queues.enqueue(keyed(2, key=key, mode=second))
            stands_id = stands.id.hex()
        except Duplicate as error:
            stands_id = error.job_id
        living = [row for row in queues.engine.jobs_of("default") if not row.outcome]
        assert [row.id.hex() for row in living] == [stands_id]
        queues.cancel(living[0].id)
        assert alive(queues) == []
        if not is_stopped:
            return
    raise AssertionError("the producer never comes to an end")


PAIRS = [
    *((first, second) for first in MODES[:4] for second in MODES[:4]),
    *(("last", "last"), ("last", "reject"), ("existing", "last")),
]
SETTINGS = [QueueSettings(), KEEPING_NOTHING]


@pytest.fixture(params=EVERY_KIND)
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: HandClock) -> Iterator[Store]:
    """Open an empty store; one of the three is not transactional."""
    store = store_on(request.param, tmp_path, clock)
    yield store
    store.close()


@pytest.fixture(params=SETTINGS, ids=["keeping", "keeping nothing"])
def queues(request: pytest.FixtureRequest, store: Store, clock: HandClock) -> Queues:
    """Make the engine, of queues that keep what is usual, or nothing."""
    return queues_on(store, clock, request.param)


# --- the modes -------------------------------------------------------------------------------


def test_a_second_call_is_refused_and_names_the_first(queues: Queues) -> None:
    # C12
    (first,) = queues.enqueue(keyed(1))
    with pytest.raises(Duplicate) as caught:
        queues.enqueue(keyed(2))
    assert caught.value.job_id == first.id.hex()
    assert isinstance(caught.value, Conflict)
    queues.enqueue(keyed(3, key="another"))
    assert alive(queues) == [1, 3]


def test_a_second_call_is_answered_the_first_job(queues: Queues) -> None:
    # C12
    (first,) = queues.enqueue(keyed(1, mode="existing"))
    (second,) = queues.enqueue(keyed(2, mode="existing"))
    assert second.id == first.id
    assert alive(queues) == [1]


def test_a_second_call_takes_the_place_of_a_waiting_job(queues: Queues) -> None:
    # C12
    (first,) = queues.enqueue(keyed(1, mode="replace"))
    (second,) = queues.enqueue(keyed(2, mode="replace"))
    assert alive(queues) == [2]
    if queues.engine.catalog.settings("default").keep_us:
        assert queues.find(first.id).outcome == Outcome(
            "cancelled", NOW_US, error=f"Replaced by the job {second.id.hex()}."
        )
    else:
        with pytest.raises(NotFound):
            queues.find(first.id)
    with pytest.raises(Duplicate) as caught:
        queues.enqueue(keyed(3))
    assert caught.value.job_id == second.id.hex()


def test_a_running_job_is_not_replaced(queues: Queues) -> None:
    # C12
    queues.enqueue(keyed(1, mode="replace"))
    claim_all(queues)
    with pytest.raises(Duplicate):
        queues.enqueue(keyed(2, mode="replace"))
    assert alive(queues) == [1]


@pytest.mark.parametrize(("first_s", "second_s"), [(60, 30), (30, 60), (3, 1), (60, 0)])
def test_the_earlier_due_of_both_is_kept(queues: Queues, first_s: int, second_s: int) -> None:
    # C12
    first_us, second_us = NOW_US + first_s * SECOND_US, NOW_US + second_s * SECOND_US
    (first,) = queues.enqueue(keyed(1, mode="earliest", due_us=first_us))
    (second,) = queues.enqueue(keyed(2, mode="earliest", due_us=second_us))
    assert second.id == first.id
    assert alive(queues) == [1]
    row = queues.find(first.id).row
    assert row is not None
    assert (row.at_us, row.due_us) == (min(first_us, second_us),) * 2


# --- the window ------------------------------------------------------------------------------


@pytest.mark.parametrize(("first_s", "second_s"), [(60, 30), (30, 60), (60, 60)])
def test_of_many_calls_the_last_runs_once_at_the_first_time(
    queues: Queues, first_s: int, second_s: int
) -> None:
    # T13
    first_us, second_us = NOW_US + first_s * SECOND_US, NOW_US + second_s * SECOND_US
    queues.enqueue(keyed(1, mode="last", due_us=first_us))
    queues.enqueue(keyed(2, mode="last", due_us=NOW_US + 90 * SECOND_US))
    (last,) = queues.enqueue(keyed(3, mode="last", due_us=second_us))
    assert alive(queues) == [3]
    row = queues.find(last.id).row
    assert row is not None
    assert row.at_us == row.due_us == row.pos_us == min(first_us, second_us)
    queues.enqueue_again([last])
    assert alive(queues) == [3]


def test_a_last_call_that_comes_while_the_one_before_runs_is_stored(
    queues: Queues, clock: HandClock
) -> None:
    # T13
    queues.enqueue(keyed(1, mode="last"))
    (running,) = claim_all(queues)
    queues.enqueue(keyed(2, mode="last", due_us=NOW_US + SECOND_US))
    assert alive(queues) == [1, 2]
    assert end_of(queues, running)
    queues.enqueue(keyed(3, mode="last", due_us=NOW_US + 9 * SECOND_US))  # the key is still held
    assert alive(queues) == [3]
    clock.advance(us=2 * SECOND_US)
    (row,) = claim_all(queues)
    assert end_of(queues, row)
    assert not keys_held(queues)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("count", [1, 2])
def test_a_waiting_job_that_has_expired_holds_its_key_no_longer(
    queues: Queues, clock: HandClock, mode: Mode, count: int
) -> None:
    # C12, C15: no worker runs it, whether one has noted that or not
    expires_us = NOW_US + 5 * SECOND_US
    (first,) = queues.enqueue(keyed(1, due_us=NOW_US + SECOND_US, expires_us=expires_us))
    clock.advance(4.9)
    assert queues.holder("default", "k") == first
    clock.advance(0.2)
    assert queues.holder("default", "k") is None
    others = [keyed(3, key="other")] if count == 2 else []  # a bulk call takes all keys at once
    placed = queues.enqueue_all([keyed(2, mode=mode), *others])
    assert first.id not in {job.id for job in placed}
    assert alive(queues) == [2, 3][:count]
    assert queues.holder("default", "k") == placed[0]
    settings = queues.engine.catalog.settings("default")
    if settings.keep_us:
        assert queues.find(first.id).status == "expired"
    past = attempts(queues.engine.store, "default", settings.shards_read, everything=True)
    ended = [(first.id.hex(), "expired")] if settings.history != "off" else []
    assert [(attempt.job, attempt.outcome) for attempt in past] == ended


def test_a_stale_end_releases_no_key(queues: Queues, clock: HandClock) -> None:
    queues.enqueue(keyed(1))
    (old,) = claim_all(queues)
    clock.advance(us=LEASE_US + SECOND_US)
    (new,) = claim_all(queues, worker="other")
    assert not end_of(queues, old)
    assert keys_held(queues)
    assert end_of(queues, new)
    assert not keys_held(queues)


def test_a_key_taken_with_other_writes_is_free_once_its_job_has_expired(
    queues: Queues, clock: HandClock
) -> None:
    due_us, expires_us = NOW_US + SECOND_US, NOW_US + 5 * SECOND_US
    queues.enqueue(keyed(1, due_us=due_us, expires_us=expires_us))
    job = row_of(2)._replace(opts=keyed(2, mode="existing").opts)
    assert queues.unique.takes([job]) == [None]
    clock.advance(5.1)
    (group,) = queues.unique.takes([job])
    assert group is not None
    assert list(queues.engine.store.together([group])) == [True]
    assert queues.holder("default", "k") == job
    assert alive(queues) == [2]


def test_an_expired_job_holds_a_key_of_a_period(queues: Queues, clock: HandClock) -> None:
    expires_us = NOW_US + 5 * SECOND_US
    queues.enqueue(keyed(1, within_us=60 * SECOND_US, expires_us=expires_us))
    clock.advance(6)
    with pytest.raises(Duplicate):
        queues.enqueue(keyed(2, within_us=60 * SECOND_US))


def test_a_claimed_job_holds_its_key_past_its_expiry(queues: Queues, clock: HandClock) -> None:
    queues.enqueue(keyed(1, expires_us=NOW_US + 5 * SECOND_US))
    claim_all(queues)
    clock.advance(6)
    with pytest.raises(Duplicate):
        queues.enqueue(keyed(2))


@pytest.mark.parametrize("state", ["done", "cancelled", "dead", "expired", "lost"])
def test_a_job_that_ended_holds_its_key_no_longer(queues: Queues, state: FinalState) -> None:
    # C12
    queues.enqueue(keyed(1))
    (row,) = claim_all(queues)
    assert end_of(queues, row, state)
    assert not keys_held(queues)
    queues.enqueue(keyed(2))
    assert alive(queues) == [2]


def test_a_retried_job_still_holds_its_key(queues: Queues, clock: HandClock) -> None:
    # C12
    queues.enqueue(keyed(1))
    (row,) = claim_all(queues)
    at_us = clock.wall_us() + 3600 * SECOND_US
    assert queues.engine.store.settle([Move(row, at_us, queues.engine.ids.token(), 0, 1, 0)])[0]
    with pytest.raises(Duplicate):
        queues.enqueue(keyed(2))


def test_a_key_is_held_for_a_period_whatever_becomes_of_the_job(
    queues: Queues, clock: HandClock
) -> None:
    # C12
    hour_us = 3600 * SECOND_US
    (first,) = queues.enqueue(keyed(1, within_us=hour_us))
    (row,) = claim_all(queues)
    assert end_of(queues, row)
    clock.advance(us=hour_us - 1)
    with pytest.raises(Duplicate):
        queues.enqueue(keyed(2))
    with pytest.raises(Duplicate):
        queues.enqueue(keyed(2, mode="replace"))
    for mode in ("existing", "earliest"):
        (answered,) = queues.enqueue(keyed(2, mode=mode))
        assert answered.id == first.id
    assert alive(queues) == []
    clock.advance(us=1)
    queues.enqueue(keyed(3))
    assert alive(queues) == [3]


def test_a_record_that_was_left_behind_does_not_block(queues: Queues) -> None:
    # C12: the worker died after the job's end, before it let go of the key
    queues.enqueue(keyed(1))
    (row,) = claim_all(queues)
    assert queues.engine.store.settle([Drop(row)])[0]
    assert keys_held(queues)
    queues.enqueue(keyed(2))
    assert alive(queues) == [2]


def test_a_dead_job_comes_back_only_while_its_key_is_free(queues: Queues) -> None:
    # C12
    (first,) = queues.enqueue(keyed(1))
    (row,) = claim_all(queues)
    assert end_of(queues, row, "dead")
    (second,) = queues.enqueue(keyed(2))
    with pytest.raises(Duplicate) as caught:
        queues.retry(first.id)
    assert caught.value.job_id == second.id.hex()
    assert caught.value.hint == "Cancel that job first, or keep it."  # a retry has no mode
    dead = queues.engine.store.find([first.id])[0]
    assert dead is not None
    assert queues.retry_all([dead]) == 0
    queues.cancel(second.id)
    assert queues.retry_all([dead]) == 1
    with pytest.raises(Duplicate) as caught:
        queues.enqueue(keyed(3))
    assert caught.value.job_id == first.id.hex()
    (row,) = claim_all(queues)
    assert end_of(queues, row)
    queues.enqueue(keyed(4))
    assert alive(queues) == [4]


def test_a_call_may_be_sent_again(queues: Queues) -> None:
    (job,) = queues.enqueue(keyed(1))
    queues.enqueue_again([job])
    assert alive(queues) == [1]


# --- stopped after any call of the store -----------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_a_producer_is_stopped_at_any_call(
    store: Store, clock: HandClock, first: Mode, second: Mode
) -> None:
    for settings, after, held in product(SETTINGS, (False, True), (False, True)):
        queues = queues_on(store, clock, settings)
        a_producer_is_stopped_at_any_call(queues, first, second, after=after, held=held)


# --- races -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_producers_race_for_one_key(store: Store, tmp_path: Path, mode: Mode) -> None:
    # C12: each round another key
    del tmp_path
    rounds, producers = 10, 4
    clock = SystemClock()
    barrier = threading.Barrier(producers)
    errors: list[BaseException] = []

    def produce(number: int, open_queues: Callable[[], Queues]) -> None:
        try:
            queues = open_queues()
            for turn in range(rounds):
                barrier.wait(60)
                with suppress(Duplicate):
                    queues.enqueue(keyed(100 * turn + number, mode=mode, key=f"key {turn}"))
        except BaseException as error:  # noqa: BLE001  (raised below, in the test's thread)
            errors.append(error)
            barrier.abort()

    def open_queues() -> Queues:
        return queues_on(store, clock)

    open_queues().engine.catalog.settings("default")
    threads = [
        threading.Thread(target=produce, args=(number, open_queues)) for number in range(producers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    living = alive(open_queues())
    assert [number // 100 for number in living] == list(range(rounds))


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_job_that_ended_meanwhile_is_not_stored_again(kind: str, tmp_path: Path) -> None:
    """Land the first request of a call, and end its job, while the second is sent."""
    # C12
    clock = HandClock()
    store = store_on(kind, tmp_path, clock)
    queues = queues_on(store, clock)
    queues.engine.catalog.settings("default")
    apply = store.together
    held_back: list[Sequence[Group]] = []

    def give_up(groups: Sequence[Group]) -> Sequence[bool]:
        held_back.append(groups)
        raise Unknown("The store did not answer.")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "together", give_up)
        with pytest.raises(EnqueueUnknown) as unknown:
            queues.enqueue(keyed(1))

    with pytest.MonkeyPatch.context() as patch:

        def land_first(groups: Sequence[Group]) -> Sequence[bool]:
            patch.undo()
            assert list(apply(held_back[0])) == [True]
            (row,) = claim_all(queues)
            assert end_of(queues, row)
            return apply(groups)

        patch.setattr(store, "together", land_first)
        queues.enqueue_again(unknown.value.jobs)
    assert alive(queues) == []
    store.close()


def test_jobs_of_one_transaction_take_the_keys_that_are_free(
    queues: Queues, clock: HandClock
) -> None:
    # C12: as a batch that Spark writes
    if not queues.engine.store.transactional:
        return
    takes = queues.unique.takes

    def jobs(*calls: EnqueueRequest) -> list[Job]:
        return [job for call in calls for job in queues.rows(call)]

    queues.enqueue(keyed(1, key="expired", expires_us=NOW_US + SECOND_US))
    (held,) = queues.enqueue(keyed(2, key="held"))
    clock.advance(2)
    wanted = [(11, "free"), (12, "held"), (13, "free"), (14, "expired"), (15, "other")]
    batch = jobs(*(keyed(number, key=key, mode="existing") for number, key in wanted))
    groups = takes(batch)
    assert [group is not None for group in groups] == [True, False, False, True, True]
    assert queues.engine.store.together([joined([group for group in groups if group])]) == [True]
    assert alive(queues) == [2, 11, 14, 15]
    for key, holder in (("held", held), ("free", batch[0]), ("expired", batch[3])):
        with pytest.raises(Duplicate) as refused:
            takes(jobs(keyed(21, key=key)))
        assert refused.value.job_id == holder.id.hex()
        assert takes(jobs(keyed(22, key=key, mode="existing"))) == [None]
    twice = jobs(keyed(31, key="new"), keyed(32, key="new"))
    with pytest.raises(Duplicate) as refused:
        takes(twice)
    assert refused.value.job_id == twice[0].id.hex()
    assert alive(queues) == [2, 11, 14, 15]
