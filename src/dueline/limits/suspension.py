"""Limits that allow nothing for a while, because a handler asked for it."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from dueline.core.engine import Engine
from dueline.core.errors import Conflict
from dueline.limits import rate, semaphore
from dueline.limits.rate import Rate

_ROUNDS_MAX: Final = 20


def suspend(engine: Engine, limits: Iterable[str], until_us: int) -> None:
    """Let no job of these limits start before a timestamp, or before a later one already set.

    Raises: Conflict: a limit keeps changing. Unknown: some may be suspended; repeating is safe.
    """
    rates = rate.rates(engine.store)
    for name in limits:
        setting = rate.rate_of(rates, name)
        for _ in range(_ROUNDS_MAX):
            is_suspended = (
                _suspend_semaphore(engine, name, until_us)
                if setting is None
                else _suspend_rate(engine, name, setting, until_us)
            )
            if is_suspended:
                break
        else:
            raise Conflict(f"The limit {name} keeps changing.", hint="Try again.")


def _suspend_semaphore(engine: Engine, name: str, until_us: int) -> bool:
    permits, version = semaphore.read(engine.store, name)
    closed = replace(permits, closed_us=max(permits.closed_us, until_us))
    return closed == permits or semaphore.write(
        engine.store, name, closed, expect=version, ids=engine.ids
    )


def _suspend_rate(engine: Engine, name: str, setting: Rate, until_us: int) -> bool:
    meter, version = rate.read(engine.store, name)
    closed = replace(meter, closed_us=max(meter.closed_us, until_us))
    return closed == meter or rate.write(
        engine.store, name, closed, setting, expect=version, ids=engine.ids
    )
