"""Chooses the tests that may notice a fault: those of its package, the nearest ones first."""

import re
from functools import cache
from pathlib import Path

from tools.planted_faults.faults import Fault

ROOT = Path(__file__).parent.parent.parent
SOURCE = ROOT / "src" / "dueline"
FOLDER = ROOT / "tests"

TESTS = {
    "jobs": ("unit/jobs/*",),
    "limits": ("unit/limits/*", "unit/jobs/*quota*", "unit/worker/*limits*", "unit/worker/*rates*"),
    "schedules": ("unit/schedules/*", "unit/monitor/*schedule*"),
    "stores/postgres": (
        "stores/postgres/test_[!cd]*",
        "stores/postgres/*cal*",
        "stores/postgres/*claims",
        "integration/wakeups/*postgres*",
    ),
    "streams": ("unit/streams/*",),
    "worker": ("unit/worker/*",),
    "workflows": ("unit/workflows/*",),
}
"""The packages, and the tests that may notice a fault, besides those that import its module."""

IN_CHILDREN = [f"tests/integration/failures/test_{name}.py" for name in ("boards", "crashes")]
"""Tests of the worker's code that only child processes run."""

OF_LOCKS = "tests/unit/test_locks.py"


def nearest(fault: Fault) -> list[str]:
    """Return test files: those first that name the place of a fault, then its module."""
    package, _, module = fault.file.removesuffix(".py").rpartition("/")
    imported = re.compile(rf"\bdueline\.{package.replace('/', '.')}(\.| import .*\b){module}\b")
    own = {
        path
        for pattern in TESTS[package]
        for path in FOLDER.glob(f"{pattern}.py")
        if path.stem.startswith("test_")
    }
    words = {word.lstrip("_") for word in fault.where.split(".")} - {"module"}
    ranks: dict[str, tuple[bool, bool, bool, int]] = {}
    for path in own.union(FOLDER.glob("unit/*/test_*.py")):
        text = _text_of(path)
        is_of_module = bool(imported.search(text))
        if path in own or is_of_module:
            named = sum(bool(re.search(rf"\b{word}\b", text)) for word in words)
            is_own = path.stem.removeprefix("test_") == module
            ranks[str(path.relative_to(ROOT))] = (
                not is_own,
                path not in own,
                not is_of_module,
                -named,
            )
    files = sorted(ranks, key=lambda file: (ranks[file], file))
    if "nullcontext" in fault.text:
        return [OF_LOCKS, *files]
    return IN_CHILDREN + files if module.startswith(("child", "process_runner")) else files


@cache
def _text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")
