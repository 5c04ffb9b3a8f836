"""The root of all commands."""

import os
import platform
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.main import get_command

from dueline.cli.completion import VARIABLE, words_for, words_for_value
from dueline.cli.errors import Exit, say_failure, show_error, show_usage
from dueline.cli.options import option
from dueline.cli.output import Output
from dueline.cli.purposes import ByPurpose
from dueline.cli.session import Format, Session, session_of
from dueline.cli.supervision import left, run_supervised
from dueline.core.clock import SystemClock
from dueline.core.errors import BadInput, DuelineError
from dueline.core.version import VERSION

_PLACES = {
    "init": "commands.init.init",
    "worker": "commands.worker.worker",
    "enqueue": "commands.enqueue.enqueue",
    "jobs": "commands.jobs.jobs",
    "dead": "commands.dead.dead",
    "queues": "commands.queues.queues",
    "queues set": "commands.settings.set_queue",
    "limits": "commands.limits.limits",
    "shards": "commands.shards.shards",
    "streams": "commands.streams.streams",
    "streams read": "commands.streams_read.read",
    "streams groups": "commands.streams_read.list_groups",
    "streams seek": "commands.streams_read.seek",
    "streams explain": "commands.streams_explain.explain",
    "streams parked": "commands.streams_parked.list_parked",
    "streams unpark": "commands.streams_parked.unpark",
    "topics": "commands.topics.topics",
    "schedules": "commands.schedules.schedules",
    "import": "commands.imports.imports",
    "import store": "commands.export.import_store",
    "flows": "commands.flows.flows",
    "batches": "commands.batches.batches",
    "workers": "commands.workers.workers",
    "alerts": "commands.alerts.alerts",
    "stats": "commands.stats.stats",
    "top": "commands.top.top",
    "web": "commands.web.web",
    "events": "commands.events.events",
    "health": "commands.health.health",
    "monitor": "commands.monitor.monitor",
    "migrate": "commands.migrate.migrate",
    "move": "commands.move.move",
    "export": "commands.export.export",
    "backup": "commands.backup.backup",
    "restore": "commands.backup.restore",
    "doctor": "commands.doctor.doctor",
    "bench": "commands.bench.bench",
    "pipeline": "commands.pipeline.pipeline",
    "pipeline archive": "commands.pipeline_archive.archive",
    "pipeline what-if": "commands.pipeline_foresight.what_if",
    "pipeline plan": "commands.pipeline_foresight.plan",
    "pipeline redrive": "commands.pipeline_redrive.redrive",
    "pipeline replay": "commands.pipeline_replay.replay",
    "pipeline watch": "commands.pipeline_watch.watch",
    "pipeline forget": "commands.pipeline_forget.forget",
    "pipeline ask": "commands.pipeline_ask.ask",
    "pipeline publish": "commands.pipeline_publish.publish",
    "pipeline optimize": "commands.pipeline_upkeep.optimize",
    "pipeline vacuum": "commands.pipeline_upkeep.vacuum",
    "completion": "completion.completion",
    "version": "main.version",
}
"""Module and attribute of each command or group; only those that run are imported."""


def root_with(word: str | None = None) -> typer.Typer:
    """Return the root of all commands.

    Args: word: the command or group to import; all are imported if none has this name.
    """
    root = typer.Typer(
        name="dueline",
        cls=ByPurpose,
        help="A durable, time-based job queue in SQLite, PostgreSQL, Redis or Cassandra.",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    root.callback()(options)
    names = [name for name in _PLACES if " " not in name]
    for name in (word,) if word in names else names:
        command = _loaded(name)
        if isinstance(command, typer.Typer):
            root.add_typer(command, name=name)
        else:
            root.command(name)(command)
    return root


@cache
def _loaded(name: str) -> Any:  # noqa: ANN401  (a command's function, or a group)
    command = _at(_PLACES[name])
    for words, place in _PLACES.items():
        if words.startswith(f"{name} "):
            command.command(words.removeprefix(f"{name} "))(_at(place))
    return command


def _at(place: str) -> Any:  # noqa: ANN401  (see above)
    module, _, attribute = place.rpartition(".")
    return getattr(import_module(f"dueline.cli.{module}"), attribute)


def options(
    context: typer.Context,
    *,
    store: Annotated[str | None, option("URL", "Store, such as sqlite:///jobs.db.")] = None,
    app: Annotated[str | None, option("MODULE:ATTR", "Application, such as tasks:app.")] = None,
    output: Annotated[Format, typer.Option("-o", "--output", help="Output format.")] = "table",
) -> None:
    """Store the global options; they may also follow the command."""
    context.obj = Session(store, app, output)


def version(context: typer.Context) -> None:
    """Print the version of dueline."""
    Output(session_of(context).form, SystemClock().wall_us(), {"command": "version"}).text(
        f"dueline {VERSION}", {"version": VERSION, "python": platform.python_version()}
    )


_ANYWHERE = ("--store", "--app", "-A", "--output", "-o")
_GROUPS = (
    "jobs", "dead", "queues", "limits", "shards", "schedules", "import",
    "flows", "batches", "workers", "bench", "pipeline",
)  # fmt: skip


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the global options, from any place in the line, and the other words.

    Raises: BadInput: an option has no value.
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
                raise BadInput(f"{word} needs a value.", hint="Use `--store URL`.")
            front += ["--app" if word == "-A" else word, value]
        elif word.startswith(tuple(f"{name}=" for name in _ANYWHERE[:-1])):
            front.append(word)
        else:
            rest.append(word)
    return front, rest


_YES = frozenset({"--yes", "-y"})


def _without_needless_yes(root: Any, words: Sequence[str]) -> list[str]:  # noqa: ANN401
    """Drop `--yes` from the words of a command that asks for no confirmation."""
    command = root
    for word in words:
        command = getattr(command, "commands", {}).get(word, command)
    if any(_YES.intersection(param.opts) for param in command.params):
        return list(words)
    end = words.index("--") if "--" in words else len(words)
    return [word for word in words[:end] if word not in _YES] + list(words[end:])


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code."""
    about = "dueline"
    try:
        front, rest = _split(arguments)
        if rest == ["--version"]:  # as most programs have it
            rest = ["version"]
        about = " ".join([about, *rest[: 2 if rest[:1] and rest[0] in _GROUPS else 1]])
        root = root_with(rest[0] if rest else None)
        if not _YES.isdisjoint(rest):
            rest = _without_needless_yes(get_command(root), rest)
        code = root(front + (rest or ["--help"]), prog_name="dueline", standalone_mode=False)
    except DuelineError as error:
        return show_error(error, about=about)
    except typer.TyperException as error:
        return show_usage(error)
    return code if isinstance(code, int) else 0


def complete(arguments: Sequence[str]) -> list[str]:
    """Return the words that may stand where the last argument is, for a shell."""
    *before, last = arguments or ("",)
    if before and before[-1] in _ANYWHERE:
        return words_for_value(before[-1], last)
    try:
        _, rest = _split(before)
    except BadInput:
        return []
    if rest:
        return words_for(get_command(root_with(rest[0])), rest, last, _ANYWHERE)
    if last.startswith("-"):
        return sorted(name for name in _ANYWHERE if name.startswith(last))
    return [name for name in _PLACES if " " not in name and name.startswith(last)]


def main() -> NoReturn:
    """Run the command line of this process and exit; or complete it for a shell."""
    if VARIABLE in os.environ:
        print("\n".join(complete(sys.argv[1:])))  # noqa: T201
        sys.exit(0)
    words = sys.argv[1:]
    if not _is_supervised(words):
        sys.exit(left(run(words)))
    sys.exit(run_supervised(lambda: run(words), lambda error: _show_silence(words, error)))


_UNSUPERVISED = frozenset({"worker", "web", "monitor", "completion", "version"})
"""Commands that go on when the disk does, and those that use no store."""


def _is_supervised(words: Sequence[str]) -> bool:
    """Return whether a command ends when its disk does not answer."""
    try:
        front, rest = _split(words)
    except BadInput:
        return False
    given = dict(zip(front[::2], front[1::2], strict=False)) if len(front) % 2 == 0 else {}
    store = given.get("--store") or os.environ.get("DUELINE_STORE") or "sqlite:"
    return store.startswith("sqlite:") and bool(rest) and rest[0] not in _UNSUPERVISED


def _show_silence(words: Sequence[str], error: DuelineError) -> int:
    """Print the error of a disk that does not answer; return the exit code."""
    return say_failure(
        "the disk does not answer; what was being written may be stored later",
        why=error.message,
        attempt=error.hint or "",
        code=Exit.CHECK if _split(words)[1][0] == "health" else Exit.STORE,
    )
