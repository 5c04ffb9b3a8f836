"""A worker in the process of an ASGI application."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from dueline.api.application import Dueline


def lifespan(
    app: Dueline,
    **options: Any,  # noqa: ANN401  (those of `app.worker`)
) -> Callable[[object], AbstractAsyncContextManager[None]]:
    """Return a lifespan that runs a worker as long as a web application is up.

    Pass it as `FastAPI(lifespan=lifespan(app))`, `Starlette(lifespan=lifespan(app))` or
    `Litestar(lifespan=[lifespan(app)])`. In a lifespan of your own, write `async with
    app.worker():`.

    Args:
        app: The application whose jobs the worker runs.
        **options: Options of `app.worker`, such as `concurrency=4`.

    Returns:
        A function that takes the web application and returns a context manager. Its end waits for
        running handlers.
    """

    @asynccontextmanager
    async def run(_web: object) -> AsyncIterator[None]:
        async with app.worker(**options):
            yield

    return run
