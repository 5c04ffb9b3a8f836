"""A shop with jobs in every state, and its dashboard."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline.web import dashboard
from tests.harness.addresses import address
from tests.harness.web import Shop, Visitor

KINDS = [
    "memory",
    "sqlite",
    pytest.param("redis", marks=[pytest.mark.redis, pytest.mark.long]),
]


@pytest.fixture(params=KINDS)
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """Open a shop on each kind of store."""
    with address(request.param, tmp_path) as url:
        made = Shop(url)
        yield made
        made.app.close()


@pytest.fixture
def admin(shop: Shop) -> Visitor:
    """Open the dashboard as an admin."""
    return Visitor(dashboard(shop.app, role="admin"))
