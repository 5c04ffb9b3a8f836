"""Processes of the machine."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent.parent

_ENDS: Final = re.compile(r"^Traceback .*\n(?:[ \t].*\n|\n)*(\S.*)", re.MULTILINE)
_SHOWN: Final = 4000  # characters


def start(
    *command: str, errors: Path, settings: Mapping[str, str] = {}
) -> "subprocess.Popen[bytes]":
    """Start a module with its arguments; stderr is appended to a file.

    settings: variables of the environment, besides those of this process.
    """
    with errors.open("ab") as stderr:
        return subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=ROOT,
            env=os.environ | settings,
            stderr=stderr,
        )


def signal_all(pids: Sequence[int], number: int) -> None:
    """Send a signal to those of the processes that live."""
    for pid in pids:
        with suppress(ProcessLookupError):  # killed meanwhile
            os.kill(pid, number)


def children_of(pid: int) -> list[int]:
    """List the child processes of a process."""
    children: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread ended meanwhile
            children += map(int, task.read_text().split())
    return children


def processes_with(setting: str) -> list[int]:
    """List the living processes that have a variable in their environment."""
    pids = []
    for place in Path("/proc").glob("[0-9]*/environ"):
        try:
            if setting.encode() in place.read_bytes().split(b"\0"):
                pids.append(int(place.parent.name))
        except OSError:  # it ended meanwhile
            continue
    return pids


def told_in(errors: Path) -> str:
    """Give the end of what processes wrote to stderr, behind what their last errors are.

    The errors come first since what prints this may cut it short.
    """
    text = errors.read_text(errors="replace")
    return "; ".join([*_ENDS.findall(text)[-3:], text[-_SHOWN:]])
