"""The pages whose blocks need PostgreSQL, run on a database of their own."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.markdown import PAGES, ROOT, blocks, run_page
from tests.harness.postgres import server_url, statement

pytestmark = pytest.mark.postgres

NEEDS = "postgres"
MODULES = {"django.md": "django", "fastapi.md": "fastapi"}
"""What a page imports, and an environment may lack."""

NEEDING = [
    path
    for path in PAGES
    if any(block.needs == NEEDS for block in blocks(path.read_text(encoding="utf-8")))
]


@pytest.fixture
def database() -> Iterator[str]:
    """Make an empty database, and answer its URL."""
    url = server_url()
    name = f"page_{secrets.token_hex(6)}"
    statement(url, f"CREATE DATABASE {name}")
    yield f"{url.rpartition('/')[0]}/{name}"
    statement(url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", NEEDING, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_does_what_it_says(path: Path, tmp_path: Path, database: str) -> None:
    pytest.importorskip(MODULES[path.name])
    page = path.read_text(encoding="utf-8")
    assert run_page(page, tmp_path, has=NEEDS, settings={"DUELINE_STORE": database}) > 3
