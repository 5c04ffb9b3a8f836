"""README and docs, run (O10)."""

import re
from pathlib import Path

import pytest

from tests.harness.markdown import (
    PAGES,
    ROOT,
    Block,
    Step,
    WrongPage,
    blocks,
    program_of,
    run_page,
    shows,
    steps,
)

NO_RUN_MAX = 2
"""Blocks that need a database server, or start a Cassandra node."""
NEEDED = {"spark", "postgres", "redis", "dbos", "temporal"}
"""What blocks may need; tests/unit/spark, tests/stores/postgres, tests/stores/redis and
tests/integration/peers run them."""


@pytest.mark.timeout(600)  # some pages are a hundred processes, one after the other
@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_does_what_it_says(path: Path, tmp_path: Path) -> None:
    run_page(path.read_text(encoding="utf-8"), tmp_path)


def test_few_blocks_are_not_run_and_each_says_why() -> None:
    left_out = [
        (path.name, block.line, block.no_run)
        for path in PAGES
        for block in blocks(path.read_text(encoding="utf-8"))
        if block.no_run is not None
    ]
    needed = {block.needs for path in PAGES for block in blocks(path.read_text(encoding="utf-8"))}
    assert needed == {None, *NEEDED}
    assert [where for where in left_out if not where[2]] == []
    assert len(left_out) <= NO_RUN_MAX, left_out


IMPORT = re.compile(r"^(?:from|import) (\w+)", re.MULTILINE)
INSTALLED_AS = {
    "asyncpg": "asyncpg", "django": "[django", "fastapi": "fastapi", "flask": "flask",
    "httpx": "httpx", "litestar": "litestar", "opentelemetry": "[otel]", "sentry_sdk": "sentry-sdk",
    "sqlalchemy": "sqlalchemy", "starlette": "[web]", "structlog": "structlog",
}  # fmt: skip
"""Packages that pages import, with what a line with `pip install` says of them."""


@pytest.mark.parametrize("page", sorted((ROOT / "docs/how-to").glob("*.md")), ids=lambda p: p.stem)
def test_a_page_says_what_to_install(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    code = "".join(block.text for block in blocks(text) if block.language == "python")
    installed = " ".join(line for line in text.splitlines() if "pip install" in line)
    wanted = {INSTALLED_AS[name] for name in IMPORT.findall(code) if name in INSTALLED_AS}
    assert [name for name in sorted(wanted) if name not in installed] == []


# --- the runner itself -----------------------------------------------------------------------


def page(*fenced: str) -> str:
    """Make a page of fenced blocks: `info` and text with a line end between."""
    return "# Title\n\n" + "".join(f"```{block}```\n\n" for block in fenced)


def test_blocks_are_found_with_their_line_and_language() -> None:
    text = page("python\nx = 1\n", "text\nno\n", "console no-run: takes an hour\n$ x\n")
    assert list(blocks(text)) == [
        Block(3, "python", None, "x = 1\n"),
        Block(11, "console", "takes an hour", "$ x\n"),
    ]


def test_a_block_in_a_list_loses_its_indent() -> None:
    text = "- so:\n\n  ```python\n  if x:\n      y\n\n  z\n  ```\n"
    assert [block.text for block in blocks(text)] == ["if x:\n    y\n\nz\n"]


def test_a_file_block_is_written_and_the_next_block_imports_it(tmp_path: Path) -> None:
    text = page(
        "python\n# file: jobs.py\nraise_me = 3\n",
        "python\nimport jobs\nassert jobs.raise_me == 3\n",
        "console\n$ python -c 'import jobs; print(jobs.raise_me)'\n3\n",
    )
    assert run_page(text, tmp_path) == 3


def test_a_python_block_that_fails_is_an_error_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(WrongPage, match=r"line 3: `the block` exited 1(.|\n)*ZeroDivisionError"):
        run_page(page("python\n1 / 0\n"), tmp_path)


def test_a_command_exits_as_the_page_says(tmp_path: Path) -> None:
    assert run_page(page("console\n$ exit 4  # exits 4\n$ true\n"), tmp_path) == 1
    with pytest.raises(WrongPage, match="`false` exited 1, not 0"):
        run_page(page("console\n$ false\n"), tmp_path)


def test_output_other_than_shown_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WrongPage, match="and not\ntwo"):
        run_page(page("console\n$ echo one\ntwo\n"), tmp_path)


def test_a_block_that_is_not_run_is_passed_over(tmp_path: Path) -> None:
    assert run_page(page("console no-run: needs a network\n$ false\n"), tmp_path) == 0


def test_what_needs_something_is_joined_to_a_program_and_not_run_alone(tmp_path: Path) -> None:
    text = page("python needs: spark\nx = 1 / 0\n", "python\n\n", "python needs: spark\ny = x\n")
    assert run_page(text, tmp_path) == 1
    assert program_of(text, "spark") == "x = 1 / 0\n\ny = x\n"


def test_no_setting_of_dueline_reaches_a_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUELINE_STORE", "sqlite:///mine.db")
    run_page(page('console\n$ echo "[$DUELINE_STORE]"\n[]\n'), tmp_path)


def test_a_command_goes_on_over_lines() -> None:
    assert steps("$ a \\\n> b\nout\n\n$ c # exits 2\n") == [
        Step("a \\\nb", 0, "out\n\n"),
        Step("c", 2, ""),
    ]


def test_a_console_block_without_a_command_is_an_error() -> None:
    with pytest.raises(WrongPage, match="starts with a command"):
        steps("out\n")


def test_dots_stand_for_any_text() -> None:
    assert shows("took 3 ms  \nover\nend\n", "took ... ms\n...\nend")
    assert shows("before\n(a|b) shown\nafter\n", "(a|b) shown")
    assert not shows("end\nstart\n", "start\n...\nend")
