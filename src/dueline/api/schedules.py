"""Schedules of an application."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from dueline.api.connection import Connection
from dueline.api.job_handle import Job
from dueline.api.task import Using
from dueline.api.task_declaration import as_call
from dueline.core.clock import asked_instant_us, asked_span_us, to_datetime
from dueline.core.errors import BadInput
from dueline.jobs.queue import Queues
from dueline.schedules import scheduler
from dueline.schedules.schedule import (
    CATCH_UP,
    CatchUp,
    Overlap,
    Template,
    Timing,
    check,
    check_name,
    coming,
)

AnyTask = TypeVar("AnyTask", bound=Using[..., Any])


class Recurring:
    """Calls that recur: declared in code, kept in the store, seen to by any worker."""

    def __init__(self, host: Connection) -> None:
        """Take the application; opens nothing."""
        self._host = host
        self._declared: dict[str, tuple[Template, Timing]] = {}

    def schedule(
        self,
        name: str,
        task: Using[..., Any],
        args: Sequence[Any] | Mapping[str, Any] = (),
        *,
        cron: str | None = None,
        every: timedelta | float | None = None,
        tz: str = "UTC",
        start: datetime | None = None,
        catch_up: CatchUp = "skip",
        catch_up_max: int = CATCH_UP,
        overlap: Overlap = "allow",
    ) -> None:
        """Have a task called again and again, each time once, however many processes say so.

        Stored under its name at the first use of the store; what is stored there otherwise is
        changed, and jobs of its former shape that wait for their time are withdrawn.

        Args:
          task: a task, or `task.using(...)`: queue, priority, tenant, tags, window, and how long
            after its time a job is not run any more (`expires`, as a length of time).
          args: its arguments, in order or by name.
          cron: such as "30 3 * * mon-fri", as Debian's cron reads it. every: the interval; one
            second at least. tz: the time zone of the cron expression.
          start: where intervals are counted from; by default when it is stored first.
          catch_up: which times are made up for that were missed by more than a minute, while no
            worker ran: "skip" (none), "last" or "all", the last `catch_up_max` of them.
          overlap: what becomes of a time that comes while the job before it still waits or runs:
            "allow" (a job all the same), "skip" (none), "wait" (one, when that has ended; one
            time waits, and those behind it make none) or "replace" (that job is cancelled, and
            once it has ended the last such time makes one).

        Raises: BadInput: something is out of range, or the arguments do not fit.
        """
        check_name(name)
        every_us = 0 if every is None else asked_span_us(every, "every")
        start_us = 0 if start is None else asked_instant_us(start, "start")
        timing = Timing(cron or "", tz, every_us, start_us, catch_up, catch_up_max, overlap)
        check(timing)
        template = task.recurring(*as_call(args))
        if name in self._declared:
            raise BadInput(f"Two schedules are named {name}.", hint="Give one another name.")
        self._declared[name] = (template, timing)
        if self._host.is_open:
            scheduler.put(self._host.queues, name, template, timing)

    def cron(
        self,
        expression: str,
        *,
        name: str | None = None,
        tz: str = "UTC",
        catch_up: CatchUp = "skip",
        catch_up_max: int = CATCH_UP,
        overlap: Overlap = "allow",
    ) -> Callable[[AnyTask], AnyTask]:
        """Have a task without arguments called by a cron expression: `@app.cron("0 3 * * *")`.

        It stands above `@app.task`. Args: as `schedule`; the task's name by default.
        """

        def declare(task: AnyTask) -> AnyTask:
            if not isinstance(task, Using):
                raise BadInput("A cron expression stands above @app.task, not below it.")
            self.schedule(
                name or task.recurring().task,
                task,
                cron=expression,
                tz=tz,
                catch_up=catch_up,
                catch_up_max=catch_up_max,
                overlap=overlap,
            )
            return task

        return declare

    def store(self, queues: Queues) -> None:
        """Store what was declared before the engine was used."""
        for name, (template, timing) in self._declared.items():
            scheduler.put(queues, name, template, timing)

    # What is stored

    def names(self) -> list[str]:
        """List the schedules of the store."""
        return [one.name for one in scheduler.everything(self._host.engine)]

    def next(self, name: str, count: int = 1) -> list[datetime]:
        """Tell the next times of a schedule, UTC; none while it is paused.

        Raises: NotFound: there is none of the name.
        """
        engine = self._host.engine
        times = coming(scheduler.find(engine, name), engine.time.latest_us(), count)
        return [to_datetime(us) for us in times]

    def pause(self, name: str) -> None:
        """Let no more jobs come of a schedule, until it is resumed."""
        scheduler.pause(self._host.queues, name)

    def resume(self, name: str) -> None:
        """Go on with the next time; what a pause left out is not made up for."""
        scheduler.resume(self._host.queues, name)

    def remove(self, name: str) -> None:
        """Take a schedule away; one that code declares comes back with the next process."""
        scheduler.remove(self._host.queues, name)
        self._declared.pop(name, None)

    def trigger(self, name: str) -> Job[Any]:
        """Store one job of a schedule, due now, beside those of its times."""
        queues = self._host.queues
        return Job(scheduler.trigger(queues, name).id, queues, self._host.clock)
