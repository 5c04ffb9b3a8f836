"""An empty store of each kind, by its address."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.addresses import WITH_ADDRESS, address
from tests.harness.guarded_fields import checked_locks


@pytest.fixture(params=WITH_ADDRESS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Make an empty store; give its address."""
    with checked_locks(), address(request.param, tmp_path) as made:
        yield made
