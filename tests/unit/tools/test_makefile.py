"""The tests that targets of the Makefile leave out, against the tree."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TESTS = ROOT / "tests"


def paths_of(variable: str) -> list[Path]:
    """Return the files and folders of tests that a variable of the Makefile lists."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    match = re.search(rf"^{variable} := (.+)$", text, re.MULTILINE)
    assert match is not None
    return [TESTS / name for name in match[1].split()]


def test_mutants_are_where_make_mutants_collects_them() -> None:
    collected = paths_of("MUTANT_TESTS")
    marked = [
        path
        for path in TESTS.rglob("test_*.py")
        if "\n@pytest.mark.mutants" in path.read_text(encoding="utf-8")
    ]
    assert [path for path in marked if not {path, *path.parents} & set(collected)] == []
    assert [path for path in collected if not any({path} & {m, *m.parents} for m in marked)] == []


def test_make_test_ignores_only_folders_of_long_tests(request: pytest.FixtureRequest) -> None:
    manager = request.config.pluginmanager
    [conftest] = [p for p in manager.get_plugins() if getattr(p, "LONG_PAGES", None)]
    assert {path.name for path in paths_of("LONG_FOLDERS")} == conftest.LONG
    assert all(path.is_dir() for path in paths_of("LONG_FOLDERS"))
