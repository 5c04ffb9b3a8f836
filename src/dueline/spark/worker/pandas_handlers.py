"""Handlers that take many jobs at once, as a table."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import pyarrow as pa

from dueline.core.attempt import Done, Ending, Failed
from dueline.core.codec import encode_result
from dueline.core.errors import BadInput
from dueline.core.user_code import Raised, contain, text_of
from dueline.tasks.failures import failure
from dueline.tasks.handler import Handler
from dueline.worker.assignment import Assignment, fitting
from dueline.worker.execution import Execution
from dueline.worker.thread_runner import ThreadRunner

Kind = Literal["arrow", "pandas"]

ROW_FAILED: Final = "RowFailed"
"""Name of the error of a job whose row has an error."""


class Many(NamedTuple):
    """A function that takes the jobs of a task as an Arrow table or a pandas DataFrame."""

    function: Callable[[Any], Any]
    kind: Kind


class ManyRunner(ThreadRunner):
    """Runs jobs in one thread; jobs of some tasks together, as a table.

    Jobs that failed before, or that killed their process, run alone, so that they cost other jobs
    at most one attempt.
    """

    def __init__(
        self,
        execution: Execution,
        *,
        many: Mapping[str, Many],
        handlers: Mapping[str, Handler],
        **rest: Any,  # noqa: ANN401  (as a ThreadRunner takes them)
    ) -> None:
        super().__init__(execution, **rest | {"threads": 1})
        self._coroutines = None  # each coroutine gets an event loop of its own
        self._many = many
        self._handlers = handlers

    def _run_all(self, slot: Any, now_us: int) -> int:  # noqa: ANN401  (the runner's own)
        first = self._ready.popleft()
        many = self._many.get(first.job.task)
        if many is None:
            return self._run(slot, first, now_us)
        group = [first, *self._like(first)]
        started_us = now_us + self._offset_us
        refusals = [self._execution.begin(assignment, started_us) for assignment in group]
        pairs = list(zip(group, refusals, strict=True))
        running = [assignment for assignment, refusal in pairs if refusal is None]
        endings = iter(run_many(many, self._handlers[first.job.task], running, self._execution))
        ended_us = self._clock.monotonic_us() + self._offset_us
        for assignment, refusal in pairs:
            ending = self._execution.end(assignment.job, None, refusal or next(endings))
            self._ended.append((assignment.job, ending, started_us, ended_us))
        self._wakeup.set()
        return self._clock.monotonic_us()

    def _like(self, first: Assignment) -> Sequence[Assignment]:
        """Take the ready jobs that can run together with a job."""
        if not _is_sound(first):
            return ()
        with self._work:
            task = first.job.task
            like = [ready for ready in self._ready if ready.job.task == task and _is_sound(ready)]
            for assignment in like:
                self._ready.remove(assignment)
        return like


def _is_sound(assignment: Assignment) -> bool:
    return not (assignment.alone or assignment.job.errors or assignment.job.crashes)


def run_many(
    many: Many, handler: Handler, group: Sequence[Assignment], execution: Execution
) -> list[Ending]:
    """Call a function with jobs; return the outcome of each."""
    endings: dict[int, Ending] = {}
    rows: list[dict[str, Any]] = []
    for place, assignment in enumerate(group):
        row = contain(_row, assignment, handler)
        if isinstance(row, Raised):  # arguments that do not fit concern only this job
            endings[place] = execution.ending_of(row.error, handler, assignment.job)
        else:
            rows.append(row)
    fit = [assignment for place, assignment in enumerate(group) if place not in endings]
    remaining: Iterator[Ending] = iter(())
    try:
        if fit:
            table = pa.Table.from_pylist(rows)
            answer = many.function(table.to_pandas() if many.kind == "pandas" else table)
            remaining = iter(_endings_of(answer, fit, handler))
    except BaseException as error:  # noqa: BLE001  (SystemExit in a handler is a failure too)
        remaining = iter(
            [execution.ending_of(error, handler, assignment.job) for assignment in fit]
        )
    return [endings[place] if place in endings else next(remaining) for place in range(len(group))]


def _row(assignment: Assignment, handler: Handler) -> dict[str, Any]:
    job = assignment.job
    arguments = fitting(handler.read, job.codec, job.body, assignment.given)
    named = handler.arguments.named(*arguments)
    return {"job_id": job.id.hex(), "attempt": job.errors + 1, **named}


def _endings_of(answer: object, group: Sequence[Assignment], handler: Handler) -> list[Ending]:
    """Convert a function's result: nothing, values, or a table with `value` and `error`."""
    values, errors = _columns(answer, len(group))
    return [
        _ending(value, error, assignment, handler)
        for value, error, assignment in zip(values, errors, group, strict=True)
    ]


def _columns(answer: object, count: int) -> tuple[list[Any], list[Any]]:
    nothing: list[Any] = [None] * count
    if answer is None:
        return nothing, nothing
    if hasattr(answer, "to_frame"):  # a pandas Series
        answer = pa.Array.from_pandas(answer)
    elif hasattr(answer, "iloc"):  # a DataFrame
        answer = pa.Table.from_pandas(answer, preserve_index=False)
    if isinstance(answer, pa.Array | pa.ChunkedArray | list):
        answer = {"value": answer}
    elif isinstance(answer, pa.Table | pa.RecordBatch):
        answer = {name: answer.column(name) for name in answer.schema.names}
    else:
        raise TypeError(
            f"the function must return None, values, or a table with the columns value and error"
            f" (got {type(answer).__name__})"
        )
    read = {name: _plain(column) for name, column in answer.items()}
    for name, column in read.items():
        if len(column) != count:
            raise ValueError(f"the function returned {len(column)} rows of {name} for {count} jobs")
    return read.get("value", nothing), read.get("error", nothing)


def _plain(column: Any) -> list[Any]:  # noqa: ANN401  (a column of Arrow's, or a list)
    return column if isinstance(column, list) else list(column.to_pylist())


def _ending(value: object, error: object, assignment: Assignment, handler: Handler) -> Ending:
    if error is not None:
        return Failed(ROW_FAILED, text_of(error), "", retry=handler.retry.wants(RuntimeError()))
    if not assignment.keep:
        return Done(b"")
    try:
        return Done(encode_result(value, assignment.job.task))
    except BadInput as refused:
        return failure(refused, handler)
