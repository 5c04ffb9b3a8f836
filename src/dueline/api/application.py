"""The application: tasks, queues, a store."""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack, overload

from dueline.api.connection import Connection
from dueline.api.coordination import Coordination
from dueline.api.job_handle import Job, parse_id
from dueline.api.limits import Steering
from dueline.api.schedules import Recurring
from dueline.api.task import AsyncTask, Task
from dueline.api.task_declaration import (
    Options,
    check_retry,
    handler_of,
    limits_us,
    read_unique,
    task_name,
)
from dueline.api.task_decorator import Registering, RegisteringChunks, TaskTerms
from dueline.api.worker_plan import CONCURRENCY, DRAIN_S, plan_of
from dueline.api.workflows import Workflows
from dueline.core.call_options import Unique
from dueline.core.clock import Clock, duration_us
from dueline.core.errors import BadInput, NotFound
from dueline.core.queue_settings import (
    DEFAULT_QUEUE,
    Deliver,
    History,
    QueueSettings,
    check_queue_name,
    check_settings,
    chosen_shards,
    weights_of,
)
from dueline.core.retry import Retry
from dueline.jobs.queue import Queues
from dueline.jobs.transaction import Transaction, transaction
from dueline.tasks.batch_options import Chunk
from dueline.tasks.handler import Context
from dueline.tasks.payload_codecs import Payloads

if TYPE_CHECKING:
    from dueline.api.embedded_worker import EmbeddedWorker

P = ParamSpec("P")
R = TypeVar("R")

_NAMES_SHOWN = 5


class Dueline(Connection):
    """Tasks, and the store in which their jobs live.

    Making one opens nothing: the store is opened at the first use, in each process.
    """

    def __init__(self, url: str | None = None, *, clock: Clock | None = None) -> None:
        """Take the store's address, such as `sqlite:///jobs.db`.

        Args:
          url: see `open_store`; None for DUELINE_STORE or dueline.toml.
          clock: the machine's clock; the system's own by default.
        """
        super().__init__(url, clock=clock)
        self._callable: dict[str, Task[..., Any] | AsyncTask[..., Any]] = {}
        self._declared: dict[str, dict[str, Any]] = {}
        self.on = self.hooks.on
        self.payloads = Payloads()
        self.schedules = Recurring(self)
        self.schedule, self.cron = self.schedules.schedule, self.schedules.cron
        steering = Steering(self)
        self.pause, self.resume = steering.pause, steering.resume
        self.semaphore, self.rate, self.quota = steering.semaphore, steering.rate, steering.quota
        self._store_limits = steering.store
        flows = Workflows(self)
        self.start, self.start_again = flows.start, flows.start_again
        self.flow, self.flows = flows.flow, flows.flows
        self._kit = kit = Coordination(self)
        self.stream, self.sequence, self.lease = kit.stream, kit.sequence, kit.lease
        self.consume, self.consuming = kit.consume, kit.consuming

    def declare(self, queues: Queues) -> None:
        """Store what was declared before the first use."""
        for name, changes in self._declared.items():
            queues.engine.catalog.configure(name, **changes)
        self.schedules.store(queues)
        self._store_limits(queues.engine)

    # Tasks

    def task_named(self, name: str) -> Task[..., Any] | AsyncTask[..., Any]:
        """Find a task by the name under which its jobs are stored.

        Raises: NotFound: none goes by it.
        """
        task = self._callable.get(name)
        if task is None:
            from difflib import get_close_matches  # noqa: PLC0415  (seldom needed)

            near = get_close_matches(name, self._callable, n=1, cutoff=0.5)
            known = ", ".join(sorted(self._callable)[:_NAMES_SHOWN]) or "none at all"
            raise NotFound(
                f"The app has no task {name!r}.",
                hint=f"Did you mean {near[0]}?" if near else f"It has {known}.",
            )
        return task

    @overload
    def task(  # type: ignore[overload-overlap]  # the narrower stands first
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def task(  # type: ignore[overload-overlap]  # see above
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self, function: None = None, /, *, chunk: Chunk, **terms: Unpack[TaskTerms]
    ) -> RegisteringChunks: ...
    @overload
    def task(self, function: None = None, /, **terms: Unpack[TaskTerms]) -> Registering: ...

    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str = DEFAULT_QUEUE,
        priority: int = 0,
        retry: Retry | None = None,
        timeout: timedelta | float | None = None,
        kill_after: timedelta | float | None = None,
        unique: Unique | str | None = None,
        codec: str | None = None,
        limits: Iterable[str] = (),
        chunk: Chunk | None = None,
    ) -> Any:
        """Register a function as a task: `@app.task`, or `@app.task(queue="mail")`.

        Args:
          name: what jobs are stored under; `module.function` by default.
          queue, priority: of calls that do not say otherwise.
          retry: how failures are tried again; 8 attempts by default.
          timeout: how long a call may run before JobTimeout is raised in it; no limit by default.
          kill_after: how long before its process is killed, in workers with child processes.
          unique: a key that one living job has at a time, such as "hello:{to}".
          codec: how arguments are stored, such as "msgpack"; see `app.payloads`.
          limits: semaphores of which a job needs a permit each, such as "warehouse", or with a
            key of its arguments, "host:{host}"; see `app.semaphore`.
          chunk: how many jobs the function takes at once, as a list of calls; see `Chunk`.

        Raises: BadInput: the name is taken, or the signature or the codec cannot be used.
        """
        options = Options(queue=check_queue_name(queue), priority=priority)
        timeout_us, kill_after_us = limits_us(timeout, kill_after)
        check_retry(retry)
        if codec is not None:
            self.payloads.check(codec)

        def register(function: Callable[..., Any]) -> Task[..., Any] | AsyncTask[..., Any]:
            handler = handler_of(
                function,
                chunk,
                name=task_name(function, name),
                retry=retry,
                timeout_us=timeout_us,
                kill_after_us=kill_after_us,
                payloads=self.payloads,
                codec=codec,
                limits=limits,
            )
            if handler.name in self._tasks:
                raise BadInput(
                    f"A task named {handler.name} is registered already.",
                    hint="Give one of them another name=.",
                )
            kind: type[Any] = AsyncTask if handler.is_async else Task
            key = None if unique is None else read_unique(unique, handler)
            made = kind(self, handler, replace(options, unique=key, limits=handler.limits))
            self._tasks[handler.name] = handler
            self._callable[handler.name] = made
            return self._callable[handler.name]

        return register if function is None else register(function)

    # Queues and jobs

    def queue(
        self,
        name: str,
        *,
        lease: timedelta | float | None = None,
        shards: int | tuple[int, int] | None = None,
        history: History | None = None,
        keep: timedelta | float | None = None,
        aging: timedelta | float | None = None,
        deliver: Deliver | None = None,
        history_keep: timedelta | float | None = None,
        dead_keep: timedelta | float | None = None,
        weights: Mapping[str, int] | None = None,
    ) -> None:
        """Declare a queue's settings, stored so that every client reads the same.

        Args:
          lease: how long a claim lasts without a beat; 30 s by default.
          shards: slices that new jobs spread over, or the least and the most of them, by load.
          history: "attempts", "all", "arguments", "off".
          keep: how long results are kept, 0 for not at all; one day by default.
          aging: how long a job waits to gain one step of priority; 0, the default, for never.
          deliver: "at_least_once" (default), or "at_most_once": a handler is never called twice,
            and a job whose worker dies in its handler is lost.
          history_keep: how long history is kept; seven days by default.
          dead_keep: how long dead jobs are kept; 0, the default, until somebody purges them.
          weights: by tenant, how many turns it has where others have one.

        Raises: BadInput: a name or value out of range.
        """
        spans = {
            "lease_us": lease, "keep_us": keep, "aging_us": aging,
            "history_us": history_keep, "dead_us": dead_keep,
        }  # fmt: skip
        plain = {"history": history, "deliver": deliver, **chosen_shards(shards)}
        changes: dict[str, Any] = {
            **{word: duration_us(span) for word, span in spans.items() if span is not None},
            **{word: value for word, value in plain.items() if value is not None},
            **({} if weights is None else {"weights": weights_of(weights)}),
        }
        check_queue_name(name)
        check_settings(replace(QueueSettings(), **changes))
        if self.is_open:
            self.queues.engine.catalog.configure(name, **changes)
        else:
            self._declared.setdefault(name, {}).update(changes)

    def job(self, job_id: str) -> Job[Any]:
        """Make a handle on a job from its id; nothing is read yet.

        Raises: BadInput: that is no id.
        """
        return Job(parse_id(job_id), self.queues, self._clock)

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Open a transaction on the store: `with app.transaction() as tx:`.

        Rows of `tx.execute`, jobs of `task.using(tx=tx)` and the job of `ctx.finish(tx, value)`
        are committed as one at the end of the block; if it raises, none of them is.

        Raises:
          ConfigError: the store has no such transactions. BadInput: this thread has one open.
          StoreUnavailable: nothing is committed. CommitUnknown: at the end, and all may be.
        """
        return transaction(self, self.queues, self.tasks)

    def run_worker(
        self,
        queues: Mapping[str, int | None] | list[str] | None = None,
        *,
        concurrency: int = CONCURRENCY,
        processes: int = 0,
        drain: timedelta | float = DRAIN_S,
        burst: bool = False,
        recycle_jobs: int | None = None,
        recycle_mb: int | None = None,
        monitor: bool = True,
    ) -> int | None:
        """Run jobs until SIGTERM or Ctrl-C, or in a burst until nothing is due.

        Args:
          queues: names, each with its slots or None for the common ones; by default all known here.
          concurrency: handlers that run at once, in all.
          processes: child processes that run them; 0 runs them in threads of this one.
          drain: how long running handlers may go on after SIGTERM.
          recycle_jobs, recycle_mb: a child process that has run so many jobs, or holds so many
            MiB of memory, is replaced by a fresh one once it is idle.
          monitor: stand for the office of the monitor, the chores that one worker does.

        Returns: the number of the signal that stopped it; None after a burst.
        """
        from dueline.api.launch import launch  # noqa: PLC0415  (what only enqueues needs no worker)

        wear = (recycle_jobs, recycle_mb)
        terms = (concurrency, drain, processes)
        plan = plan_of(self.serving(queues), *terms, burst=burst, wear=wear, monitor=monitor)
        return launch(self, plan)

    def worker(
        self,
        queues: Mapping[str, int | None] | list[str] | None = None,
        *,
        concurrency: int = CONCURRENCY,
        processes: int = 0,
        drain: timedelta | float = DRAIN_S,
    ) -> "EmbeddedWorker":
        """Run a worker beside other code, such as a web application: `async with app.worker():`.

        It works in threads of its own and never blocks the loop; coroutine handlers run on the
        loop of the caller, so that they can share its connections. It drains at the end of the
        block, and gives everything back at once where that is cancelled.

        Args: as `run_worker`.
        """
        from dueline.api.embedded_worker import EmbeddedWorker  # noqa: PLC0415  (see `run_worker`)

        return EmbeddedWorker(self, plan_of(self.serving(queues), concurrency, drain, processes))

    def serving(
        self, queues: Mapping[str, int | None] | list[str] | None
    ) -> Mapping[str, int | None] | list[str]:
        """Say which queues a worker serves: those that are named, or all that are known here."""
        own = [task.queue for task in self._callable.values()]
        return queues if queues is not None else [DEFAULT_QUEUE, *self._declared, *own]
