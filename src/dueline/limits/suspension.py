"""Limits that allow nothing for a while, because a handler said so."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from dueline.core.engine import Engine
from dueline.core.errors import Conflict
from dueline.core.limit_names import semaphore_of
from dueline.limits import rate, semaphore

_ROUNDS_MAX: Final = 20


def close(engine: Engine, limits: Iterable[str], until_us: int) -> None:
    """Let no job of some limits start before an instant, unless it is later already.

    Raises: Conflict: a limit changes all the time. Unknown: some may be closed; it can be said
    again.
    """
    rates = rate.rates(engine.store)
    for name in limits:
        one = rates.get(semaphore_of(name))
        for _ in range(_ROUNDS_MAX):
            is_closed = (
                _close_semaphore(engine, name, until_us)
                if one is None
                else _close_rate(engine, name, one, until_us)
            )
            if is_closed:
                break
        else:
            raise Conflict(f"The limit {name} keeps changing.", hint="Try again.")


def _close_semaphore(engine: Engine, name: str, until_us: int) -> bool:
    permits, version = semaphore.read(engine.store, name)
    closed = replace(permits, closed_us=max(permits.closed_us, until_us))
    return closed == permits or semaphore.write(
        engine.store, name, closed, expect=version, ids=engine.ids
    )


def _close_rate(engine: Engine, name: str, one: rate.Rate, until_us: int) -> bool:
    meter, version = rate.read(engine.store, name)
    closed = replace(meter, closed_us=max(meter.closed_us, until_us))
    return closed == meter or rate.write(
        engine.store, name, closed, one, expect=version, ids=engine.ids
    )
