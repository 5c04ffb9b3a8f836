"""Application of the demo, with one task.

Workers import this module: `dueline worker examples.demo.tasks:app --processes 2`.
"""

import ast
import os
import signal
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from dueline import Context, Dueline, Retry

QUEUE = "demo"
LEASE_S = 3
MARKS_VARIABLE = "DUELINE_DEMO_MARKS"
"""Variable with the folder that records, outside the queue, which jobs have crashed."""

FAILURES = 2


class Trouble(StrEnum):
    """What a chosen job does before it succeeds."""

    NONE = "none"
    FAILS_TWICE = "fails twice"
    CRASHES_ONCE = "crashes once"
    CRASHES_ALWAYS = "crashes always"


class OutOfLuckError(Exception):
    """A failure that disappears on retry."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Content of a file."""

    path: str
    lines: int
    functions: int
    classes: int


app = Dueline()  # uses the store in DUELINE_STORE
app.queue(QUEUE, lease=LEASE_S)


@app.task(name="count", queue=QUEUE, retry=Retry(base=0.5, cap=2, on=(OutOfLuckError,)))
def count(ctx: Context, path: str, trouble: Trouble) -> Counts:
    """Parse a Python file and count its definitions; an unparsable file fails at once."""
    make(trouble, ctx)
    source = Path(path).read_bytes()
    nodes = list(ast.walk(ast.parse(source)))
    return Counts(
        path=path,
        lines=len(source.splitlines()),
        functions=sum(isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) for n in nodes),
        classes=sum(isinstance(n, ast.ClassDef) for n in nodes),
    )


def make(trouble: Trouble, ctx: Context) -> None:
    """Fail or crash the process, as the job was chosen to."""
    match trouble:
        case Trouble.FAILS_TWICE if ctx.attempt <= FAILURES:
            raise OutOfLuckError(f"attempt {ctx.attempt} fails on purpose")
        case Trouble.CRASHES_ONCE:
            mark = Path(os.environ[MARKS_VARIABLE]) / ctx.job_id.hex()
            if not mark.exists():
                mark.touch()
                os._exit(1)
        case Trouble.CRASHES_ALWAYS:
            os.kill(os.getpid(), signal.SIGKILL)
