"""The history of jobs by key and header, on each kind of store (C21, V2)."""

import pytest

from dueline import Dueline
from dueline.admin.key_history import CallFilter, events_of_calls
from dueline.core.attempt import EnqueuedEvent
from dueline.core.errors import BadInput


def found(app: Dueline, like: CallFilter) -> list[tuple[str, str]]:
    """Return jobs and outcomes of what is found, the first first."""
    past = events_of_calls(app.engine, like, None, since_us=0, limit=100)
    return [(event.job, event.outcome) for event in reversed(past.attempts)]


@pytest.mark.parametrize("history", ["all", "arguments"])
def test_jobs_are_found_by_the_key_and_the_header_that_they_had(url: str, history: str) -> None:
    # V2, C21
    app = Dueline(url)
    app.queue("default", history=history)  # type: ignore[arg-type]  # one of them

    @app.task(name="add")
    def add(number: int) -> int:
        return number + 1

    first = add.using(unique="acct-7", headers={"trace": "a"}).enqueue(1)
    other = add.using(unique="acct-8", headers={"trace": "b"}).enqueue(1)
    plain = add.enqueue(2)
    many = app.enqueue_many([add.using(headers={"trace": "a"}).call(n) for n in range(5)])
    app.run_worker(burst=True)
    second = add.using(unique="acct-7").enqueue(2)
    app.run_worker(burst=True)
    ends = ("enqueued", "done")
    assert found(app, CallFilter(unique="acct-7")) == [
        (job.id, outcome) for job in (first, second) for outcome in ends
    ]
    traced = {job.id for job in (first, *many)}
    assert set(found(app, CallFilter(header=("trace", "a")))) == {
        (job, outcome) for job in traced for outcome in ends
    }
    assert found(app, CallFilter("acct-8", ("trace", "a"))) == []
    ordered = [add.using(order_key="acct-9").enqueue(n) for n in range(2)]
    app.run_worker(burst=True)
    last = {job for job, outcome in found(app, CallFilter(order="acct-9")) if outcome == "done"}
    assert last == {job.id for job in ordered}
    assert {job for job, _ in found(app, CallFilter("acct-8", ("trace", "b")))} == {other.id}
    shown: dict[str, dict[str, str]] = {}
    reader = app.events("default")
    while events := reader.read():
        for event in events:
            if event.outcome == "enqueued":
                shown[event.job] = event.headers if isinstance(event, EnqueuedEvent) else {}
    assert shown[first.id] == {"trace": "a"}
    assert shown[plain.id] == shown[second.id] == {}
    app.close()


def test_a_queue_without_such_a_history_is_refused(url: str) -> None:
    # V2
    app = Dueline(url)
    app.unchecked("add").using(unique="acct-7").enqueue(1)
    with pytest.raises(BadInput, match="has no keys and headers"):
        found(app, CallFilter(unique="acct-7"))
    app.close()
