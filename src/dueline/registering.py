"""What `@app.task(...)` answers."""

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from dueline.handler import Context
from dueline.task import AsyncTask, Task

P = ParamSpec("P")
R = TypeVar("R")


class Registering(Protocol):
    """Turns a function into a task."""

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
