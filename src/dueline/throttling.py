"""Limits that allow nothing for a while, because a handler said so."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from dueline.errors import Conflict
from dueline.limiting import semaphore_of
from dueline.queue import Queues
from dueline.recipes import rate, semaphore

_ROUNDS_MAX: Final = 20


def close(queues: Queues, limits: Iterable[str], until_us: int) -> None:
    """Let no job of some limits start before an instant, unless it is later already.

    Raises: Conflict: a limit changes all the time. Unknown: some may be closed; it can be said
    again.
    """
    rates = rate.rates(queues.store)
    for name in limits:
        one = rates.get(semaphore_of(name))
        for _ in range(_ROUNDS_MAX):
            is_closed = (
                _close_semaphore(queues, name, until_us)
                if one is None
                else _close_rate(queues, name, one, until_us)
            )
            if is_closed:
                break
        else:
            raise Conflict(f"The limit {name} keeps changing.", hint="Try again.")


def _close_semaphore(queues: Queues, name: str, until_us: int) -> bool:
    permits, version = semaphore.read(queues.store, name)
    closed = replace(permits, closed_us=max(permits.closed_us, until_us))
    return closed == permits or semaphore.write(
        queues.store, name, closed, expect=version, ids=queues.ids
    )


def _close_rate(queues: Queues, name: str, one: rate.Rate, until_us: int) -> bool:
    meter, version = rate.read(queues.store, name)
    closed = replace(meter, closed_us=max(meter.closed_us, until_us))
    return closed == meter or rate.write(
        queues.store, name, closed, one, expect=version, ids=queues.ids
    )
