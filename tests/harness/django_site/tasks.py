"""Tasks as Django's own tests have them."""

from django.db import connections, transaction

from dueline.contrib.django import DuelineContext
from dueline.contrib.django.contract import task
from dueline.core.retry import Retry
from dueline.tasks.raised import Snooze


class RefusedError(Exception):
    """Raised by a task; Django finds its class by the path that is stored."""


@task()
def echo(*args: object, **kwargs: object) -> list[object]:
    return [args, kwargs]


@task
async def echo_later(*args: object, **kwargs: object) -> list[object]:
    return [args, kwargs]


@task(priority=7)
def add(first: int, second: int = 1) -> int:
    return first + second


@task()
def refuse() -> None:
    raise RefusedError("not today\nnor tomorrow")


@task()
async def refuse_later() -> None:
    raise ValueError("not today")


@task()
def leave() -> None:
    raise SystemExit("This task failed due to SystemExit")


@task()
def return_a_function() -> object:
    return lambda: True


@task(takes_context=True)
def context_of(context: DuelineContext, *, shout: bool) -> list[object]:
    result = context.task_result
    return [result.id, result.status, context.attempt, context.job.queue, shout]


@task(retry=Retry(attempts=3, base=0))
def refuse_thrice() -> None:
    raise RefusedError


@task(takes_context=True, retry=Retry(attempts=3, base=0))
def refuse_snooze_and_return(context: DuelineContext) -> object:
    if context.attempt == 1:
        raise RefusedError
    if context.job.fence == 2:
        raise Snooze(0)
    return context.attempt


@task(takes_context=True)
def settle(context: DuelineContext, alias: str, order: int) -> int:
    with transaction.atomic(using=alias):
        connections[alias].cursor().execute("INSERT INTO orders VALUES (%s)", [order])
        return context.finish(connections[alias], order)
