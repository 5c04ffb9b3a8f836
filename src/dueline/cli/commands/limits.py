"""`dueline limits`: show and set semaphores and rates."""

from typing import Annotated

import typer

from dueline.cli.options import argument, option
from dueline.cli.output import Entry, Instant, Output, Part, Span, note
from dueline.cli.session import session_of
from dueline.core.durations import parse_span
from dueline.core.engine import Engine
from dueline.core.errors import BadInput, NotFound
from dueline.core.limit_names import check_semaphore, semaphore_of
from dueline.limits import rate, semaphore
from dueline.limits.rate import Rate, check_rate
from dueline.limits.semaphore import CAPACITY_DEFAULT
from dueline.limits.usage import LimitUsage, semaphores, usage_of, usages_of

COLUMNS = ("semaphore", "capacity", "set", "keys", "held", "waiting")
RATE_COLUMNS = ("rate", "count", "per", "burst")
HOLDER_COLUMNS = ("limit", "worker", "permits", "until")
WAITER_COLUMNS = ("limit", "waiting", "permits", "priority", "queue", "since")

limits = typer.Typer(help="Show and set semaphores and rates.")

SemaphoreArgument = Annotated[str, argument("NAME", "Name of the semaphore.")]


@limits.command("list")
def list_limits(context: typer.Context) -> None:
    """List semaphores.

    Includes semaphores that are not set but named by jobs; their capacity is 1. `keys` counts
    limits such as host:example.org that are in use, `held` the permits in use, and `waiting` the
    workers that wait for permits.
    """
    with session_of(context).engine() as engine:
        shown = [_semaphore(engine, name, one) for name, one in semaphores(engine).items()]
        Output.of(context, engine).entries(shown, COLUMNS, count=len(shown))
    if not shown:
        note("No semaphore is set, and no job has a limit.")


@limits.command("rates")
def list_rates(context: typer.Context) -> None:
    """List rates."""
    with session_of(context).engine() as engine:
        shown = [_rate(name, one) for name, one in rate.rates(engine.store).items()]
        Output.of(context, engine).entries(shown, RATE_COLUMNS, count=len(shown))
    if not shown:
        note("No rate is set.")


@limits.command("set")
def set_capacity(
    context: typer.Context,
    name: SemaphoreArgument,
    capacity: Annotated[int, argument("N", "Maximum number of running jobs; 0 for none.")],
) -> None:
    """Set how many jobs with a limit run at the same time.

    A limit with a key, such as host:example.org, has this capacity for each key. Workers apply
    the change within two seconds; running jobs continue.

    Example: dueline limits set warehouse 4
    """
    if ":" in name:
        raise BadInput(
            f"{name} is a key of a semaphore; all keys have the same capacity.",
            hint=f"Use {semaphore_of(name)}.",
        )
    check_semaphore(name, capacity)
    with session_of(context).engine(creates=True) as engine:
        semaphore.define(engine.store, name, capacity, ids=engine.ids)
        Output.of(context, engine).entry({"semaphore": name, "capacity": capacity})


@limits.command("rate")
def set_rate(
    context: typer.Context,
    name: Annotated[str, argument("NAME", "Name of the rate.")],
    count: Annotated[int, argument("N", "Maximum number of starts per period.")],
    per: Annotated[str, option("DURATION", "Length of the period: 1s, 1h.")],
    burst: Annotated[int | None, option("N", "Start evenly, with bursts of N jobs.")] = None,
) -> None:
    """Set how many jobs with a limit start in a period.

    A limit with a key has this rate for each key. Without --burst, no period of this length has
    more starts.

    Example: dueline limits rate mailchimp 10 --per 1s
    """
    one = check_rate(name, count, parse_span(per), burst)
    with session_of(context).engine(creates=True) as engine:
        rate.define(engine.store, name, one, ids=engine.ids)
        Output.of(context, engine).entry(_rate(name, one))


@limits.command()
def holders(
    context: typer.Context,
    name: Annotated[str, argument("NAME", "Semaphore, or a limit such as host:example.org.")],
) -> None:
    """Show which workers hold or wait for permits.

    NAME is a limit, or a semaphore for all of its keys.

    Example: dueline limits holders host:example.org
    """
    check_semaphore(semaphore_of(name))
    with session_of(context).engine() as engine:
        one = usage_of(engine, name)
        uses = [one] if ":" in name else usages_of(engine, name)
        shown: Entry = {
            "limit": name,
            "capacity": one.capacity,
            "set": one.is_set,
            "held": sum(use.held for use in uses),
            **({"closed_until": Instant(one.closed_us)} if one.closed_us else {}),
        }
        parts = [
            Part("holders", [entry for use in uses for entry in _holders(use)], HOLDER_COLUMNS),
            Part("waiters", [entry for use in uses for entry in _waiters(use)], WAITER_COLUMNS),
        ]
        Output.of(context, engine).entry(shown, parts=parts)
    if not shown["held"]:
        note("No permits are held.")


@limits.command()
def remove(context: typer.Context, name: SemaphoreArgument) -> None:
    """Remove the settings of a semaphore or rate.

    The limit is then a semaphore with a capacity of 1. Permits that are held stay valid.

    Example: dueline limits remove warehouse
    """
    with session_of(context).engine() as engine:
        known = rate.rates(engine.store).keys() | semaphore.capacities(engine.store).keys()
        if name not in known:
            raise NotFound(f"{name:.80} is not set.", hint="See `dueline limits list`.")
        semaphore.forget(engine.store, name)
        rate.forget(engine.store, name)
        entry: Entry = {"semaphore": name, "capacity": CAPACITY_DEFAULT, "set": False}
        Output.of(context, engine).entry(entry)
    note(f"{name} has the default capacity of {CAPACITY_DEFAULT} again.")


def _semaphore(engine: Engine, name: str, capacity: int | None) -> Entry:
    uses = usages_of(engine, name)
    return {
        "semaphore": name,
        "capacity": CAPACITY_DEFAULT if capacity is None else capacity,
        "set": capacity is not None,
        "keys": len(uses),
        "held": sum(use.held for use in uses),
        "waiting": len({worker for use in uses for worker in use.waiting}),
    }


def _rate(name: str, one: Rate) -> Entry:
    return {"rate": name, "count": one.count, "per": Span(one.per_us), "burst": one.burst or None}


def _holders(use: LimitUsage) -> list[Entry]:
    return [
        {"limit": use.name, "worker": who, "permits": one.count, "until": Instant(one.until_us)}
        for who, one in use.holders.items()
    ]


def _waiters(use: LimitUsage) -> list[Entry]:
    return [
        {
            "limit": use.name,
            "waiting": who,
            "permits": one.count,
            "priority": one.priority,
            "queue": one.queue,
            "since": Instant(one.since_us),
        }
        for who, one in use.waiting.items()
    ]
