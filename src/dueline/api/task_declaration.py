"""Options of tasks and calls."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from dueline.api.config import module_name
from dueline.core.call_options import CallTerms, Unique
from dueline.core.clock import SECOND_US, asked_instant_us, asked_span_us, duration_us
from dueline.core.constraints import check_value
from dueline.core.errors import BadInput
from dueline.core.queue_settings import KeepUs
from dueline.core.retry import Retry
from dueline.jobs.transaction import Transaction
from dueline.tasks.batch_handler import BatchHandler
from dueline.tasks.batch_options import BatchOptions
from dueline.tasks.handler import Handler

_NAME_CHARACTERS_MAX = 255

Call = Sequence[Any] | Mapping[str, Any]
"""The arguments of a call: positional ones, or named ones."""


def handler_of(
    function: Callable[..., Any],
    batch: BatchOptions | None,
    *,
    retry: Retry | None,
    **terms: Any,  # noqa: ANN401
) -> Handler:
    """Return the handler of a task. batch: options of its batches; None for single jobs."""
    if batch is None:
        return Handler(function, retry=retry or Retry(), **terms)
    return BatchHandler(function, batch=batch, retry=retry or Retry(), **terms)


def read_terms(
    old: CallTerms | None,
    handler: Handler,
    *,
    retry: Retry | None,
    timeout: timedelta | float | None,
    kill_after: timedelta | float | None,
    keep: timedelta | float | None,
) -> CallTerms | None:
    """Return what a call has instead of its task or queue; None keeps what it had."""
    if (retry, timeout, kill_after, keep) == (None,) * 4:
        return old
    old = old or CallTerms()
    check_retry(retry)
    if isinstance(handler, BatchHandler) and (timeout, kill_after) != (None, None):
        raise BadInput(
            f"A batch of {handler.name} has one time limit for all of its calls.",
            hint="Set `timeout` and `kill_after` at the task.",
        )
    limits_us(timeout, kill_after)
    terms = CallTerms(
        old.retry if retry is None else retry.terms(),
        old.timeout_us if timeout is None else duration_us(timeout),
        old.kill_after_us if kill_after is None else duration_us(kill_after),
        old.keep_us if keep is None else _kept_us(keep),
    )
    own = (handler.timeout_us, handler.kill_after_us)
    limits = (
        us if us is not None else task
        for us, task in zip((terms.timeout_us, terms.kill_after_us), own, strict=True)
    )
    limits_us(*(None if us is None else us / SECOND_US for us in limits))
    return terms


def _kept_us(keep: timedelta | float) -> int:
    """Return how long a result is kept; raise BadInput if that is no duration, or too long."""
    keep_us = asked_span_us(keep, "keep")
    check_value(keep_us, KeepUs, "keep_us")
    return keep_us


def check_retry(retry: object) -> None:
    """Raise BadInput if this is neither a policy nor None."""
    if not isinstance(retry, Retry | None):
        raise BadInput(
            f"`retry` must be a Retry (got {retry!r:.80}).", hint="Use retry=Retry(attempts=5)."
        )


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a call.

    due_us: absolute; after_us: from the call; neither: now. expires_us, expires_after_us: the
    same; neither: never. window_us: starts are spread over this duration.
    tx: the transaction that stores the job; None for its own. wait_us: for room in a quota.
    deadline_us, due_within_us: instead of a priority, absolute or from the call.
    terms: instead of what the task or queue says. headers: they travel with the job.
    """

    queue: str
    priority: int = 0
    tenant: str = ""
    due_us: int | None = None
    after_us: int | None = None
    tx: Transaction | None = None
    expires_us: int | None = None
    expires_after_us: int | None = None
    window_us: int = 0
    unique: Unique | None = None
    tags: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    wait_us: int = 0
    deadline_us: int | None = None
    due_within_us: int | None = None
    terms: CallTerms | None = None
    headers: tuple[tuple[str, str], ...] = ()

    def check_recurring(self, task: str) -> None:
        """Raise BadInput for the first option that a schedule cannot repeat."""
        for option, value in (
            ("unique", self.unique), ("due", self.due_us), ("after", self.after_us),
            ("tx", self.tx), ("expires", self.expires_us), ("deadline", self.deadline_us),
            ("deadline", self.due_within_us),
        ):  # fmt: skip
            if value is not None:
                raise BadInput(
                    f"A schedule of {task} cannot have the option `{option}`.",
                    hint=_INSTEAD.get(option, "Leave it out: the schedule sets the time."),
                )


_INSTEAD: Final = {
    "unique": "Use `overlap` of the schedule, or a task without a unique key.",
    "expires": "Use `expires` with a duration.",
    "tx": "Leave it out: a schedule stores its jobs by itself.",
}
"""What to use instead of options that schedules do not have."""


def read_unique(unique: object, handler: Handler) -> Unique:
    """Return the unique key of the argument `unique`, a Unique or a string."""
    if isinstance(unique, str):
        unique = Unique(unique)
    if not isinstance(unique, Unique):
        raise BadInput(
            f"`unique` must be a string or Unique (got {unique!r:.80}).",
            hint='Use unique="hello:{to}".',
        )
    unique.check(handler.arguments.names, handler.name)
    return unique


def task_name(function: object, name: object) -> str:
    """Return the name of a task: as given, or from its function."""
    _check_function(function, is_named=name is not None)
    if name is None:
        module, own = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
        name = f"{module_name(module)}.{own}" if own else ""
    if (
        not isinstance(name, str)
        or not 0 < len(name) <= _NAME_CHARACTERS_MAX
        or not (name.isprintable())
    ):
        raise BadInput(
            f"{name!r:.80} is not a valid task name.",
            hint=f"Use `name` with 1 to {_NAME_CHARACTERS_MAX} printable characters.",
        )
    return name


def _check_function(function: object, *, is_named: bool) -> None:
    """Raise BadInput for what a worker in another process cannot find or call."""
    if isinstance(function, type):
        raise BadInput(
            f"A task must be a function (got the class {function.__name__}).",
            hint="Write a function that creates the object and uses it.",
        )
    if inspect.ismethod(function) or not inspect.isroutine(function):
        raise BadInput(
            f"A task must be a function (got {function!r:.80}).",
            hint="Use @app.task above a def at the top level of a module.",
        )
    own = function.__qualname__
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise BadInput(
            f"The task {own} is a generator, whose body would not run.",
            hint="Replace `yield`: return a list, or enqueue a job for each item.",
        )
    is_in_class = inspect.isfunction(function) and "." in own.rpartition("<locals>.")[2]
    if is_in_class and _first_parameter(function) in ("self", "cls"):
        raise BadInput(
            f"The task {own} is a method, and a worker has no object to call it on.",
            hint="Use a function at the top level of a module, and pass what it needs.",
        )
    if "<" in own and not is_named:
        what = "a lambda" if own.endswith("<lambda>") else "defined inside a function"
        raise BadInput(
            f"The task {own} is {what}, so that no worker can import it under its name.",
            hint="Move it to the top level of a module, or give it a name=.",
        )


def _first_parameter(function: Callable[..., Any]) -> str:
    return next(iter(inspect.signature(function).parameters), "")


def limits_us(
    timeout: timedelta | float | None, kill_after: timedelta | float | None
) -> tuple[int | None, int | None]:
    """Return the durations before a handler is interrupted and before it is killed."""
    timeout_us = None if timeout is None else duration_us(timeout)
    if timeout_us is not None and timeout_us <= 0:
        raise BadInput(f"`timeout` must be more than 0 s (got {timeout!r}).", hint="Use 30.")
    kill_after_us = None if kill_after is None else duration_us(kill_after)
    if kill_after_us is not None and kill_after_us <= (timeout_us or 0):
        raise BadInput(
            f"`kill_after` must be longer than `timeout` ({timeout!r}; got {kill_after!r}).",
            hint="A handler is first interrupted, and then killed if it does not end.",
        )
    return timeout_us, kill_after_us


def read_deadline(deadline: object, priority: object) -> dict[str, int | None]:
    """Return the options of `deadline`: an aware datetime, a timedelta, seconds, or None."""
    if deadline is None:
        return {"deadline_us": None, "due_within_us": None}
    if priority is not None:
        raise BadInput("`deadline` and `priority` exclude each other.", hint="Pass one of them.")
    if isinstance(deadline, datetime):
        return {"deadline_us": asked_instant_us(deadline, "deadline"), "due_within_us": None}
    return {"deadline_us": None, "due_within_us": asked_span_us(deadline, "deadline")}


def read_expiry(expires: object) -> dict[str, int | None]:
    """Return the options of `expires`: an aware datetime, a timedelta or seconds."""
    if isinstance(expires, datetime):
        return {"expires_us": asked_instant_us(expires, "expires"), "expires_after_us": None}
    return {"expires_us": None, "expires_after_us": asked_span_us(expires, "expires")}


def as_call(call: Call) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return the positional and the named arguments of a call."""
    if isinstance(call, Mapping):
        return (), call
    if not isinstance(call, (tuple, list)):
        raise BadInput(
            f"A call must be a tuple, list or dict of its arguments (got {type(call).__name__}).",
            hint='Use [("a",), ("b",)] for a task of one argument.',
        )
    return call, {}
