"""Many calls at once: all are stored, or the error tells which are not."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from dueline import Dueline, Duplicate, EnqueueUnknown, StoreUnavailable, Task
from dueline.core.engine import Engine
from dueline.core.job import Job
from dueline.core.store import Store
from tests.harness.clocks import HandClock
from tests.harness.failing_store import FailingStore, Fault
from tests.harness.swaps import swap

CALLS = [(number,) for number in range(23)]
CHUNK = 5


@pytest.fixture(params=["memory://", "memory://?transactional=off", "sqlite:///jobs.db"])
def app(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Dueline]:
    """Make an application, in time that stands still."""
    monkeypatch.chdir(tmp_path)
    app = Dueline(request.param, clock=HandClock())
    yield app
    app.close()


def task_of(app: Dueline) -> Task[[int], None]:
    """Make a task of one number."""

    @app.task(name="count")
    def count(number: int) -> None:
        """Do nothing."""

    return count


def numbers(app: Dueline) -> Counter[bytes]:
    """Count the bodies that are stored."""
    return Counter(row.body for row in app.queues.engine.jobs_of("default"))


@pytest.mark.slow
@pytest.mark.no_cover  # ten thousand times the same
def test_thousands_in_one_call(app: Dueline) -> None:
    # C2
    count = 10_000 if app.store.transactional else 3_000  # the steps of a job are Python
    jobs = task_of(app).enqueue_many([(number,) for number in range(count)])
    assert len({job.id for job in jobs}) == count
    assert len(numbers(app)) == count


class Down(FailingStore):
    """Is down from the n-th call on that adds jobs."""

    def __init__(self, store: Store, adds: int) -> None:
        super().__init__(store, {})
        self.adds = adds

    def add(self, jobs):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        self.adds -= 1
        if self.adds < 0:
            raise StoreUnavailable("It is down.")
        return super().add(jobs)


@pytest.mark.parametrize("adds", range(5))
def test_an_error_tells_how_many_calls_are_not_stored(app: Dueline, adds: int) -> None:
    # C2
    count = task_of(app)
    sound = app.queues.engine.store
    swap(app.queues, store=Down(sound, adds))
    with pytest.raises(StoreUnavailable) as raised:
        count.enqueue_many(CALLS, chunk=CHUNK)
    swap(app.queues, store=sound)
    assert raised.value.unsent == len(CALLS) - adds * CHUNK
    count.enqueue_many(CALLS[-raised.value.unsent :])
    assert set(numbers(app).values()) == {1}
    assert len(numbers(app)) == len(CALLS)


@pytest.mark.parametrize("fault", Fault)
def test_wherever_an_answer_is_lost_the_error_tells_what_to_send(
    app: Dueline, fault: Fault
) -> None:
    # C2
    count = task_of(app)
    sound = app.queues.engine.store
    app.queues.engine.catalog.settings("default")
    for number in range(1, 6):
        swap(app.queues, store=FailingStore(sound, {number: fault}))
        with pytest.raises(EnqueueUnknown) as raised:
            count.enqueue_many(CALLS, chunk=CHUNK)
        swap(app.queues, store=sound)
        unsent = raised.value.unsent
        assert unsent == max(0, len(CALLS) - number * CHUNK)
        app.queues.enqueue_again(raised.value.jobs)
        count.enqueue_many(CALLS[len(CALLS) - unsent :])
        assert set(numbers(app).values()) == {number}
        assert len(numbers(app)) == len(CALLS)


@pytest.mark.parametrize("doubtful", range(3))
def test_a_row_in_doubt_does_not_make_the_rows_beside_it_unsent(
    app: Dueline, doubtful: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # C22
    count = task_of(app)
    calls = [count.call(number) for number in range(8)]
    store = app.queues.engine.store
    app.queues.engine.catalog.settings("default")
    add = store.add

    def add_with_doubt(jobs: Sequence[Job]) -> Sequence[bool]:
        return [sure and place != doubtful for place, sure in enumerate(add(jobs))]

    monkeypatch.setattr(store, "add", add_with_doubt)
    with pytest.raises(EnqueueUnknown) as raised:
        app.enqueue_many(calls, chunk=3)
    monkeypatch.undo()
    assert (len(raised.value.jobs), raised.value.unsent) == (1, 5)
    app.queues.enqueue_again(raised.value.jobs)
    app.enqueue_many(calls[-raised.value.unsent :])
    assert set(numbers(app).values()) == {1}
    assert len(numbers(app)) == len(calls)


def test_jobs_before_a_key_that_is_held_are_announced(
    app: Dueline, monkeypatch: pytest.MonkeyPatch
) -> None:
    # C22
    count = task_of(app).using(unique="{number}")
    count.enqueue(7)
    announced: list[bytes] = []

    def announce(_: Engine, jobs: Sequence[Job]) -> None:
        announced.extend(job.body for job in jobs)

    monkeypatch.setattr(Engine, "announce", announce)
    with pytest.raises(Duplicate):
        count.enqueue_many([(5,), (6,), (7,), (8,)])
    assert announced == [b"[5]", b"[6]"]


def test_a_key_that_is_held_stops_the_rest(app: Dueline) -> None:
    count = task_of(app).using(unique="{number}")
    count.enqueue(7)
    with pytest.raises(Duplicate) as raised:
        count.enqueue_many(CALLS)
    assert raised.value.unsent == len(CALLS) - 7
    count.enqueue_many(CALLS[-raised.value.unsent :][1:])
    assert len(numbers(app)) == len(CALLS)
