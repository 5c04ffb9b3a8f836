"""The periodic tasks that django-celery-beat keeps in the database of a Django site."""

import os
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from dueline.contrib.schedule_sources.celery import options_of, timing_of
from dueline.contrib.schedule_sources.foreign_schedule import (
    ForeignSchedule,
    check_started,
    valid_name,
)
from dueline.core.errors import BadInput

_PREFIX: Final = "django_celery_beat_"
_CRON: Final = ("minute", "hour", "day_of_week", "day_of_month", "month_of_year")
_COLUMNS: Final = (
    *("p.name", "p.task", "p.args", "p.kwargs", "p.queue", "p.priority", "p.expires"),
    *("p.expire_seconds", "p.enabled", "p.one_off", "p.start_time", "p.solar_id"),
    *("i.every", "i.period", "k.clocked_time", *(f"c.{field}" for field in _CRON), "c.timezone"),
)
_TABLES: Final = " ".join(
    (
        f"{_PREFIX}periodictask p",
        f"LEFT JOIN {_PREFIX}intervalschedule i ON i.id = p.interval_id",
        f"LEFT JOIN {_PREFIX}crontabschedule c ON c.id = p.crontab_id",
        f"LEFT JOIN {_PREFIX}clockedschedule k ON k.id = p.clocked_id",
    )
)


def find(place: str) -> Iterator[ForeignSchedule]:
    """Yield the periodic tasks of the site with the settings module `place`.

    Raises: BadInput: the site cannot be set up, or it has no such tables.
    """
    import django  # noqa: PLC0415  (slow to load)
    from django.conf import settings  # noqa: PLC0415
    from django.db import DatabaseError, connection  # noqa: PLC0415

    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    os.environ["DJANGO_SETTINGS_MODULE"] = place
    try:
        django.setup()
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {', '.join(_COLUMNS)} FROM {_TABLES} ORDER BY p.name")  # noqa: S608
            rows = cursor.fetchall()
        connection.close()
    except (ImportError, DatabaseError, django.core.exceptions.ImproperlyConfigured) as error:
        raise BadInput(
            f"The tables of django-celery-beat cannot be read with the settings {place}: {error}.",
            hint="Use the settings module of the site, such as mysite.settings.",
        ) from error
    for row in rows:
        columns = (column[2:] for column in _COLUMNS)
        yield _found(
            dict(zip(columns, row, strict=True)), getattr(settings, "CELERY_BROKER_URL", "")
        )


def _found(row: Mapping[str, Any], broker: str) -> ForeignSchedule:
    what: dict[str, Any] = {"name": valid_name(row["name"]), "task": row["task"]}
    try:
        timing = _timing_of(row)
        if "cron" in timing:
            check_started(_utc(row["start_time"]))
        own = {name: row[name] for name in ("queue", "priority")}
        options = options_of({**own, "expires": row["expire_seconds"]}, broker)
        args, kwargs = (_json_of(row, name) or empty for name, empty in _CALL)
    except BadInput as error:
        return ForeignSchedule(**what, refused=str(error))
    start = _utc(row["start_time"]) if "every" in timing else None
    return ForeignSchedule(
        **what,
        args=args,
        kwargs=kwargs,
        **timing,
        start=start,
        until=None if "at" in timing else _utc(row["expires"]),  # beat then disables it
        catch_up="last",  # as beat does after it was down
        options=options,
        is_paused=not row["enabled"],
        note=f"start={start.isoformat()}" if start else "",
    )


_CALL: Final[tuple[tuple[str, Any], ...]] = (("args", []), ("kwargs", {}))


def _json_of(row: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401  (what a user has written)
    try:
        return msgspec.json.decode(row[name] or "null")
    except msgspec.DecodeError as error:
        raise BadInput(f"Its {name} are not JSON: {error}.") from error


def _timing_of(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return when a periodic task runs.

    Raises: BadInput: there is no counterpart.
    """
    if row["clocked_time"] is not None:
        return {"at": _utc(row["clocked_time"])}
    if row["one_off"]:
        raise BadInput("It runs once, at its next time.", hint="Set a schedule with at=.")
    if row["every"] is not None:
        return {"every": timedelta(**{row["period"]: row["every"]})}
    if row["minute"] is None:
        raise BadInput("It follows the sun." if row["solar_id"] else "It has no times.")
    from celery.schedules import crontab  # noqa: PLC0415  (which such a site has)

    cron = crontab(**{name: row[name] for name in _CRON})
    return {**timing_of(cron), "tz": str(row["timezone"])}


def _utc(time: Any) -> datetime | None:  # noqa: ANN401  (text where the database has no times)
    if time is None:
        return None
    read = time if isinstance(time, datetime) else datetime.fromisoformat(str(time))
    return read if read.tzinfo else read.replace(tzinfo=UTC)
