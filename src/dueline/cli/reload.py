"""Restarts a worker when a Python file changes, for development."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from dueline.api.signals import passed_on
from dueline.cli.output import note

CHECK_S: Final = 0.5
SKIPPED: Final = frozenset({"__pycache__", "node_modules", "site-packages"})


def run_again_and_again(words: Sequence[str], folder: Path) -> int:
    """Run a command, again whenever a file changes; return its exit code once it is stopped.

    A command that fails, such as for a syntax error, is run again after the next change.

    Args:
        words: The arguments of `dueline`.
        folder: The Python files below it are watched.
    """
    children: list[subprocess.Popen[bytes]] = []
    is_over = threading.Event()

    def end(count: int) -> None:
        is_over.set()
        while count > 1 and children[-1].poll() is None:
            children[-1].terminate()  # again, since it takes two that are close for one
            time.sleep(CHECK_S)

    with passed_on(end) as received:
        while True:
            seen = now = _files(folder)
            # In a session of its own: Ctrl-C reaches it once, through this process.
            child = subprocess.Popen(  # noqa: S603  (what the caller ran)
                [sys.executable, "-m", "dueline", *words], start_new_session=True
            )
            children.append(child)
            while now == seen and not received:
                if child.poll() == 0:
                    return 0
                is_over.wait(CHECK_S)
                now = _files(folder)
            child.terminate()
            code = child.wait()
            if received:
                return code
            changed = sorted(path for path, _ in now.items() ^ seen.items())
            note(f"{os.path.relpath(changed[0])} changed: the worker starts again.")


def _files(folder: Path) -> dict[str, int]:
    """Return the Python files below a folder and when they were changed."""
    times: dict[str, int] = {}
    for path, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name[0] != "." and name not in SKIPPED]
        for name in names:
            if name.endswith(".py"):
                with suppress(OSError):  # the file was just deleted
                    times[f"{path}/{name}"] = Path(path, name).stat().st_mtime_ns
    return times
