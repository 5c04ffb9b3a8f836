"""Options of calls, and the applications of this process."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal
from zoneinfo import ZoneInfo

from dueline.api.application import Dueline
from dueline.contrib.celery.words import CALL, refuse
from dueline.core.errors import BadInput

Priorities = Literal["redis", "rabbitmq"]

apps: "list[CallWords]" = []
"""The applications of this process, in the order in which they were created."""


class CallWords(Dueline):
    """An application that reads the options of Celery's calls."""

    conf: Any
    priorities: Priorities | None

    def named(self, name: str) -> Any:
        """Return a task by its name."""
        raise NotImplementedError

    def call_options(
        self,
        *,
        countdown: float | None = None,
        eta: datetime | None = None,
        expires: datetime | float | None = None,
        queue: str | None = None,
        priority: int | None = None,
        time_limit: float | None = None,
        soft_time_limit: float | None = None,
        ignore_result: bool | None = None,
        headers: Mapping[str, str] | None = None,
        **unknown: object,
    ) -> dict[str, Any]:
        """Return options of `apply_async` as those of `using`."""
        refuse((name for name, value in unknown.items() if value is not None), CALL, "A call")
        return {
            "after": countdown,
            "due": None if eta is None else self.aware(eta),
            "expires": self.aware(expires) if isinstance(expires, datetime) else expires,
            "queue": queue,
            "priority": self.priority_of(priority),
            "kill_after": time_limit,
            "timeout": soft_time_limit,
            "keep": 0 if ignore_result else None,
            "headers": headers,
        }

    def aware(self, instant: datetime) -> datetime:
        """Return a datetime with a time zone; a naive one is in that of `app.conf`."""
        if instant.tzinfo is not None:
            return instant
        return instant.replace(tzinfo=ZoneInfo(self.conf.timezone))

    def priority_of(self, priority: int | None) -> int | None:
        """Return a priority of Celery as one of dueline, where the largest is the highest."""
        if priority is None:
            return None
        if self.priorities is None:
            raise BadInput(
                "On Redis, the priority 0 is the highest; on RabbitMQ, it is the lowest.",
                hint='Use Celery(..., priorities="redis") or priorities="rabbitmq".',
            )
        return -priority if self.priorities == "redis" else priority


def current_app() -> Any:
    """Return the application that was created last.

    Raises: BadInput: no application was created.
    """
    if not apps:
        raise BadInput("No application was created.", hint="Create one first: Celery(...).")
    return apps[-1]
