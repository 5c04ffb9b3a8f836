"""A store on PostgreSQL that moves while a caller's transaction is open."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline.admin.move import Moved, Mover
from dueline.api.connect import open_queues, open_store
from dueline.core.clock import SystemClock
from dueline.core.errors import StoreMoved
from tests.harness.postgres import expect_server, schemas
from tests.harness.woken_workers import app_on

expect_server()

import psycopg  # noqa: E402

pytestmark = pytest.mark.postgres


@pytest.fixture
def url() -> Iterator[str]:
    """An empty schema."""
    with schemas() as made:
        yield made.fresh()


def test_a_transaction_that_was_open_is_waited_for(tmp_path: Path, url: str) -> None:
    # Rule X1.
    clock = SystemClock()
    app, target = app_on(url), f"sqlite:///{tmp_path}/new.db"
    echo = app.task_named("tests.echo")
    waited = 0
    with psycopg.connect(url.partition("?")[0]) as caller:
        echo.using(after=60, tx=caller).enqueue("in time")

        def report(text: str, _: Moved) -> None:
            nonlocal waited
            if "open transactions" in text:
                waited += 1
                if waited == 2:
                    caller.commit()
                    with pytest.raises(StoreMoved):
                        echo.using(tx=caller).enqueue("late")
                    caller.rollback()

        stores = [open_store(one) for one in (url, target)]
        queues = [
            open_queues(one, store, clock=clock)
            for one, store in zip((url, target), stores, strict=True)
        ]
        mover = Mover(queues[0], queues[1], (url, target), clock=clock, report=report, grace_us=0)
        assert mover.run().jobs == 1
        for store in stores:
            store.close()
    app.close()
    assert waited >= 2
