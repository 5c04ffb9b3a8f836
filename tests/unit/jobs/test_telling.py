"""A history of everything."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline.admin.search import attempts_of
from dueline.core.attempt import ARGUMENTS_BYTES_MAX, Attempt, EnqueuedEvent
from dueline.core.call_options import Mode
from dueline.core.clock import SECOND_US
from dueline.core.codec import decode
from dueline.core.queue_settings import History, QueueSettings
from dueline.core.store import Store
from dueline.jobs.event_reader import EventReader
from dueline.jobs.history import (
    attempts,
    forget,
    happened,
    row_of_event,
    rows_of_ended,
)
from dueline.jobs.queue import Queues
from dueline.jobs.transaction import transaction
from tests.harness.calls import call, put
from tests.harness.clocks import NOW_US, HandClock
from tests.harness.history_rows import claimed, done_of, rows_of_each
from tests.harness.queues import queues_on
from tests.harness.stream_stage import Stage
from tests.harness.unique_jobs import keyed
from tests.harness.world import EVERY_KIND, KINDS, store_on


def told(queues: Queues, queue: str = "default") -> list[tuple[str, str]]:
    """Read what was told, in order: what happened, and to which job."""
    past = attempts(queues.engine.store, queue, 1, everything=True)
    return [(attempt.outcome, attempt.job) for attempt in past]


def words(queues: Queues) -> list[str]:
    """Read what happened, in order."""
    return [word for word, _ in told(queues)]


@pytest.fixture(params=EVERY_KIND)
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: HandClock) -> Iterator[Store]:
    """Open an empty store."""
    store = store_on(request.param, tmp_path, clock)
    yield store
    store.close()


@pytest.fixture
def queues(store: Store, clock: HandClock) -> Queues:
    """Make the engine; its queues keep a history of everything."""
    return queues_on(store, clock, QueueSettings(history="all"))


def test_births_are_told(queues: Queues, clock: HandClock) -> None:
    jobs = put(queues, call(1), call(2))
    queues.enqueue_again(jobs)
    assert set(told(queues)) == {("enqueued", job.id.hex()) for job in jobs}
    assert len(told(queues)) == 2
    assert list(attempts(queues.engine.store, "default", 1)) == []
    (event, _) = attempts(queues.engine.store, "default", 1, everything=True)
    assert (event.due_us, event.ended_us, event.worker, event.fence) == (NOW_US, NOW_US, "", 0)
    clock.advance(1)


@pytest.mark.parametrize("mode", ["existing", "replace", "earliest"])
def test_unique_births_and_what_becomes_of_them_are_told(queues: Queues, mode: Mode) -> None:
    queues.enqueue(keyed(1, mode=mode, due_us=NOW_US + 9 * SECOND_US))
    queues.enqueue(keyed(2, mode=mode, due_us=NOW_US + 5 * SECOND_US))
    expected = {
        "existing": ["enqueued"],
        "replace": ["cancelled", "enqueued"],
        "earliest": ["changed", "enqueued"],
    }
    happened = words(queues)
    if mode == "replace":  # the second birth is an effect of the first one's end
        assert set(happened) >= {"enqueued", "cancelled"}
    else:
        assert sorted(happened) == expected[mode]


def test_changes_are_told(queues: Queues, clock: HandClock) -> None:
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


def test_many_changes_are_told(queues: Queues, clock: HandClock) -> None:
    jobs = put(queues, *(call(number, due_us=NOW_US + 60 * SECOND_US) for number in range(3)))
    clock.advance(1)
    assert queues.retry_all(jobs) == 3
    assert words(queues) == ["enqueued"] * 3 + ["changed"] * 3


def test_what_did_not_happen_is_not_told(queues: Queues, clock: HandClock) -> None:
    (job,) = put(queues, call(1))
    clock.advance(1)
    stale = job._replace(token=type(job.token)(b"x" * 16))
    assert not queues.engine.recording_store.settle([queues.redrive(stale)])[0]
    assert words(queues) == ["enqueued"]


@pytest.mark.parametrize("history", ["all", "arguments"])
def test_a_history_of_arguments_holds_those_of_births_up_to_a_bound(
    store: Store, clock: HandClock, history: History
) -> None:
    # V2
    queues = queues_on(store, clock, QueueSettings(history=history))
    large = b'["%s"]' % (b"x" * ARGUMENTS_BYTES_MAX)
    (job,) = put(queues, call(1))
    put(queues, call(2)._replace(bodies=[large]))
    queues.cancel(job.id)
    rows = store.tail("default!history", 0, after=None, limit=10).rows
    births = [
        event
        for event in (decode(row.body, EnqueuedEvent) for row in rows)
        if event.outcome == "enqueued"
    ]
    payloads = {event.size: (event.codec, event.payload) for event in births}
    kept = {len(job.body): (job.codec, job.body), len(large): (0, None)}
    assert payloads == (kept if history == "arguments" else {None: (None, None)})
    (end,) = [decode(row.body, EnqueuedEvent) for row in rows if b"cancelled" in row.body]
    assert end.payload is None
    assert max(len(row.body) for row in rows) < 2 * ARGUMENTS_BYTES_MAX
    assert sorted(words(queues)) == ["cancelled", "enqueued", "enqueued"]


def test_other_queues_tell_of_attempts_alone(store: Store, clock: HandClock) -> None:
    queues = queues_on(store, clock)
    (job,) = put(queues, call(1))
    queues.cancel(job.id)
    assert told(queues) == []


@pytest.mark.parametrize("store", KINDS, indirect=True)
def test_what_is_rolled_back_is_not_told(store: Store, clock: HandClock) -> None:
    stage = Stage(store, clock)
    stage.queues.engine.catalog.configure("default", history="all")

    def lose() -> None:
        with transaction(stage, stage.queues, stage.tasks) as tx:
            tx.queues_of(stage).enqueue(call(1))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        lose()
    assert told(stage.queues) == []
    with transaction(stage, stage.queues, stage.tasks) as tx:
        tx.queues_of(stage).enqueue(call(1))
    assert words(stage.queues) == ["enqueued"]


def test_whoever_follows_misses_nothing_however_late(queues: Queues, clock: HandClock) -> None:
    # V9
    queues.engine.catalog.settings("default")
    events = EventReader(queues.engine, clock=clock, queue="default", since_us=NOW_US)

    def read() -> list[Attempt]:
        clock.advance(1)
        return events.read()

    assert read() == []
    (job,) = put(queues, call(1))
    assert [attempt.job for attempt in read()] == [job.id.hex()]
    clock.advance(3600)
    put(queues, call(2))
    assert len(read()) == 1
    late = happened(job, "changed", NOW_US + 5)  # it is written an hour late
    queues.engine.store.append([row_of_event(late, job, b"cause")])
    assert [attempt.outcome for attempt in read()] == ["changed"]
    assert read() == []


def test_whoever_follows_reads_an_attempt_once_though_it_has_two_rows(
    queues: Queues, clock: HandClock
) -> None:
    # rule F3: the next claimer records alone what a dead worker recorded with others
    queues.engine.catalog.settings("mail")
    events = EventReader(queues.engine, clock=clock, queue="mail")
    done = done_of([claimed(number) for number in range(3)])
    queues.engine.store.append([*rows_of_ended(done), *rows_of_each(done[:2])])
    clock.advance(1)
    assert [attempt.job for attempt in events.read()] == [ended.job.id.hex() for ended in done]
    assert events.read() == []


def test_old_history_is_let_go_of(queues: Queues, clock: HandClock) -> None:
    put(queues, call(1))
    clock.advance(8 * 86_400)
    put(queues, call(2))
    before_us = clock.wall_us() - QueueSettings().history_us
    forget(
        queues.engine.store, "default", 1, before_us=before_us, version=queues.engine.ids.token()
    )
    assert len(told(queues)) == 1
