"""The periodic tasks of a Huey."""

import inspect
from collections.abc import Iterator
from typing import Any

from dueline.api.config import load_object
from dueline.contrib.schedule_sources.foreign_schedule import (
    ForeignSchedule,
    cron_of,
    local_zone,
    valid_name,
)
from dueline.core.errors import BadInput


def find(place: str) -> Iterator[ForeignSchedule]:
    """Yield the periodic tasks of the Huey at MODULE:ATTR.

    Raises: ConfigError: it cannot be imported.
    """
    huey = load_object(place)
    registry = getattr(huey, "_registry", None)
    if registry is None:
        raise BadInput(f"{place} is not a Huey.", hint="Use shop:huey.")
    kinds: list[Any] = [type(task) for task in registry.periodic_tasks]
    for task in kinds:
        name = f"{task.__module__}.{task.__name__}"
        try:
            cron = _cron_of(task.validate_datetime)
        except BadInput as error:
            yield ForeignSchedule(valid_name(name), name, refused=str(error))
        else:
            yield ForeignSchedule(
                valid_name(name), name, cron=cron, tz="UTC" if huey.utc else local_zone()
            )


def _cron_of(validate: Any) -> str:  # noqa: ANN401  (a function of Huey)
    """Return the expression of what `crontab(...)` made: a function around lists of values."""
    try:
        inner = inspect.getclosurevars(validate).nonlocals["validate_datetime"]
        month, day, weekday, hour, minute = inspect.getclosurevars(inner).nonlocals["cron_settings"]
        return cron_of([minute, hour, day, month, {number % 7 for number in weekday}])
    except (KeyError, TypeError, ValueError):
        raise BadInput(
            "Its times are a function of its own, not a crontab(...).",
            hint='Write them as a cron expression: @app.cron("*/5 * * * *").',
        ) from None
