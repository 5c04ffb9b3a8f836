"""`dueline import`: take over the schedules of other libraries."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from importlib import import_module
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

imports = typer.Typer(help="Take over the schedules of other libraries.")

Tasks = Annotated[
    list[str] | None, option("OLD=NEW", "Old and new name of a task, if they differ.", "--task")
]
Apply = Annotated[bool, typer.Option("--apply", help="Write the schedules; default: only show.")]


class _Library(NamedTuple):
    """A library. what, more: the help; metavar, place: the argument; example: of the argument."""

    name: str
    what: str
    metavar: str
    place: str
    example: str
    more: str = ""


_LIBRARIES = (
    _Library(
        "celery", "the beat_schedule of a Celery application.", "MODULE:ATTR",
        "The Celery application.", "shop.celery:app",
    ),
    _Library(
        "django-celery-beat", "the periodic tasks of django-celery-beat.", "MODULE",
        "Settings module of the Django site.", "mysite.settings",
        "They are read from the database of the site. Disabled ones are imported as paused.\n\n",
    ),
    _Library(
        "rq", "the jobs of `rq cron`.", "FILE",
        "Configuration of `rq cron`; or a Redis URL.", "cron_config.py",
        "From a Redis, also the jobs that are scheduled for a later time, as schedules that run"
        " once.\n\n",
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
    help_text = (
        f"Import {library.what}\n\n{library.more}Exits 5 if a schedule cannot be imported.\n\n"
        f"Example: dueline import {library.name} {library.example}"
    )

    @imports.command(library.name, help=help_text)
    def run(
        context: typer.Context,
        place: Annotated[str, argument(library.metavar, library.place)],
        *,
        tasks: Tasks = None,
        apply: Apply = False,
    ) -> int:
        return _import(context, library.name, place, tasks or (), apply=apply)


def _import(
    context: typer.Context, library: str, place: str, tasks: Iterable[str], *, apply: bool
) -> int:
    names = _names_in(tasks)
    source = import_module(f"dueline.contrib.schedule_sources.{library.replace('-', '_')}")
    find: Callable[[str], Iterable[ForeignSchedule]] = source.find
    try:
        found = [
            replace(schedule, task=names.get(schedule.task, schedule.task))
            for schedule in find(place)
        ]
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{error.name} is not installed here.", hint="Run this where the old program runs."
        ) from error
    session = session_of(context)
    app = session.application() if apply or session.has_application else None
    try:
        shown = [_entry(name, app, apply=apply) for name in _with_own_names(found)]
    finally:
        if app is not None:
            app.close()
    Output(session.form, SystemClock().wall_us(), {"command": f"import {library}"}).entries(
        shown, COLUMNS, count=len(shown)
    )
    if not shown:
        note(f"{place} has no schedules.")
    elif app is None:
        note("Tasks and arguments were not checked: no application is named (--app).")
    elif not apply:
        note("Nothing was written. Add --apply to write what maps.")
    return Exit.REFUSED if any(entry["verdict"] == "refused" for entry in shown) else Exit.DONE


def _with_own_names(found: Iterable[ForeignSchedule]) -> Iterator[ForeignSchedule]:
    """Number the schedules that share a name, as those of RQ may."""
    counts: Counter[str] = Counter()
    for schedule in found:
        counts[schedule.name] += 1
        number = f"-{counts[schedule.name]}" if counts[schedule.name] > 1 else ""
        yield replace(schedule, name=f"{schedule.name}{number}")


def _names_in(words: Iterable[str]) -> dict[str, str]:
    pairs = [word.partition("=") for word in words]
    if wrong := next((old + sign for old, sign, new in pairs if not new), None):
        raise BadInput(f"{wrong!r:.80} is not OLD=NEW.", hint="Use --task old.send=shop.send.")
    return {old: new for old, _, new in pairs}


def _entry(found: ForeignSchedule, app: Dueline | None, *, apply: bool) -> Entry:
    """Check a schedule and write it if asked to; return its line."""
    refused = found.refused
    try:
        check_name(found.name)
        if not refused:
            timing_of(**_timing_of(found))
        if not refused and app is not None:
            task, args = _call_of(found, app)
            if apply:
                app.schedules.set(found.name, task, args, jitter=found.jitter, **_timing_of(found))
                if found.is_paused:
                    app.schedules.pause(found.name)
    except DuelineError as error:
        refused = str(error)
    when = f"{found.cron} ({found.tz})" if found.cron else ""
    if found.every is not None:
        when = f"every {span_text(round(found.every.total_seconds() * 1e6))}"
    if found.at is not None:
        when = f"at {found.at.isoformat()}"
    return {
        "schedule": found.name,
        "task": found.task,
        "when": when,
        "verdict": "refused" if refused else "written" if apply else "maps",
        "finding": refused or ", ".join(_notes_of(found)),
        "args": [repr(arg) for arg in found.args],
        "paused": found.is_paused,
    }


def _call_of(found: ForeignSchedule, app: Dueline) -> tuple[Using[..., Any], Any]:
    """Return the task with its options, and its arguments; check both.

    Raises: NotFound: no such task. BadInput: the arguments or an option do not fit.
    """
    task = app.task_named(found.task)
    named = task.handler.arguments.named(found.args, found.kwargs) if found.kwargs else found.args
    using = task.using(**found.options)
    using.recurring(*(((), named) if found.kwargs else (named, {})))
    return using, named


def _timing_of(found: ForeignSchedule) -> dict[str, Any]:
    names = ("cron", "every", "at", "tz", "start", "until", "catch_up", "overlap")
    return {name: getattr(found, name) for name in names}


def _notes_of(found: ForeignSchedule) -> list[str]:
    words = [f"{name}={value}" for name, value in found.options.items()]
    words += [f"until={found.until.isoformat()}"] if found.until else []
    words += [f"jitter={found.jitter:g} s"] if found.jitter else []
    words += [f"catch_up={found.catch_up}"] if found.catch_up != "skip" else []
    words += [f"overlap={found.overlap}"] if found.overlap != "allow" else []
    words += ["paused"] if found.is_paused else []
    return [*words, found.note] if found.note else words


for _library in _LIBRARIES:
    _add_command(_library)
