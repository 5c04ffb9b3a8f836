"""The blocks of the docs that need Spark, run."""

import re
import sys
from pathlib import Path

import pytest

from tests.harness.markdown import (
    PAGES,
    ROOT,
    WrongPage,
    blocks,
    program_of,
    run,
    run_block,
    run_page,
)
from tests.harness.spark.environment import TIMEOUT_S

NEEDS = "spark"
FOLDER = ROOT / "docs" / "pipeline"


def needing(path: Path, language: str) -> bool:
    """Return whether a page has blocks of a language that need Spark."""
    found = blocks(path.read_text(encoding="utf-8"))
    return any(block.needs == NEEDS and block.language == language for block in found)


COMMANDS = [path for path in PAGES if needing(path, "console")]
PROGRAMS = [path for path in PAGES if needing(path, "python")]


@pytest.mark.long
@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: path.name)
def test_the_commands_of_a_page_print_what_it_shows(path: Path, tmp_path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    run_page(page, tmp_path)
    for block in blocks(page):
        if block.needs == NEEDS and block.language == "console":
            try:
                run_block(block, tmp_path)
            except WrongPage as wrong:
                raise WrongPage(f"line {block.line}: {wrong}") from None


@pytest.mark.long
def test_the_programs_of_all_pages_run_in_one_session(tmp_path: Path) -> None:
    names: list[str] = []
    for path in PROGRAMS:
        page = path.read_text(encoding="utf-8")
        names += re.findall(r"^# file: (\S+)$", page, re.MULTILINE)
        run_page(page, tmp_path)
    assert len(names) == len(set(names)), "pages share a folder here, so their files have own names"
    program = "\n".join(program_of(path.read_text(encoding="utf-8"), NEEDS) for path in PROGRAMS)
    (tmp_path / "program.py").write_text(program + 'print("as the pages say")\n', encoding="utf-8")
    assert "as the pages say" in run(
        [sys.executable, "program.py"], tmp_path, 0, "the pages", TIMEOUT_S
    )


def test_pages_that_need_spark_are_those_of_the_pipeline_and_of_frames() -> None:
    others = {path for path in (*COMMANDS, *PROGRAMS) if path.parent != FOLDER}
    assert others == {ROOT / "docs" / "how-to" / "data-frames.md"}  # pandas is where Spark is
    assert len(PROGRAMS) > 5
