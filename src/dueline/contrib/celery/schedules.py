"""Celery's schedules as dueline's."""

import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from dueline.contrib.celery.words import NAMES, names_elsewhere
from dueline.contrib.schedule_sources.foreign_schedule import check_days

Field = int | str | Iterable[int]

_NAME: Final = re.compile(r"[a-z]+", re.IGNORECASE)


class crontab:  # noqa: N801  (Celery's name)
    """Times as fields of a cron expression; all of them must hold.

    Args:
        minute: Minutes; a number, a set of numbers, or a string such as "*/15".
        hour: Hours.
        day_of_week: Days of the week; 0 is Sunday, and names are allowed.
        day_of_month: Days of the month.
        month_of_year: Months.

    Raises:
        BadInput: Days of the week and of the month are both restricted.
    """

    def __init__(
        self,
        minute: Field = "*",
        hour: Field = "*",
        day_of_week: Field = "*",
        day_of_month: Field = "*",
        month_of_year: Field = "*",
    ) -> None:
        given = (minute, hour, day_of_month, month_of_year, day_of_week)
        fields = [_text_of(field) for field in given]
        check_days(fields[2], fields[4])
        self.expression = " ".join(fields)

    def __repr__(self) -> str:
        return f"<crontab: {self.expression}>"


def schedule(run_every: timedelta | float) -> timedelta:
    """Return an interval, a timedelta or seconds."""
    return run_every if isinstance(run_every, timedelta) else timedelta(seconds=run_every)


def _text_of(field: Field) -> str:
    if isinstance(field, str):
        return _NAME.sub(lambda name: name[0][:3], field.replace(" ", ""))
    return str(field) if isinstance(field, int) else ",".join(map(str, sorted(field)))


__getattr__ = names_elsewhere(NAMES, __name__)
