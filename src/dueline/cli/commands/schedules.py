"""`dueline schedules`: show and change schedules."""

from datetime import timedelta
from typing import Annotated

import typer

from dueline.admin.health import recurring
from dueline.api.schedules import timing_of
from dueline.cli.call_options import ScheduleCallOptions
from dueline.cli.commands.enqueue import application_of, read_arguments
from dueline.cli.job_rows import shown_options
from dueline.cli.option_groups import with_option_groups
from dueline.cli.options import argument, option, read_instant
from dueline.cli.output import Entry, Instant, Output, Raw, Span, note
from dueline.cli.session import session_of
from dueline.coordination.worker_registry import live_workers
from dueline.core.clock import SECOND_US
from dueline.core.codec import JSON
from dueline.core.durations import instant_text, parse_span, span_text
from dueline.jobs.queue import Queues
from dueline.schedules import scheduler as engine
from dueline.schedules.schedule import CatchUp, Overlap, Schedule, Timing, coming

COLUMNS = ("schedule", "task", "when", "next", "paused", "ended", "stored", "skipped")
NEXT_MAX = 1000

schedules = typer.Typer(help="Show and change schedules.")

NameArgument = Annotated[str, argument("NAME", "Name of the schedule.")]


@schedules.command("list")
def list_schedules(context: typer.Context) -> None:
    """List schedules with their next occurrence.

    Example: dueline schedules list
    """
    with session_of(context).queues() as queues:
        now_us = queues.engine.time.latest_us()
        shown = [
            _entry(schedule.name, schedule.schedule, now_us)
            for schedule in engine.all_schedules(queues.engine)
        ]
        Output.of(context, queues.engine).entries(shown, COLUMNS, count=len(shown))
        for check in recurring(queues.engine, live_workers(queues.engine)):
            note(f"{check.finding[0].upper()}{check.finding[1:]}. {check.advice}")
    if not shown:
        note("No schedules. Create one with `dueline schedules add` or app.schedule(...).")


@schedules.command("show")
def show(context: typer.Context, name: NameArgument) -> None:
    """Show a schedule.

    Example: dueline schedules show nightly
    """
    with session_of(context).queues() as queues:
        schedule = engine.find(queues.engine, name)
        template, timing = schedule.template, schedule.timing
        more: Entry = {
            "queue": template.queue,
            "args": Raw(template.body.decode()) if template.codec == JSON else "(encoded)",
            "priority": template.priority,
            "tenant": template.tenant,
            "tags": ", ".join(template.tags),
            **{name: value or None for name, value in shown_options(template).items()},
            "catch_up": timing.catch_up,
            "catch_up_max": timing.catch_up_max if timing.catch_up == "all" else None,
            "overlap": timing.overlap,
            "waits_since": Instant(schedule.held_us) if schedule.held_us else None,
            "expires_after": Span(template.expires_us) if template.expires_us else None,
            "window": Span(template.window_us) if template.window_us else None,
        }
        Output.of(context, queues.engine).entry(
            {**_entry(name, schedule, queues.engine.time.latest_us()), **more}
        )


@schedules.command("next")
def list_next(
    context: typer.Context,
    name: NameArgument,
    *,
    count: Annotated[
        int,
        typer.Option(
            "-n", "--count", min=1, max=NEXT_MAX, metavar="N", help="Number of occurrences."
        ),
    ] = 5,
) -> None:
    """List the next occurrences of a schedule.

    A paused schedule has none.

    Example: dueline schedules next nightly -n 3
    """
    with session_of(context).queues() as queues:
        schedule = engine.find(queues.engine, name)
        times = coming(schedule, queues.engine.time.latest_us(), count)
        shown: list[Entry] = [{"time": instant_text(us), "at": Instant(us)} for us in times]
        Output.of(context, queues.engine).entries(shown, ("time", "at"), count=len(shown))
    if not shown:
        note(f"The schedule {name} {'is paused' if schedule.is_paused else 'has ended'}.")


@schedules.command("add")
@with_option_groups
def add(
    context: typer.Context,
    name: NameArgument,
    task: Annotated[str, argument("TASK", "Name of the task.")],
    argument: Annotated[
        list[str] | None, argument("ARG", "JSON, NAME=JSON, or a plain string.")
    ] = None,
    *,
    cron: Annotated[str | None, option("EXPR", 'Cron expression: "30 3 * * mon-fri".')] = None,
    every: Annotated[str | None, option("DURATION", "Interval: 90s, 10m, 2h, 3d.")] = None,
    at: Annotated[str | None, option("TIME", "Only occurrence; ISO 8601.")] = None,
    tz: Annotated[str, option("ZONE", "Time zone of --cron: Europe/Vilnius.")] = "UTC",
    until: Annotated[str | None, option("TIME", "End of the occurrences; ISO 8601.")] = None,
    count: Annotated[int | None, option("N", "Maximum number of occurrences.")] = None,
    catch_up: Annotated[
        CatchUp, typer.Option("--catch-up", help="Set which missed occurrences run later.")
    ] = "skip",
    overlap: Annotated[
        Overlap,
        typer.Option("--overlap", help="Set what happens if the previous job has not ended."),
    ] = "allow",
    options: ScheduleCallOptions,
    unchecked: Annotated[
        bool, typer.Option("--unchecked", help="Create it without the application's code.")
    ] = False,
) -> None:
    """Create or change a schedule.

    Needs one of --cron, --every and --at. Each occurrence creates one job. Any live worker stores
    it. With --unchecked, no application is imported: the queue is `default` unless --queue names
    one, and workers check the arguments.

    Example: dueline schedules add nightly tasks.report '"all"' --cron "30 3 * * *"
    """
    args, kwargs = read_arguments(argument or ())
    app = application_of(context, unchecked=unchecked)
    try:
        own = app.unchecked(task) if unchecked else app.task_named(task)
        template = own.using(**options.read()).recurring(args, kwargs)
        timing = timing_of(
            cron,
            None if every is None else timedelta(microseconds=parse_span(every)),
            at=read_instant(at) if at else None,
            tz=tz,
            until=read_instant(until) if until else None,
            count=count,
            catch_up=catch_up,
            overlap=overlap,
        )
        engine.put(app.queues, name, template, timing, is_dynamic=True)
        _show(context, app.queues, name)
    finally:
        app.close()


@schedules.command("pause")
def pause(context: typer.Context, name: NameArgument) -> None:
    """Pause a schedule.

    Example: dueline schedules pause nightly
    """
    with session_of(context).queues() as queues:
        engine.pause(queues, name)
        _show(context, queues, name)


@schedules.command("resume")
def resume(context: typer.Context, name: NameArgument) -> None:
    """Resume a schedule with its next occurrence.

    Occurrences during the pause do not run.

    Example: dueline schedules resume nightly
    """
    with session_of(context).queues() as queues:
        engine.resume(queues, name)
        _show(context, queues, name)


@schedules.command("trigger")
def trigger(context: typer.Context, name: NameArgument) -> None:
    """Enqueue one job of a schedule now.

    Prints its id. Later occurrences do not change.

    Example: dueline schedules trigger nightly
    """
    with session_of(context).queues() as queues:
        job_id = engine.trigger(queues, name).id.hex()
        Output.of(context, queues.engine).text(job_id, {"id": job_id, "schedule": name})


@schedules.command("remove")
def remove(context: typer.Context, name: NameArgument) -> None:
    """Remove a schedule and its waiting jobs.

    A schedule that code declares returns with the next process.

    Example: dueline schedules remove nightly
    """
    with session_of(context).queues() as queues:
        engine.remove(queues, name)
        Output.of(context, queues.engine).entry({"schedule": name, "removed": True})


def _when(timing: Timing) -> str:
    if timing.at_us:
        return f"at {instant_text(timing.at_us)}"
    if timing.cron:
        return f"{timing.cron} ({timing.zone})"
    return f"every {span_text(timing.every_us)}"


def _show(context: typer.Context, queues: Queues, name: str) -> None:
    """Print a schedule as it is now."""
    entry = _entry(name, engine.find(queues.engine, name), queues.engine.time.latest_us())
    Output.of(context, queues.engine).entry(entry)


def _entry(name: str, schedule: Schedule, now_us: int) -> Entry:
    timing, times = schedule.timing, coming(schedule, now_us, 1)
    return {
        "schedule": name,
        "task": schedule.template.task,
        "when": _when(timing),
        "cron": timing.cron or None,
        "tz": timing.zone if timing.cron else None,
        "every_s": timing.every_us / SECOND_US if timing.every_us else None,
        "until": Instant(timing.end_us) if timing.end_us else None,
        "count": timing.times or None,
        "next": Instant(times[0]) if times else None,
        "paused": schedule.is_paused,
        "ended": schedule.has_ended(now_us),
        "stored": schedule.stored,
        "skipped": schedule.skipped,
    }
