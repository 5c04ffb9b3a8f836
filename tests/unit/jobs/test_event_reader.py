"""A reader of events that is resumed where it ended."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from dueline import BadInput, Conflict, Dueline, NotFound
from dueline.core.attempt import Attempt
from dueline.core.clock import SECOND_US, to_datetime
from dueline.jobs import event_reader
from dueline.jobs.history import forget
from tests.harness.clocks import NOW_US, HandClock
from tests.harness.history_rows import claimed, done_of, rows_of_each

STORES = ("memory://", "memory://?transactional=off", "sqlite:///jobs.db")


@pytest.fixture(params=STORES)
def app(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    clock: HandClock,
) -> Iterator[Dueline]:
    monkeypatch.chdir(tmp_path)
    app = Dueline(request.param, clock=clock)
    app.queue("default", history="all", shards=3)
    app.queue("mail", history="all", shards=2)
    app.task(name="add")(lambda: None)
    yield app
    app.close()


def enqueue(app: Dueline, clock: HandClock, queue: str, count: int) -> list[str]:
    """Enqueue jobs one after the other."""
    jobs = []
    for _ in range(count):
        jobs.append(app.task_named("add").using(queue=queue).enqueue().id)
        clock.advance(0.3)
    return jobs


def jobs_of(events: list[Attempt]) -> list[str]:
    return [event.job for event in events]


def test_a_reader_continues_exactly_after_its_cursor(
    app: Dueline, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # V9: with pages of few rows, and a new reader after each read
    monkeypatch.setattr(event_reader, "PAGE", 3)
    jobs = [job for _ in range(24) for job in enqueue(app, clock, "default", 2)]
    jobs += enqueue(app, clock, "mail", 9)
    clock.advance(1)
    reader, job_ids = app.events(), list[str]()
    reads = 0
    while page := reader.read():
        job_ids += jobs_of(page)
        reader = app.events(cursor=reader.cursor)
        reads += 1
        if reads == 2:  # new ones, and a new queue, between two readers
            jobs += enqueue(app, clock, "default", 4) + enqueue(app, clock, "later", 4)
            clock.advance(1)
            app.queue("later", history="all")
            jobs += enqueue(app, clock, "later", 2)
            clock.advance(1)
    assert reads > 4
    assert len(job_ids) == len(set(job_ids))
    assert set(job_ids) >= set(jobs) - set(jobs[-6:-2])
    assert app.events(cursor=reader.cursor).read() == []


def test_events_come_in_order_across_shards_and_pages(
    app: Dueline, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_reader, "PAGE", 2)
    jobs = enqueue(app, clock, "default", 12)
    clock.advance(1)
    reader, events = app.events("default"), list[Attempt]()
    while page := reader.read():
        events += page
    assert jobs_of(events) == jobs


def test_an_event_that_is_recorded_twice_is_returned_once(app: Dueline, clock: HandClock) -> None:
    # rule F3, across a cursor
    app.engine.catalog.settings("mail")
    done = done_of([claimed(number) for number in range(2)])
    app.store.append(rows_of_each(done))
    clock.advance(1)
    reader = app.events("mail")
    assert len(reader.read()) == 2
    again = [row._replace(at_us=clock.wall_us(), id=b"2" * 16) for row in rows_of_each(done)[:1]]
    app.store.append(again)
    clock.advance(1)
    assert app.events("mail", cursor=reader.cursor).read() == []


def test_where_it_begins(app: Dueline, clock: HandClock) -> None:
    early = enqueue(app, clock, "mail", 2)
    clock.advance(100)
    late = enqueue(app, clock, "mail", 2)
    clock.advance(1)
    assert jobs_of(app.events("mail").read()) == early + late
    assert jobs_of(app.events("mail", since=50).read()) == late
    since = to_datetime(NOW_US) + timedelta(seconds=50)
    reader = app.events("mail", since=since)
    assert jobs_of(app.events("mail", cursor=reader.cursor).read()) == late
    with pytest.raises(NotFound):
        app.events("nosuch")
    for cursor in ("", "x", "!", "gaE", reader.cursor[:-4], "é"):
        with pytest.raises(BadInput, match="cursor"):
            app.events(cursor=cursor)


def test_events_that_were_deleted_meanwhile_are_reported(app: Dueline, clock: HandClock) -> None:
    enqueue(app, clock, "mail", 1)
    clock.advance(1)
    reader = app.events("mail")
    reader.read()
    clock.advance(86_400)
    enqueue(app, clock, "mail", 5)
    clock.advance(86_400)
    before_us = clock.wall_us() - 60 * SECOND_US
    forget(app.store, "mail", 2, before_us=before_us, version=app.engine.ids.token())
    with pytest.raises(Conflict, match="mail was deleted up to"):
        app.events("mail", cursor=reader.cursor).read()
    assert app.events("mail").read() == []
