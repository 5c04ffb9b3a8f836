"""What a process has loaded."""

import subprocess
import sys


def loaded(program: str) -> set[str]:
    """Name what a process has loaded at the end of a program."""
    ended = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys; print(*sys.modules)"],
        check=True,
        capture_output=True,
        text=True,
    )
    return set(ended.stdout.splitlines()[-1].split())
