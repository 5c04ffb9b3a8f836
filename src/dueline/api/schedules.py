"""Schedules of an application, and its methods that declare them."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Never, TypeVar

from dueline.api.code_changes import recorded_change
from dueline.api.connection import Connection
from dueline.api.job_handle import Job
from dueline.api.task import Using
from dueline.api.task_declaration import as_call
from dueline.core.clock import Clock, asked_instant_us, asked_span_us, to_datetime
from dueline.core.constraints import check_value, integer
from dueline.core.errors import BadInput
from dueline.jobs.queue import Queues
from dueline.schedules import scheduler
from dueline.schedules.schedule import (
    CATCH_UP,
    NICKNAMES,
    TIMES_MAX,
    CatchUp,
    Overlap,
    Schedule,
    Template,
    Timing,
    check,
    check_name,
    coming,
)
from dueline.tasks.familiar_words import SCHEDULE_OPTIONS, check_options

_Count = Annotated[int, integer(1, TIMES_MAX)]
AnyTask = TypeVar("AnyTask", bound=Using[..., Any])


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """A stored schedule.

    Attributes:
        name: Name of the schedule.
        task: Name of the task that it runs.
        queue: Queue of the jobs.
        cron: Cron expression; empty for an interval.
        tz: Time zone of the cron expression.
        every: Interval; None for a cron expression or a single occurrence.
        last: Last occurrence at the latest, in UTC; None without an end.
        next: Next occurrence in UTC; None while the schedule is paused, and after its end.
        is_paused: Whether it is paused.
        has_ended: Whether it has no more occurrences.
        stored: Number of jobs so far.
        skipped: Number of occurrences without a job so far.
    """

    name: str
    task: str
    queue: str
    cron: str
    tz: str
    every: timedelta | None
    last: datetime | None
    next: datetime | None
    is_paused: bool
    stored: int
    skipped: int
    has_ended: bool = False


class Schedules:
    """The schedules of an application and its store: `app.schedules`."""

    def __init__(self, host: Connection) -> None:
        self._host = host
        self._declared: dict[str, tuple[Template, Timing]] = {}

    def declare(self, name: str, template: Template, timing: Timing) -> None:
        """Declare a schedule; store it if the store is open.

        Raises:
            BadInput: The application declares another schedule of this name.
        """
        if name in self._declared:
            raise BadInput(f"Two schedules are named {name}.", hint="Give one another name.")
        self._declared[name] = (template, timing)
        if self._host.is_open:
            scheduler.put(self._host.queues, name, template, timing)

    def store(self, queues: Queues) -> None:
        """Store the declared schedules."""
        for name, (template, timing) in self._declared.items():
            scheduler.put(queues, name, template, timing)

    def set(
        self,
        name: str,
        task: Using[..., Any],
        args: Sequence[Any] | Mapping[str, Any] = (),
        *,
        cron: str | None = None,
        every: timedelta | float | None = None,
        at: datetime | None = None,
        tz: str = "UTC",
        start: datetime | None = None,
        until: datetime | None = None,
        count: int | None = None,
        jitter: timedelta | float | None = None,
        catch_up: CatchUp = "skip",
        catch_up_max: int = CATCH_UP,
        overlap: Overlap = "allow",
        **unknown: Never,
    ) -> ScheduleInfo:
        """Create or change a schedule now, while the application runs.

        It is stored at once, next to the schedules that the code declares with `app.schedule` and
        `app.cron`, and stays until `remove` or a week after its end. A paused schedule stays
        paused.

        Args:
            name: Name of the schedule; not one that the code declares.
            task: As in `app.schedule`, like all arguments that are not listed here.
            args: Arguments of the task, in order or by name.
            cron: Cron expression.
            every: Interval of at least one second.
            tz: Time zone of the cron expression.
            at: The only occurrence; later than now.
            start: Instant from which intervals count.
            until: Instant after which there are no occurrences.
            count: Maximum number of occurrences.
            jitter: Starts are spread evenly over this duration after each occurrence.
            catch_up: Which missed occurrences run.
            catch_up_max: Maximum number of missed occurrences that run.
            overlap: What happens while the previous job still waits or runs.
            **unknown: None; an error names the option that was meant.

        Returns:
            The schedule as it is stored.

        Raises:
            BadInput: A value is out of range, the arguments do not fit the task, or the code
                declares this schedule. Nothing was written.
        """
        _check_known(unknown, self.set)
        if name in self._declared:
            raise BadInput(
                f"The schedule {name} is declared in code.", hint="Use another name, or change it."
            )
        timing = timing_of(
            cron, every, at=at, tz=tz, start=start, until=until, count=count,
            catch_up=catch_up, catch_up_max=catch_up_max, overlap=overlap,
        )  # fmt: skip
        if at is not None and timing.at_us <= self._host.engine.time.latest_us():
            raise BadInput(f"`at` has passed ({at}).", hint="Use a later time.")
        template = _with_jitter(task, jitter).recurring(*as_call(args))
        scheduler.put(self._host.queues, name, template, timing, is_dynamic=True)
        return self.get(name)

    def get(self, name: str) -> ScheduleInfo:
        """Return a stored schedule.

        Args:
            name: Name of the schedule.

        Raises:
            NotFound: No schedule has this name.
        """
        engine = self._host.engine
        return _info(name, scheduler.find(engine, name), engine.time.latest_us())

    def list(self) -> Sequence[ScheduleInfo]:
        """Return the stored schedules by name, of this application and of others."""
        engine = self._host.engine
        now_us = engine.time.latest_us()
        return [
            _info(schedule.name, schedule.schedule, now_us)
            for schedule in scheduler.all_schedules(engine)
        ]

    def names(self) -> Sequence[str]:
        """Return the names of the stored schedules."""
        return [schedule.name for schedule in scheduler.all_schedules(self._host.engine)]

    def next(self, name: str, count: int = 1) -> Sequence[datetime]:
        """Return the next occurrences of a schedule in UTC; none while it is paused.

        Args:
            name: Name of the schedule.
            count: Maximum number of occurrences.

        Raises:
            NotFound: No schedule has this name.
        """
        engine = self._host.engine
        times = coming(scheduler.find(engine, name), engine.time.latest_us(), count)
        return [to_datetime(us) for us in times]

    def pause(self, name: str) -> None:
        """Pause a schedule: it creates no jobs until it is resumed.

        Args:
            name: Name of the schedule.

        Raises:
            NotFound: No schedule has this name.
        """
        with recorded_change(self._host.queues, "pause schedule", name):
            scheduler.pause(self._host.queues, name)

    def resume(self, name: str) -> None:
        """Resume a schedule at its next occurrence; occurrences of the pause are skipped.

        Args:
            name: Name of the schedule.

        Raises:
            NotFound: No schedule has this name.
        """
        with recorded_change(self._host.queues, "resume schedule", name):
            scheduler.resume(self._host.queues, name)

    def remove(self, name: str) -> None:
        """Delete a schedule; the next process that declares it stores it again.

        Args:
            name: Name of the schedule.

        Raises:
            NotFound: No schedule has this name.
        """
        with recorded_change(self._host.queues, "remove schedule", name):
            scheduler.remove(self._host.queues, name)
        self._declared.pop(name, None)

    def trigger(self, name: str) -> Job[Any]:
        """Enqueue one job of a schedule now, in addition to its occurrences.

        Args:
            name: Name of the schedule.

        Returns:
            A handle on the job.

        Raises:
            NotFound: No schedule has this name.
        """
        queues = self._host.queues
        with recorded_change(queues, "trigger schedule", name):
            job_id = scheduler.trigger(queues, name).id
        return Job(job_id, queues, self._host.clock)


def timing_of(
    cron: str | None,
    every: timedelta | float | None,
    *,
    at: datetime | None = None,
    tz: str,
    start: datetime | None = None,
    until: datetime | None = None,
    count: int | None = None,
    **policies: Any,  # noqa: ANN401
) -> Timing:
    """Return the checked timing of these arguments of `app.schedule`."""
    every_us = 0 if every is None else asked_span_us(every, "every")
    start_us, at_us, until_us = (
        0 if instant is None else asked_instant_us(instant, name)
        for name, instant in (("start", start), ("at", at), ("until", until))
    )
    if start is not None and not every_us:
        raise BadInput(
            "`start` counts intervals: it applies to `every` only.",
            hint="Call `app.schedules.set` when the schedule starts.",
        )
    if until_us and start_us > until_us:
        raise BadInput(
            f"`start` is after `until` ({until}), so the schedule would never run.",
            hint="Use an earlier start or a later end.",
        )
    if count is not None:
        check_value(count, _Count, "count")
    if at is not None:  # a single time is not worth less because no worker ran then
        policies["catch_up"] = "last"
    timing = Timing(
        NICKNAMES.get(cron, cron) if cron else "", tz, every_us, start_us, at_us=at_us,
        until_us=until_us, times=count or 0, **policies,
    )  # fmt: skip
    check(timing)
    return timing


def _check_known(unknown: Mapping[str, object], method: Callable[..., object]) -> None:
    if unknown:
        own = inspect.signature(method).parameters
        check_options(unknown, SCHEDULE_OPTIONS, own, f"`{method.__name__}`")


def _with_jitter(task: object, jitter: timedelta | float | None) -> Using[..., Any]:
    if not isinstance(task, Using):
        raise BadInput(
            f"`task` must be a task (got {task!r:.80}).",
            hint='Use app.task_named("shop.send"); without its code, app.unchecked("shop.send").',
        )
    return task if jitter is None else task.using(window=jitter)


def _info(name: str, schedule: Schedule, now_us: int) -> ScheduleInfo:
    timing, times = schedule.timing, coming(schedule, now_us, 1)
    return ScheduleInfo(
        name,
        schedule.template.task,
        schedule.template.queue,
        timing.cron,
        timing.zone,
        timedelta(microseconds=timing.every_us) if timing.every_us else None,
        to_datetime(timing.end_us) if timing.end_us else None,
        to_datetime(times[0]) if times else None,
        schedule.is_paused,
        schedule.stored,
        schedule.skipped,
        schedule.has_ended(now_us),
    )


class ScheduleMethods(Connection):
    """Methods of an application that declare schedules."""

    def __init__(self, url: str | None = None, *, clock: Clock | None = None) -> None:
        super().__init__(url, clock=clock)
        self._schedules = Schedules(self)

    @property
    def schedules(self) -> Schedules:
        """The stored schedules: list, pause, resume, remove and trigger them."""
        return self._schedules

    def schedule(
        self,
        name: str,
        task: Using[..., Any],
        args: Sequence[Any] | Mapping[str, Any] = (),
        *,
        cron: str | None = None,
        every: timedelta | float | None = None,
        at: datetime | None = None,
        tz: str = "UTC",
        start: datetime | None = None,
        until: datetime | None = None,
        count: int | None = None,
        jitter: timedelta | float | None = None,
        catch_up: CatchUp = "skip",
        catch_up_max: int = CATCH_UP,
        overlap: Overlap = "allow",
        **unknown: Never,
    ) -> None:
        """Run a task on a schedule.

        Each occurrence creates exactly one job, no matter how many processes declare the
        schedule. The schedule is stored when the store is first used, or immediately if it is
        open. A stored schedule of this name is updated; its waiting jobs are withdrawn.

        Args:
            name: Name of the schedule.
            task: A task, or `task.using(...)` with queue, priority, tenant, tags, window, and
                `expires` as a duration.
            args: Arguments of the task, in order or by name.
            cron: Cron expression such as "30 3 * * mon-fri" or "@daily", read as Debian's
                cron reads it.
            every: Interval of at least one second; a timedelta or seconds.
            at: The only occurrence. It runs late if no worker runs then.
            tz: Time zone of the cron expression.
            start: Instant from which intervals count; by default the first time it is stored.
            until: Instant after which there are no occurrences.
            count: Maximum number of occurrences, from the first time it is stored; those that
                are skipped count.
            jitter: Starts are spread evenly over this duration after each occurrence; the same as
                `task.using(window=...)`.
            catch_up: Which occurrences run that were missed by more than a minute: "skip" (none),
                "last", or "all" (the last `catch_up_max`).
            catch_up_max: Maximum number of missed occurrences that run.
            overlap: What happens while the previous job still waits or runs: "allow" (create the
                job), "skip" (create none), "wait" (create one job when the previous one has
                ended; further occurrences create none), or "replace" (cancel the previous job,
                and create the latest one once it has ended).
            **unknown: None; an error names the option that was meant.

        Raises:
            BadInput: A value is out of range, the arguments do not fit the task, or the
                application declares two schedules of this name.
        """
        _check_known(unknown, self.schedule)
        check_name(name)
        timing = timing_of(
            cron, every, at=at, tz=tz, start=start, until=until, count=count,
            catch_up=catch_up, catch_up_max=catch_up_max, overlap=overlap,
        )  # fmt: skip
        template = _with_jitter(task, jitter).recurring(*as_call(args))
        self._schedules.declare(name, template, timing)

    def cron(
        self,
        expression: str,
        *,
        name: str | None = None,
        tz: str = "UTC",
        until: datetime | None = None,
        count: int | None = None,
        jitter: timedelta | float | None = None,
        catch_up: CatchUp = "skip",
        catch_up_max: int = CATCH_UP,
        overlap: Overlap = "allow",
    ) -> Callable[[AnyTask], AnyTask]:
        """Run a task without arguments by a cron expression.

        Write `@app.cron("0 3 * * *")` above `@app.task`.

        Args:
            expression: Cron expression such as "30 3 * * mon-fri".
            name: Name of the schedule; by default the name of the task.
            tz: Time zone of the expression.
            until: Instant after which there are no occurrences.
            count: Maximum number of occurrences; see `schedule`.
            jitter: Starts are spread evenly over this duration after each occurrence.
            catch_up: Which missed occurrences run; see `schedule`.
            catch_up_max: Maximum number of missed occurrences that run.
            overlap: What happens while the previous job still waits or runs; see `schedule`.

        Returns:
            A decorator that returns the task unchanged.

        Raises:
            BadInput: A value is out of range, or the decorated object is not a task.
        """

        def declare(task: AnyTask) -> AnyTask:
            if not isinstance(task, Using):
                name_of = getattr(task, "__qualname__", repr(task))
                raise BadInput(
                    f"{name_of} is not a task.", hint="Write @app.task below @app.cron(...)."
                )
            self.schedule(
                name or task.recurring().task,
                task,
                cron=expression,
                tz=tz,
                until=until,
                count=count,
                jitter=jitter,
                catch_up=catch_up,
                catch_up_max=catch_up_max,
                overlap=overlap,
            )
            return task

        return declare

    def declare(self, queues: Queues) -> None:
        """Store the schedules that were declared before the first use."""
        super().declare(queues)
        self._schedules.store(queues)
