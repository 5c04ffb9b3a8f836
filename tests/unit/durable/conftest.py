"""What tests of durable functions share."""

from collections.abc import Iterator

import pytest

from dueline import Dueline
from dueline.testing.bench import AppOnBench, on_bench


@pytest.fixture
def bench() -> Iterator[AppOnBench]:
    """Make an application on a test clock."""
    with on_bench(Dueline(), replays=False) as made:
        yield made
