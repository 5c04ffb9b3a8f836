"""Tasks that take many calls at once: checked by mypy, never run, as `api` is."""

from datetime import timedelta
from typing import assert_type

from dueline import Call, BatchOptions, Dueline, Job, Task

app = Dueline("sqlite:///jobs.db")


@app.task(batch=BatchOptions(size=100, within=2.0, by="{value}"))
def index(calls: list[Call[str]]) -> list[int]:
    for call in calls:
        assert_type(call.value, str)
        identity: bytes = call.job_id
        call.fail(ValueError("no"))
        call.snooze(timedelta(minutes=5))
        call.cancel("gone")
        call.done(1)
        call.fail("no")  # type: ignore[arg-type]
    return [len(call.value) for call in calls]


@app.task(queue="index", batch=BatchOptions(within=timedelta(seconds=2)))
async def index_all(calls: list[Call[tuple[int, str]]]) -> None: ...


index_it: Task[[str], int] = index
assert_type(index.enqueue("page"), Job[int])
assert_type(index("page"), int)
assert_type(index_all.enqueue((1, "page")), Job[None])
index.enqueue(1)  # type: ignore[arg-type]
index.enqueue("page", "page")  # type: ignore[call-arg]
BatchOptions(size="many")  # type: ignore[arg-type]
app.task(batch=100)  # type: ignore[call-overload]
