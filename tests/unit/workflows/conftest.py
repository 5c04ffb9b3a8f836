"""An application with tasks for workflows, on each kind of store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline import Dueline
from tests.harness.workflow_tasks import FAILING, with_tasks
from tests.harness.world import EVERY_KIND

URLS = ["memory://", "memory://?transactional=off", "sqlite:///{}/a.db?synchronous=NORMAL"]


@pytest.fixture(params=URLS)
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Dueline]:
    """Make an application that knows some small tasks."""
    url: str = request.param
    app = with_tasks(Dueline(url.format(tmp_path)))
    yield app
    app.close()


@pytest.fixture(params=EVERY_KIND)
def kind(request: pytest.FixtureRequest) -> str:
    """Name a kind of store, for tests of the engine."""
    name: str = request.param
    return name


@pytest.fixture(autouse=True)
def _failing() -> Iterator[None]:
    FAILING["fails"] = True
    yield
    FAILING["fails"] = True
