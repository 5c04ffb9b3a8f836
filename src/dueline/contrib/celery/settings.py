"""The settings of an application with Celery's words: `app.conf`."""

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any, Final, NoReturn, Protocol

from dueline.contrib.celery.words import CALL, refuse, refuse_attribute, setting_word
from dueline.core.errors import BadInput

AS_EVER: Final[Mapping[str, object]] = {
    "enable_utc": True,
    "task_serializer": "json",
    "result_serializer": "json",
    "accept_content": ["json"],
    "task_acks_late": True,
    "task_reject_on_worker_lost": True,
    "task_track_started": True,
}
"""Settings whose value always holds."""

OF_TASKS: Final[Mapping[str, str]] = {
    "task_time_limit": "time_limit",
    "task_soft_time_limit": "soft_time_limit",
    "task_default_queue": "queue",
    "task_default_rate_limit": "rate_limit",
    "task_ignore_result": "ignore_result",
}
"""Settings that are options of all tasks, which an option of a task replaces."""

DEFAULTS: Final[Mapping[str, Any]] = {
    "beat_schedule": {},
    "timezone": "UTC",
    "result_expires": None,
    "task_routes": None,
    "task_annotations": None,
    **dict.fromkeys(OF_TASKS),
}

_BEFORE_TASKS: Final = ("task_routes", "task_annotations", *OF_TASKS)
_ROUTED: Final = ("queue", "priority")


class Configured(Protocol):
    """An application that has settings."""

    @property
    def has_tasks(self) -> bool:
        """Whether a task is registered."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether the store was used before."""
        ...

    def declare_beat(self) -> None:
        """Declare the schedules of `beat_schedule`."""
        ...


class Settings:
    """The settings that have a counterpart."""

    beat_schedule: Mapping[str, Mapping[str, Any]]
    timezone: str
    result_expires: timedelta | float | None

    def __init__(self, app: Configured) -> None:
        self.__dict__.update(DEFAULTS, app=app)

    def update(self, *settings: Mapping[str, Any], **named: Any) -> None:
        """Change several settings."""
        for name, value in [*(item for part in settings for item in part.items()), *named.items()]:
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in AS_EVER and value == AS_EVER[name]:
            return
        if name not in DEFAULTS:
            word = setting_word(name)
            if name in AS_EVER:
                word = f"{AS_EVER[name]!r}, which always holds"
            refuse([name], {name: word} if word else {}, "`app.conf`")
        check_setting(name, value)
        app: Configured = self.__dict__["app"]
        if name in _BEFORE_TASKS and app.has_tasks:
            raise BadInput(
                f"`{name}` changes tasks that are registered already.",
                hint="Set it above the first task.",
            )
        self.__dict__[name] = value
        if name == "beat_schedule" and app.is_open:
            app.declare_beat()

    __setitem__ = __setattr__

    def __getattr__(self, name: str) -> NoReturn:
        refuse_attribute(name, {}, "`app.conf`")

    def options_of(self, task: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a task: routes and defaults, its own, and annotations."""
        values = self.__dict__
        defaults = {
            option: values[name] for name, option in OF_TASKS.items() if values[name] is not None
        }
        options = {**defaults, **_route_of(values["task_routes"], task), **given}
        for annotation in _annotations_of(values["task_annotations"], task):
            options |= annotation
        return options


def check_setting(name: str, value: Any) -> None:
    """Check what cannot be checked where a setting is used.

    Raises: BadInput: it has no counterpart.
    """
    if name == "result_expires" and value is None:
        raise BadInput("Results do not stay for ever.", hint="Use a duration in seconds.")
    if name == "task_routes":
        for _, route in _pairs(value):
            refuse((word for word in route if word not in _ROUTED), CALL, "A route")
    if name == "task_annotations":
        list(_annotations_of(value, ""))


def _pairs(routes: Any) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """Yield the patterns of routes and what they say."""
    if routes is None:
        return
    if isinstance(routes, Mapping):
        routes = routes.items()
    elif not isinstance(routes, list | tuple) or any(isinstance(route, str) for route in routes):
        raise BadInput(
            "Routes by functions have no counterpart.", hint="Use a dict of patterns, or queue=."
        )
    for pair in routes:
        if isinstance(pair, Mapping):
            yield from _pairs(pair)
            continue
        if not isinstance(pair, list | tuple) or len(pair) != 2:  # noqa: PLR2004
            raise BadInput(
                "Routes by functions have no counterpart.", hint="Use a dict of patterns."
            )
        pattern, route = pair
        yield pattern, {"queue": route} if isinstance(route, str) else dict(route)


def _route_of(routes: Any, task: str) -> Mapping[str, Any]:
    """Return the options of the first route that matches a task."""
    for pattern, route in _pairs(routes):
        is_match = (
            pattern.match(task) if isinstance(pattern, re.Pattern) else fnmatchcase(task, pattern)
        )
        if is_match:
            return route
    return {}


def _annotations_of(annotations: Any, task: str) -> Iterator[Mapping[str, Any]]:
    """Yield the options that annotations give a task, those of all tasks first."""
    for by_task in annotations if isinstance(annotations, list | tuple) else [annotations or {}]:
        if not isinstance(by_task, Mapping):
            raise BadInput(
                "Annotations by objects have no counterpart.", hint="Use a dict by task name."
            )
        for name in ("*", task):
            yield by_task.get(name) or {}
