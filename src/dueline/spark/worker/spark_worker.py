"""A worker whose handlers run on Spark."""

import os
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final
from uuid import uuid4

from pyspark.sql import SparkSession

from dueline.api.application import Dueline
from dueline.api.config import place_of
from dueline.api.launch import make_worker, run
from dueline.api.worker_plan import DRAIN_S, Plan, plan_of
from dueline.core.errors import BadInput, ConfigError
from dueline.core.logging import log
from dueline.spark.worker.driver_server import Gate
from dueline.spark.worker.executor_worker import Bare, Work
from dueline.spark.worker.executors import Fleet
from dueline.spark.worker.pandas_handlers import Many
from dueline.worker.runner import Runner

KEY_BYTES: Final = 32
BATCH: Final = 1000


class Consuming:
    """A worker whose handlers run on Spark; it has the methods of Spark's StreamingQuery."""

    def __init__(self, app: Dueline, plan: Plan, fleet: Callable[[threading.Event], Fleet]) -> None:
        self.id = uuid4().hex
        self._error: BaseException | None = None
        self._fleet: Fleet | None = None

        def make(wakeup: threading.Event) -> Runner:
            self._fleet = made = fleet(wakeup)
            return made

        self._worker = make_worker(app, plan, make_runner=make)
        self.name = self._worker.name
        self._thread = threading.Thread(
            target=self._run, args=(app, plan), name="dueline-consume", daemon=True
        )
        self._thread.start()

    def _run(self, app: Dueline, plan: Plan) -> None:
        try:
            run(app, plan, self._worker)
        except BaseException as error:  # noqa: BLE001  (raised by awaitTermination)
            log.exception("the worker on Spark ended")
            self._error = error

    @property
    def isActive(self) -> bool:  # noqa: N802  (Spark's name)
        """Whether the worker runs."""
        return self._thread.is_alive()

    @property
    def lastProgress(self) -> Mapping[str, Any]:  # noqa: N802  (Spark's name)
        """Counts: Spark tasks that run, jobs that wait and run here, jobs that ended."""
        assert self._fleet is not None, "created with the worker"
        return {"id": self.id, "name": self.name, **self._fleet.counts()._asdict()}

    def exception(self) -> BaseException | None:
        """Return the error that ended the worker, if any."""
        return self._error

    def stop(self, *, hurry: bool = False) -> None:
        """Stop claiming; wait for running handlers, or stop them at once."""
        self._worker.stop(hurry=hurry)
        self._thread.join()

    def awaitTermination(self, timeout: float | None = None) -> bool:  # noqa: N802  (Spark's name)
        """Wait for the end; return False if the timeout, in seconds, passes first.

        Raises:
            BaseException: The error that ended the worker.
        """
        self._thread.join(timeout)
        if self._error is not None:
            raise self._error
        return not self._thread.is_alive()


def consume(
    spark: SparkSession,
    app: Dueline,
    queues: Mapping[str, int | None] | list[str] | str | None = None,
    *,
    members: int | None = None,
    concurrency: int | None = None,
    drain: timedelta | float = DRAIN_S,
    burst: bool = False,
    port: int = 0,
    arrow: Mapping[str, Callable[[Any], Any]] | None = None,
    pandas: Mapping[str, Callable[[Any], Any]] | None = None,
    batch: int = BATCH,
) -> Consuming:
    """Run jobs on Spark's executors; the driver claims and settles them, as a worker does.

    It shares its queues with other workers. Executors import the application by its name; where
    that is not possible, its functions are sent to them.

    Args:
        spark: The session.
        app: The application.
        queues: As for `app.run_worker`, or one name.
        members: Number of Spark tasks that run handlers at once. Default: one for each core but
            one.
        concurrency: Number of handlers that run at once in total. Default: one for each member.
        drain: How long running handlers may continue after `stop`.
        burst: Whether to end when no job is due.
        port: Port of the driver to which tasks connect; 0 for any.
        arrow: Functions that take many jobs of a task at once as an Arrow table, by task name.
            `concurrency` is ignored then.
        pandas: The same, with a pandas DataFrame.
        batch: Maximum number of jobs in such a table.

    Raises:
        ConfigError: The session uses Spark Connect, or the application cannot be sent.
        BadInput: A name or number is out of range.
        NotFound: The application has no such task.
    """
    many = {name: Many(function, "arrow") for name, function in (arrow or {}).items()}
    many |= {name: Many(function, "pandas") for name, function in (pandas or {}).items()}
    for name in many:
        app.task_named(name)
    cores = _cores(spark)
    members = max(1, cores - 1) if members is None else members
    if members < 1:
        raise BadInput(
            f"`members` must be an integer of at least 1 (got {members!r}).", hint="Use 1 or more."
        )
    serving = app.serving([queues] if isinstance(queues, str) else queues)
    threads = max(members, members if concurrency is None else concurrency)
    if many:
        threads = members * batch
    plan = plan_of(serving, threads, drain, members, burst=burst)

    def fleet(wakeup: threading.Event) -> Fleet:
        return Fleet(
            spark,
            _gate(spark, port),
            lambda each: _work(app, each, many),
            members=members,
            threads=threads,
            clock=app.clock,
            now_us=app.queues.engine.time.earliest_us,
            wakeup=wakeup,
            handlers=app.tasks,
        )

    return Consuming(app, plan, fleet)


def _cores(spark: SparkSession) -> int:
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception as error:
        raise ConfigError(
            "Jobs cannot run through Spark Connect: executors cannot reach its client.",
            hint="Call consume in the driver's process.",
        ) from error


def _gate(spark: SparkSession, port: int) -> Gate:
    conf, master = spark.sparkContext.getConf(), spark.sparkContext.master
    key = os.urandom(KEY_BYTES)
    if master == "local" or master.startswith("local["):
        return Gate("127.0.0.1", "127.0.0.1", key=key, port=port)
    host = str(conf.get("spark.driver.host"))
    return Gate(host, str(conf.get("spark.driver.bindAddress", host)), key=key, port=port)


def _work(app: Dueline, threads: int, many: Mapping[str, Many]) -> Work:
    place = place_of(app)
    if place is not None:
        return Work(place, {}, threads, many)
    bare = {
        name: Bare(
            task.function,
            task.retry,
            task.timeout_us,
            task.kill_after_us,
            (*app.hooks.middleware, *task.middleware),
        )
        for name, task in app.tasks.items()
    }
    return Work(None, bare, threads, many)
