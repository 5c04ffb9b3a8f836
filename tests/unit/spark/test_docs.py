"""The blocks of the docs that need Spark, run."""

import sys
from pathlib import Path

import pytest

from tests.harness.markdown import PAGES, ROOT, program_of, run, run_page
from tests.harness.spark.environment import TIMEOUT_S

NEEDS = "spark"
SHOULD = {
    "docs/spark.md": """
assert [tuple(row) for row in said.findings.collect()] == []
assert attempts.where("outcome = 'done'").count() == 2
assert (counts.rows, counts.added) == (2, 2)
print("as the page says")
""",
}
"""What has to hold when the program of a page has run."""


@pytest.mark.parametrize("name", SHOULD)
def test_the_blocks_of_a_page_that_need_spark_do_what_it_says(name: str, tmp_path: Path) -> None:
    page = (ROOT / name).read_text(encoding="utf-8")
    run_page(page, tmp_path)
    program = tmp_path / "program.py"
    program.write_text(program_of(page, NEEDS) + SHOULD[name], encoding="utf-8")
    assert "as the page says" in run([sys.executable, program.name], tmp_path, 0, name, TIMEOUT_S)


def test_no_page_is_left_out() -> None:
    pages = {str(path.relative_to(ROOT)) for path in PAGES if program_of(path.read_text(), NEEDS)}
    assert pages == set(SHOULD)
