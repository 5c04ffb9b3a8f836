"""Selection of the files that become jobs."""

import ast
import sysconfig
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from examples.demo.tasks import Trouble

FILES_MIN = 500
FILES = 2000
"""A typical installation has 4,000 files or more; the limit keeps the demo short."""

URGENT = frozenset({"asyncio", "collections", "concurrent", "email", "json", "logging"})
URGENT_PRIORITY = 100
LIBRARY_PRIORITY = 10
TESTS_PRIORITY = -10
DUE_AHEAD_S = (2, 3, 4, 5)

TROUBLES = (
    *[Trouble.FAILS_TWICE] * 5,
    *[Trouble.CRASHES_ONCE] * 3,
    Trouble.CRASHES_ALWAYS,
)

_NO_PYTHON = ("lib2to3/tests/data/", "test/tokenizedata/bad")
"""Where the standard library has files that cannot be parsed; some systems omit them."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A file, and how its job is enqueued.

    module: path of the file relative to its library. after_s: seconds until it is due.
    """

    path: str
    module: str
    priority: int = 0
    after_s: int = 0
    trouble: Trouble = Trouble.NONE


def plan(folder: Path, most: int = FILES) -> list[Planned]:
    """Choose the same files every time, evenly distributed over all installed files.

    Args:
      folder: where to write an unparsable file, if the installation has none.
      most: number of files.

    Raises: SystemExit: fewer files are requested or installed than the proof needs.
    """
    if most < FILES_MIN:
        raise SystemExit(f"FILES must be at least {FILES_MIN} (got {most}).")
    found = sorted(_installed(), key=lambda one: one.path)
    broken = [one for one in found if any(place in one.path for place in _NO_PYTHON)]
    rest = [one for one in found if one not in broken]
    if not any(not can_parse(one.path) for one in broken):
        broken.append(_write_broken(folder))
    room = min(len(rest), most - len(broken))
    sample = [rest[number * len(rest) // room] for number in range(room)]
    if len(sample) + len(broken) < FILES_MIN:
        raise SystemExit(f"Found only {len(sample)} Python files; the demo needs {FILES_MIN}.")
    return [*_with_trouble(sample), *broken]


def can_parse(path: str) -> bool:
    """Return whether a file can be parsed as Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(Path(path).read_bytes())
        except SyntaxError:
            return False
    return True


def _installed() -> Iterator[Planned]:
    """Yield every file of the standard library and of the installed packages."""
    library = Path(sysconfig.get_path("stdlib"))
    packages = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}
    for path in library.rglob("*.py"):
        place = path.relative_to(library)
        if not {"site-packages", "dist-packages"} & set(place.parts):
            yield Planned(str(path), str(place), *_urgency(place))
    for folder in packages:
        for path in folder.rglob("*.py"):
            yield Planned(str(path), str(path.relative_to(folder)))


def _urgency(place: Path) -> tuple[int, int]:
    """Return priority and delay of a standard library file, by its package."""
    package = place.parts[0]
    if package in URGENT:
        return URGENT_PRIORITY, DUE_AHEAD_S[len(place.name) % len(DUE_AHEAD_S)]
    if package in {"test", "lib2to3"} or "tests" in place.parts:
        return TESTS_PRIORITY, 0
    return LIBRARY_PRIORITY, 0


def _write_broken(folder: Path) -> Planned:
    path = folder / "no_python.py"
    path.write_text("def no python(:\n", encoding="utf-8")
    return Planned(str(path), path.name)


def _with_trouble(sample: Sequence[Planned]) -> list[Planned]:
    """Choose a few files to fail or crash: they run early, and can be parsed."""
    chosen = [
        number
        for number, one in enumerate(sample)
        if one.priority == LIBRARY_PRIORITY and one.after_s == 0
    ]
    step = len(chosen) // len(TROUBLES)
    changed = list(sample)
    for number, trouble in zip(chosen[::step], TROUBLES, strict=False):
        changed[number] = _troubled(sample[number], trouble)
    return changed


def _troubled(one: Planned, trouble: Trouble) -> Planned:
    return Planned(one.path, one.module, one.priority, one.after_s, trouble)
