"""Small values that handlers note beside their jobs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dueline import BadInput, Context, Dueline, Retry

STORES = ("memory://", "memory://?transactional=off", "sqlite:///jobs.db")


@pytest.fixture(params=STORES)
def app(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Dueline]:
    monkeypatch.chdir(tmp_path)
    made = Dueline(request.param)
    yield made
    made.close()


def test_notes_are_read_by_callers_and_by_the_next_attempt(app: Dueline) -> None:
    seen: list[Any] = []

    @app.task(name="copy", retry=Retry.fixed(0, attempts=3))
    def copy(ctx: Context) -> None:
        seen.append((ctx.meta, ctx.last_progress and ctx.last_progress.done))
        ctx.set_meta(file="a.csv", **{f"attempt {ctx.attempt}": [True, None]})
        if ctx.attempt == 2:
            ctx.progress(5, 10)
        if ctx.attempt < 3:
            raise ValueError
        ctx.set_meta(file="b.csv")

    job = copy.enqueue()
    assert job.meta == {}
    app.run_worker(burst=True)
    assert job.status == "done"
    first = {"file": "a.csv", "attempt 1": [True, None]}
    second = {**first, "attempt 2": [True, None]}
    assert seen == [({}, None), (first, None), (second, 5)]
    assert job.meta == {**second, "attempt 3": [True, None], "file": "b.csv"}
    assert job.progress is not None
    assert job.progress.done == 5


def test_notes_alone_are_no_progress(app: Dueline) -> None:
    @app.task(name="note")
    def note(ctx: Context) -> None:
        ctx.set_meta(one=1)

    job = note.enqueue()
    app.run_worker(burst=True)
    assert job.meta == {"one": 1}
    assert job.progress is None


def test_large_and_foreign_values_are_refused() -> None:
    app = Dueline("memory://")

    @app.task(name="note")
    def note(ctx: Context) -> dict[str, Any]:
        with pytest.raises(BadInput, match="4096"):
            ctx.set_meta(text="x" * 5000)
        with pytest.raises(BadInput, match="plain values"):
            ctx.set_meta(app=object())
        ctx.set_meta(a=1)
        return ctx.meta

    assert note() == {"a": 1}  # a plain call has no job to note it beside
