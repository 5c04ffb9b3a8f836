"""What the pages need: the application, its read models, and what is hidden."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, TypeVar, cast

from prometheus_client import CollectorRegistry
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse

from dueline.admin.cached_value import CachedValue
from dueline.admin.health import Report
from dueline.admin.metrics import StoreMetrics
from dueline.admin.operations import Operations
from dueline.admin.read_models import Admin
from dueline.admin.redrives import PacedRedrive, Redrive
from dueline.admin.schedule_runs import ScheduleRun
from dueline.admin.search import JobFilter
from dueline.admin.task_views import TaskSummary
from dueline.admin.timeline import Timeline
from dueline.api.application import Dueline
from dueline.api.claim_sessions import ClaimSessions
from dueline.api.connection import silence_in
from dueline.core.actor import actor_of
from dueline.core.clock import SECOND_US
from dueline.core.errors import DuelineError, StoreUnavailable
from dueline.core.logging import log
from dueline.web.redaction import Redaction
from dueline.web.security import Identity, Role

T = TypeVar("T")

REPORT_US = 60 * SECOND_US
"""Age of the checks of the store after which they run again."""

TIMELINE_US = 10 * SECOND_US
"""Age of the timeline after which it is read again."""

TASKS_US = 5 * SECOND_US
"""Age of what is known of tasks and of runs of schedules after which it is read again."""


@dataclass(slots=True)
class Site:
    """A dashboard over one application.

    Attributes:
        app: The application; its store is opened by the first request.
        redaction: What of arguments and results is not shown.
        title: Name of the store on all pages.
        tasks: Application whose tasks name the arguments; None for the same.
    """

    app: Dueline
    redaction: Redaction
    title: str
    tasks: Dueline | None = None
    _admin: Admin | None = None
    _claims: ClaimSessions | None = None
    _metrics: CollectorRegistry | None = None
    _values: dict[str, CachedValue[Any]] = field(default_factory=dict)
    _lock: Any = field(default_factory=threading.RLock)

    @property
    def producer(self) -> Dueline:
        """The application that enqueues."""
        return self.tasks or self.app

    @property
    def admin(self) -> Admin:
        """The read models, which share what they read between requests."""
        with self._lock:
            if self._admin is None or self._admin.engine is not self.app.engine:
                self._admin, self._metrics, self._values = self.app.admin, None, {}
            return self._admin

    @property
    def claims(self) -> ClaimSessions:
        """The claims of programs."""
        with self._lock:
            engine = self.app.engine
            if self._claims is None or self._claims.engine is not engine:
                producer = self.producer
                self._claims = ClaimSessions(engine, producer.tasks, producer.hooks)
            return self._claims

    def silence(self) -> StoreUnavailable | None:
        """Return the error of a disk that does not answer; None if it does."""
        return silence_in(self.app) or silence_in(self.producer)

    def now_us(self) -> int:
        """Return the store's time, in microseconds UTC."""
        return self.admin.engine.time.latest_us()

    def metrics(self) -> CollectorRegistry:
        """Return the gauges of the store, which are kept for some seconds."""
        with self._lock:
            engine = self.admin.engine
            if self._metrics is None:
                self._metrics = CollectorRegistry()
                self._metrics.register(StoreMetrics(engine))
            return self._metrics

    def timeline(self) -> Timeline | None:
        """Return a timeline that is some seconds old at most; None while the first is read."""
        return self._kept("timeline", self.admin.timeline).get(TIMELINE_US)

    def task_summaries(self) -> Sequence[TaskSummary] | None:
        """Return the tasks as they were some seconds ago; None while they are first read."""
        return self._kept("tasks", self.admin.tasks).get(TASKS_US)

    def last_runs(self) -> Mapping[str, ScheduleRun]:
        """Return the last runs of schedules as they were some seconds ago."""
        return self._kept("last runs", self.admin.last_runs).get(TASKS_US) or {}

    def report(self) -> Report | None:
        """Return checks of the store that are minutes old at most; None while they run."""
        return self._kept("report", self.admin.health).get(REPORT_US)

    def _kept(self, name: str, read: Callable[[], T]) -> CachedValue[T]:
        with self._lock:
            if name not in self._values:
                self._values[name] = CachedValue(read, self.admin.engine.clock)
            return self._values[name]

    def parameters(self, task: str) -> Sequence[str]:
        """Return the parameters that callers of a task pass by position; none if it is unknown."""
        handler = self.producer.tasks.get(task)
        if handler is None:
            return ()
        names = list(signature(handler.body).parameters)
        return names[int(handler.takes_context) :]

    def path_of(self, request: Request) -> str:
        """Return the path of a request below the dashboard."""
        path: str = request.scope["path"]
        return path.removeprefix(request.scope.get("root_path", ""))


REDRIVE_COUNTED_MAX = 20_000
"""Maximum number of jobs that are counted before a redrive begins."""


def begin_redrive(change: Operations, like: JobFilter, written: str, rate: float) -> Redrive:
    """Begin a redrive, which a thread of this process runs; resumable if the process ends.

    Raises:
      Conflict: It runs already.
    """
    paced = change.paced_redrive(like, written, rate, count_max=REDRIVE_COUNTED_MAX)
    change.begin_redrive(paced)
    threading.Thread(target=_redrive, args=(paced,), name="dueline-redrive", daemon=True).start()
    return paced.redrive


def _redrive(paced: PacedRedrive) -> None:
    try:
        for _ in paced.run():
            pass
    except DuelineError as error:
        log.warning("a redrive is interrupted: %s", error)
    except Exception:  # noqa: BLE001  (the application was closed, for example)
        log.info("a redrive is interrupted", exc_info=True)


def site_of(request: Request) -> Site:
    """Return the dashboard that a request is for."""
    return cast("Site", request.app.state.site)


def operations(request: Request, role: Role = "operator") -> Operations:
    """Return the changes that the sender of a request may make.

    Raises: HTTPException: the role of the sender is lower.
    """
    identity: Identity = request.scope["dueline.identity"]
    if not identity.may(role):
        raise HTTPException(403, f"This needs the role {role}; yours is {identity.role}.")
    return site_of(request).admin.operations(actor_of(identity.name, "dashboard"))


def form_of(request: Request) -> dict[str, str]:
    """Return the fields of a form."""
    return cast("dict[str, str]", request.scope["dueline.form"])


def back(request: Request, path: str, notice: str, count: int = 1) -> RedirectResponse:
    """Return a redirection to a page, which says what was done."""
    sign = "&" if "?" in path else "?"
    base = request.scope.get("root_path", "")
    return RedirectResponse(f"{base}{path}{sign}notice={notice}&n={count}", 303)
