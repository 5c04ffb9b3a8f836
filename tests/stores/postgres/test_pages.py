"""The pages whose blocks need PostgreSQL, run on a database of their own."""

from pathlib import Path

import pytest

from tests.harness.markdown import PAGES, ROOT, blocks, run_page
from tests.harness.postgres import database

pytestmark = pytest.mark.postgres

NEEDS = "postgres"
MODULES = {"django.md": "django", "fastapi.md": "fastapi"}
"""What a page imports, and an environment may lack."""

NEEDING = [
    path
    for path in PAGES
    if any(block.needs == NEEDS for block in blocks(path.read_text(encoding="utf-8")))
]


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", NEEDING, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_does_what_it_says(path: Path, tmp_path: Path) -> None:
    pytest.importorskip(MODULES[path.name])
    page = path.read_text(encoding="utf-8")
    with database() as url:
        assert (
            run_page(
                page, tmp_path, has=NEEDS, settings={"DUELINE_STORE": url, "DATABASE_URL": url}
            )
            > 3
        )
