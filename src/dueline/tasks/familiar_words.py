"""Words of other task queues, and what to write instead."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

from dueline.core.errors import BadInput

METHODS: Final[Mapping[str, str]] = {
    "delay": "enqueue(...)",
    "apply_async": "using(after=60).enqueue(...)",
    "send": "enqueue(...)",
    "send_with_options": "using(after=60).enqueue(...)",
    "defer": "enqueue(...)",
    "configure": "using(after=60)",
    "kiq": "enqueue(...)",
    "enqueue_in": "using(after=60).enqueue(...)",
    "enqueue_at": "using(due=...).enqueue(...)",
    "schedule": "using(after=60).enqueue(...)",
    "s": "step(...)",
    "si": "step(...).alone()",
    "signature": "step(...)",
    "apply": "the call itself",
}
"""Methods of tasks."""

CALL_OPTIONS: Final[Mapping[str, str]] = {
    "countdown": "after=60",
    "delay": "after=60",
    "eta": "due=... with an aware datetime",
    "at": "due=... with an aware datetime",
    "run_at": "due=... with an aware datetime",
    "run_after": "due=... with an aware datetime",
    "schedule_at": "due=... with an aware datetime",
    "schedule_in": "after=60",
    "routing_key": "queue=",
    "queue_name": "queue=",
    "max_retries": "retry=Retry(attempts=...) with one more than the retries",
    "lock": "unique=",
    "soft_time_limit": "timeout=",
    "time_limit": "kill_after=",
    "job_timeout": "timeout=",
    "result_ttl": "keep=",
    "result_expires": "keep=",
    "task_id": "unique=",
    "job_id": "unique=",
}
"""Options of calls."""

_OWN_OPTIONS: Final = frozenset(
    ("due", "after", "priority", "queue", "tenant", "expires", "unique")
)

TASK_OPTIONS: Final[Mapping[str, str]] = {
    "bind": "a first parameter `ctx: Context`",
    "pass_context": "a first parameter `ctx: Context`",
    "max_retries": "retry=Retry(attempts=...), one more than the retries",
    "retries": "retry=Retry(attempts=...), one more than the retries",
    "default_retry_delay": "retry=Retry.fixed(60)",
    "retry_delay": "retry=Retry.fixed(60)",
    "retry_backoff": "retry=Retry(base=...)",
    "min_backoff": "retry=Retry(base=...)",
    "autoretry_for": "retry=Retry(on=(...))",
    "throws": "retry=Retry(unless=(...))",
    "soft_time_limit": "timeout=",
    "time_limit": "kill_after=",
    "rate_limit": "limits=, see app.rate",
    "ignore_result": "app.queue(..., keep=0)",
    "actor_name": "name=",
    "queue_name": "queue=",
}
"""Options of tasks."""


SCHEDULE_OPTIONS: Final[Mapping[str, str]] = {
    "crontab": 'cron="30 3 * * *"',
    "cron_string": 'cron="30 3 * * *"',
    "schedule": 'cron="30 3 * * *", or every=60',
    "interval": "every=60",
    "seconds": "every=60",
    "minutes": "every=60, in seconds, or a timedelta",
    "hours": "every=3600, in seconds, or a timedelta",
    "trigger": "cron=, every= or at=",
    "run_date": "at=... with an aware datetime",
    "scheduled_time": "at=... with an aware datetime",
    "eta": "at=... with an aware datetime",
    "timezone": "tz=",
    "repeat": "count=",
    "start_date": "start=",
    "end_date": "until=",
    "max_instances": 'overlap="skip"',
    "coalesce": 'catch_up="last"',
    "misfire_grace_time": "catch_up=",
    "kwargs": "args={...}, by name",
    "queue": "task.using(queue=...)",
    "priority": "task.using(priority=...)",
}
"""Options of schedules."""

APP_METHODS: Final[Mapping[str, str]] = {
    "send_task": 'app.send("shop.charge", [5])',
    "add_job": "app.schedule(...)",
    "add_periodic_task": "app.schedule(...)",
    "periodic_task": '@app.cron("30 3 * * *") above @app.task',
    "scheduled_job": '@app.cron("30 3 * * *") above @app.task',
    "db_task": "@app.task",
    "actor": "@app.task",
    "worker_main": "app.run_worker()",
    "autodiscover_tasks": 'app.discover("shop")',
}
"""Attributes of applications."""

JOB_METHODS: Final[Mapping[str, str]] = {
    "get": "job.result(timeout=10)",
    "wait": "job.result(timeout=10)",
    "return_value": "job.result(timeout=0)",
    "state": "job.status",
    "get_status": "job.status",
    "ready": "job.status",
    "successful": 'job.status == "done"',
    "failed": 'job.status == "dead"',
    "is_finished": 'job.status == "done"',
    "is_failed": 'job.status == "dead"',
    "revoke": "job.cancel()",
    "refresh": "job.status, which reads the store",
}
"""Attributes of job handles."""


def unknown_attribute(
    target: object, name: str, words: Mapping[str, str], what: str
) -> AttributeError:
    """Return the error for an attribute that an object does not have. what: its kind, in plural.

    It ends in no full stop: Python may add one, and a suggestion.
    """
    if word := words.get(name):
        return AttributeError(f"{what} have no `{name}`. Write {word}")
    return AttributeError(f"{type(target).__name__!r} object has no attribute {name!r}")


def unknown_method(task: str, name: str) -> AttributeError:
    """Return the error for an attribute that a task does not have."""
    word = METHODS.get(name)
    own = task.rpartition(".")[2]
    if word is None:
        return AttributeError(f"The task {task} has no attribute {name!r}")
    return AttributeError(
        f"Tasks have no `{name}`. Write {word if ' ' in word else f'{own}.{word}'}"
    )


def hint_of_call(given: Iterable[str]) -> str:
    """Return the hint for a call that passes options as arguments; empty if it passes none."""
    misplaced = [name for name in given if name in CALL_OPTIONS or name in _OWN_OPTIONS]
    if not misplaced:
        return ""
    word = CALL_OPTIONS.get(misplaced[0], f"{misplaced[0]}=...").partition(" ")[0]
    return f"Options of a call stand before it: using({word}).enqueue(...)."


def check_options(
    given: Iterable[str], words: Mapping[str, str], own: Iterable[str], where: str
) -> None:
    """Raise BadInput for the first option that does not exist.

    Args: given: names of unknown options. words: of other queues. own: the known options.
    where: the call, for the message.
    """
    for name in given:
        near = get_close_matches(name, own, n=1)
        hint = f"Did you mean {near[0]}=?" if near else ""
        if word := words.get(name):
            hint = f"Use {word}."
        raise BadInput(f"{where} has no option `{name}`.", hint=hint)
