"""The dashboard over PostgreSQL."""

import pytest

from tests.harness.cases import web_pages

pytestmark = pytest.mark.postgres


def test_every_page_shows_and_steers_a_store(url: str) -> None:
    web_pages.every_page_shows_and_steers_a_store(url)
