"""Options of single calls, on each store that several processes can open."""

from typing import Any, NoReturn

import pytest

from dueline import Context, Dueline, Duplicate, Job, NotFound, Retry, pipeline
from dueline.api.task import Using


def test_calls_have_options_of_their_own(url: str) -> None:
    """Enqueue, find, run and follow calls with options of their own."""
    # A12, C22, C23, T17, V3, V9
    app = Dueline(url)
    app.queue("default", history="all")
    seen: list[str] = []

    @app.task(name="note", unique="{word}")
    def note(ctx: Context, word: str) -> str:
        seen.append(f"{word} {ctx.due.tzinfo}")
        ctx.set_meta(word=word)
        return word

    @app.task(name="fails", retry=Retry(attempts=1))
    def fails() -> NoReturn:
        raise ValueError

    again: Using[[], Any] = fails.using(retry=Retry.fixed(3600, attempts=2))
    jobs: list[Job[Any]] = app.enqueue_many([
        note.using(priority=1, tenant="acme").call("one"),
        note.using(priority=5, keep=0).call("two"),
        note.using(after=3600, tags=["late"]).call("later"),
        again.using(priority=3).call(),
        fails.using(priority=2).call(),
    ])  # fmt: skip
    with pytest.raises(Duplicate) as caught:
        app.enqueue_many([note.call("three"), note.call("one"), note.call("four")])
    assert caught.value.unsent == 2
    three = app.find("three")
    assert three is not None
    assert (app.find("later"), app.find("four")) == (jobs[2], None)
    assert app.peek() == [jobs[1], jobs[3], jobs[4], jobs[0], three]
    reader = app.events(since=60)
    first = list(reader.read())  # up to the watermark: perhaps none, on stores of the network
    assert {event.outcome for event in first} <= {"enqueued"}
    app.run_worker(concurrency=1, burst=True)
    assert [word.split()[0] for word in seen] == ["two", "one", "three"]
    assert [job.status for job in (jobs[0], *jobs[2:])] == ["done", "scheduled", "retrying", "dead"]
    with pytest.raises(NotFound):
        _ = jobs[1].status
    assert jobs[0].meta == {"word": "one"}
    rest = _rest(app, reader.cursor, count=len(jobs) + 1 + 5 - len(first))
    enqueued = [event.job for event in [*first, *rest] if event.outcome == "enqueued"]
    assert sorted(enqueued) == sorted(job.id for job in (*jobs, three))
    ended = [event.job for event in rest if event.outcome != "enqueued"]
    assert sorted(ended) == sorted(job.id for job in (jobs[0], jobs[1], *jobs[3:], three))
    assert app.find("one") is None
    app.close()


def _rest(app: Dueline, cursor: str, *, count: int) -> list[Any]:
    """Read the next events, each page by a reader of its own."""
    events: list[Any] = []
    for _ in range(200):
        reader = app.events(cursor=cursor)
        events += reader.read()
        cursor = reader.cursor
        if len(events) >= count:
            break
    return events


def test_steps_and_schedules_have_options_of_their_own(url: str) -> None:
    """Run steps and a job of a schedule with headers and retries of their own."""
    # A12, C21
    app = Dueline(url)
    seen: list[tuple[int, dict[str, str]]] = []

    @app.task(name="note", retry=Retry(attempts=1))
    def note(ctx: Context, word: str) -> str:
        seen.append((ctx.attempt, ctx.headers))
        if ctx.attempt == 1:
            raise ValueError
        return word

    own: Using[[str], str] = note.using(headers={"by": "é"}, retry=Retry(attempts=2, delays=[0]))
    flow = app.start(pipeline(own.step("one"), own.step()))
    app.run_worker(concurrency=1, burst=True)
    assert flow.result(timeout=10) == "one"
    app.schedules.set("often", own, ["two"], every=3600)
    job = app.schedules.trigger("often")
    app.run_worker(concurrency=1, burst=True)
    assert job.result(timeout=10) == "two"
    assert seen == [(1, {"by": "é"}), (2, {"by": "é"})] * 3
    app.close()
