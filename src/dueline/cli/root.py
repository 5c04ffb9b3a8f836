"""The root of all commands."""

import platform
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from dueline import __version__
from dueline.cli import (
    archives,
    bench,
    compacting,
    dead,
    doctor,
    enqueue,
    events,
    health,
    init,
    jobs,
    migrate,
    monitor,
    pipeline,
    queues,
    redriving,
    schedules,
    settings,
    shards,
    stats,
    streams,
    streams_reading,
    top,
    worker,
    workers,
)
from dueline.cli.failure import show_error, show_usage
from dueline.cli.output import Output
from dueline.cli.session import Format, Session, session_of
from dueline.clock import SystemClock
from dueline.errors import BadInput, DuelineError

root = typer.Typer(
    name="dueline",
    help="A durable, time-based priority job queue in the store you already run.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
root.command("init")(init.init)
root.command("worker")(worker.worker)
root.command("enqueue")(enqueue.enqueue)
root.add_typer(jobs.jobs, name="jobs")
root.add_typer(dead.dead, name="dead")
root.add_typer(queues.queues, name="queues")
root.add_typer(shards.shards, name="shards")
root.add_typer(streams.streams, name="streams")
root.add_typer(schedules.schedules, name="schedules")
root.add_typer(workers.workers, name="workers")
streams.streams.command("read")(streams_reading.read)
streams.streams.command("groups")(streams_reading.list_groups)
streams.streams.command("seek")(streams_reading.seek)
queues.queues.command("set")(settings.set_queue)
root.command("stats")(stats.stats)
root.command("top")(top.top)
root.command("events")(events.events)
root.command("health")(health.health)
root.command("monitor")(monitor.monitor)
root.command("migrate")(migrate.migrate)
root.command("doctor")(doctor.doctor)
root.add_typer(bench.bench, name="bench")
pipeline.pipeline.command("archive")(archives.archive)
pipeline.pipeline.command("redrive")(redriving.redrive)
pipeline.pipeline.command("compact")(compacting.compact)
root.add_typer(pipeline.pipeline, name="pipeline")


@root.callback()
def options(
    context: typer.Context,
    *,
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="The store, such as sqlite:///jobs.db.")
    ] = None,
    app: Annotated[str | None, typer.Option(metavar="MODULE:ATTR", help="The application.")] = None,
    output: Annotated[
        Format, typer.Option("-o", "--output", help="How results are written.")
    ] = Format.TABLE,
) -> None:
    """Keep the options that hold for every command; they may also stand after it."""
    context.obj = Session(store, app, output)


@root.command()
def version(context: typer.Context) -> None:
    """Print the version of dueline."""
    Output(session_of(context).form, SystemClock().wall_us(), {"command": "version"}).text(
        f"dueline {__version__}", {"version": __version__, "python": platform.python_version()}
    )


_ANYWHERE = ("--store", "--app", "--output", "-o")
_GROUPS = (
    "jobs", "dead", "queues", "shards", "schedules", "workers", "bench", "pipeline",
)  # fmt: skip


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Take the options of the whole command out of the rest, from wherever they stand.

    Raises: BadInput: one of them has no value.
    """
    front: list[str] = []
    rest: list[str] = []
    left = iter(arguments)
    for word in left:
        if word == "--":
            rest += [word, *left]
        elif word in _ANYWHERE:
            value = next(left, None)
            if value is None:
                raise BadInput(f"Nothing follows {word}.", hint="Write it as `--store URL`.")
            front += [word, value]
        elif word.startswith(tuple(f"{name}=" for name in _ANYWHERE[:-1])):
            front.append(word)
        else:
            rest.append(word)
    return front, rest


def run(arguments: Sequence[str]) -> int:
    """Do what a command line says; answer its exit code."""
    about = "dueline"
    try:
        front, rest = _split(arguments)
        if rest == ["--version"]:  # as most programs have it
            rest = ["version"]
        about = " ".join([about, *rest[: 2 if rest[:1] and rest[0] in _GROUPS else 1]])
        code = root(front + (rest or ["--help"]), prog_name="dueline", standalone_mode=False)
    except DuelineError as error:
        return show_error(error, about=about)
    except typer.TyperException as error:
        return show_usage(error)
    return code if isinstance(code, int) else 0


def main() -> NoReturn:
    """Run the command line of this process."""
    sys.exit(run(sys.argv[1:]))
