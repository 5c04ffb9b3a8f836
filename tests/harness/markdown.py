"""The blocks of a Markdown page, run."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.harness import forked

TIMEOUT_S = 300
LANGUAGES = ("python", "console")
NO_RUN = "no-run"
NEEDS = "needs"

NO_SETTINGS: Mapping[str, str] = {}

FENCE = re.compile(
    r"^(?P<indent> *)```(?P<info>[^`\n]*)\n(?P<text>.*?)^(?P=indent)```[ ]*$",
    re.MULTILINE | re.DOTALL,
)
FILE = re.compile(r"\A# file: (?P<name>[\w./-]+)\n")
NEEDS_SHELL = re.compile(r"^(?!dueline )|[^\w\s\"'.:/=,@+-]")
EXITS = re.compile(r"\s+# exits (?P<code>\d+)$")


class Block(NamedTuple):
    """A fenced block: where it starts, its language, why it is not run, its text, what it needs.

    needs: what is not in every environment; such blocks of a page run elsewhere, as one program.
    """

    line: int
    language: str
    no_run: str | None
    text: str
    needs: str | None = None


class Step(NamedTuple):
    """A command of a console block, its exit code, and the output that is shown for it."""

    command: str
    code: int
    shown: str


class WrongPage(Exception):
    """A block of a page does not do what the page says."""


def blocks(page: str) -> Iterator[Block]:
    """Find the `python` and `console` blocks of a page, in order."""
    for match in FENCE.finditer(page):
        language, _, rest = match["info"].strip().partition(" ")
        if language not in LANGUAGES:
            continue
        word, _, reason = rest.partition(":")
        indent = len(match["indent"])
        text = "".join(line[indent:] or "\n" for line in match["text"].splitlines(keepends=True))
        line = page.count("\n", 0, match.start()) + 1
        said = reason.strip()
        no_run, needs = (said if word == kind else None for kind in (NO_RUN, NEEDS))
        yield Block(line, language, no_run, text, needs)


def program_of(page: str, needs: str) -> str:
    """Join the Python blocks of a page that need something to one program."""
    programs = (block for block in blocks(page) if block.language == "python")
    return "\n".join(block.text for block in programs if block.needs == needs)


def steps(text: str) -> list[Step]:
    """Split a console block into commands (`$ `, continued by `> `) and what follows each."""
    commands: list[Step] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            exits = EXITS.search(line)
            command = line[2:] if exits is None else line[2 : exits.start()]
            commands.append(Step(command, int(exits["code"]) if exits else 0, ""))
        elif not commands:
            raise WrongPage(f"a console block starts with a command, not with {line!r}")
        elif line.startswith("> ") and not commands[-1].shown:
            commands[-1] = commands[-1]._replace(command=f"{commands[-1].command}\n{line[2:]}")
        else:
            commands[-1] = commands[-1]._replace(shown=f"{commands[-1].shown}{line.rstrip()}\n")
    return commands


def shows(output: str, shown: str) -> bool:
    """Tell whether the output holds the text that is shown, `...` standing for any text."""
    got = "\n".join(line.rstrip() for line in output.splitlines())
    pattern = ".*?".join(re.escape(piece) for piece in shown.strip().split("..."))
    return re.search(pattern, got, re.DOTALL) is not None


def run_page(
    page: str, folder: Path, *, has: str | None = None, settings: Mapping[str, str] | None = None
) -> int:
    """Run the blocks of a page in order, in one folder, each in a process of its own.

    Args:
      has: What is there, beside what all blocks need.
      settings: Variables of the blocks' environment.

    Returns: how many blocks were run.
    Raises WrongPage: a block failed, or its output is not what the page shows.
    """
    count = 0
    for block in blocks(page):
        if block.no_run is not None or block.needs not in (None, has):
            continue
        try:
            run_block(block, folder, settings or {})
        except WrongPage as wrong:
            raise WrongPage(f"line {block.line}: {wrong}") from None
        count += 1
    return count


def run_block(block: Block, folder: Path, settings: Mapping[str, str] = NO_SETTINGS) -> None:
    """Run one block, or write the file that it names."""
    if block.language == "console":
        for step in steps(block.text):
            output = _run_step(step, folder, settings)
            if not shows(output, step.shown):
                raise WrongPage(f"`{step.command}` printed\n{output}\nand not\n{step.shown}")
        return
    named = FILE.match(block.text)
    path = folder / (named["name"] if named else f"line_{block.line}.py")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.text, encoding="utf-8")
    if not named:
        _run_program([path.name], folder, 0, "the block", settings)


def _run_step(step: Step, folder: Path, settings: Mapping[str, str]) -> str:
    """Run a command as a shell does; one of dueline alone needs none."""
    if NEEDS_SHELL.search(step.command):
        command = ["bash", "-c", step.command]
        return run(command, folder, step.code, step.command, settings=settings)
    return _run_program(shlex.split(step.command), folder, step.code, step.command, settings)


def _run_program(
    words: list[str], folder: Path, code: int, name: str, settings: Mapping[str, str]
) -> str:
    ended, output = forked.run(words, folder, environment() | dict(settings))
    return _checked(ended, output, code, name)


def run(
    command: list[str],
    folder: Path,
    code: int,
    name: str,
    timeout_s: int = TIMEOUT_S,
    *,
    settings: Mapping[str, str] = NO_SETTINGS,
) -> str:
    """Run a program with this interpreter's folder first on the PATH; return all it printed."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment() | dict(settings),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise WrongPage(f"`{name}` was not done after {timeout_s} s") from None
    return _checked(done.returncode, done.stdout, code, name)


def _checked(ended: int, output: str, code: int, name: str) -> str:
    if ended != code:
        raise WrongPage(f"`{name}` exited {ended}, not {code}:\n{output}")
    return output


def environment() -> dict[str, str]:
    """Give the environment of a block: a plain terminal, and no setting of dueline.

    On a terminal, lines of both outputs appear in the order in which they are written.
    """
    kept = {name: text for name, text in os.environ.items() if not name.startswith("DUELINE_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', os.defpath)}"
    return kept | {"PATH": path, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb",
                   "PYTHONUNBUFFERED": "1"}  # fmt: skip


ROOT = Path(__file__).parents[2]


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
