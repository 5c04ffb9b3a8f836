"""Tasks with Celery's methods, and `self` of bound tasks."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import wraps
from typing import Annotated, Any, Final, NoReturn

from dueline.api.task import AsyncTask, Task, Using
from dueline.contrib.celery.calls import CallWords, current_app
from dueline.contrib.celery.canvas import Canvas, with_error
from dueline.contrib.celery.result import STATE, AsyncResult
from dueline.contrib.celery.words import OBJECT, refuse, refuse_attribute
from dueline.core.constraints import check_value, integer
from dueline.core.errors import BadInput
from dueline.core.retry import ATTEMPTS_MAX
from dueline.tasks.handler import Context
from dueline.tasks.raised import Cancel, Snooze
from dueline.workflows import parts
from dueline.workflows.parts import Part, Step

Links = Canvas | Sequence[Canvas] | None

_Retries: Final = Annotated[int, integer(0, ATTEMPTS_MAX - 1)]


REQUEUED_S: Final = 1.0
"""Wait of a task that is rejected to run again."""


class Ignore(Cancel):
    """Raised in a task: end it, without a result."""


class Reject(Cancel):
    """Raised in a task: end it, or with `requeue=True` run it again, which spends no retry."""

    def __new__(cls, reason: object = "", *, requeue: bool = False) -> Any:  # noqa: ARG004
        """Return the exception that says what to do."""
        return Snooze(REQUEUED_S) if requeue else super().__new__(cls)

    def __init__(self, reason: object = "", *, requeue: bool = False) -> None:  # noqa: ARG002
        super().__init__(str(reason) or "rejected")


class MaxRetriesExceededError(Exception):
    """Raised by `self.retry` in the last attempt, unless it was given an exception."""


@dataclass(frozen=True)
class Signature(Canvas):
    """A call of a task, to be made later."""

    task: "CeleryTask"
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    immutable: bool = False

    @property
    def app(self) -> CallWords:
        """The application of its task."""
        return self.task.app

    def set(self, *, immutable: bool | None = None, **options: Any) -> "Signature":
        """Return it with options of `apply_async`."""
        is_alone = self.immutable if immutable is None else immutable
        return replace(self, options={**self.options, **options}, immutable=is_alone)

    def clone(self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] = {}) -> "Signature":
        """Return it with more arguments; positional ones come first."""
        if self.immutable:
            return self
        return replace(self, args=(*args, *self.args), kwargs={**self.kwargs, **kwargs})

    def part(self, *args: Any) -> Part:
        """Return it as a step of a workflow."""
        return self.task.part(self.clone(args))

    def step(self) -> Step:
        """Return its call as a step, without its links."""
        options = {"expires": self.task.expires, **self.options}
        using = self.task.using(**self.app.call_options(**options))
        made: Step = using.step(*self.args, **self.kwargs)
        return made.alone() if self.immutable else made

    def apply_async(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> AsyncResult:
        """Enqueue the call, with more arguments and options."""
        whole = self.clone(args, kwargs or {})
        return self.task.apply_async(whole.args, whole.kwargs, **{**self.options, **options})

    def delay(self, *args: Any, **kwargs: Any) -> AsyncResult:
        """Enqueue the call, with more arguments."""
        return self.apply_async(args, kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function in this process; nothing is stored."""
        whole = self.clone(args, kwargs)
        return self.task(*whole.args, **whole.kwargs)


class CeleryTask:
    """A task of dueline with Celery's methods."""

    MaxRetriesExceededError = MaxRetriesExceededError
    max_retries = 3
    default_retry_delay: float = 180
    ignore_result = False
    expires: float | None = None
    task: Task[..., Any] | AsyncTask[..., Any]

    def __init__(self, app: CallWords) -> None:
        self.app = app

    @property
    def name(self) -> str:
        """The name that jobs are stored under."""
        return self.task.name

    @property
    def using(self) -> Callable[..., Using[..., Any]]:
        """Dueline's `using`, for options that Celery does not have: a tenant, a transaction."""
        return self.task.using

    def delay(self, *args: Any, **kwargs: Any) -> AsyncResult:
        """Enqueue a call."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        link: Links = None,
        link_error: Canvas | None = None,
        **options: Any,
    ) -> AsyncResult:
        """Enqueue a call with options.

        Args:
            args: Positional arguments.
            kwargs: Named arguments.
            link: Signatures of tasks that run with the result.
            link_error: Signature of the task that runs if this one fails; the description of the
                failure, a dict, is its first argument.
            **options: countdown, eta, expires, queue, priority and headers; without a link also
                time_limit, soft_time_limit and ignore_result.

        Returns:
            The result of this task, without that of its links.

        Raises:
            BadInput: An option has no counterpart, or the arguments do not fit.
        """
        if link is None and link_error is None:
            options.setdefault("ignore_result", self.ignore_result)
            options.setdefault("expires", self.expires)
            given = self.app.call_options(**options)
            if not options["ignore_result"]:
                given["keep"] = self.app.conf.result_expires
            using = self.task.using(**given)
            job = using.enqueue(*args, **(kwargs or {}))
            return AsyncResult(job, ignored=bool(options["ignore_result"]))
        own = Signature(self, args, kwargs or {}, {**options, "link": link})
        return AsyncResult(self.app.start(with_error(own.part(), link_error)).step(0))

    def part(self, call: Signature) -> Part:
        """Return a call of this task as a part of a workflow, followed by its links."""
        options = dict(call.options)
        link, link_error = options.pop("link", None), options.pop("link_error", None)
        step = Signature(self, call.args, call.kwargs, options, call.immutable).step()
        if link is None:
            return with_error(step, link_error)
        links = [link] if isinstance(link, Canvas) else list(link)
        after = [link.part() for link in links]
        return with_error(
            step.then(after[0] if len(after) == 1 else parts.group(after)), link_error
        )

    def s(self, *args: Any, **kwargs: Any) -> Signature:
        """Return a call to be made later; results of tasks before it are its first arguments."""
        return Signature(self, args, kwargs)

    def si(self, *args: Any, **kwargs: Any) -> Signature:
        """Return a call that does not take the results of tasks before it."""
        return Signature(self, args, kwargs, immutable=True)

    def signature(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> Signature:
        """Return a call to be made later, with options of `apply_async`."""
        immutable = bool(options.pop("immutable", False))
        return Signature(self, tuple(args), kwargs or {}, options, immutable)

    subtask = signature

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function in this process; nothing is stored."""
        return self.task(*args, **kwargs)

    def __getattr__(self, name: str) -> NoReturn:
        refuse_attribute(name, OBJECT, "The task")

    def __repr__(self) -> str:
        return f"<@task: {self.name}>"


def signature(
    task: str,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    immutable: bool = False,
    app: CallWords | None = None,
    **options: Any,
) -> Signature:
    """Return a call of a task by its name.

    Args:
        task: Name of the task.
        args: Positional arguments.
        kwargs: Named arguments.
        immutable: Ignore the results of the tasks before it.
        app: The application; by default the one that was created last.
        **options: Options of `apply_async`.
    """
    named = (app or current_app()).named(task)
    return Signature(named, tuple(args), kwargs or {}, options, immutable)


class Request:
    """The running job: `self.request`."""

    def __init__(self, context: Context) -> None:
        self.id = context.job_id.hex()
        self.retries = context.attempt - 1
        self.task = context.task
        self.queue = context.queue
        self.headers = context.headers

    def __getattr__(self, name: str) -> NoReturn:
        words = {
            "args": "the arguments of the function",
            "kwargs": "the arguments of the function",
            "delivery_info": "self.request.queue",
        }
        refuse_attribute(name, words, "The request")


class BoundTask(CeleryTask):
    """`self` of a task with `bind=True`."""

    def __init__(self, task: CeleryTask, context: Context) -> None:
        super().__init__(task.app)
        self.task = task.task
        self.max_retries, self.default_retry_delay = task.max_retries, task.default_retry_delay
        self.context = context

    @property
    def request(self) -> Request:
        """The running job."""
        return Request(self.context)

    def update_state(
        self,
        task_id: str | None = None,
        state: str | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        """Note a state and small values, which `result.state` and `result.info` have meanwhile.

        Args:
            task_id: The id of this job.
            state: Name of the state, such as "PROGRESS".
            meta: Values by name, up to 4 KiB as JSON.

        Raises:
            BadInput: The id is of another job, or the values are too large.
        """
        if task_id not in (None, self.request.id):
            raise BadInput("A task can only update its own state.", hint="Leave `task_id` out.")
        self.context.set_meta(**{**(meta or {}), **({STATE: state} if state else {})})

    def retry(
        self,
        *,
        exc: BaseException | None = None,
        countdown: float | None = None,
        eta: datetime | None = None,
        max_retries: int | None = None,
        **unknown: object,
    ) -> NoReturn:
        """Fail this attempt and run the task again.

        Args:
            exc: The reason; raised when the retries are used up.
            countdown: Wait in seconds; by default `default_retry_delay` of the task.
            eta: Time of the retry.
            max_retries: Number of retries, up to 99; by default that of the task.
            **unknown: None; an error names the option that was meant.
        """
        refuse(unknown, {"args": "a new call, and return"}, "`self.retry`")
        most = self.max_retries if max_retries is None else max_retries
        check_value(most, _Retries, "max_retries")
        if self.request.retries >= most:
            raise exc or MaxRetriesExceededError(
                f"{self.name} was retried {self.request.retries}x."
            )
        after = self.default_retry_delay if countdown is None else countdown
        if eta is not None:
            eta = self.app.aware(eta)
            after = max(0.0, (eta - datetime.now(eta.tzinfo)).total_seconds())
        if exc is None:
            self.context.retry(after=after, attempts=most + 1)
        try:
            raise exc  # noqa: TRY301  (the job keeps what is caught as the reason)
        except BaseException:  # noqa: BLE001  (see above)
            self.context.retry(after=after, attempts=most + 1)


def bound(task: CeleryTask, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of a Context that calls one with `self`.

    Raises: BadInput: it has no parameter for that, or is a coroutine function.
    """
    own = inspect.signature(function)
    if not own.parameters or inspect.iscoroutinefunction(function):
        raise BadInput(
            f"The task {function.__qualname__} cannot have `bind=True`.",
            hint="Use a plain function with a first parameter `self`.",
        )

    @wraps(function)
    def run(context: Context, /, *args: Any, **kwargs: Any) -> Any:
        return function(BoundTask(task, context), *args, **kwargs)

    first, *rest = own.parameters.values()
    given = inspect.Parameter("context", inspect.Parameter.POSITIONAL_ONLY, annotation=Context)
    run.__signature__ = own.replace(parameters=[given, *rest])  # type: ignore[attr-defined]
    hints = {name: kind for name, kind in function.__annotations__.items() if name != first.name}
    run.__annotations__ = {**hints, "context": Context}
    return run
