"""An application on each store that has transactions."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline import Dueline, Job, NotFound, Task


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


def numbered(app: Dueline) -> Task[[int], int]:
    """Register a task that answers its number."""

    @app.task(name="send")
    def send(number: int) -> int:
        return number

    return send


def bills(app: Dueline) -> list[tuple[int, int]]:
    """Read the table of the shop, in a transaction of its own."""
    with app.transaction() as tx:
        return tx.execute("select number, cents from bills order by rowid")


def status(job: Job[int]) -> str:
    """Read a job's state."""
    try:
        return job.status
    except NotFound:
        return "unknown"
