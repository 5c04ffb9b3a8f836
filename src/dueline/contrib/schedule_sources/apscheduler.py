"""The jobs of an APScheduler 3: of a scheduler object, or of a database."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from dueline.api.config import load_object
from dueline.contrib.schedule_sources.foreign_schedule import (
    ForeignSchedule,
    check_days,
    check_started,
    valid_name,
)
from dueline.core.errors import BadInput

_NAMES: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_NTH: Final = {"1st": "#1", "2nd": "#2", "3rd": "#3", "4th": "#4", "5th": "#5", "last": "L"}
_LATE_S: Final = 60
"""dueline runs occurrences that are up to this late in any case."""


def find(place: str) -> Iterator[ForeignSchedule]:
    """Yield the jobs of the scheduler at MODULE:ATTR, or of the SQLAlchemyJobStore at a URL.

    Nothing is started or written.

    Raises: ConfigError: there is no scheduler. BadInput: its store cannot be read.
    """
    if "://" in place:
        from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore  # noqa: PLC0415

        if (here := str(Path.cwd())) not in sys.path:
            sys.path.insert(0, here)  # the modules of the jobs
        yield from _stored(SQLAlchemyJobStore(url=place))
        return
    scheduler = load_object(place)
    if not hasattr(scheduler, "add_job"):
        raise BadInput(f"{place} is not a scheduler.", hint="Use shop:scheduler, or a URL.")
    yield from map(_found, scheduler.get_jobs())
    if not scheduler.running:
        for store in scheduler._jobstores.values():  # noqa: SLF001  (get_jobs reads running ones)
            yield from _stored(store)


def _stored(store: Any) -> Iterator[ForeignSchedule]:  # noqa: ANN401  (a job store)
    """Yield the jobs of a store.

    They are read one by one: `get_all_jobs` deletes those whose function it cannot import.
    """
    kind = type(store).__name__
    if kind == "MemoryJobStore":
        return
    if kind != "SQLAlchemyJobStore":
        raise BadInput(
            f"Jobs of a {kind} are read from the running program only.",
            hint="Write its jobs from there: app.schedules.set(...).",
        )
    from sqlalchemy import inspect, select  # noqa: PLC0415  (which that store needs)

    table, columns = store.jobs_t, store.jobs_t.c
    try:
        with store.engine.connect() as connection:
            if not inspect(connection).has_table(table.name, schema=table.schema):
                raise BadInput(f"There is no table {table.name} in {store.engine.url!r}.")
            rows = connection.execute(select(columns.id, columns.job_state)).all()
    finally:
        store.engine.dispose()  # which would keep a connection open; the next use opens another
    for job_id, state in rows:
        try:
            job = store._reconstitute_job(state)  # noqa: SLF001  (see above)
        except Exception as error:  # noqa: BLE001  (whatever its module raises)
            text = f"It cannot be loaded: {type(error).__name__}: {error}."
            yield ForeignSchedule(valid_name(job_id), "", refused=text)
        else:
            yield _found(job)


def _found(job: Any) -> ForeignSchedule:  # noqa: ANN401  (a job)
    reference = job.func_ref or f"{job.func.__module__}:{job.func.__qualname__}"
    what: dict[str, Any] = {
        "name": valid_name(job.id),
        "task": str(reference).replace(":", "."),
        "args": list(job.args),
        "kwargs": dict(job.kwargs),
        "overlap": "skip" if getattr(job, "max_instances", 1) == 1 else "allow",
        "catch_up": _catch_up(job),
        "is_paused": getattr(job, "next_run_time", 0) is None,
    }
    try:
        return ForeignSchedule(**what, **_timing_of(job.trigger))
    except BadInput as error:
        return ForeignSchedule(**what, refused=str(error))


def _catch_up(job: Any) -> str:  # noqa: ANN401  (a job)
    grace_s = getattr(job, "misfire_grace_time", 1)
    if grace_s is not None and grace_s <= _LATE_S:
        return "skip"
    return "last" if getattr(job, "coalesce", True) else "all"


def _timing_of(trigger: Any) -> Mapping[str, Any]:  # noqa: ANN401  (a trigger)
    match type(trigger).__name__:
        case "IntervalTrigger":
            timing = {"every": trigger.interval, "start": trigger.start_date}
        case "CronTrigger":
            check_started(trigger.start_date)
            fields = {field.name: str(field) for field in trigger.fields}
            timing = {"cron": _cron_of(fields), "tz": str(trigger.timezone)}
        case "DateTrigger":
            return {"at": trigger.run_date}
        case kind:
            raise BadInput(f"There is no counterpart of a {kind}.", hint="Use several schedules.")
    return {**timing, "until": trigger.end_date, "jitter": trigger.jitter}


def _cron_of(fields: Mapping[str, str]) -> str:
    for name, plain in (("year", "*"), ("week", "*"), ("second", "0")):
        if fields[name] != plain:
            raise BadInput(
                f"Cron expressions have no {name} (it has {name}={fields[name]!r}).",
                hint="Use every=... for less than a minute.",
            )
    day, weekday = fields["day"], fields["day_of_week"]
    nth = [weekday.split() for weekday in day.split(",") if " " in weekday]
    if nth and len(nth) == len(day.split(",")) and weekday == "*":
        day, weekday = "*", ",".join(f"{_NAMES.index(name)}{_NTH[which]}" for which, name in nth)
    elif not nth:
        day, weekday = day.replace("last", "L"), _weekdays(weekday)
    else:
        raise BadInput(f"Cron expressions cannot say day={day!r}.", hint="Use two schedules.")
    check_days(day, weekday)
    return f"{fields['minute']} {fields['hour']} {day} {fields['month']} {weekday}"


def _weekdays(text: str) -> str:
    """Return days of the week in cron's order: APScheduler's 0 is Monday, cron's is Sunday."""
    if text == "*":
        return text
    days: list[str] = []
    for part in text.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        from_, to = (0, 6) if span == "*" else (_day(first), _day(last or first))
        if step and not last and span != "*":
            to = 6
        days += [_NAMES[(weekday + 1) % 7] for weekday in range(from_, to + 1, int(step or 1))]
    return ",".join(days)


def _day(text: str) -> int:
    return int(text) if text.isdigit() else (_NAMES.index(text) - 1) % 7
