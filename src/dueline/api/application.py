"""The application: tasks, queues, a store."""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Never,
    NoReturn,
    ParamSpec,
    TypeVar,
    Unpack,
    overload,
)

from dueline.api.alerts import AlertMethods
from dueline.api.batches import BatchMethods
from dueline.api.call_options import Options
from dueline.api.code_changes import configure
from dueline.api.durable import DurableMethods
from dueline.api.gathering import Gathering
from dueline.api.including import IncludeMethods
from dueline.api.job_handle import Job
from dueline.api.jobs import JobMethods
from dueline.api.limits import LimitMethods
from dueline.api.schedules import ScheduleMethods
from dueline.api.task import CHUNK, AsyncTask, PlannedCall, Task, Using, enqueue_all
from dueline.api.task_declaration import (
    check_large,
    check_named_call,
    check_retry,
    check_takes_event,
    handler_of,
    limits_us,
    required_by,
    task_name,
)
from dueline.api.task_decorator import Registering, RegisteringBatches, TaskTerms
from dueline.api.topics import Subscription, TopicMethods, read_subscription
from dueline.api.worker_plan import CONCURRENCY, DRAIN_S, plan_of
from dueline.api.workflows import WorkflowMethods
from dueline.core.call_options import OrderKey, Unique
from dueline.core.clock import Clock, duration_us
from dueline.core.errors import NotFound
from dueline.core.queue_settings import (
    DEFAULT_QUEUE,
    SPANS,
    DeadInOrder,
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
from dueline.jobs.transaction import Transaction, in_transaction, transaction
from dueline.streams.topics import group_of_task
from dueline.tasks.batch_options import BatchOptions
from dueline.tasks.failure_limits import Failures
from dueline.tasks.familiar_words import APP_METHODS, TASK_OPTIONS, check_options, unknown_attribute
from dueline.tasks.handler import Context, Handler, KeptLogs, Middleware

if TYPE_CHECKING:
    from dueline.api.embedded_worker import EmbeddedWorker

P = ParamSpec("P")
R = TypeVar("R")

_NAMES_SHOWN = 5


class Dueline(
    DurableMethods,
    JobMethods,
    BatchMethods,
    Gathering,
    ScheduleMethods,
    LimitMethods,
    WorkflowMethods,
    TopicMethods,
    IncludeMethods,
    AlertMethods,
):
    """An application: tasks, and the store that holds their jobs.

    The store is opened at the first use, in each process.

    Args:
        url: URL of the store, such as "sqlite:///jobs.db"; None for DUELINE_STORE or
            dueline.toml.
        include: Modules with tasks, which workers import; see `include`.
        clock: The machine's clock; by default the system's.
        blobs: Address of a folder for large arguments and results, such as "file:///srv/blobs".
        blobs_above: Size in bytes above which they are kept there; by default 64 KiB.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        include: Iterable[str] = (),
        clock: Clock | None = None,
        blobs: str | None = None,
        blobs_above: int | None = None,
    ) -> None:
        super().__init__(url, clock=clock)
        self._keep_blobs(blobs, blobs_above)
        self.include(*include)
        self._callable: dict[str, Task[..., Any] | AsyncTask[..., Any]] = {}
        self._declared: dict[str, dict[str, Any]] = {}

    if not TYPE_CHECKING:  # for mypy, such an attribute does not exist

        def __getattr__(self, name: str) -> NoReturn:
            """Name what to write instead of a method of another queue."""
            raise unknown_attribute(self, name, APP_METHODS, "Applications")

    def declare(self, queues: Queues) -> None:
        """Store what the application declared before the first use."""
        for name, changes in self._declared.items():
            queues.engine.catalog.configure(name, **changes)
        super().declare(queues)

    # Tasks

    @property
    def tasks(self) -> Mapping[str, Handler]:
        """The handlers of the registered tasks, by name.

        Imports the included modules.
        """
        self._import_included()
        return super().tasks

    def task_named(self, name: str) -> Task[..., Any] | AsyncTask[..., Any]:
        """Return the task whose jobs are stored under a name.

        Args:
            name: Name of the task.

        Raises:
            NotFound: The application has no task of this name.
        """
        self._import_included()
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
        self, function: None = None, /, *, batch: BatchOptions, **terms: Unpack[TaskTerms]
    ) -> RegisteringBatches: ...
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
        order_key: OrderKey | str | None = None,
        codec: str | None = None,
        limits: Iterable[str] = (),
        needs: Mapping[str, int | str] | None = None,
        requires: str | None = None,
        batch: BatchOptions | None = None,
        middleware: Sequence[Middleware] = (),
        logs: KeptLogs = "off",
        large: int | None = None,
        on: Subscription | str | None = None,
        pause_after: Failures | None = None,
        webhook: str | None = None,
        **unknown: Never,
    ) -> Any:
        """Register a function as a task.

        Write `@app.task` or `@app.task(queue="mail")` above the function.

        Args:
            function: The function that runs the jobs.
            name: Name that jobs are stored under; by default `module.function`.
            queue: Default queue of calls.
            priority: Default priority of calls; larger runs first.
            retry: How failed attempts are retried; by default up to 8 attempts.
            timeout: Duration after which JobTimeout is raised in a call; by default none.
            kill_after: Duration after which the process of a call is killed, in workers with
                child processes.
            unique: Key that only one unfinished job has at a time, such as "hello:{to}".
            order_key: Key such as "acct-{account}" whose jobs run one at a time, see `OrderKey`.
            codec: How arguments are stored, such as "msgpack"; see `app.payloads`.
            limits: Limits that each job uses, such as "warehouse", or "host:{host}" with a key
                from its arguments; see `app.semaphore` and `app.rate`.
            needs: What the worker of a job must have, as labels and units of resources, such as
                {"region": "eu", "gpu": 1, "memory": "2 GiB"}; see `has` of workers.
            requires: What the store must be able to do, as words separated by commas: "fifo",
                "durable", "transactions", "joined transactions". Calls and workers are refused on a
                store that cannot.
            batch: Size of the batches that the function takes as a list; see `BatchOptions`.
            middleware: Functions of a Context that return a context manager, which wraps each
                call; the first is outermost, and those of `app.middleware` are outside.
            logs: Of which attempts the records that the function logs are kept, for `job.logs()`:
                of those that "failed", of "all" that failed or were done, or "off".
            large: As `blobs_above` of the application, for this task; 0 for always.
            on: Topic, pattern of topics or `Subscription` whose events are jobs of this task, each
                with the value of an event as its argument; not with `unique`.
            pause_after: Failures after which the task is paused by itself, see `Failures`.
            webhook: Default of `using(webhook=)`, after `app.webhooks`; such a task is no step of
                a workflow and has no schedule.
            **unknown: None; an error names the option that was meant.

        Returns:
            The task, or a decorator that makes it.

        Raises:
            BadInput: The name is taken, or the function, an option or the codec cannot be used.
        """
        if unknown:
            check_options(unknown, TASK_OPTIONS, TaskTerms.__annotations__, "`app.task`")
        options = Options(queue=check_queue_name(queue), priority=priority)
        timeout_us, kill_after_us = limits_us(timeout, kill_after)
        check_retry(retry)
        if codec is not None:
            self.payloads.check(codec)
        check_large(large, self.payloads)
        if webhook is not None:
            options = options.changed(webhook=self.read_webhook(webhook))
        keys = {"unique": unique, "order_key": order_key, "webhook": webhook}
        subscription = None if on is None else read_subscription(on, **keys)

        def register(function: Callable[..., Any]) -> Task[..., Any] | AsyncTask[..., Any]:
            handler = handler_of(
                function, batch, name=task_name(function, name), retry=retry,
                timeout_us=timeout_us, kill_after_us=kill_after_us, payloads=self.payloads,
                codec=codec, limits=limits, needs=needs,
                requires=required_by(requires, task_name(function, name), queue),
                join=self.join, engine_of=lambda: self.engine,
                middleware=middleware, logs=logs, large=large, pause_after=pause_after,
            )  # fmt: skip
            if subscription is not None:
                check_takes_event(handler)
            task = self._add_task(handler, options, unique, order_key)
            if subscription is not None:
                self._subscriptions[group_of_task(handler.name)] = (task, subscription)
            return task

        return register if function is None else register(function)

    def unchecked(self, name: str, *, queue: str = DEFAULT_QUEUE) -> Task[..., Any]:
        """Return a task of another application, to enqueue without its code.

        Its arguments are checked by the worker that runs the job: if they fit no live worker, the
        job waits for one, and becomes a dead-letter job after the `version_wait` of its queue.

        Args:
            name: Name that the workers' application gives the task.
            queue: Queue that those workers serve.

        Raises:
            BadInput: The name is invalid.
        """

        def call(*args: Any, **kwargs: Any) -> None: ...  # noqa: ANN401  (anything may be right)

        handler = Handler(
            call, name=task_name(call, name), retry=Retry(), timeout_us=None, payloads=self.payloads
        )
        return Task(self, handler, Options(queue=check_queue_name(queue)))

    def send(
        self,
        name: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] = {},
        *,
        queue: str | None = None,
        **options: Any,  # noqa: ANN401  (those of `using`)
    ) -> Job[Any]:
        """Enqueue a call of a task by its name: `app.send("shop.charge", [5])`.

        A task of this application is checked now, and keeps its own options. The arguments of any
        other name are checked by the worker; see `unchecked`.

        Args:
            name: Name of the task.
            args: Positional arguments.
            kwargs: Named arguments.
            queue: Queue of the job; by default the task's own, or "default" for another name.
            **options: Options of `using`, such as `after=60`.

        Returns:
            A handle on the job.

        Raises:
            BadInput: As in `enqueue` and `using`.
        """
        check_named_call(name, args, kwargs)
        self._import_included()
        task: Using[..., Any] = self._callable.get(name) or self.unchecked(name)
        if queue is not None or options:
            task = task.using(queue=queue, **options)
        return task.enqueue(*args, **kwargs)

    def enqueue_many(
        self, calls: Iterable[PlannedCall[R]], *, tx: object = None, chunk: int = CHUNK
    ) -> list[Job[R]]:
        """Enqueue calls of any tasks, each with its own options, in batches.

        Example: `app.enqueue_many([send.call("ann"), report.using(after=60).call(7)])`.

        Args:
            calls: Results of `task.call(...)` or `task.using(...).call(...)`.
            tx: The transaction that stores all jobs, as in `using`.
            chunk: Maximum number of jobs per write, 1 to 10,000.

        Returns:
            Handles on the jobs, in the order of the calls.

        Raises:
            BadInput: A call does not fit, named by its index. Nothing was stored.
            Duplicate: Another job holds the unique key of a call.
            QuotaExceeded: A quota is exhausted.
            EnqueueUnknown: Some jobs may or may not be stored; see `jobs` of the error.
            StoreUnavailable: The store did not answer. As with the errors above, earlier calls
                are stored, and `unsent` of the error counts the calls that were not sent.
        """
        planned = list(calls)
        return enqueue_all(self, planned, chunk=chunk, tx=None if tx is None else self.join(tx))

    async def aenqueue_many(
        self, calls: Iterable[PlannedCall[R]], *, tx: object = None, chunk: int = CHUNK
    ) -> list[Job[R]]:
        """Enqueue calls like `enqueue_many`, without blocking the event loop.

        Args:
            calls: Results of `task.call(...)`.
            tx: An asynchronous connection or session, as in `task.using(tx=...)`.
            chunk: Maximum number of jobs per write.

        Raises:
            BadInput: As in `enqueue_many`.
        """
        from asyncio import to_thread  # noqa: PLC0415  (slow to load)

        if tx is not None:
            return await in_transaction(
                self.join(tx), lambda own: self.enqueue_many(calls, tx=own, chunk=chunk)
            )
        return await to_thread(self.enqueue_many, calls, chunk=chunk)

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
        version_wait: timedelta | float | None = None,
        weights: Mapping[str, int] | None = None,
        poll: timedelta | float | None = None,
        bucket: timedelta | float | None = None,
        dead_in_order: DeadInOrder | None = None,
    ) -> None:
        """Declare the settings of a queue.

        Every client reads them from the store. They are stored when the store is first used, or
        immediately if it is open.

        Args:
            name: Name of the queue.
            lease: Duration of a claim without a heartbeat; by default 30 s.
            shards: Number of shards that new jobs spread over, or the minimum and the maximum for
                a number that follows the load.
            history: What the history records: "attempts", "all", "arguments" or "off".
            keep: Duration that results are kept, 0 for none; by default one day.
            aging: Waiting time that raises the priority of a job by one; 0, the default, never.
            deliver: "at_least_once" (default), or "at_most_once": a handler is never called
                twice, and a job is lost if its worker dies in the handler.
            history_keep: Duration that history is kept; by default seven days.
            dead_keep: Duration that dead-letter jobs are kept; 0, the default, until they are
                purged.
            version_wait: Duration that a job whose arguments no live worker can take waits for one
                of another version before it is dead; one hour by default, 0 for at once.
            weights: Turns of each named tenant in the round-robin; other tenants have one.
            poll: Maximum duration between polls of an idle worker, which also hears of jobs by
                wake-ups; 0, the default, as the store needs.
            bucket: Width of the time slices of jobs, each a partition on Cassandra; fixed when the
                queue is created. By default one day, on Cassandra 10 s.
            dead_in_order: What a dead job does to the others of its order key: "block" (default)
                or "skip". A call's `OrderKey(dead=...)` overrides it.

        Raises:
            BadInput: The name or a value is out of range, or the queue has buckets of another
                width. The latter is raised when the settings are stored.
        """
        given = locals()
        spans = {field: given[word] for word, field in SPANS.items()}
        plain = {"history": history, "deliver": deliver, "dead_in_order": dead_in_order,
                 **chosen_shards(shards)}  # fmt: skip
        changes: dict[str, Any] = {
            **{word: duration_us(span) for word, span in spans.items() if span is not None},
            **{word: value for word, value in plain.items() if value is not None},
            **({} if weights is None else {"weights": weights_of(weights)}),
        }
        check_queue_name(name)
        check_settings(replace(QueueSettings(), **changes))
        self._noticed.add(name)
        if self.is_open:
            configure(self.queues, name, changes)
        else:
            self._declared.setdefault(name, {}).update(changes)

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Open a transaction on the store: `with app.transaction() as tx:`.

        The end of the block commits the rows of `tx.execute`, the jobs of `task.using(tx=tx)` and
        the job of `ctx.finish(tx, value)` together. If the block raises, nothing is committed.

        Returns:
            A context manager that gives the transaction.

        Raises:
            ConfigError: The store has no transactions.
            BadInput: This thread has a transaction open.
            StoreUnavailable: Nothing was committed.
            CommitUnknown: The commit may or may not have succeeded.
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
        http: str | None = None,
        prefetch: bool = True,
        has: Mapping[str, int | str] | None = None,
    ) -> int | None:
        """Run jobs until SIGTERM or Ctrl-C.

        Args:
            queues: Names of the queues, each with its own slots or None for the shared ones; by
                default all that this application knows.
            concurrency: Maximum number of handlers that run at the same time.
            processes: Number of child processes that run handlers; 0 runs them in threads of
                this process.
            drain: Maximum duration that running handlers may continue after SIGTERM.
            burst: Return when no job is due.
            recycle_jobs: Number of jobs after which an idle child process is replaced.
            recycle_mb: Memory in MiB above which an idle child process is replaced.
            monitor: Take part in the election of the leader that runs maintenance tasks.
            http: Address and port of probes and metrics, such as "127.0.0.1:9465".
            prefetch: Claim jobs before they can start, so that slots are never idle and scheduled
                jobs start on time. Without it, the worker holds only jobs that run.
            has: Labels and units of resources for jobs with `needs`, such as
                {"region": "eu", "gpu": 2, "memory": "64 GiB"}.

        Returns:
            The number of the signal that stopped the worker; None after a burst.

        Raises:
            BadInput: A value is out of range.
        """
        from dueline.api.launch import launch  # noqa: PLC0415  (what only enqueues needs no worker)

        wear = (recycle_jobs, recycle_mb)
        terms = (concurrency, drain, processes)
        serving = self.serving(queues)
        plan = plan_of(
            serving, *terms, burst=burst, wear=wear, monitor=monitor, http=http,
            prefetch=prefetch, has=has,
        )  # fmt: skip
        return launch(self, plan)

    def worker(
        self,
        queues: Mapping[str, int | None] | list[str] | None = None,
        *,
        concurrency: int = CONCURRENCY,
        processes: int = 0,
        drain: timedelta | float = DRAIN_S,
        prefetch: bool = True,
        has: Mapping[str, int | str] | None = None,
    ) -> "EmbeddedWorker":
        """Run a worker inside another program: `with app.worker():`.

        With `async with`, the worker never blocks the event loop of, for example, a web
        application, and coroutine handlers run on the caller's loop, so they can share its
        connections. With `with`, they have a loop of their own. The end of the block waits for
        running handlers; if it is cancelled, or Ctrl-C is pressed, the worker releases its jobs
        immediately.

        Args:
            queues: Names of the queues, each with its own slots or None for the shared ones; by
                default all that this application knows.
            concurrency: Maximum number of handlers that run at the same time.
            processes: Number of child processes that run handlers; 0 runs them in threads of
                this process.
            drain: Maximum duration that running handlers may continue at the end of the block.
            prefetch: As for `run_worker`.
            has: As for `run_worker`.

        Returns:
            A context manager, also an asynchronous one, that runs the worker.

        Raises:
            BadInput: A value is out of range.
        """
        from dueline.api.embedded_worker import EmbeddedWorker  # noqa: PLC0415  (see `run_worker`)

        serving = self.serving(queues)
        plan = plan_of(serving, concurrency, drain, processes, prefetch=prefetch, has=has)
        return EmbeddedWorker(self, plan)

    def serving(
        self, queues: Mapping[str, int | None] | list[str] | None
    ) -> Mapping[str, int | None] | list[str]:
        """Return the queues that a worker serves.

        Args:
            queues: The queues that are asked for; None for all that this application knows.
        """
        self._import_included()
        own = [task.queue for task in self._callable.values()]
        return queues if queues is not None else [DEFAULT_QUEUE, *self._declared, *own]
