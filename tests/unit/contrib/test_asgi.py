"""A worker that runs as long as a web application is up (A9)."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from dueline import Dueline
from dueline.contrib.asgi import lifespan


def starlette(app: Dueline) -> Any:  # noqa: ANN401  (a client)
    applications = pytest.importorskip("starlette.applications")
    clients = pytest.importorskip("starlette.testclient")
    return clients.TestClient(applications.Starlette(lifespan=lifespan(app)))


def fastapi(app: Dueline) -> Any:  # noqa: ANN401
    framework = pytest.importorskip("fastapi")
    clients = pytest.importorskip("fastapi.testclient")
    return clients.TestClient(framework.FastAPI(lifespan=lifespan(app, concurrency=2)))


def litestar(app: Dueline) -> Any:  # noqa: ANN401
    framework = pytest.importorskip("litestar")
    clients = pytest.importorskip("litestar.testing")
    return clients.TestClient(framework.Litestar(lifespan=[lifespan(app)], logging_config=None))


@pytest.mark.slow
@pytest.mark.parametrize("client_of", [starlette, fastapi, litestar])
def test_a_worker_runs_while_the_application_is_up(client_of: Callable[[Dueline], Any]) -> None:
    app = Dueline("memory://")

    @app.task(name="add")
    async def add(first: int) -> int:
        return first + 1

    with client_of(app):
        assert add.enqueue(1).result(timeout=30) == 2
    assert "dueline-worker" not in {thread.name for thread in threading.enumerate()}
    assert add.enqueue(1).status == "ready"
