"""The dueline application of a backend, which all threads of a process share."""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, cast
from urllib.parse import quote, urlencode

import msgspec
from django.core.exceptions import ImproperlyConfigured
from django.db import close_old_connections, connections

from dueline.api.application import Dueline
from dueline.api.job_handle import parse_id
from dueline.api.task import AsyncTask, Task
from dueline.contrib.django import contract
from dueline.contrib.django.attempt import handler_of
from dueline.contrib.django.results import UNKNOWN_CALL, result_of
from dueline.core.errors import BadInput
from dueline.core.ids import Ids
from dueline.core.job import JobId
from dueline.core.retry import POISON, Retry
from dueline.core.store import Migratable
from dueline.jobs.queue import Queues
from dueline.jobs.transaction import Transaction
from dueline.tasks.handler import Handler
from dueline.tasks.hooks import SettleEvent
from dueline.worker.context_controls import BY_FORCE, CANCELLED, LEFT_RUNNING

ONE_ATTEMPT = Retry(attempts=1)
"""By default a task that raises has failed, as with the other backends of Django."""

TEST_STORE = "memory://"
"""Store of tests, unless it is Django's own database: they must not reach that of the settings."""

WITHOUT_HANDLER = (CANCELLED, BY_FORCE, LEFT_RUNNING)
"""Errors of cancelled jobs whose handlers did not ask for that."""


class Known(NamedTuple):
    """A task of Django, and of dueline, which runs its function."""

    task: contract.Task
    call: Task[..., Any] | AsyncTask[..., Any]


class DjangoApplication(Dueline):
    """The application of one backend in TASKS; `task_backends["default"].app` is it.

    Args:
        alias: Alias of the backend.
        options: Its OPTIONS.
        queues: Its QUEUES.

    Raises:
        ImproperlyConfigured: A name in QUEUES cannot be a queue.
    """

    def __init__(self, alias: str, options: Mapping[str, Any], queues: Iterable[str]) -> None:
        super().__init__(options.get("STORE"))
        self.place = f"dueline.contrib.django.worker:{alias}"
        self.database: str | None = options.get("DATABASE")
        self._retry = options.get("RETRY", ONE_ATTEMPT)
        self.is_tested = False
        self._known: dict[str, Known] = {}
        self._adding = threading.Lock()
        for name in queues:
            try:
                self.queue(name)
            except BadInput as error:
                place = f"QUEUES of TASKS[{alias!r}]"
                raise ImproperlyConfigured(f"{place}: {error}") from error
        self.on("expired")(self._send_finished)
        self.on("lost")(self._send_finished)
        self.on("cancelled")(self._send_if_unhandled)
        self.on("dead")(self._send_if_unhandled)

    @property
    def url(self) -> str:  # read anew: tests have another database
        """The URL of the store: of Django's own database if DATABASE names one.

        Tests use a test database as Django does, and otherwise a store in memory.
        """
        if self.database is None or self._url is not None:
            return TEST_STORE if self.is_tested else super().url
        return url_of(connections[self.database].settings_dict)

    def reset(self, *, is_tested: bool) -> None:
        """Close the store; the next call opens that of the tests, or that of the settings."""
        self.close()
        self._forget()
        self._is_closed, self.is_tested = False, is_tested

    def queues_in(self, alias: str) -> Queues:
        """Return the queues as the transaction sees them that is open on a database of Django."""
        connection = connections[alias]
        if alias == self.database and connection.in_atomic_block:
            return self.join(connection).queues_of(self)
        return self.queues

    def migrate(self) -> None:
        """Create or update the tables of the store, as `dueline migrate` does."""
        other = Dueline(self.url)  # whose connections are closed: tests drop their database
        try:
            store = other.store
            if isinstance(store, Migratable):
                store.migrate()
            other.engine.catalog.upgrade()
        finally:
            other.close()

    def known(self, task: contract.Task) -> Known:
        """Return a task of Django as the application runs it; it is registered at first."""
        path = task.module_path
        with self._adding:
            if path not in self._known:
                register = self.task(
                    name=path,
                    queue=task.queue_name,
                    retry=getattr(task, "retry", None) or self._retry,
                    timeout=getattr(task, "timeout", None),
                    kill_after=getattr(task, "kill_after", None),
                )
                self._known[path] = Known(task, register(handler_of(task, self._handler_of)))
            return self._known[path]

    def _send_finished(self, event: SettleEvent) -> None:
        """Send `task_finished` for a job that ended although no handler returned or raised."""
        known = self.known_at(event.task)
        if known is None:
            return
        result = result_of(
            known.task,
            msgspec.structs.replace(UNKNOWN_CALL, task=event.task, queue=event.queue),
            parse_id(event.job_id),
            contract.TaskResultStatus.FAILED,
            error=(event.error, ""),
            ended_us=self.engine.time.latest_us(),
        )
        close_old_connections()
        contract.task_finished.send_robust(type(known.task.get_backend()), task_result=result)
        close_old_connections()

    def _send_if_unhandled(self, event: SettleEvent) -> None:
        """Send it unless a handler has asked for this end, which sends the signal itself."""
        if event.error in WITHOUT_HANDLER or event.error.startswith(POISON):
            self._send_finished(event)

    def _handler_of(self, task: contract.Task) -> Handler:
        return self._tasks[task.module_path]

    def known_at(self, path: str) -> Known | None:
        """Return a task by the path of its function; None if no installed application has it."""
        if path not in self._known:
            self._import_included()
        return self._known.get(path)

    def join(self, tx: object, *queues: str) -> Transaction:
        """Return the transaction that was passed as `tx=`; see `Reserved`."""
        if isinstance(tx, Reserved):
            return cast("Transaction", tx)
        return super().join(tx, *queues)


class Reserved:
    """A `tx=` under which a job is enqueued with an id that was returned to the caller before.

    Args:
        job_id: The id.
    """

    def __init__(self, job_id: JobId) -> None:
        self._job_id = job_id

    def queues_of(self, app: Dueline) -> Queues:
        """Return the queues of the application; they give the next job this id."""
        self.token = app.engine.ids.token
        return Queues(replace(app.engine, ids=cast("Ids", self)), lends=False)

    def many(self, _count: int, _now_us: int) -> list[JobId]:
        """Return the id, as `Ids` does for one job."""
        return [self._job_id]


def url_of(settings: Mapping[str, Any]) -> str:
    """Return the URL of the store in a database of Django.

    Args:
        settings: Its entry of DATABASES.

    Raises:
        ImproperlyConfigured: It is not PostgreSQL, or names what a URL cannot.
    """
    if "postgresql" not in settings["ENGINE"]:
        raise ImproperlyConfigured(
            "OPTIONS['DATABASE'] must be PostgreSQL; use OPTIONS['STORE'] with another database."
        )
    options = {
        name: value
        for name, value in settings.get("OPTIONS", {}).items()
        if isinstance(value, str | int) and name not in ("pool", "isolation_level", "assume_role")
    }
    host = settings["HOST"]
    if host.startswith("/"):
        options["host"], host = host, ""
    user = quote(settings["USER"], safe="")
    if settings["PASSWORD"]:
        user += ":" + quote(settings["PASSWORD"], safe="")
    port = f":{settings['PORT']}" if settings["PORT"] else ""
    query = f"?{urlencode(options)}" if options else ""
    return f"postgresql://{user}{'@' if user else ''}{host}{port}/{quote(settings['NAME'])}{query}"


_applications: dict[str, DjangoApplication] = {}
_opening = threading.Lock()


def application_of(alias: str, params: Mapping[str, Any]) -> DjangoApplication:
    """Return the application of a backend; Django makes a backend for each thread.

    Args:
        alias: Alias of the backend.
        params: Its entry of TASKS.
    """
    options, queues = params.get("OPTIONS", {}), sorted(params.get("QUEUES", ["default"]))
    key = repr((alias, sorted(options.items(), key=str), queues))
    with _opening:
        if key not in _applications:
            _applications[key] = DjangoApplication(alias, options, queues)
        return _applications[key]
