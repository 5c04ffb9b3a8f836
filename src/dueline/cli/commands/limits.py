"""`dueline limits`: show and set semaphores and rates."""

from typing import Annotated

import typer

from dueline.cli.options import argument, option
from dueline.cli.output import Entry, Instant, Output, Part, Span, note
from dueline.cli.session import session_of
from dueline.core.durations import parse_span
from dueline.core.engine import Engine
from dueline.core.errors import BadInput, NotFound
from dueline.core.limit_names import check_limit, has_key, semaphore_of
from dueline.limits import rate, semaphore
from dueline.limits.definitions import LimitDefinitions, expect_kind
from dueline.limits.rate import Rate, check_rate, rate_text
from dueline.limits.semaphore import CAPACITY_DEFAULT, Semaphore, check_setting
from dueline.limits.usage import LimitUsage, adaptive_text, semaphores, usage_of, usages_of

COLUMNS = ("limit", "kind", "most", "set", "keys", "held", "waiting")
HOLDER_COLUMNS = ("limit", "worker", "permits", "until")
WAITER_COLUMNS = ("limit", "waiting", "permits", "priority", "queue", "since")

limits = typer.Typer(help="Show and set semaphores and rates.")


@limits.command("list")
def list_limits(context: typer.Context) -> None:
    """List semaphores and rates.

    Includes limits that are not set but named by jobs: semaphores with a capacity of 1. `keys`
    counts limits such as host:example.org that are in use, `held` the permits in use, and
    `waiting` the workers that wait for permits.
    """
    with session_of(context).engine() as engine:
        shown = [_semaphore(engine, name, limit) for name, limit in semaphores(engine).items()]
        shown += [_rate(name, limit) for name, limit in rate.rates(engine.store).items()]
        Output.of(context, engine).entries(shown, COLUMNS, count=len(shown))
    if not shown:
        note("No limit is set, and no job has one.")


@limits.command("set")
def set_limit(
    context: typer.Context,
    name: Annotated[str, argument("NAME", "Name of the limit.")],
    most: Annotated[int, argument("N", "Maximum number of running jobs, or of starts in --per.")],
    *,
    per: Annotated[str | None, option("DURATION", "Limit starts in this period: 1s, 1h.")] = None,
    burst: Annotated[int | None, option("N", "Start evenly, with bursts of N jobs.")] = None,
    adaptive: Annotated[
        str | None, option("LEAST:MOST", "Adapt the capacity, between these bounds.")
    ] = None,
    latency: Annotated[
        str | None, option("DURATION", "Lower an adaptive capacity if jobs run longer.")
    ] = None,
) -> None:
    """Set how many jobs with a limit run at once, or start in a period.

    Without --per, the limit is a semaphore: up to N jobs run at the same time; 0 for none. With
    --per, it is a rate: up to N jobs start in any period of this length, or evenly with --burst.
    A job that takes several units counts as several jobs. NAME may have a key, as in plan:gold;
    other keys have what the name without a key has. Workers apply the change within two seconds;
    running jobs continue.

    Example: dueline limits set mailchimp 10 --per 1s
    """
    if per is None and burst is not None:
        raise BadInput("--burst needs --per.", hint=f"Use `dueline limits set {name} N --per 1s`.")
    if latency is not None and adaptive is None:
        raise BadInput("--latency needs --adaptive.", hint="Use --adaptive 1:50 --latency 2s.")
    if per is not None and adaptive is not None:
        raise BadInput("--adaptive and --per exclude each other.", hint="Pass one of them.")
    if per is not None:
        limit = check_rate(name, most, parse_span(per), burst)
        with session_of(context).engine(creates=True) as engine:
            expect_kind(engine.store, name, is_rate=True)
            rate.define(engine.store, name, limit, ids=engine.ids)
            Output.of(context, engine).entry(_rate(name, limit))
        return
    setting = check_setting(name, most, _bounds(adaptive), parse_span(latency) if latency else 0)
    with session_of(context).engine(creates=True) as engine:
        expect_kind(engine.store, name, is_rate=False)
        semaphore.define(engine.store, name, setting, ids=engine.ids)
        bounds: Entry = {"least": setting.least, "most": setting.most} if setting.most else {}
        entry: Entry = {"limit": name, "kind": "semaphore", "capacity": most, **bounds}
        Output.of(context, engine).entry(entry)


def _bounds(adaptive: str | None) -> tuple[object, object] | None:
    """Read the bounds of an adaptive capacity."""
    if adaptive is None:
        return None
    least, _, most = adaptive.partition(":")
    if not (least.isdecimal() and most.isdecimal()):
        raise BadInput(f"--adaptive must be two numbers (got {adaptive!r:.80}).", hint="Use 1:50.")
    return int(least), int(most)


@limits.command()
def holders(
    context: typer.Context,
    name: Annotated[str, argument("NAME", "Semaphore, or a limit such as host:example.org.")],
) -> None:
    """Show which workers hold or wait for permits.

    NAME is a limit, or a semaphore for all of its keys.

    Example: dueline limits holders host:example.org
    """
    check_limit(name)
    with session_of(context).engine() as engine:
        usage = usage_of(engine, name)
        uses = [usage] if ":" in name else usages_of(engine, name)
        shown: Entry = {
            "limit": name,
            "capacity": usage.capacity,
            "set": usage.is_set,
            "held": sum(use.held for use in uses),
            **({"closed_until": Instant(usage.closed_us)} if usage.closed_us else {}),
        }
        parts = [
            Part("holders", [entry for use in uses for entry in _holders(use)], HOLDER_COLUMNS),
            Part("waiters", [entry for use in uses for entry in _waiters(use)], WAITER_COLUMNS),
        ]
        Output.of(context, engine).entry(shown, parts=parts)
    if not shown["held"]:
        note("No permits are held.")


@limits.command()
def remove(
    context: typer.Context, name: Annotated[str, argument("NAME", "Name of the limit.")]
) -> None:
    """Remove the settings of a semaphore or rate, or of one key.

    The limit is then a semaphore with a capacity of 1; a key has what its limit has. Permits that
    are held stay valid.

    Example: dueline limits remove warehouse
    """
    with session_of(context).engine() as engine:
        known = rate.rates(engine.store).keys() | semaphore.capacities(engine.store).keys()
        if name not in known:
            raise NotFound(f"{name:.80} is not set.", hint="See `dueline limits list`.")
        semaphore.forget(engine.store, name)
        rate.forget(engine.store, name)
        definitions = LimitDefinitions(engine.store)
        definitions.refresh(engine.time.earliest_us())
        most = definitions.most(name)
        entry: Entry = {"limit": name, "capacity": most, "set": False}
        Output.of(context, engine).entry(entry)
    if has_key(name):
        note(f"{name} has the limit of {semaphore_of(name)} again: {most}.")
    else:
        note(f"{name} has the default capacity of {CAPACITY_DEFAULT} again.")


def _semaphore(engine: Engine, name: str, setting: Semaphore | None) -> Entry:
    uses = usages_of(engine, name)
    most = CAPACITY_DEFAULT if setting is None else setting.capacity
    text = f"{most} at once"
    if setting is not None and setting.most:
        text = adaptive_text(setting, uses)
    return {
        "limit": name,
        "kind": "semaphore",
        "most": text,
        "capacity": most,
        "set": setting is not None,
        "keys": len(uses),
        "held": sum(use.held for use in uses),
        "waiting": len({worker for use in uses for worker in use.waiting}),
    }


def _rate(name: str, limit: Rate) -> Entry:
    return {
        "limit": name,
        "kind": "rate",
        "most": rate_text(limit),
        "set": True,
        "count": limit.count,
        "per": Span(limit.per_us),
        "burst": limit.burst or None,
    }


def _holders(use: LimitUsage) -> list[Entry]:
    return [
        {"limit": use.name, "worker": who, "permits": held.count, "until": Instant(held.until_us)}
        for who, held in use.holders.items()
    ]


def _waiters(use: LimitUsage) -> list[Entry]:
    return [
        {
            "limit": use.name,
            "waiting": who,
            "permits": waiter.count,
            "priority": waiter.priority,
            "queue": waiter.queue,
            "since": Instant(waiter.since_us),
        }
        for who, waiter in use.waiting.items()
    ]
