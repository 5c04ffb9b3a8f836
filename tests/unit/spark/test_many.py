"""Handlers that take many jobs at once, as a table."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from dueline import Context, Retry
from dueline.core.attempt import Cancelled, Done, Ended, Ending, Failed, GivenBack
from dueline.core.clock import SystemClock
from dueline.core.job import Job, JobId
from dueline.core.lane import Lane
from dueline.tasks.handler import Handler
from dueline.tasks.raised import Cancel
from dueline.worker.assignment import Assignment
from dueline.worker.execution import Execution


def add(ctx: Context, left: int, right: int = 10) -> int:
    """Add, one at a time."""
    raise AssertionError(ctx, left, right)


HANDLER = Handler(add, name="add", retry=Retry(), timeout_us=None)


def jobs_of(*bodies: bytes, errors: int = 0, alone: bool = False) -> list[Assignment]:
    """Make jobs that were claimed."""
    lane = Lane("default", 0, 0, 0, "")
    some = [
        Job(lane, 0, JobId(bytes([place + 1]) * 16), 0, 0, 0, "add", 0, body, b"", 0, fence=1)
        for place, body in enumerate(bodies)
    ]
    return [Assignment(job._replace(errors=errors), keep=True, alone=alone) for job in some]


def called(function: Callable[[Any], Any], some: list[Assignment], kind: Any = "arrow") -> Any:
    """Call a function with jobs, in this thread."""
    from dueline.spark.worker.pandas_handlers import Many, run_many

    return run_many(Many(function, kind), HANDLER, some, Execution({"add": HANDLER}))


@pytest.mark.parametrize("kind", ["arrow", "pandas"])
def test_arguments_are_columns_and_values_are_results(kind: str) -> None:
    def total(table: Any) -> Any:
        rows = table.to_pylist() if kind == "arrow" else table.to_dict("records")
        assert [row["attempt"] for row in rows] == [1, 1]
        assert rows[0]["job_id"] == "01" * 16
        values = [row["left"] + row["right"] for row in rows]
        if kind == "arrow":
            return values
        table["value"] = values
        return table

    assert called(total, jobs_of(b"[1]", b"[2,3]"), kind) == [Done(b"11"), Done(b"5")]
    assert called(lambda _: None, jobs_of(b"[1]"), kind) == [Done(b"null")]


def test_a_row_may_fail_alone() -> None:
    import pyarrow as pa

    def answer(_: Any) -> Any:
        return pa.table({"error": ["too large", None], "value": [None, 7]})

    assert called(answer, jobs_of(b"[1]", b"[2]")) == [
        Failed("RowFailed", "too large", "", retry=True),
        Done(b"7"),
    ]


def test_arguments_that_do_not_fit_let_their_job_wait_alone() -> None:
    first, second = called(lambda table: table.column("left"), jobs_of(b'["one"]', b"[2]"))
    assert isinstance(first, GivenBack)
    assert "`left`: Expected `int`, got `str`" in first.misfit
    assert second == Done(b"2")
    (damaged,) = called(lambda _: 1 / 0, jobs_of(b'["one'))
    assert isinstance(damaged, Failed)
    assert not damaged.retry


@pytest.mark.parametrize("answer", [[1, 2, 3], 5, {"value": [1, 2]}])
def test_an_answer_that_does_not_fit_is_tried_again(answer: Any) -> None:
    endings = called(lambda _: answer, jobs_of(b"[1]", b"[2]"))
    assert [(type(one), one.retry) for one in endings] == [(Failed, True)] * 2


def test_what_a_function_raises_becomes_of_all_its_jobs() -> None:
    def cancel(_: Any) -> None:
        raise Cancel("none of these")

    assert called(cancel, jobs_of(b"[1]", b"[2]")) == [Cancelled("none of these")] * 2


def test_jobs_that_are_ready_go_together_and_those_that_failed_by_themselves() -> None:
    from dueline.spark.worker.pandas_handlers import Many, ManyRunner

    sizes: list[int] = []
    clock, wakeup = SystemClock(), threading.Event()
    runner = ManyRunner(
        Execution({"add": HANDLER}),
        many={"add": Many(lambda table: sizes.append(table.num_rows), "arrow")},
        handlers={"add": HANDLER},
        threads=9,
        clock=clock,
        now_us=clock.wall_us,
        wakeup=wakeup,
    )
    some = jobs_of(*[b"[1]"] * 20)
    failed = [*jobs_of(b"[1]", b"[1]", errors=1), *jobs_of(b"[1]", alone=True)]
    runner.start()
    runner.submit([*some[:10], *failed, *some[10:]])
    ended: list[Ended] = []
    while len(ended) < len(some) + len(failed):
        ended += runner.collect()
    runner.close()
    assert sorted(sizes) == [1, 1, 1, 20]
    kinds: list[Ending] = [one.ending for one in ended]
    assert kinds == [Done(b"null")] * 23
