"""The backend for TASKS: enqueues Django's tasks as jobs, and finds their results."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property, partial
from typing import Any

from django.apps import apps
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.utils import timezone
from django.utils.connection import ConnectionDoesNotExist

from dueline.admin.search import attempts_of
from dueline.api.connect import open_store
from dueline.api.job_handle import parse_id
from dueline.api.task import Using
from dueline.contrib.django import results
from dueline.contrib.django.application import DjangoApplication, Reserved, application_of
from dueline.contrib.django.attempt import task_of
from dueline.contrib.django.contract import (
    BaseTaskBackend,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultMismatch,
    TaskResultStatus,
    task_enqueued,
)
from dueline.core.attempt import Attempt, Outcome, read_epitaph
from dueline.core.blobs import whole
from dueline.core.call_options import read_options
from dueline.core.codec import decode_result
from dueline.core.errors import BadInput, ConfigError, NotFound
from dueline.core.job import Job, JobId
from dueline.core.retry import Retry

OPTIONS = ("DATABASE", "ENQUEUE_ON_COMMIT", "RETRY", "STORE")

COUNTED = ("retried", "dead", "crashed")
"""Outcomes of the attempts that count as errors or crashes of their job."""

HISTORY_ROWS_MAX = 1000
"""Maximum number of rows of the history that are read for the earlier attempts of a job."""


@dataclass(frozen=True, kw_only=True)
class DuelineTask(Task):
    """A task of Django with options of dueline: `@task(retry=Retry(attempts=5), timeout=30)`.

    Attributes:
        retry: How failed attempts are retried; by default `OPTIONS["RETRY"]`.
        timeout: Duration after which JobTimeout is raised in a call.
        kill_after: Duration after which the child process of a call is killed.
    """

    retry: Retry | None = None
    timeout: timedelta | float | None = None
    kill_after: timedelta | float | None = None

    def get_result(self, result_id: str) -> TaskResult:
        """Return the result of a job of this task.

        Only the outcome is stored of a job that was cancelled, expired or is lost, not its task:
        it is taken for this one.

        Args:
            result_id: Its id.

        Raises:
            TaskResultDoesNotExist: As `DuelineBackend.get_result`.
            TaskResultMismatch: The job is of another task.
        """
        return self._of_this(self.get_backend().get_result(result_id))

    async def aget_result(self, result_id: str) -> TaskResult:
        """Return it in a coroutine, as `get_result`."""
        return self._of_this(await self.get_backend().aget_result(result_id))

    def _of_this(self, result: TaskResult) -> TaskResult:
        if result.task.func is results.unknown_task:
            results.change(result, task=self)
        if result.task.func != self.func:
            raise TaskResultMismatch(f"Task does not match (received {result.task.module_path!r})")
        return result


class DuelineBackend(BaseTaskBackend):
    """Stores tasks as jobs of dueline.

    OPTIONS may have:
      DATABASE: alias of a PostgreSQL database in DATABASES that is the store. Jobs are enqueued in
        the transaction that is open on it.
      STORE: URL of another store; by default that of DUELINE_STORE or dueline.toml.
      ENQUEUE_ON_COMMIT: with STORE, whether jobs are enqueued after the commit of the transaction
        that is open on the default database; by default True.
      RETRY: how failed attempts are retried; by default `Retry(attempts=1)`, never.

    Attributes:
      app: The dueline application, to declare queues, hooks, limits and schedules.
    """

    task_class = DuelineTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        self._params = params

    @cached_property
    def app(self) -> DjangoApplication:
        """The dueline application of all backends with this alias."""
        return application_of(self.alias, self._params)

    def validate_task(self, task: Task) -> None:
        """Check a task, and register it, so that workers know it."""
        super().validate_task(task)
        if task.func is not results.unknown_task:
            self.app.known(task)

    def enqueue(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:
        """Store a call as a job.

        It becomes visible with the commit of the transaction that is open on Django's database:
        see OPTIONS.

        Args:
            task: The task.
            args: Positional arguments, which JSON can carry.
            kwargs: Named arguments.

        Returns:
            The result, which is READY.
        """
        self.validate_task(task)
        result = TaskResult(
            task=task,
            id="",
            status=TaskResultStatus.READY,
            enqueued_at=None,
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=args,
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        due = task.run_after
        if due is not None and not timezone.is_aware(due):
            due = timezone.make_aware(due)
        call = self.app.known(task).call.using(
            queue=task.queue_name, priority=int(task.priority), due=due
        )
        connection = connections[self.app.database or DEFAULT_DB_ALIAS]
        if connection.in_atomic_block and self.app.database:
            call = call.using(tx=connection)
        elif connection.in_atomic_block and self.options.get("ENQUEUE_ON_COMMIT", True):
            engine = self.app.engine
            job_id = engine.ids.one(engine.time.earliest_us())
            results.change(result, id=job_id.hex())
            later = partial(self._enqueue, call.using(tx=Reserved(job_id)), result)
            transaction.on_commit(later, using=connection.alias)
            return result
        self._enqueue(call, result)
        return result

    def _enqueue(self, call: Using[..., Any], result: TaskResult) -> None:
        job_id = parse_id(call.enqueue(*result.args, **result.kwargs).id)
        results.change(result, id=job_id.hex(), enqueued_at=results.enqueued_at(job_id))
        task_enqueued.send(type(self), task_result=result)

    def get_result(self, result_id: str) -> TaskResult:
        """Return the result of a job.

        Args:
            result_id: Its id.

        Raises:
            TaskResultDoesNotExist: There is no such job, its result is no longer kept, or it is
                of a task that no installed application has.
        """
        try:
            job_id = parse_id(result_id)
            queues = self.app.queues_in(self.app.database or DEFAULT_DB_ALIAS)
            job = queues.find(job_id)
        except (BadInput, NotFound) as error:
            raise TaskResultDoesNotExist(result_id) from error
        if job.row is not None and job.outcome is None:
            result = self._of_row(job.row, job.status)
        else:
            assert job.outcome is not None, "it has a row or an outcome"
            result = self._of_outcome(job_id, job.outcome)
        if result is None:
            raise TaskResultDoesNotExist(result_id)
        return result

    def _of_row(self, job: Job, state: str) -> TaskResult | None:
        known = self.app.known_at(job.task)
        if known is None:
            return None
        call = results.call_of(job, *known.call.handler.read(job.codec, job.body))
        status = results.STATUS_OF.get(state, TaskResultStatus.FAILED)
        error, ended_us = read_epitaph(job.error), job.pos_us if state == "dead" else 0
        if state == "expired":  # no worker has ended it yet
            error, ended_us = (state, ""), read_options(job.opts).expires_us or 0
        return results.result_of(
            task_of(known.task, call),
            call,
            job.id,
            status,
            error=error,
            ended_us=ended_us,
            past=self._past(job.id, call.queue, job.errors + job.crashes),
        )

    def _past(self, job_id: JobId, queue: str, count: int) -> Sequence[Attempt]:
        """Return the attempts of a job that have ended, the first one first."""
        if not count:
            return ()
        most = HISTORY_ROWS_MAX
        attempts = attempts_of(self.app.engine, job_id, queue, limit=most, most=most).attempts
        # Not the other events of a history with all of them, and no attempt that does not count.
        counted = [attempt for attempt in attempts if attempt.worker and attempt.outcome in COUNTED]
        return counted[:count][::-1]

    def _of_outcome(self, job_id: JobId, outcome: Outcome) -> TaskResult | None:
        status = results.STATUS_OF.get(outcome.state, TaskResultStatus.FAILED)
        if outcome.state != "done":  # cancelled, expired or lost: the call is not kept
            unknown = Task(
                func=results.unknown_task, backend=self.alias, priority=0, queue_name="default",
                run_after=None,
            )  # fmt: skip
            error = (outcome.error or outcome.state, outcome.traceback)
            call, ended_us = results.UNKNOWN_CALL, outcome.ended_us
            return results.result_of(unknown, call, job_id, status, error=error, ended_us=ended_us)
        kept = results.read_call(
            decode_result(whole(self.app.queues.engine.blobs, outcome.value), Any)
        )
        known = self.app.known_at(kept.task) if kept else None
        if kept is None or known is None:
            return None
        past = self._past(job_id, kept.queue, kept.attempts - 1)
        own, ended_us = task_of(known.task, kept), outcome.ended_us
        return results.result_of(own, kept, job_id, status, ended_us=ended_us, past=past)

    def check(self, **kwargs: Any) -> Iterator[checks.CheckMessage]:  # noqa: ANN401
        """Yield what is wrong with the settings."""
        yield from super().check(**kwargs)
        yield from self._check_options()
        try:
            open_store(self.app.url).close()  # nothing connects
        except (ConfigError, ImproperlyConfigured, ConnectionDoesNotExist) as error:
            yield checks.Error(
                f"The store of TASKS[{self.alias!r}] is not configured: {error}",
                hint="Set OPTIONS['DATABASE'] or OPTIONS['STORE'], or DUELINE_STORE.",
                id="dueline.E001",
            )
        if not apps.is_installed("dueline.contrib.django"):
            yield checks.Warning(
                "Workers do not find the tasks of installed applications.",
                hint="Add 'dueline.contrib.django' to INSTALLED_APPS.",
                id="dueline.W001",
            )

    def _check_options(self) -> Iterator[checks.CheckMessage]:
        place = f"OPTIONS of TASKS[{self.alias!r}]"
        if unknown := [repr(name) for name in self.options if name not in OPTIONS]:
            yield checks.Error(
                f"{place} has unknown options: {', '.join(unknown)}.",
                hint=f"The options are {', '.join(OPTIONS)}.",
                id="dueline.E002",
            )
        retry = self.options.get("RETRY")
        if retry is not None and not isinstance(retry, Retry):
            yield checks.Error(
                f"RETRY in {place} must be a dueline.Retry (got {retry!r}).",
                hint="Use `Retry(attempts=5)`.",
                id="dueline.E003",
            )
        if self.options.get("DATABASE") and self.options.get("STORE"):
            yield checks.Error(
                f"{place} has both DATABASE and STORE.",
                hint="Use DATABASE if that PostgreSQL database is the store, otherwise STORE.",
                id="dueline.E004",
            )
