"""A shop with jobs in every state, and its dashboard."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline.web import dashboard
from tests.harness.web import Shop, Visitor


@pytest.fixture(params=["memory", "sqlite"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """Open a shop on each kind of store."""
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'shop.db'}"
    made = Shop(url)
    yield made
    made.app.close()


@pytest.fixture
def admin(shop: Shop) -> Visitor:
    """Open the dashboard as an admin."""
    return Visitor(dashboard(shop.app, role="admin"))
