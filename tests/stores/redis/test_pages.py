"""The pages whose blocks need Redis, run on a server of their own."""

from pathlib import Path

import pytest

from tests.harness.markdown import PAGES, blocks, run_page
from tests.harness.redis import StartServer

pytestmark = pytest.mark.redis

NEEDS = "redis"

NEEDING = [
    path
    for path in PAGES
    if any(block.needs == NEEDS for block in blocks(path.read_text(encoding="utf-8")))
]


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", NEEDING, ids=lambda path: path.stem)
def test_a_page_does_what_it_says(path: Path, start_server: StartServer, tmp_path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    settings = {"DUELINE_STORE": start_server().url}
    folder = tmp_path / "page"
    folder.mkdir()
    assert run_page(page, folder, has=NEEDS, settings=settings) > 1
