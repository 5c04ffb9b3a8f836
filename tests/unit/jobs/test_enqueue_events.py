"""Enqueue events have the same fields, whichever call stored the job."""

from pathlib import Path

import pytest

from dueline import Dueline
from dueline.core.attempt import Attempt, EnqueuedEvent
from dueline.core.clock import SECOND_US


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("memory://", marks=pytest.mark.memory),
        pytest.param("sqlite:///{}/jobs.db", marks=pytest.mark.sqlite),
    ],
)
def test_events_of_single_and_bulk_calls_have_the_arguments(url: str, tmp_path: Path) -> None:
    app = Dueline(url.format(tmp_path))

    @app.task(name="add")
    def add(number: int) -> None: ...

    app.queue("default", history="arguments")
    add.enqueue(1)
    app.enqueue_many([add.call(2), add.call(3)])
    reader = app.events()
    events: list[Attempt] = []
    give_up_us = app.clock.monotonic_us() + 60 * SECOND_US
    while len(events) < 3 and app.clock.monotonic_us() < give_up_us:
        events += reader.read()
        app.clock.sleep(0.05)
    app.close()
    assert all(isinstance(event, EnqueuedEvent) for event in events)
    payloads = {(event.payload, event.size, event.codec) for event in events}  # type: ignore[attr-defined]
    assert payloads == {(b"[1]", 3, 0), (b"[2]", 3, 0), (b"[3]", 3, 0)}
