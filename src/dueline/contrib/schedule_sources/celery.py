"""The `beat_schedule` of a Celery application."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

from dueline.api.config import load_object
from dueline.contrib.schedule_sources.foreign_schedule import ForeignSchedule, cron_of, valid_name
from dueline.core.errors import BadInput

_FIELDS: Final = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
_OPTIONS: Final = ("queue", "priority", "expires")


def find(place: str) -> Iterator[ForeignSchedule]:
    """Yield the schedules of the Celery application at MODULE:ATTR.

    Raises: ConfigError: it cannot be imported.
    """
    app = load_object(place)
    conf = getattr(app, "conf", None)
    if conf is None or not hasattr(app, "send_task"):
        raise BadInput(f"{place} is not a Celery application.", hint="Use shop.celery:app.")
    app.loader.import_default_modules()
    app.finalize()
    for name, entry in dict(conf.beat_schedule or {}).items():
        what = {
            "name": valid_name(str(name)),
            "task": entry["task"],
            "args": list(entry.get("args") or ()),
            "kwargs": dict(entry.get("kwargs") or {}),
            "tz": str(app.timezone),
            "catch_up": "last",  # as beat does after it was down
        }
        try:
            yield ForeignSchedule(
                **what,
                **timing_of(entry["schedule"]),
                options=options_of(entry.get("options") or {}, str(conf.broker_url)),
            )
        except BadInput as error:
            yield ForeignSchedule(**what, refused=str(error))


def timing_of(schedule: Any) -> Mapping[str, Any]:  # noqa: ANN401  (one of Celery's kinds)
    """Return `cron` or `every` of what stands at `schedule` in a beat schedule.

    Raises: BadInput: it has no counterpart.
    """
    if isinstance(schedule, int | float):
        return {"every": timedelta(seconds=schedule)}
    if isinstance(schedule, timedelta):
        return {"every": schedule}
    if all(hasattr(schedule, field) for field in _FIELDS):
        return {"cron": cron_of([getattr(schedule, field) for field in _FIELDS])}
    if isinstance(every := getattr(schedule, "run_every", None), timedelta):
        if getattr(schedule, "relative", False):
            raise BadInput("It is relative to the clock.", hint="Use a cron expression.")
        return {"every": every}
    raise BadInput(
        f"There is no counterpart of a schedule of the kind {type(schedule).__name__}.",
        hint="Let a task that runs daily enqueue the job with using(due=...).",
    )


def options_of(options: Mapping[str, Any], broker: str) -> Mapping[str, Any]:
    """Return the options of `using` for those of a beat schedule.

    Raises: BadInput: one has no counterpart.
    """
    unknown = [name for name in options if name not in _OPTIONS]
    if unknown:
        raise BadInput(f"There is no counterpart of its option `{unknown[0]}`.")
    known = {name: value for name, value in options.items() if value is not None}
    if "priority" in known and broker.startswith(("redis", "rediss", "sentinel")):
        known["priority"] = -known["priority"]  # 0 is the highest there
    if not isinstance(known.get("expires", 0), int | float):
        raise BadInput("Its `expires` is a date.", hint="Use the seconds that a job is wanted.")
    return known
