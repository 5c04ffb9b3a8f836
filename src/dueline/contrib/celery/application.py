"""The application with Celery's words."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn, TypeVar, overload

from dueline.api.task_declaration import task_name
from dueline.contrib.celery.calls import CallWords, Priorities, apps, current_app
from dueline.contrib.celery.result import AsyncResult
from dueline.contrib.celery.schedules import crontab
from dueline.contrib.celery.settings import Settings
from dueline.contrib.celery.signals import listen_in
from dueline.contrib.celery.task import CeleryTask, Signature, bound, signature
from dueline.contrib.celery.words import APP, SETTINGS, TASK, refuse, refuse_attribute
from dueline.contrib.schedule_sources.celery import timing_of
from dueline.contrib.schedule_sources.foreign_schedule import valid_name
from dueline.core.errors import BadInput
from dueline.core.retry import Retry
from dueline.jobs.queue import Queues

Decorated = TypeVar("Decorated")
Decorator = Callable[[Callable[..., Any]], Decorated]

_PERIODS: Final = {"": 1, "s": 1, "m": 60, "h": 3600}
_RATE: Final = re.compile(r"(\d+)(?:/([smh]))?")
_BROKERS: Final = ("redis", "rediss", "sentinel", "amqp", "amqps", "pyamqp", "sqs", "kafka")

_shared: "list[SharedTask]" = []


class Celery(CallWords):
    """An application with Celery's words; `dueline worker shop:app` runs its tasks.

    Args:
        main: Name of the application, for people.
        broker: URL of the store, such as "sqlite:///jobs.db"; None for DUELINE_STORE.
        include: Modules with tasks, which workers import.
        priorities: Whose order `priority=` has: of "redis", 0 is the highest, so n becomes -n; of
            "rabbitmq", the largest is, as in dueline. Without it, `priority=` is refused, since
            one of both orders would be reversed.
        **unknown: None; an error names what to use instead.

    Raises:
        BadInput: An argument has no counterpart.
    """

    def __init__(
        self,
        main: str = "",
        *,
        broker: str | None = None,
        include: Iterable[str] = (),
        priorities: Priorities | None = None,
        **unknown: object,
    ) -> None:
        refuse(unknown, {"backend": SETTINGS["result_backend"]}, "`Celery(...)`")
        if str(broker).partition(":")[0].partition("+")[0] in _BROKERS:
            hint = f"Use {SETTINGS['broker']}."
            raise BadInput("dueline needs no broker.", hint=hint)
        super().__init__(broker, include=include)
        self.main, self.conf, self.priorities = main, Settings(self), priorities
        self._named: dict[str, CeleryTask] = {}
        self._scheduled: set[str] = set()
        apps.append(self)
        listen_in(self)
        for shared in _shared:
            self._register(shared.function, **shared.options)

    # Tasks

    @property
    def has_tasks(self) -> bool:
        """Whether a task is registered."""
        return bool(self._named)

    @overload  # type: ignore[override]
    def task(self, function: Callable[..., Any], /) -> CeleryTask: ...
    @overload
    def task(self, **options: Any) -> Decorator[CeleryTask]: ...

    def task(self, *function: Callable[..., Any], **options: Any) -> Any:
        """Register a function as a task.

        Args:
            *function: The function, in `@app.task` without options.
            **options: bind, name, queue, priority, max_retries (3), default_retry_delay (180 s),
                autoretry_for, dont_autoretry_for, retry_kwargs, retry_backoff, retry_backoff_max
                (600 s), retry_jitter (True), rate_limit (across all workers), soft_time_limit,
                time_limit (in workers with child processes), expires, acks_late (always True) and
                ignore_result.

        Returns:
            The task, or a decorator that makes it.

        Raises:
            BadInput: An option has no counterpart.
        """
        if function:
            return self._register(*function, **options)
        return lambda function: self._register(function, **options)

    def _register(
        self, function: Callable[..., Any], *, name: str | None = None, **given: Any
    ) -> CeleryTask:
        own_name = task_name(function, name)
        return self.made(function, own_name, **self.conf.options_of(own_name, given))

    def made(
        self,
        function: Callable[..., Any],
        own_name: str,
        *,
        bind: bool = False,
        queue: str = "default",
        priority: int | None = None,
        max_retries: int | None = 3,
        default_retry_delay: float = 180,
        rate_limit: str | float | None = None,
        soft_time_limit: float | None = None,
        time_limit: float | None = None,
        acks_late: bool = True,
        reject_on_worker_lost: bool = True,
        ignore_result: bool = False,
        expires: float | None = None,
        **retrying: Any,
    ) -> CeleryTask:
        """Register a function as a task with these options; see `task`."""
        if max_retries is None:
            raise BadInput("Retries without end do not exist.", hint="Use max_retries=99.")
        if not acks_late or not reject_on_worker_lost:
            raise BadInput(
                "Jobs of a worker that dies run again, as with acks_late=True.",
                hint='Use app.queue("mail", deliver="at_most_once") and queue="mail".',
            )
        given = {**retrying.pop("retry_kwargs", {})}
        max_retries = given.pop("max_retries", max_retries)
        default_retry_delay = given.pop("countdown", default_retry_delay)
        refuse(given, {}, "`retry_kwargs`")
        made = CeleryTask(self)
        made.max_retries, made.default_retry_delay = max_retries, default_retry_delay
        made.ignore_result, made.expires = ignore_result, expires
        made.task = super().task(
            name=own_name,
            queue=queue,
            priority=self.priority_of(priority) or 0,
            retry=retry_of(max_retries + 1, default_retry_delay, **retrying),
            timeout=soft_time_limit,
            kill_after=time_limit,
            limits=self._rate_of(own_name, rate_limit),
        )(bound(made, function) if bind else function)
        self._named[own_name] = made
        return made

    def _rate_of(self, task: str, rate: str | float | None) -> list[str]:
        """Declare the rate of a task; return its limits."""
        if rate is None:
            return []
        match = _RATE.fullmatch(str(rate))
        if match is None:
            raise BadInput(f"`rate_limit` is {rate!r:.80}.", hint='Use "10/s", "10/m" or "10/h".')
        name = re.sub(r"[^a-z0-9_-]+", "-", f"rate-{task}".lower())[:63]
        self.rate(name, int(match[1]), per=_PERIODS[match[2] or ""], burst=1)  # evenly, as there
        return [name]

    def named(self, name: str) -> CeleryTask:
        """Return a task by its name; the code of another application need not be here."""
        self._import_included()
        made = self._named.get(name)
        if made is None:
            made = CeleryTask(self)
            made.task = self.unchecked(name)
        return made

    def autodiscover_tasks(
        self, packages: Sequence[str] | None = None, related_name: str = "tasks"
    ) -> None:
        """Include the modules called `tasks` of packages."""
        if packages is None:
            raise BadInput("The packages are not named.", hint='Use autodiscover_tasks(["shop"]).')
        for package in packages:
            self.discover(package, name=related_name)

    # Calls

    def send_task(
        self,
        name: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> AsyncResult:
        """Enqueue a call of a task by its name."""
        return self.named(name).apply_async(args, kwargs, **options)

    def AsyncResult(self, id: str) -> AsyncResult:  # noqa: A002, N802  (Celery's names)
        """Return the result of a task or workflow by its id."""
        return AsyncResult(id, self)

    def signature(self, task: str, *args: Any, **options: Any) -> Signature:
        """Return a call of a task by its name."""
        return signature(task, *args, app=self, **options)

    # Schedules

    def add_periodic_task(
        self,
        schedule: object,
        sig: Signature,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        **options: Any,
    ) -> None:
        """Run a task on a schedule."""
        call = sig.clone(args, kwargs or {})
        cron = {"cron": schedule.expression} if isinstance(schedule, crontab) else None
        timing = cron or timing_of(schedule)
        using = call.task.using(**self.call_options(**{**call.options, **options}))
        arguments: Any = call.args
        if call.kwargs:
            arguments = call.task.task.handler.arguments.named(call.args, call.kwargs)
        self.schedule(
            valid_name(name or call.task.name),
            using,
            arguments,
            **timing,
            tz=self.conf.timezone if "cron" in timing else "UTC",
            catch_up="last",  # as beat does after it was down
        )

    def declare(self, queues: Queues) -> None:
        """Store what the application declared before the first use."""
        self.declare_beat()
        super().declare(queues)

    def declare_beat(self) -> None:
        """Declare the schedules of `app.conf.beat_schedule`."""
        self._import_included()
        for name, entry in self.conf.beat_schedule.items():
            if name in self._scheduled:
                continue
            self._scheduled.add(name)
            given = dict(entry)
            self.task_named(given["task"])  # must be here: a misspelled one would never run
            call = signature(given.pop("task"), app=self)
            options = given.pop("options", {})
            args, kwargs = given.pop("args", None) or (), given.pop("kwargs", None)
            timing = given.pop("schedule")
            refuse(given, {"relative": "a cron expression"}, "A schedule")
            self.add_periodic_task(timing, call, args, kwargs, name=name, **options)

    def __getattr__(self, name: str) -> NoReturn:
        refuse_attribute(name, APP, "The application")


class SharedTask:
    """A task of the application that was created last; `shared_task` makes it."""

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        self.function, self.options = function, options
        self.name = task_name(function, options.get("name"))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function in this process; nothing is stored."""
        return current_app().named(self.name)(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(current_app().named(self.name), name)


@overload
def shared_task(function: Callable[..., Any], /) -> SharedTask: ...
@overload
def shared_task(**options: Any) -> Decorator[SharedTask]: ...


def shared_task(*function: Callable[..., Any], **options: Any) -> Any:
    """Register a function as a task of every application; options as those of `app.task`."""

    def share(function: Callable[..., Any]) -> SharedTask:
        shared = SharedTask(function, options)
        _shared.append(shared)
        for app in apps:
            app.task(function, **options)
        return shared

    return share(*function) if function else share


def retry_of(
    attempts: int,
    delay: float,
    *,
    autoretry_for: Sequence[type[BaseException]] = (),
    dont_autoretry_for: Sequence[type[BaseException]] = (),
    retry_backoff: float = False,
    retry_backoff_max: float = 600,
    retry_jitter: bool = True,
    **unknown: object,
) -> Retry:
    """Return the policy of options of a task. Without `autoretry_for`, no exception is retried."""
    refuse(unknown, TASK, "`app.task`")
    kinds: dict[str, Any] = {"on": tuple(autoretry_for), "unless": tuple(dont_autoretry_for)}
    if not retry_backoff:
        return Retry.fixed(delay, attempts=attempts, **kinds)
    base = max(1.0, float(retry_backoff))
    return Retry(attempts, base=base, cap=retry_backoff_max, jitter=float(retry_jitter), **kinds)
