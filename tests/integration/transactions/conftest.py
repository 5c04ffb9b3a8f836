"""An application on each store that has transactions."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline import Dueline, Task
from tests.harness.transactions import numbered


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Name a fresh queue file."""
    return f"sqlite:///{tmp_path}/jobs.db?synchronous=NORMAL"


@pytest.fixture(
    params=[
        pytest.param("memory", marks=pytest.mark.memory),
        pytest.param("sqlite", marks=pytest.mark.sqlite),
    ]
)
def app(request: pytest.FixtureRequest, url: str) -> Iterator[Dueline]:
    """Make an application on each of the stores."""
    app = Dueline("memory://" if request.param == "memory" else url)
    yield app
    app.close()


@pytest.fixture
def shop(url: str) -> Iterator[Dueline]:
    """Make an application on SQLite, with a table of its own in the queue file."""
    app = Dueline(url)
    with app.transaction() as tx:
        tx.execute("create table bills (number integer unique, cents integer not null)")
    yield app
    app.close()


@pytest.fixture
def send(app: Dueline) -> Task[[int], int]:
    """Register a task."""
    return numbered(app)
