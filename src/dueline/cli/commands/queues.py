"""`dueline queues`: show, pause and empty queues."""

from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from dueline.api.limits import asked_quota
from dueline.cli.bulk_actions import note_left
from dueline.cli.commands.settings import settings_entry
from dueline.cli.confirm import is_agreed, refuse
from dueline.cli.errors import Exit, say_failure
from dueline.cli.options import DryRunOption, YesOption, argument, option
from dueline.cli.output import Entry, Instant, Output, Part, Span, note
from dueline.cli.session import session_of
from dueline.coordination.worker_registry import Presence, live_workers
from dueline.core.clock import SECOND_US, SystemClock
from dueline.core.durations import parse_span
from dueline.core.errors import BadInput
from dueline.core.queue_settings import QueueSettings
from dueline.core.worker_needs import words_of
from dueline.jobs import pauses
from dueline.jobs.bulk import BulkResult, cancel_all, drain, waiting_in
from dueline.jobs.counts import Counts, count
from dueline.jobs.queue import Queues
from dueline.limits import quota as engine
from dueline.terminal.progress_bars import bar

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

queues = typer.Typer(help="Show, configure, pause and empty queues.")

NameArgument = Annotated[str, argument("NAME", "Name of the queue.")]
NamesArgument = Annotated[list[str], argument("NAME", "Names of queues.")]

TenantOption = Annotated[
    list[str] | None, option("NAME", 'Only this tenant; "" for none; repeatable.', "--tenant")
]

TaskOption = Annotated[list[str] | None, option("NAME", "Only this task; repeatable.", "--task")]


@queues.command("list")
def list_queues(context: typer.Context) -> None:
    """List queues with their job counts."""
    with session_of(context).queues() as opened:
        workers = live_workers(opened.engine)
        names = opened.engine.catalog.names()
        counts = [count(opened.engine, name, workers, whole=True) for name in names]
        shown = [numbers_of(count) for count in counts]
        Output.of(context, opened.engine).entries(shown, COLUMNS, count=len(shown))
    _note_capped(counts)
    if not counts:
        note("No queues. The first job creates one.")


@queues.command()
def show(context: typer.Context, name: NameArgument) -> None:
    """Show a queue's job counts, settings and live workers."""
    with session_of(context).queues() as opened:
        (name,) = opened.engine.catalog.chosen(name)
        workers = [worker for worker in live_workers(opened.engine) if name in worker.queues]
        counts = count(opened.engine, name, workers, whole=True)
        settings = opened.engine.catalog.settings(name)
        shown = {
            **numbers_of(counts),
            **settings_entry(settings),
            "paused": settings.is_paused,
            "paused_tenants": list(settings.paused_tenants),
            "paused_tasks": list(settings.paused_tasks),
        }
        parts = [Part("live_workers", [worker_entry(worker) for worker in workers], WORKER_COLUMNS)]
        if settings.quotas:
            parts.append(Part("quotas", _quotas(opened, name), QUOTA_COLUMNS))
        Output.of(context, opened.engine).entry(shown, parts=parts)
    _note_capped([counts])


@queues.command()
def pause(
    context: typer.Context,
    name: NamesArgument,
    *,
    tenant: TenantOption = None,
    task: TaskOption = None,
) -> None:
    """Pause queues, or tenants or tasks in them.

    Workers stop claiming their jobs within five seconds; running jobs finish. New jobs can still
    be enqueued.

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
    """Resume paused queues, tenants or tasks.

    Workers continue within five seconds.

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
        for name in names:  # all must exist before the first is changed
            opened.engine.catalog.chosen(name)
        settings = {
            name: change(opened.engine, name, tenants=tenants, tasks=tasks) for name in names
        }
        shown: list[Entry] = [
            {
                "queue": name,
                "paused": queue_settings.is_paused,
                "tenants": list(queue_settings.paused_tenants),
                "tasks": list(queue_settings.paused_tasks),
            }
            for name, queue_settings in settings.items()
        ]
        more = [*["tenants"] * bool(tenants), *["tasks"] * bool(tasks)]
        columns = ("queue", "paused", *more)
        Output.of(context, opened.engine).entries(shown, columns, count=len(shown))


@queues.command()
def quota(
    context: typer.Context,
    name: NameArgument,
    *,
    tenant: Annotated[str | None, option("NAME", "Limit this tenant only.")] = None,
    each_tenant: Annotated[
        bool, typer.Option("--each-tenant", help="Limit each tenant without its own quota.")
    ] = False,
    depth: Annotated[int | None, option("N", "Maximum number of waiting jobs.", min=1)] = None,
    rate: Annotated[
        int | None, option("N", "Maximum number of new jobs per period.", min=1)
    ] = None,
    per: Annotated[str | None, option("DURATION", "Length of the period: 10s, 1m.")] = None,
    none: Annotated[bool, typer.Option("--none", help="Remove the quota.")] = False,
) -> None:
    """Show or set the quotas of a queue.

    Clients apply a change within five seconds. `waiting` is the last count plus the jobs enqueued
    since then; `left` is empty if the next call would count jobs first.

    Example: dueline queues quota mail --tenant acme --depth 10000 --rate 100 --per 1s
    """
    span_s = None if per is None else parse_span(per) / SECOND_US
    new = asked_quota(tenant, depth, rate, span_s, each_tenant=each_tenant)
    if none and (depth or rate):
        raise BadInput("--none excludes --depth and --rate.", hint="Pass one of them.")
    if not (none or depth or rate) and (tenant is not None or each_tenant):
        raise BadInput("No quota is given.", hint="Pass --depth, --rate with --per, or --none.")
    with session_of(context).queues() as opened:
        (name,) = opened.engine.catalog.chosen(name)
        if none or depth or rate:
            engine.set_quota(opened.engine, name, new)
        shown = _quotas(opened, name)
        Output.of(context, opened.engine).entries(shown, QUOTA_COLUMNS, count=len(shown))
    if not shown:
        note(f"The queue {name} has no quotas.")


def _quotas(opened: Queues, name: str) -> list[Entry]:
    """Return the output of the quotas of a queue."""
    return [
        {
            "quota": "each tenant" if usage.quota.scope == "each" else usage.quota.scope,
            "tenant": usage.quota.tenant if usage.quota.scope == "tenant" else None,
            "depth": usage.quota.depth or None,
            "waiting": usage.waiting,
            "rate": usage.quota.rate or None,
            "per": Span(usage.quota.per_us) if usage.quota.rate else None,
            "left": usage.left,
        }
        for usage in engine.usage_of(opened.engine, name)
    ]


@queues.command("drain")
def drain_queue(
    context: typer.Context,
    name: NameArgument,
    *,
    timeout: Annotated[str | None, option("DURATION", "Maximum duration: 90s, 10m, 2h.")] = None,
) -> int:
    """Wait until a queue is empty.

    Waits for all jobs that wait or run, including scheduled ones; workers must serve the queue.
    Exits 124 after --timeout.

    Example: dueline queues drain mail --timeout 10m
    """
    timeout_us = None if timeout is None else parse_span(timeout)
    with session_of(context).queues() as opened:
        (name,) = opened.engine.catalog.chosen(name)
        if opened.engine.catalog.settings(name).is_paused:
            note(f"The queue {name} is paused, so its jobs do not run.")
        most = count(opened.engine, name, (), whole=True).living()
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
        "--timeout expired; the queue was not changed",
        why=f"Jobs left: {left.ready} ready, {left.running} running, {left.scheduled} scheduled, "
        f"{left.retrying} retrying.",
        attempt=f"Use `dueline queues show {name}` to see whether a worker serves it.",
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
    """Cancel all waiting jobs of a queue.

    Running and dead-letter jobs stay. Prints the number of jobs and asks for confirmation. If the
    command is interrupted, run it again to cancel the rest.

    Example: dueline queues purge mail --dry-run
    """
    with session_of(context).queues() as opened:
        (name,) = opened.engine.catalog.chosen(name)
        waiting = sum(1 for _ in waiting_in(opened.engine, name))
        note(f"Waiting jobs in {name}: {waiting}.")
        if waiting and not dry_run and not is_agreed("Cancel them?", yes=yes):
            return refuse(context, "cancelled", waiting)
        changed = BulkResult() if dry_run else _purge(opened, name, waiting)
        entry: Entry = {
            "queue": name,
            "waiting": waiting,
            "cancelled": changed.done,
            "dry_run": dry_run,
        }
        Output.of(context, opened.engine).entry(entry)
        note_left("cancel", changed.left)
    return Exit.DONE


def _purge(opened: Queues, name: str, waiting: int) -> BulkResult:
    changed = BulkResult()
    with bar(f"purging {name}", waiting) as show_done:
        for page in cancel_all(opened, waiting_in(opened.engine, name)):
            changed = changed.plus(page)
            show_done(changed.done)
    return changed


def worker_entry(worker: Presence) -> Entry:
    """Return the output of a live worker."""
    return {
        "worker": worker.worker,
        "queues": worker.queues,
        "tasks": worker.tasks,
        "held": worker.held,
        "running": worker.running,
        "slots": worker.slots,
        "lost": len(worker.lost),
        "lost_jobs": [f"{task} {job}" for job, task, _ in worker.lost],
        "state": "draining" if worker.is_draining else "quiet" if worker.is_quiet else "claiming",
        "has": words_of(worker.has),
        "free": words_of(worker.free),
        "draining": worker.is_draining,
        "quiet": worker.is_quiet,
        "version": worker.version,
        "clock_offset": Span(worker.clock_skew_us),
        "started": Instant(worker.started_us),
        "beat": Instant(worker.beat_us),
    }


def numbers_of(counts: Counts) -> Entry:
    """Return the output of a queue's job counts."""
    oldest_us = counts.oldest_ready_us
    return {
        "queue": counts.queue,
        "ready": counts.ready,
        "running": counts.running,
        "scheduled": counts.scheduled,
        "retrying": counts.retrying,
        "paused": counts.paused,
        "expired": counts.expired,
        "dead": counts.dead,
        "oldest_ready": None if oldest_us is None else Instant(oldest_us),
        "workers": counts.workers,
        "capped": counts.is_capped,
    }


def _note_capped(counts: list[Counts]) -> None:
    capped = [count.queue for count in counts if count.is_capped]
    if capped:
        note(f"Not all jobs were counted in {', '.join(capped)}.")
