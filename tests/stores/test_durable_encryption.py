"""An encrypting codec leaves no clear text of a durable function in a store (W10)."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dueline import Dueline, DurableContext, Job, Retry, StepFailed
from dueline.admin.move_plan import lanes_of
from dueline.admin.move_records import all_records
from dueline.contrib.crypto import Cipher
from dueline.core.pagination import jobs_in_lanes
from tests.harness.addresses import IN_MEMORY, LONG_ON_CASSANDRA
from tests.harness.programs import WAIT_S, wait_for

EVERY = pytest.mark.parametrize("url", [*IN_MEMORY, *LONG_ON_CASSANDRA], indirect=True)
WORD = "clear-text"
TIMES = 2_000


def in_store(app: Dueline) -> Iterator[tuple[str, bytes]]:
    """Yield what the store holds: cells of rows, and records, with their places."""
    store = app.engine.store
    for row in jobs_in_lanes(store, lanes_of(app.engine)):
        yield f"row of {row.task}", repr(tuple(row)).encode()
    for partition, put in all_records(store):
        yield f"{partition}/{put.key}", put.key.encode() + put.value


def clear_text_in(app: Dueline) -> list[str]:
    """Return the places of clear text."""
    return [place for place, data in in_store(app) if WORD.encode() in data]


class Sealed:
    """A function that stores a secret in each way that there is."""

    def __init__(self, app: Dueline) -> None:
        """Declare it."""
        self.fails = True

        def fetch(word: str) -> str:
            if self.fails:
                raise ValueError(f"{word} error")
            return word * TIMES

        @app.task(name="send")
        def send(word: str) -> int:
            return len(word)

        def refuse() -> None:
            raise ValueError(f"{WORD} refused")

        @app.durable(name="sealed", retry=Retry(attempts=3, base=30, jitter=0))
        def sealed(ctx: DurableContext, word: str) -> int:
            ctx.state(f"{word} state")
            short: str = ctx.step(str, f"{word} step", name="str", undo=str)
            large: str = ctx.step(fetch, word, name="fetch")
            try:
                ctx.step(refuse, name="refuse", retry=Retry(attempts=1))
            except StepFailed:
                short += "!"
            count: int = ctx.call(send, f"{word} call")
            more: list[int] = ctx.gather([send.call(f"{word} gather {n}") for n in range(2)])
            signal: str = ctx.wait_signal("go")
            if signal.endswith("again"):
                ctx.restart_with(f"{word} restarted")
            return len(short) + len(large) + len(signal) + count + sum(more)

        self.task: Any = sealed


@EVERY
def test_no_clear_text_of_a_function_is_in_a_store(url: str, tmp_path: Path) -> None:
    """Look into the store while the function waits for a retry and a signal, and after its end."""
    with closing(Dueline(url)) as app:
        Cipher({"1": "11" * 32}).install(app)
        app.queue("default", history="all")
        sealed = Sealed(app)
        with app.worker():
            job: Job[int] = sealed.task.enqueue(WORD)
            job.signal("go", f"{WORD} again")
            job.signal("go", WORD)
            wait_for(
                lambda: job.explain().reason == "retrying", "the step waits for its next attempt"
            )
            assert "ValueError" in str(job.explain())
            assert not clear_text_in(app)
            sealed.fails = False
            job.reset(to=1)
            job.result(timeout=WAIT_S)
            assert not clear_text_in(app)
    for path in tmp_path.rglob("jobs.db*"):
        assert WORD.encode() not in path.read_bytes(), path


def test_clear_text_is_found_without_encryption(tmp_path: Path) -> None:
    """Look for the same secrets where nothing is encrypted."""
    with closing(Dueline(f"sqlite:///{tmp_path}/jobs.db")) as app:
        sealed = Sealed(app)
        with app.worker():
            job = sealed.task.enqueue(WORD)
            wait_for(
                lambda: job.explain().reason == "retrying", "the step waits for its next attempt"
            )
            assert len(clear_text_in(app)) >= 4
