"""`dueline import`: take over the schedules of other libraries, and the jobs of RQ."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from dueline import Dueline
from dueline.api.schedules import timing_of
from dueline.api.task import Using
from dueline.cli.errors import Exit
from dueline.cli.options import argument, option
from dueline.cli.output import Entry, Output, note
from dueline.cli.session import session_of
from dueline.contrib.schedule_sources.foreign_schedule import ForeignSchedule
from dueline.core.clock import SystemClock
from dueline.core.durations import span_text
from dueline.core.errors import BadInput, ConfigError, DuelineError
from dueline.schedules.schedule import check_name

COLUMNS = ("schedule", "task", "when", "verdict", "finding")
CHECK_COLUMNS = ("place", "word", "finding")
JOB_COLUMNS = ("queue", "state", "task", "jobs", "verdict", "finding", "example")

imports = typer.Typer(help="Take over schedules and jobs of other libraries.")

Tasks = Annotated[
    list[str] | None, option("OLD=NEW", "Old and new name of a task, if they differ.", "--task")
]
Apply = Annotated[bool, typer.Option("--apply", help="Write what maps; default: only show.")]


class _Library(NamedTuple):
    """A library. what, more: the help; metavar, place: the argument; example: of the argument."""

    name: str
    what: str
    metavar: str
    place: str
    example: str
    more: str = ""


_RQ = _Library(
    "rq", "the schedules of `rq cron`; with --jobs, the jobs that wait in RQ.", "PLACE",
    "Configuration of `rq cron`, or a Redis URL.", "redis://localhost:6379/0 --jobs",
    "With --jobs, waiting and scheduled jobs leave RQ. If the command is interrupted, run it"
    " again within 24 hours.\n\n",
)  # fmt: skip

_CELERY = _Library(
    "celery", "the beat_schedule of a Celery application; with --check, name what does not map.",
    "MODULE:ATTR", "The Celery application.", "shop.celery:app --check",
    "With --check, its source is read, and nothing is imported or run: each word without a"
    " counterpart has its file and line.\n\n",
)  # fmt: skip

_LIBRARIES = (
    _Library(
        "django-celery-beat", "the periodic tasks of django-celery-beat.", "MODULE",
        "Settings module of the Django site.", "mysite.settings",
        "They are read from the database of the site. Disabled ones are imported as paused.\n\n",
    ),
    _Library(
        "huey", "the periodic tasks of a Huey.", "MODULE:ATTR", "The Huey.", "shop:huey"
    ),
    _Library(
        "apscheduler", "the jobs of an APScheduler 3.", "MODULE:ATTR",
        "The scheduler; or the URL of its SQLAlchemyJobStore.", "sqlite:///jobs.sqlite",
    ),
)  # fmt: skip


def _add_command(library: _Library) -> None:
    @imports.command(library.name, help=_help(library))
    def run(
        context: typer.Context,
        place: Annotated[str, argument(library.metavar, library.place)],
        *,
        tasks: Tasks = None,
        apply: Apply = False,
    ) -> int:
        return _import(context, library.name, place, tasks or (), apply=apply)


def _help(library: _Library) -> str:
    return (
        f"Import {library.what}\n\n{library.more}Exits 5 if something cannot be imported.\n\n"
        f"Example: dueline import {library.name} {library.example}"
    )


@imports.command("celery", help=_help(_CELERY))
def celery(
    context: typer.Context,
    place: Annotated[str, argument(_CELERY.metavar, _CELERY.place)],
    *,
    check: Annotated[
        bool, typer.Option("--check", help="List what of the source does not map; run nothing.")
    ] = False,
    tasks: Tasks = None,
    apply: Apply = False,
) -> int:
    """Import schedules of Celery, or check an application."""
    if check:
        return _check_source(context, place)
    return _import(context, "celery", place, tasks or (), apply=apply)


def _check_source(context: typer.Context, place: str) -> int:
    from dueline.contrib.celery.check import check as check_celery  # noqa: PLC0415  (slow to load)

    sys.path.insert(0, str(Path.cwd()))
    files, findings = check_celery(place)
    here = Path.cwd()
    shown: list[Entry] = [
        {
            "place": f"{path.relative_to(here) if path.is_relative_to(here) else path}:{line}",
            "word": word,
            "finding": finding,
        }
        for path, line, word, finding in findings
    ]
    output = Output(session_of(context).form, SystemClock().wall_us(), {"command": "import celery"})
    output.entries(shown, CHECK_COLUMNS, count=len(shown))
    note(f"Files: {len(files)}. {_verdict(len(shown))}")
    return Exit.REFUSED if shown else Exit.DONE


def _verdict(count: int) -> str:
    if not count:
        return "All of it maps: import from dueline.contrib.celery instead of celery."
    return f"Not mapped: {count}. The rest maps by importing from dueline.contrib.celery."


@imports.command("rq", help=_help(_RQ))
def rq(
    context: typer.Context,
    place: Annotated[str, argument(_RQ.metavar, _RQ.place)],
    *,
    jobs: Annotated[
        bool, typer.Option("--jobs", help="Move the jobs of a Redis instead of schedules.")
    ] = False,
    tasks: Tasks = None,
    apply: Apply = False,
) -> int:
    """Import schedules or jobs of RQ."""
    find = _import_jobs if jobs else partial(_import, library="rq")
    return find(context, place=place, tasks=tasks or (), apply=apply)


def _import(
    context: typer.Context, library: str, place: str, tasks: Iterable[str], *, apply: bool
) -> int:
    names = _names_in(tasks)
    source = import_module(f"dueline.contrib.schedule_sources.{library.replace('-', '_')}")
    find: Callable[[str], Iterable[ForeignSchedule]] = source.find
    with _installed():
        schedules = [
            replace(schedule, task=names.get(schedule.task, schedule.task))
            for schedule in find(place)
        ]
    session = session_of(context)
    app = session.application() if apply or session.has_application else None
    try:
        shown = [_entry(schedule, app, apply=apply) for schedule in _with_own_names(schedules)]
    finally:
        if app is not None:
            app.close()
    Output(session.form, SystemClock().wall_us(), {"command": f"import {library}"}).entries(
        shown, COLUMNS, count=len(shown)
    )
    _say_what_was_done(place, "schedules", shown, app, apply=apply)
    return _code_of(shown)


@contextmanager
def _installed() -> Iterator[None]:
    """Name a library that is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{error.name} is not installed here.", hint="Run this where the old program runs."
        ) from error


def _say_what_was_done(
    place: str, what: str, shown: Sequence[Entry], app: Dueline | None, *, apply: bool
) -> None:
    if not shown:
        note(f"{place} has no {what}.")
    elif app is None:
        note("Tasks and arguments were not checked: no application is named (--app).")
    elif not apply:
        note("Nothing was written. Add --apply to write what maps.")


def _code_of(shown: Iterable[Entry]) -> int:
    is_whole = all(entry["verdict"] not in ("refused", "unknown") for entry in shown)
    return Exit.DONE if is_whole else Exit.REFUSED


def _import_jobs(context: typer.Context, place: str, tasks: Iterable[str], *, apply: bool) -> int:
    session = session_of(context)
    app = session.application() if apply or session.has_application else None
    counts: Counter[tuple[str, ...]] = Counter()
    examples: dict[tuple[str, ...], str] = {}
    with closing(app) if app is not None else nullcontext(), _installed():
        from dueline.contrib.rq_jobs import RqJobs  # noqa: PLC0415  (slow to load)

        source = RqJobs(place, _names_in(tasks), app)
        for job in source.found(apply=apply):
            kind = (job.queue, job.state, job.task, job.verdict, job.finding)
            counts[kind] += 1
            examples.setdefault(kind, job.id)
    names = ("queue", "state", "task", "verdict", "finding")
    shown: list[Entry] = [
        {**dict(zip(names, kind, strict=True)), "jobs": count, "example": examples[kind]}
        for kind, count in counts.items()
    ]
    output = Output(session.form, SystemClock().wall_us(), {"command": "import rq --jobs"})
    output.entries(shown, JOB_COLUMNS, count=counts.total())
    _say_what_was_done(place, "waiting jobs", shown, app, apply=apply)
    return _code_of(shown)


def _with_own_names(schedules: Iterable[ForeignSchedule]) -> Iterator[ForeignSchedule]:
    """Number the schedules that share a name, as those of RQ may."""
    counts: Counter[str] = Counter()
    for schedule in schedules:
        counts[schedule.name] += 1
        number = f"-{counts[schedule.name]}" if counts[schedule.name] > 1 else ""
        yield replace(schedule, name=f"{schedule.name}{number}")


def _names_in(words: Iterable[str]) -> dict[str, str]:
    pairs = [word.partition("=") for word in words]
    if wrong := next((old + sign for old, sign, new in pairs if not new), None):
        raise BadInput(f"{wrong!r:.80} is not OLD=NEW.", hint="Use --task old.send=shop.send.")
    return {old: new for old, _, new in pairs}


def _entry(schedule: ForeignSchedule, app: Dueline | None, *, apply: bool) -> Entry:
    """Check a schedule and write it if asked to; return its line."""
    refused = schedule.refused
    try:
        check_name(schedule.name)
        timing = _timing_of(schedule)
        if not refused:
            timing_of(**timing)
        if not refused and app is not None:
            task, args = _call_of(schedule, app)
            if apply:
                app.schedules.set(schedule.name, task, args, jitter=schedule.jitter, **timing)
                if schedule.is_paused:
                    app.schedules.pause(schedule.name)
    except DuelineError as error:
        refused = str(error)
    when = f"{schedule.cron} ({schedule.tz})" if schedule.cron else ""
    if schedule.every is not None:
        when = f"every {span_text(round(schedule.every.total_seconds() * 1e6))}"
    if schedule.at is not None:
        when = f"at {schedule.at.isoformat()}"
    return {
        "schedule": schedule.name,
        "task": schedule.task,
        "when": when,
        "verdict": "refused" if refused else "written" if apply else "maps",
        "finding": refused or ", ".join(_notes_of(schedule)),
        "args": [repr(arg) for arg in schedule.args],
        "paused": schedule.is_paused,
    }


def _call_of(schedule: ForeignSchedule, app: Dueline) -> tuple[Using[..., Any], Any]:
    """Return the task with its options, and its arguments; check both.

    Raises: NotFound: no such task. BadInput: the arguments or an option do not fit.
    """
    task = app.task_named(schedule.task)
    args, kwargs = schedule.args, schedule.kwargs
    named = task.handler.arguments.named(args, kwargs) if kwargs else args
    using = task.using(**schedule.options)
    using.recurring(*(((), named) if kwargs else (named, {})))
    return using, named


def _timing_of(schedule: ForeignSchedule) -> dict[str, Any]:
    names = ("cron", "every", "at", "tz", "start", "until", "catch_up", "overlap")
    return {name: getattr(schedule, name) for name in names}


def _notes_of(schedule: ForeignSchedule) -> list[str]:
    words = [f"{name}={value}" for name, value in schedule.options.items()]
    words += [f"until={schedule.until.isoformat()}"] if schedule.until else []
    words += [f"jitter={schedule.jitter:g} s"] if schedule.jitter else []
    words += [f"catch_up={schedule.catch_up}"] if schedule.catch_up != "skip" else []
    words += [f"overlap={schedule.overlap}"] if schedule.overlap != "allow" else []
    words += ["paused"] if schedule.is_paused else []
    return [*words, schedule.note] if schedule.note else words


for _library in _LIBRARIES:
    _add_command(_library)
