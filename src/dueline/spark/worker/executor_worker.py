"""The part of a worker that runs in a Spark task: it runs handlers, and settles nothing."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from dueline.api.loading import load_app
from dueline.core.retry import Retry
from dueline.spark.worker.driver_server import Address, come
from dueline.spark.worker.pandas_handlers import Many, ManyRunner
from dueline.tasks.handler import Handler, Middleware
from dueline.tasks.hooks import Hooks
from dueline.worker.child_process import Child
from dueline.worker.thread_runner import ThreadRunner


class Bare(NamedTuple):
    """A task for executors that cannot import its application."""

    function: Callable[..., Any]
    retry: Retry
    timeout_us: int | None
    kill_after_us: int | None
    middleware: Sequence[Middleware] = ()


class Work(NamedTuple):
    """What Spark tasks receive: the application's name, or its functions.

    Attributes:
        many: Functions that take many jobs at once, by task.
    """

    place: str | None
    bare: Mapping[str, Bare]
    threads: int
    many: Mapping[str, Many]

    def __repr__(self) -> str:
        return f"<Work {self.place or ', '.join(self.bare)}>"


_loaded: dict[str, tuple[dict[str, Handler], Hooks]] = {}


def serving(address: Address, number: int, work: Work) -> Callable[[Iterable[Any]], None]:
    """Return the function of one Spark task."""

    def serve(_: Iterable[Any]) -> None:
        run(address, number, work)

    return serve


def run(address: Address, number: int, work: Work) -> None:
    """Run jobs until the worker has no more; only the first attempt of a task gets jobs."""
    try:
        handlers, hooks = load(work)
    except BaseException as error:
        come(address, number, f"{type(error).__name__}: {error}")
        raise
    pipe = come(address, number)
    if pipe is not None:
        with pipe:
            runner = _runner(work, handlers)
            Child(pipe, handlers, work.threads, hooks, runner).run()


def _runner(work: Work, handlers: Mapping[str, Handler]) -> Callable[..., ThreadRunner]:
    if not work.many:
        return ThreadRunner
    return partial(ManyRunner, many=work.many, handlers=handlers)


def load(work: Work) -> tuple[dict[str, Handler], Hooks]:
    """Load the handlers, once in each process, which Spark uses for many tasks."""
    if work.place is None:
        return {name: _handler(name, bare) for name, bare in work.bare.items()}, Hooks()
    if work.place not in _loaded:
        app = load_app(work.place)
        _loaded[work.place] = dict(app.tasks), app.hooks
    return _loaded[work.place]


def _handler(name: str, bare: Bare) -> Handler:
    return Handler(
        bare.function,
        name=name,
        retry=bare.retry,
        timeout_us=bare.timeout_us,
        kill_after_us=bare.kill_after_us,
        middleware=bare.middleware,
    )
