"""Types of the decorator `@app.task(...)`."""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Concatenate, ParamSpec, Protocol, TypedDict, TypeVar, overload

from dueline.api.task import AsyncTask, Task
from dueline.api.topics import Subscription
from dueline.core.call_options import OrderKey, Unique
from dueline.core.retry import Retry
from dueline.tasks.batch_handler import Call
from dueline.tasks.failure_limits import Failures
from dueline.tasks.handler import Context, KeptLogs, Middleware

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class TaskTerms(TypedDict, total=False):
    """Keyword arguments of `@app.task(...)` other than `batch`."""

    name: str | None
    queue: str
    priority: int
    retry: Retry | None
    timeout: timedelta | float | None
    kill_after: timedelta | float | None
    unique: Unique | str | None
    order_key: OrderKey | str | None
    codec: str | None
    limits: Iterable[str]
    needs: Mapping[str, int | str] | None
    requires: str | None
    middleware: Sequence[Middleware]
    logs: KeptLogs
    large: int | None
    on: Subscription | str | None
    pause_after: Failures | None
    webhook: str | None


class Registering(Protocol):
    """A decorator that makes a task of a function."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # the narrower stands first
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]  # see above
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class RegisteringBatches(Protocol):
    """A decorator that makes a task of a function that takes batches of calls."""

    @overload
    def __call__(
        self, function: Callable[[list[Call[T]]], Coroutine[Any, Any, None]], /
    ) -> AsyncTask[[T], None]: ...
    @overload
    def __call__(
        self, function: Callable[[list[Call[T]]], Coroutine[Any, Any, Sequence[R]]], /
    ) -> AsyncTask[[T], R]: ...
    @overload
    def __call__(self, function: Callable[[list[Call[T]]], None], /) -> Task[[T], None]: ...
    @overload
    def __call__(self, function: Callable[[list[Call[T]]], Sequence[R]], /) -> Task[[T], R]: ...
