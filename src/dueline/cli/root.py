"""The root of all commands."""

import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from dueline.cli import worker
from dueline.cli.failure import show_error, show_usage
from dueline.cli.session import Format, Session
from dueline.errors import DuelineError

root = typer.Typer(
    name="dueline",
    help="A durable, time-based priority job queue in the store you already run.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
root.command("worker")(worker.worker)


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


_ANYWHERE = ("--store", "--app", "--output", "-o")


def _in_front(arguments: Sequence[str]) -> list[str]:
    """Move the options of the whole command in front of it, from wherever they stand."""
    front: list[str] = []
    rest: list[str] = []
    left = iter(arguments)
    for word in left:
        if word == "--":
            rest += [word, *left]
        elif word in _ANYWHERE:
            front += [word, *(value for value in [next(left, None)] if value is not None)]
        elif word.startswith(tuple(f"{name}=" for name in _ANYWHERE[:-1])):
            front.append(word)
        else:
            rest.append(word)
    return front + rest


def run(arguments: Sequence[str]) -> int:
    """Do what a command line says; answer its exit code."""
    words = _in_front(arguments) or ["--help"]
    try:
        code = root(words, prog_name="dueline", standalone_mode=False)
    except DuelineError as error:
        return show_error(error)
    except typer.TyperException as error:
        return show_usage(error)
    return code if isinstance(code, int) else 0


def main() -> NoReturn:
    """Run the command line of this process."""
    sys.exit(run(sys.argv[1:]))
