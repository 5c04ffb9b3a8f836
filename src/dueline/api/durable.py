"""The methods of an application that register functions, and durable ones."""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from dueline.api import durable_jobs
from dueline.api.call_options import Options, check_waits
from dueline.api.cells import is_interactive
from dueline.api.connection import Connection
from dueline.api.task import AsyncTask, Task
from dueline.api.task_declaration import (
    check_retry,
    limits_us,
    read_order_key,
    read_unique,
    required_by,
    task_name,
)
from dueline.core.attempt import DurablePlace
from dueline.core.call_options import OrderKey, Unique
from dueline.core.errors import BadInput
from dueline.core.limit_names import semaphore_of
from dueline.core.queue_settings import DEFAULT_QUEUE, check_queue_name
from dueline.core.retry import Retry
from dueline.durable.names import check_name
from dueline.tasks.handler import Handler, KeptLogs, Middleware

if TYPE_CHECKING:
    from dueline.durable.context import DurableContext

P = ParamSpec("P")
R = TypeVar("R")


class DurableTerms(TypedDict, total=False):
    """Keyword arguments of `@app.durable(...)`."""

    name: str | None
    queue: str
    priority: int
    retry: Retry | None
    timeout: timedelta | float | None
    unique: Unique | str | None
    codec: str | None
    limits: Iterable[str]
    needs: Mapping[str, int | str] | None
    requires: str | None
    middleware: Sequence[Middleware]
    logs: KeptLogs
    version: str


class RegisteringDurable(Protocol):
    """A decorator that makes a task of a durable function."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # the narrower stands first
        self, function: "Callable[Concatenate[DurableContext, P], Coroutine[Any, Any, R]]", /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(
        self, function: "Callable[Concatenate[DurableContext, P], R]", /
    ) -> Task[P, R]: ...


class DurableMethods(Connection):
    """The methods of an application that register functions, and durable ones."""

    _callable: dict[str, Task[..., Any] | AsyncTask[..., Any]]

    @overload
    def durable(  # type: ignore[overload-overlap]  # the narrower stands first
        self, function: "Callable[Concatenate[DurableContext, P], Coroutine[Any, Any, R]]", /
    ) -> AsyncTask[P, R]: ...
    @overload
    def durable(self, function: "Callable[Concatenate[DurableContext, P], R]", /) -> Task[P, R]: ...
    @overload
    def durable(
        self, function: None = None, /, **terms: Unpack[DurableTerms]
    ) -> RegisteringDurable: ...

    def durable(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str = DEFAULT_QUEUE,
        priority: int = 0,
        retry: Retry | None = None,
        timeout: timedelta | float | None = None,
        unique: Unique | str | None = None,
        codec: str | None = None,
        limits: Iterable[str] = (),
        needs: Mapping[str, int | str] | None = None,
        requires: str | None = None,
        middleware: Sequence[Middleware] = (),
        logs: KeptLogs = "off",
        version: str = "",
    ) -> Any:
        """Register a durable function, which repeats nothing that it recorded.

        Write `@app.durable` above a function that takes a `DurableContext` first.

        Args:
            function: The function.
            name: Name that jobs are stored under; by default `module.function`.
            queue: Default queue of calls.
            priority: Default priority of calls; larger runs first.
            retry: How errors of the function's own code are retried, and those of its steps that
                name no policy.
            timeout: Duration after which a run between two waits is interrupted.
            unique: Key that only one unfinished job has at a time; also while it waits.
            codec: How arguments, results, errors and signals are stored; see `app.payloads`.
            limits: Limits that each run uses; a function that waits holds none.
            needs: What its worker must have; a function that waits uses nothing.
            requires: What the store must be able to do; see `task`.
            middleware: Functions of a Context that wrap each run; see `task`.
            logs: Of which attempts the log is kept.
            version: Version of the code, up to 200 characters: `app.durable_versions()` counts the
                unfinished functions that began with each.

        Returns:
            The task, or a decorator that makes it.

        Raises:
            BadInput: As `task`, or the function takes no DurableContext.
        """
        timeout_us, _ = limits_us(timeout, None)
        check_retry(retry)
        if codec is not None:
            self.payloads.check(codec)

        def register(function: Callable[..., Any]) -> Task[..., Any] | AsyncTask[..., Any]:
            from dueline.durable.handler import DurableHandler  # noqa: PLC0415  (used by few)

            handler = DurableHandler(
                function, queues=lambda: self.queues, shared=lambda: self.shared_decisions,
                version=version, name=task_name(function, name),
                retry=retry or Retry(), timeout_us=timeout_us, payloads=self.payloads,
                codec=codec, limits=limits, needs=needs, join=self.join, middleware=middleware,
                logs=logs, requires=required_by(requires, task_name(function, name), queue),
            )  # fmt: skip
            place = DurablePlace(version=version and check_name(version, "version"))
            options = Options(queue=check_queue_name(queue), priority=priority, durable=place)
            return self._add_task(handler, options, unique)

        return register if function is None else register(function)

    def durable_versions(self) -> Mapping[str, Mapping[str, int]]:
        """Count unfinished durable functions by task and version that began them.

        All waiting jobs are read.

        Returns:
            For each task the counts by `version=`, "" for those without.
        """
        return durable_jobs.versions(self.engine)

    def _add_task(
        self,
        handler: Handler,
        options: Options,
        unique: Unique | str | None,
        order_key: OrderKey | str | None = None,
    ) -> Task[..., Any] | AsyncTask[..., Any]:
        """Add a handler to the tasks of the application."""
        # A cell of a notebook may run again.
        if handler.name in self._tasks and not is_interactive(handler.body.__module__):
            raise BadInput(
                f"A task named {handler.name} is registered already.",
                hint="Give one of them another name=.",
            )
        kind: type[Any] = AsyncTask if handler.is_async else Task
        key = None if unique is None else read_unique(unique, handler)
        order = None if order_key is None else read_order_key(order_key, handler)
        options = options.changed(
            unique=key, order_key=order, limits=handler.limits, needs=handler.needs
        )
        check_waits(options)
        made = kind(self, handler, options)
        self._tasks[handler.name] = handler
        self._noticed.add(options.queue)
        self._noticed_limits |= {semaphore_of(limit) for limit in handler.limits}
        self._callable[handler.name] = made
        return self._callable[handler.name]
