"""Calls from a file of JSON lines."""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from dueline.api.task import CHUNK, AsyncTask, Task, Using
from dueline.api.task_declaration import Call
from dueline.cli.output import note
from dueline.core.errors import BadInput, DuelineError, EnqueueUnknown
from dueline.terminal.progress_bars import bar


def read_calls(path: str, task: Task[..., Any] | AsyncTask[..., Any]) -> dict[int, Call]:
    """Read the calls of a task by line number; `-` is the standard input.

    A line is an array of positional arguments or an object of named arguments. Empty lines are
    skipped.

    Raises: BadInput: the file cannot be read, or a line (named) is not a call of the task.
    """
    calls: dict[int, Call] = {}
    with _opened(path) as lines:
        for number, line in _numbered(path, lines):
            if not line.strip():
                continue
            try:
                calls[number] = _call(line, task)
            except BadInput as error:
                raise BadInput(f"Line {number}: {error.message}", hint=error.hint) from error
    return calls


@contextmanager
def _opened(path: str) -> Iterator[TextIO]:
    if path == "-":
        yield sys.stdin
        return
    try:
        file = Path(path).open(encoding="utf-8")  # noqa: SIM115  (closed below)
    except OSError as error:
        raise BadInput(f"The file {path} cannot be opened: {error.strerror}.") from error
    with file:
        yield file


def _numbered(path: str, lines: TextIO) -> Iterator[tuple[int, str]]:
    try:
        yield from enumerate(lines, 1)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"The file {path} cannot be read: {error}.") from error


def _call(line: str, task: Task[..., Any] | AsyncTask[..., Any]) -> Call:
    try:
        call = json.loads(line)
    except RecursionError as error:
        raise BadInput("The JSON is nested too deeply.") from error
    except ValueError as error:
        raise BadInput(f"It is not JSON: {error}.", hint='Use [1, "a"] or {"b": 2}.') from error
    if isinstance(call, list):
        task.handler.arguments.encode(call, {})
    elif isinstance(call, dict):
        task.handler.arguments.encode((), call)
    else:
        raise BadInput("It is neither an array nor an object.", hint='Use [1] or {"a": 1}.')
    checked: Call = call
    return checked


def enqueue_calls(using: Using[..., Any], calls: Mapping[int, Call]) -> int:
    """Enqueue calls in batches; if one fails, print up to which line the jobs are stored."""
    numbers = list(calls)
    done = 0
    with bar("enqueue", len(numbers)) as show_done:
        try:
            for start in range(0, len(numbers), CHUNK):
                chunk = numbers[start : start + CHUNK]
                using.enqueue_many([calls[number] for number in chunk], chunk=CHUNK)
                done += len(chunk)
                show_done(done)
        except DuelineError as error:
            stored = f"up to line {numbers[done - 1]}" if done else "none"
            unsure = (
                f" and possibly up to {CHUNK} more" if isinstance(error, EnqueueUnknown) else ""
            )
            note(f"{done} of {len(numbers)} jobs are stored{unsure}: {stored}.")
            raise
    return done
