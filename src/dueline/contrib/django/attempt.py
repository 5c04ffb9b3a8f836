"""Runs the functions of Django's tasks as handlers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from inspect import iscoroutinefunction
from traceback import format_exception
from typing import Any, TypeVar

import msgspec
from asgiref.sync import sync_to_async
from django.db import close_old_connections
from django.utils import timezone

from dueline.contrib.django.contract import (
    Task,
    TaskContext,
    TaskError,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)
from dueline.contrib.django.results import Call, call_of, change, result_of, time_of
from dueline.core.attempt import Ended, Outcome
from dueline.core.errors import LeaseLost
from dueline.core.retry import decide
from dueline.tasks.failures import failure
from dueline.tasks.handler import Context, Handler
from dueline.tasks.raised import Cancel, Snooze

T = TypeVar("T")

Handlers = Callable[[Task], Handler]
"""Returns the handler of a task."""


@dataclass(frozen=True, kw_only=True)
class DuelineContext(TaskContext):
    """The context of a task with `takes_context`.

    Attributes:
        job: The job as dueline's own handlers get it: progress, cancellation, fence.
        call: The call.
    """

    job: Context
    call: Call

    def finish(self, connection: object, value: T) -> T:
        """Finish the job in your transaction: `return context.finish(connection, value)`.

        The change of your rows and the end of the job are one commit; see `Context.finish`.

        Args:
            connection: `django.db.connection` of the database that the store is in.
            value: What the task returns.

        Returns:
            The value.
        """
        self.job.finish(connection, with_value(self.call, value))
        return value


class Attempt:
    """One attempt of a job, as the signals of Django report it.

    Args:
        task: The task.
        context: The job.
        args: Positional arguments of the call.
        kwargs: Named arguments.
    """

    def __init__(
        self, task: Task, context: Context, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        self.job = context._job  # noqa: SLF001  (its row, which handlers have no use for)
        self.call = call_of(self.job, args, kwargs)
        self.sender = type(task.get_backend())
        own = task_of(task, self.call)
        self.result = result_of(own, self.call, self.job.id, TaskResultStatus.RUNNING)
        self.leading: list[object] = []
        if task.takes_context:
            given = DuelineContext(task_result=self.result, job=context, call=self.call)
            self.leading.append(given)

    def succeed(self, value: object) -> Call:
        """Return what is stored as the result of the job."""
        call = with_value(self.call, value)
        self._end(TaskResultStatus.SUCCESSFUL)
        change(self.result, _return_value=call.value)
        return call

    def fail(self, error: BaseException, handler: Handler) -> bool:
        """Return whether the task failed for good."""
        if isinstance(error, Snooze | LeaseLost):
            return False
        if not isinstance(error, Cancel):
            ended = Ended(self.job, failure(error, handler), 0, 0)
            if not isinstance(decide(ended, handler.retry, 0.0), Outcome):
                return False
        kind = type(error)
        path = f"{kind.__module__}.{kind.__qualname__}"
        shown = "".join(format_exception(error))
        self.result.errors.append(TaskError(exception_class_path=path, traceback=shown))
        self._end(TaskResultStatus.FAILED)
        return True

    def _end(self, status: TaskResultStatus) -> None:
        now = timezone.now()
        change(self.result, status=status, finished_at=now)


_close_old_connections = sync_to_async(close_old_connections)


def handler_of(task: Task, handlers: Handlers) -> Callable[..., Any]:
    """Return the function that runs the jobs of a task."""
    function = task.func

    def run(context: Context, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  (see Arguments)
        close_old_connections()
        attempt = Attempt(task, context, args, kwargs)
        about = {"sender": attempt.sender, "task_result": attempt.result}
        try:
            try:
                task_started.send(**about)
                call = attempt.succeed(function(*attempt.leading, *args, **kwargs))
            except BaseException as error:
                if attempt.fail(error, handlers(task)):
                    task_finished.send_robust(**about)
                raise
            task_finished.send_robust(**about)
            return call
        finally:
            close_old_connections()

    async def arun(context: Context, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        await _close_old_connections()
        attempt = Attempt(task, context, args, kwargs)
        about = {"sender": attempt.sender, "task_result": attempt.result}
        try:
            await sync_to_async(task_started.send)(**about)
            call = attempt.succeed(await function(*attempt.leading, *args, **kwargs))
        except BaseException as error:
            own = error.__traceback__  # asgiref raises the error again in the thread
            if attempt.fail(error, handlers(task)):
                await sync_to_async(task_finished.send_robust)(**about)
            await _close_old_connections()
            error.__traceback__ = own
            raise
        await sync_to_async(task_finished.send_robust)(**about)
        await _close_old_connections()
        return call

    return arun if iscoroutinefunction(function) else run


def task_of(task: Task, call: Call) -> Task:
    """Return a task with the options of one call; what is stored is not checked again."""
    made = object.__new__(type(task))
    for field in fields(task):
        object.__setattr__(made, field.name, getattr(task, field.name))
    run_after = None if call.run_after_us is None else time_of(call.run_after_us)
    change(made, queue_name=call.queue, priority=call.priority, run_after=run_after)
    return made


def with_value(call: Call, value: object) -> Call:
    """Return a call with what its function returned.

    Raises:
        TypeError: JSON cannot carry it.
    """
    return msgspec.structs.replace(call, value=normalize_json(value))
