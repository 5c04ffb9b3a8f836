"""Find modules that are too long: `python -m tools.module_lengths FOLDER...`.

Ruff has no such rule. Pylint has one, `too-many-lines`, and needs seconds for what takes
milliseconds here. The length of functions is held by ruff's PLR0915.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

LINES_MAX = 600
"""Maximum number of lines in a module."""

EXCEPTIONS: Mapping[str, str] = {}
"""Modules that may be longer: path from the root, and the reason."""


def long_modules(folders: Iterable[Path]) -> Iterator[str]:
    """Yield a message for each module that is too long and no exception."""
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            lines = len(path.read_text(encoding="utf-8").splitlines())
            if lines > LINES_MAX and str(path) not in EXCEPTIONS:
                yield f"{path} has {lines} lines, more than {LINES_MAX}: split it"


def main() -> None:
    """Print what is too long; exit with 1 where something is."""
    modules = list(long_modules(map(Path, sys.argv[1:])))
    print(*modules, sep="\n", end="\n" if modules else "")
    sys.exit(bool(modules))


if __name__ == "__main__":
    main()
