"""The row of a crash is written before that of any later attempt of the job."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dueline import Dueline
from dueline.api.raw_queue import RawQueue
from dueline.core.errors import StoreUnavailable
from dueline.core.store import Row
from dueline.jobs.history import attempts


@pytest.mark.sqlite
def test_a_crash_is_told_of_before_the_attempt_that_follows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Dueline(f"sqlite:///{tmp_path / 'jobs.db'}?synchronous=NORMAL")

    @app.task(name="send", queue="mail")
    def send() -> None:
        pass

    send.enqueue()
    assert RawQueue(app, "mail", lease=0.1).claim(1)  # and forget it
    store: Any = app.store
    seen: list[list[str]] = []
    is_full = True

    def append(rows: Sequence[Row]) -> Sequence[int | None]:
        nonlocal is_full
        if is_full:
            is_full = False
            raise StoreUnavailable("The disk is full, for a moment.")
        written: Sequence[int | None] = real_append(rows)
        seen.append([attempt.outcome for attempt in attempts(store, "mail", 1)])
        return written

    real_append = store.append
    monkeypatch.setattr(store, "append", append)
    while not list(attempts(store, "mail", 1)):
        app.run_worker(burst=True)
    assert seen[0] == ["crashed"]
    told = sorted((attempt.fence, attempt.outcome) for attempt in attempts(store, "mail", 1))
    assert told == [(1, "crashed"), (2, "done")]
