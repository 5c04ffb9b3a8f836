"""`dueline queues`: what they hold, how they are set."""

from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from dueline.api.limits import asked_quota
from dueline.cli.confirm import is_agreed, refuse
from dueline.cli.errors import Exit, say_failure
from dueline.cli.options import DryRunOption, YesOption
from dueline.cli.output import Entry, Instant, Output, Part, Span, note
from dueline.cli.progress_bar import bar
from dueline.cli.session import session_of
from dueline.coordination.worker_registry import Presence, live_workers
from dueline.core.clock import SECOND_US, SystemClock
from dueline.core.durations import parse_span
from dueline.core.errors import BadInput
from dueline.core.queue_settings import QueueSettings
from dueline.jobs import pauses
from dueline.jobs.bulk import BulkResult, cancel_all, drain, waiting_in
from dueline.jobs.counts import Counts, count
from dueline.jobs.queue import Queues
from dueline.limits import quota as engine

COLUMNS = (
    "queue",
    "ready",
    "running",
    "scheduled",
    "retrying",
    "expired",
    "dead",
    "oldest_ready",
    "workers",
)
QUOTA_COLUMNS = ("quota", "tenant", "depth", "waiting", "rate", "per", "left")
WORKER_COLUMNS = ("worker", "held", "slots", "started", "beat")

queues = typer.Typer(help="See, pause and empty queues.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The queue's name.")]
NamesArgument = Annotated[list[str], typer.Argument(metavar="NAME", help="The queues' names.")]

TenantOption = Annotated[
    list[str] | None,
    typer.Option("--tenant", metavar="NAME", help='Only this one\'s jobs; "" for no tenant.'),
]

TaskOption = Annotated[
    list[str] | None,
    typer.Option("--task", metavar="NAME", help="Only jobs of this task."),
]


@queues.command("list")
def list_queues(context: typer.Context) -> None:
    """List the queues with their numbers of jobs."""
    with session_of(context).queues() as opened:
        workers = live_workers(opened.engine)
        counts = [count(opened.engine, name, workers) for name in opened.engine.catalog.names()]
        shown = [numbers_of(one) for one in counts]
        Output.of(context, opened.engine).entries(shown, COLUMNS, count=len(shown))
    _tell_capped(counts)
    if not counts:
        note("There is no queue yet; the first job makes one.")


@queues.command()
def show(context: typer.Context, name: NameArgument) -> None:
    """Show a queue: its numbers of jobs, its settings, its live workers."""
    with session_of(context).queues() as opened:
        (name,) = opened.engine.catalog.chosen(name)
        workers = [one for one in live_workers(opened.engine) if name in one.queues]
        counts = count(opened.engine, name, workers)
        settings = opened.engine.catalog.settings(name)
        shown = {
            **numbers_of(counts),
            "lease": Span(settings.lease_us),
            "keep": Span(settings.keep_us),
            "history": settings.history,
            "paused": settings.is_paused,
            "paused_tenants": list(settings.paused_tenants),
            "paused_tasks": list(settings.paused_tasks),
            "weights": [f"{tenant}={weight}" for tenant, weight in settings.weights],
            "deliver": settings.deliver,
            "shards": settings.shards,
            "bucket": Span(settings.width_us),
        }
        parts = [Part("live_workers", [worker_entry(one) for one in workers], WORKER_COLUMNS)]
        if settings.quotas:
            parts.append(Part("quotas", _quotas(opened, name), QUOTA_COLUMNS))
        Output.of(context, opened.engine).entry(shown, parts=parts)
    _tell_capped([counts])


@queues.command()
def pause(
    context: typer.Context,
    name: NamesArgument,
    *,
    tenant: TenantOption = None,
    task: TaskOption = None,
) -> None:
    """Let no job of these queues start, or none of some tenants or tasks, after 5 s at most.

    Jobs that a worker has already claimed run to their end, and new ones may be enqueued.

    Example: dueline queues pause mail --tenant acme
    """
    _set_pause(context, name, tenant or (), task or (), pauses.pause)


@queues.command()
def resume(
    context: typer.Context,
    name: NamesArgument,
    *,
    tenant: TenantOption = None,
    task: TaskOption = None,
) -> None:
    """End a pause, that of queues or of tenants or tasks; workers go on after 5 s at most.

    Example: dueline queues resume mail
    """
    _set_pause(context, name, tenant or (), task or (), pauses.resume)


def _set_pause(
    context: typer.Context,
    names: list[str],
    tenants: Sequence[str],
    tasks: Sequence[str],
    change: Callable[..., QueueSettings],
) -> None:
    with session_of(context).queues() as opened:
        for name in names:  # all must be there before the first is changed
            opened.engine.catalog.chosen(name)
        settings = {
            name: change(opened.engine, name, tenants=tenants, tasks=tasks) for name in names
        }
        shown: list[Entry] = [
            {
                "queue": name,
                "paused": one.is_paused,
                "tenants": list(one.paused_tenants),
                "tasks": list(one.paused_tasks),
            }
            for name, one in settings.items()
        ]
        more = [*["tenants"] * bool(tenants), *["tasks"] * bool(tasks)]
        columns = ("queue", "paused", *more)
        Output.of(context, opened.engine).entries(shown, columns, count=len(shown))


@queues.command()
def quota(
    context: typer.Context,
    name: NameArgument,
    *,
    tenant: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of this one's jobs only.")
    ] = None,
    each_tenant: Annotated[
        bool, typer.Option("--each-tenant", help="Of each one's jobs that has none of its own.")
    ] = False,
    depth: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="How many jobs may wait.")
    ] = None,
    rate: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="How many may come in a span.")
    ] = None,
    per: Annotated[str | None, typer.Option(metavar="TIME", help="That span: 10s 1m.")] = None,
    none: Annotated[bool, typer.Option("--none", help="Take the quota away.")] = False,
) -> None:
    """Set how many jobs a queue takes in, or a tenant in it; without options, show it.

    Every client knows it after 5 s at most. `waiting` is as of the last count, and what came
    since; `left` is empty where jobs would be counted first.

    Example: dueline queues quota mail --tenant acme --depth 10000 --rate 100 --per 1s
    """
    span_s = None if per is None else parse_span(per) / SECOND_US
    new = asked_quota(tenant, depth, rate, span_s, each_tenant=each_tenant)
    if none and (depth or rate):
        raise BadInput("A quota is set or taken away.", hint="Leave out --none, or all else.")
    if not (none or depth or rate) and (tenant is not None or each_tenant):
        raise BadInput("No quota is given.", hint="Give --depth, --rate with --per, or --none.")
    with session_of(context).queues() as opened:
        (name,) = opened.engine.catalog.chosen(name)
        if none or depth or rate:
            engine.set_quota(opened.engine, name, new)
        shown = _quotas(opened, name)
        Output.of(context, opened.engine).entries(shown, QUOTA_COLUMNS, count=len(shown))
    if not shown:
        note(f"The queue {name} takes in whatever comes.")


def _quotas(opened: Queues, name: str) -> list[Entry]:
    """Show the quotas of a queue."""
    return [
        {
            "quota": "each tenant" if one.quota.scope == "each" else one.quota.scope,
            "tenant": one.quota.tenant if one.quota.scope == "tenant" else None,
            "depth": one.quota.depth or None,
            "waiting": one.waiting,
            "rate": one.quota.rate or None,
            "per": Span(one.quota.per_us) if one.quota.rate else None,
            "left": one.left,
        }
        for one in engine.usage_of(opened.engine, name)
    ]


@queues.command("drain")
def drain_queue(
    context: typer.Context,
    name: NameArgument,
    *,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="Give up after so long: 90s 10m 2h.")
    ] = None,
) -> int:
    """Wait until a queue holds no job that waits or runs, those for later included.

    Workers have to serve it meanwhile. Exits 124 if --timeout ran out.

    Example: dueline queues drain mail --timeout 10m
    """
    timeout_us = None if timeout is None else parse_span(timeout)
    with session_of(context).queues() as opened:
        (name,) = opened.engine.catalog.chosen(name)
        if opened.engine.catalog.settings(name).is_paused:
            note(f"The queue {name} is paused: no job leaves it.")
        most = count(opened.engine, name, ()).living()
        with bar(f"draining {name}", most) as show_done:
            left = drain(
                opened.engine,
                name,
                SystemClock(),
                timeout_us=timeout_us,
                tell=lambda counts: show_done(max(0, most - counts.living())),
            )
        entry: Entry = {"queue": name, "left": left.living(), "dead": left.dead}
        Output.of(context, opened.engine).entry(entry)
    if not left.living():
        return Exit.DONE
    return say_failure(
        "the time to wait ran out; the queue is as it was",
        why=f"Left are {left.ready} ready, {left.running} running, {left.scheduled} scheduled and "
        f"{left.retrying} retrying jobs.",
        attempt=f"See `dueline queues show {name}`, and whether a worker serves it.",
        code=Exit.TIMEOUT,
    )


@queues.command()
def purge(
    context: typer.Context,
    name: NameArgument,
    *,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
) -> int:
    """Cancel all jobs of a queue that wait; running and dead ones stay.

    The number is printed first, and somebody has to say yes. What is interrupted goes on with
    the rest when it is repeated.

    Example: dueline queues purge mail --dry-run
    """
    with session_of(context).queues() as opened:
        (name,) = opened.engine.catalog.chosen(name)
        waiting = sum(1 for _ in waiting_in(opened.engine, name))
        note(f"Jobs that wait in {name}: {waiting}.")
        if waiting and not dry_run and not is_agreed("Cancel them?", yes=yes):
            return refuse("cancelled", waiting)
        changed = BulkResult() if dry_run else _purge(opened, name, waiting)
        entry: Entry = {
            "queue": name,
            "waiting": waiting,
            "cancelled": changed.done,
            "dry_run": dry_run,
        }
        Output.of(context, opened.engine).entry(entry)
    return Exit.DONE


def _purge(opened: Queues, name: str, waiting: int) -> BulkResult:
    changed = BulkResult()
    with bar(f"purging {name}", waiting) as show_done:
        for page in cancel_all(opened, waiting_in(opened.engine, name)):
            changed = changed.plus(page)
            show_done(changed.done)
    return changed


def worker_entry(one: Presence) -> Entry:
    """Show a live worker."""
    return {
        "worker": one.worker,
        "queues": one.queues,
        "tasks": one.tasks,
        "held": one.held,
        "running": one.running,
        "slots": one.slots,
        "draining": one.is_draining,
        "version": one.version,
        "clock_offset": Span(one.clock_skew_us),
        "started": Instant(one.started_us),
        "beat": Instant(one.beat_us),
    }


def numbers_of(counts: Counts) -> Entry:
    """Show a queue's numbers of jobs."""
    oldest_us = counts.oldest_ready_us
    return {
        "queue": counts.queue,
        "ready": counts.ready,
        "running": counts.running,
        "scheduled": counts.scheduled,
        "retrying": counts.retrying,
        "expired": counts.expired,
        "dead": counts.dead,
        "oldest_ready": None if oldest_us is None else Instant(oldest_us),
        "workers": counts.workers,
        "capped": counts.is_capped,
    }


def _tell_capped(counts: list[Counts]) -> None:
    capped = [one.queue for one in counts if one.is_capped]
    if capped:
        note(f"There are more jobs than were counted in {', '.join(capped)}.")
