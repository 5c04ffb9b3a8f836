"""Rooms of one size, each with a caption."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "tests", "benchmarks", "examples", "models", "simulation", "tools")

MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
CAPTION_CHARACTERS_MAX = 80

EXCEPTIONS: Mapping[str, str] = {}
"""Modules that may be longer: path from the root, and the reason."""


def modules() -> list[Path]:
    """List every module of the project, by path."""
    return sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def long_functions(tree: ast.Module) -> Iterator[str]:
    """Name the functions that have too many lines; decorators are not counted."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield f"{node.name} has {lines} lines, more than {FUNCTION_LINES_MAX}"


def faults(source: str) -> list[str]:
    """List what is wrong with a module: its length, its functions, its caption."""
    found = []
    lines = len(source.splitlines())
    if lines > MODULE_LINES_MAX:
        found.append(f"{lines} lines, more than {MODULE_LINES_MAX}")
    tree = ast.parse(source)
    found.extend(long_functions(tree))
    caption = (ast.get_docstring(tree) or "").partition("\n")[0]
    if not caption:
        found.append("no docstring, so no caption")
    elif len(caption) > CAPTION_CHARACTERS_MAX:
        found.append(f"a caption of {len(caption)} characters: {caption}")
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_is_a_room_of_the_usual_size(path: Path) -> None:
    if str(path.relative_to(ROOT)) not in EXCEPTIONS:
        assert faults(path.read_text(encoding="utf-8")) == []


def test_exceptions_name_modules_that_exist_and_have_a_reason() -> None:
    for name, reason in EXCEPTIONS.items():
        assert (ROOT / name).is_file()
        assert reason


def test_a_module_that_is_too_long_is_a_fault() -> None:
    assert faults('"""Caption."""\n' + "x = 1\n" * 599) == []
    assert faults('"""Caption."""\n' + "x = 1\n" * 600) == ["601 lines, more than 600"]


def test_a_function_that_is_too_long_is_a_fault() -> None:
    body = "    x = 1\n"
    assert faults('"""Caption."""\ndef f():\n' + body * 69) == []
    found = faults('"""Caption."""\nclass A:\n    async def f():\n' + ("    " + body) * 70)
    assert found == ["f has 71 lines, more than 70"]


def test_a_module_without_a_short_caption_is_a_fault() -> None:
    assert faults("x = 1\n") == ["no docstring, so no caption"]
    assert "a caption of 81 characters" in faults(f'"""{"a" * 81}"""\n')[0]
