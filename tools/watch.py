"""Run tests at once, and again after each change of a file. Ctrl+C ends it."""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
POLL_S: Final = 0.5
FOLDERS: Final = ("src", "tests", "tools", "checker", "simulation", "models")


def stamps() -> Iterator[tuple[str, int]]:
    """Yield the files of code with their times of change."""
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            try:
                yield str(path), path.stat().st_mtime_ns
            except FileNotFoundError:  # deleted since it was listed
                continue


def main() -> None:
    """Run pytest with these arguments, whenever a file has changed."""
    parser = argparse.ArgumentParser(prog="python -m tools.watch", description=__doc__)
    parser.add_argument("-k", help="a word that selects tests")
    parser.add_argument("tests", nargs="+", help="files or folders of tests")
    given = parser.parse_args()
    chosen = ["-k", given.k] if given.k else []
    options = ["-q", "-x", "--ff", "-m", "not mutants and not long and not slow"]
    before: dict[str, int] = {}
    try:
        while True:
            if (now := dict(stamps())) != before:
                before = now
                command = [sys.executable, "-m", "pytest", *options, *chosen, *given.tests]
                subprocess.run(command, cwd=ROOT, check=False)
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
