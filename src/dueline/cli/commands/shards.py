"""`dueline shards`: show shards and leases."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

import typer

from dueline.cli.options import argument, option
from dueline.cli.output import Entry, Instant, Output, Span, note
from dueline.cli.session import session_of
from dueline.coordination.leases import ELECTIONS, Grant, grants, set_free
from dueline.core.engine import Engine
from dueline.core.errors import NotFound
from dueline.jobs.shard_status import Shard, shards_of
from dueline.streams import groups, resharding

COLUMNS = ("queue", "shard", "takes_new", "lanes", "swept", "closed", "lag")
LAG_COLUMNS = ("queue", "shard", "lag", "ready_since", "lanes")
OWNER_COLUMNS = ("scope", "name", "holder", "epoch", "until", "is_held")

shards = typer.Typer(help="Show shards of queues, and leases.")

QueueOption = Annotated[str | None, option("NAME", "Only this queue.", "-q", "--queue")]
ScopeOption = Annotated[list[str] | None, option("SCOPE", "Only leases of this scope; repeatable.")]


@shards.command("list")
def list_shards(context: typer.Context, *, queue: QueueOption = None) -> None:
    """List the shards of queues with their lanes and watermarks.

    A shard that is left over from a larger number of shards takes no new jobs.

    Example: dueline shards list -q mail
    """
    with session_of(context).engine() as engine:
        now_us = engine.time.latest_us()
        shown = [_entry(shard, now_us) for shard in _shards(engine, queue)]
        Output.of(context, engine).entries(shown, COLUMNS, count=len(shown))


@shards.command()
def lag(context: typer.Context, *, queue: QueueOption = None) -> None:
    """List shards with ready jobs, the longest wait first.

    Example: dueline shards lag
    """
    with session_of(context).engine() as engine:
        now_us = engine.time.latest_us()
        late = [shard for shard in _shards(engine, queue) if shard.ready_since_us is not None]
        late.sort(key=lambda shard: -shard.lag_us(now_us))
        shown = [_entry(shard, now_us) for shard in late]
        Output.of(context, engine).entries(shown, LAG_COLUMNS, count=len(shown))
    if not late:
        note("No jobs are ready.")


@shards.command()
def owners(context: typer.Context, *, scope: ScopeOption = None) -> None:
    """List the holders of leases.

    Leases are held by the maintenance leader and by consumers of stream shards. Shards of queues
    have no owner: any worker may claim from any of them.

    Example: dueline shards owners --scope stream-leases/clicks/billing
    """
    with session_of(context).engine() as engine:
        now_us = engine.time.earliest_us()
        shown = [
            _owner(election, name, grant, now_us)
            for election in scope or [ELECTIONS, *_scopes(engine)]
            for name, grant in grants(engine.store, election).items()
        ]
        Output.of(context, engine).entries(shown, OWNER_COLUMNS, count=len(shown))
    if not shown:
        note("No lease was ever held.")


@shards.command()
def release(
    context: typer.Context,
    name: Annotated[str, argument("NAME", "Name of the lease, such as `monitor`.")],
    *,
    scope: Annotated[str, option("SCOPE", "Scope of the lease.")] = ELECTIONS,
) -> None:
    """Release a lease for its holder.

    Another process can acquire the lease at once. The old holder notices at its next heartbeat;
    its writes are rejected once the new holder has started.

    Example: dueline shards release monitor
    """
    with session_of(context).engine() as engine:
        grant = set_free(engine.store, scope, name, version=engine.ids.token())
        if grant is None:
            raise NotFound(
                f"There is no lease {name} in {scope}, or it changed just now.",
                hint="Use `dueline shards owners`.",
            )
        freed = replace(grant, until_us=0)
        now_us = engine.time.earliest_us()
        Output.of(context, engine).entry(_owner(scope, name, freed, now_us))


@shards.command()
def rebalance(
    context: typer.Context, name: Annotated[str, argument("STREAM/GROUP", "Stream and group.")]
) -> None:
    """Release the shards of a group's members that hold too many.

    Members balance shards by themselves; use this for a member that is stuck. The others take the
    released shards within a heartbeat, and writes of the old holder are rejected.

    Example: dueline shards rebalance clicks/billing
    """
    stream, _, group = name.partition("/")
    with session_of(context).engine() as engine:
        store, scope = engine.store, groups.leases_at(stream, group)
        settings = resharding.settings_of(store, stream)
        if settings is None or group not in groups.registered(store, stream):
            raise NotFound(f"There is no group {name}.", hint="See `dueline streams list`.")
        now_us = engine.time.earliest_us()
        granted = grants(store, scope).items()
        members = [member.name for member in groups.members(store, stream, group)]
        held = {int(key): grant.holder for key, grant in granted if grant.until_us > now_us}
        surplus = groups.too_many(held, members, resharding.shards_of(settings))
        freed: list[Entry] = []
        for shard, _holder in surplus:
            grant = set_free(store, scope, str(shard), version=engine.ids.token())
            if grant is not None:
                freed.append(_owner(scope, str(shard), replace(grant, until_us=0), now_us))
        Output.of(context, engine).entries(freed, OWNER_COLUMNS, count=len(freed))
    if not freed:
        note("No member holds more than its share.")


def _scopes(engine: Engine) -> Iterator[str]:
    for stream, _ in resharding.streams(engine.store):
        for group in sorted(groups.registered(engine.store, stream)):
            yield groups.leases_at(stream, group)


def _shards(engine: Engine, queue: str | None) -> Iterator[Shard]:
    for name in engine.catalog.chosen(queue):
        yield from shards_of(engine, name)


def _entry(shard: Shard, now_us: int) -> Entry:
    since_us = shard.ready_since_us
    return {
        "queue": shard.queue,
        "shard": shard.number,
        "takes_new": shard.takes_new,
        "lanes": shard.lanes,
        "swept": shard.marks.swept,
        "closed": shard.marks.closed,
        "lag": Span(shard.lag_us(now_us)),
        "ready_since": None if since_us is None else Instant(since_us),
        "capped": shard.is_capped,
    }


def _owner(scope: str, name: str, grant: Grant, now_us: int) -> Entry:
    return {
        "scope": scope,
        "name": name,
        "holder": grant.holder,
        "epoch": grant.epoch,
        "until": Instant(grant.until_us) if grant.until_us else None,
        "is_held": grant.until_us > now_us,
    }
