"""Values of each kind: a replay gives those of the first run, and their types."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from dueline import DurableContext, JobFailed, Retry
from dueline.testing.bench import AppOnBench
from tests.harness.durable_bench import ended

AT = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)


class Parcel(BaseModel):
    """A model of pydantic."""

    at: datetime
    labels: tuple[str, ...]


@dataclass
class Charge:
    """A dataclass."""

    at: datetime
    raw: bytes


def parcel() -> Parcel:
    """Return a model."""
    return Parcel(at=AT, labels=("a", "b"))


def charge() -> Charge:
    """Return a dataclass."""
    return Charge(AT, b"\0\xff")


def timestamp() -> datetime:
    """Return a timestamp."""
    return AT


def pair() -> tuple[int, Parcel]:
    """Return a tuple."""
    return 1, parcel()


def raw() -> bytes:
    """Return bytes."""
    return b"\0\xff"


def span() -> timedelta:
    """Return a duration."""
    return timedelta(days=2, microseconds=3)


FUNCTIONS = (parcel, charge, timestamp, pair, raw, span)


def test_first_runs_and_replays_give_equal_values_and_types(bench: AppOnBench) -> None:
    """Get each value from a step, a called job, a gather and a signal, twice."""
    seen: list[list[Any]] = []
    tasks = [bench.app.task(name=each.__name__)(each) for each in FUNCTIONS]

    @bench.app.durable(name="sees")
    def sees(ctx: DurableContext) -> int:
        values: list[Any] = [ctx.step(each) for each in FUNCTIONS]
        values += [ctx.call(task) for task in tasks]
        values += ctx.gather([task.call() for task in tasks])
        for each in FUNCTIONS:
            kind = each.__annotations__["return"]
            values.append(ctx.wait_signal(each.__name__, type=kind))
        seen.append(values)
        ctx.sleep(1)
        return len(values)

    job = sees.enqueue()
    for each in FUNCTIONS:
        job.signal(each.__name__, each())
    assert ended(bench, job) == 4 * len(FUNCTIONS)
    expected = [each() for each in FUNCTIONS] * 4
    assert len(seen) == 2
    for values in seen:
        assert values == expected
        assert list(map(type, values)) == list(map(type, expected))


def test_the_state_is_read_after_the_end_too(bench: AppOnBench) -> None:
    """End functions whose codec needs the name of the task."""
    bench.app.payloads.add(
        "named", 64, encode=lambda body, task: task.encode() + body, decode=_without_name,
        takes_task=True,
    )  # fmt: skip

    def declare(name: str) -> Any:  # noqa: ANN401  (a task)
        @bench.app.durable(name=name, codec="named")
        def shows(ctx: DurableContext) -> None:
            ctx.state(f"state of {name}")

        return shows

    jobs = [declare(name).enqueue() for name in ("first", "second")]
    bench.drain()
    assert [job.status for job in jobs] == ["done", "done"]
    assert [job.state for job in jobs] == ["state of first", "state of second"]


def _without_name(body: bytes, task: str) -> bytes:
    if not body.startswith(task.encode()):
        raise ValueError("sealed for another task")
    return body.removeprefix(task.encode())


def test_a_state_that_is_not_awaited_is_refused(bench: AppOnBench) -> None:
    forgotten: list[Any] = []

    @bench.app.durable(name="before", retry=Retry(attempts=1))
    async def before(ctx: DurableContext) -> None:
        left = ctx.state("waits")
        try:
            await ctx.step(str, 1, name="one")
        finally:
            left.close()

    @bench.app.durable(name="last", retry=Retry(attempts=1))
    async def last(ctx: DurableContext) -> None:
        await ctx.state("right")
        forgotten.append(ctx.state("wrong"))

    for task, when in ((before, "before the call of one"), (last, "before the function returned")):
        with pytest.raises(JobFailed, match=rf"(?s)not awaited {when}.*await ctx\.state"):
            ended(bench, task.enqueue())
    forgotten[0].close()
