"""An application in memory."""

from collections.abc import Iterator

import pytest

from dueline import Dueline


@pytest.fixture
def plain() -> Iterator[Dueline]:
    """Make one on which it does not matter where jobs lie."""
    app = Dueline("memory://")
    yield app
    app.close()
