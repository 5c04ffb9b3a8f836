"""`dueline limits`: how many jobs run at once, or start in a time."""

from typing import Annotated

import typer

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

limits = typer.Typer(help="See and set how many jobs run at once, and how often they start.")

SemaphoreArgument = Annotated[str, typer.Argument(metavar="NAME", help="The semaphore's name.")]


@limits.command("list")
def list_limits(context: typer.Context) -> None:
    """List the semaphores: those that were set, and those that jobs in queues name.

    One that nobody has set has a capacity of 1. `keys` counts its limits, such as
    host:example.org, of which permits are held or waited for; `held` the permits; `waiting` the
    workers that wait for some.
    """
    with session_of(context).engine() as engine:
        shown = [_semaphore(engine, name, one) for name, one in semaphores(engine).items()]
        Output.of(context, engine).entries(shown, COLUMNS, count=len(shown))
    if not shown:
        note("Nobody has set a semaphore, and no job has a limit.")


@limits.command("rates")
def list_rates(context: typer.Context) -> None:
    """List the rates: how many jobs start in which span."""
    with session_of(context).engine() as engine:
        shown = [_rate(name, one) for name, one in rate.rates(engine.store).items()]
        Output.of(context, engine).entries(shown, RATE_COLUMNS, count=len(shown))
    if not shown:
        note("Nobody has set a rate.")


@limits.command("set")
def set_capacity(
    context: typer.Context,
    name: SemaphoreArgument,
    capacity: Annotated[
        int, typer.Argument(metavar="N", help="How many jobs run at once; 0 for none.")
    ],
) -> None:
    """Let at most so many jobs run at once that have this limit, or so many of each key.

    Workers know it within two seconds; jobs that run go on.

    Example: dueline limits set warehouse 4
    """
    if ":" in name:
        raise BadInput(
            f"{name} is one key of a semaphore, and all keys have the same capacity.",
            hint=f"Set that of {semaphore_of(name)}.",
        )
    check_semaphore(name, capacity)
    with session_of(context).engine() as engine:
        semaphore.define(engine.store, name, capacity, ids=engine.ids)
        Output.of(context, engine).entry({"semaphore": name, "capacity": capacity})


@limits.command("rate")
def set_rate(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The rate's name.")],
    count: Annotated[int, typer.Argument(metavar="N", help="How many jobs start in the span.")],
    per: Annotated[str, typer.Option(help="The span, such as 1s or 1h.")],
    burst: Annotated[
        int | None,
        typer.Option(metavar="N", help="Start evenly, and so many at once after a pause."),
    ] = None,
) -> None:
    """Let at most so many jobs start in a span that have this limit, or so many of each key.

    Without --burst no span of that length sees more of them start.

    Example: dueline limits rate mailchimp 10 --per 1s
    """
    one = check_rate(name, count, parse_span(per), burst)
    with session_of(context).engine() as engine:
        rate.define(engine.store, name, one, ids=engine.ids)
        Output.of(context, engine).entry(_rate(name, one))


@limits.command()
def holders(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="A semaphore, or one limit such as host:example.org."),
    ],
) -> None:
    """Show which workers hold permits of a limit, or of all keys of a semaphore, and who waits.

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
        note("Nobody holds a permit.")


@limits.command()
def remove(context: typer.Context, name: SemaphoreArgument) -> None:
    """Forget what a limit was set to: it is a semaphore with a capacity of 1 again.

    Permits that are held stay.

    Example: dueline limits remove warehouse
    """
    with session_of(context).engine() as engine:
        known = rate.rates(engine.store).keys() | semaphore.capacities(engine.store).keys()
        if name not in known:
            raise NotFound(f"Nobody has set {name:.80}.", hint="See `dueline limits list`.")
        semaphore.forget(engine.store, name)
        rate.forget(engine.store, name)
        entry: Entry = {"semaphore": name, "capacity": CAPACITY_DEFAULT, "set": False}
        Output.of(context, engine).entry(entry)
    note(f"The capacity of {name} is {CAPACITY_DEFAULT} again, as of all that nobody has set.")


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
    return {
        "rate": name,
        "count": one.count,
        "per": Span(one.per_us),
        "burst": one.burst or None,
    }


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
