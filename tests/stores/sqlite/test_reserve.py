"""A disk that is nearly full refuses new jobs first: claims and outcomes go on (R14)."""

import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from dueline import Dueline, Task
from dueline.core.errors import ConfigError, StoreUnavailable
from dueline.core.job import JobId
from dueline.core.store import Drop, Group
from dueline.jobs import webhooks
from dueline.stores.sqlite import reserve
from dueline.stores.sqlite.reserve import MIB, RESERVE_MIB, Reserve
from tests.harness.webhooks import KEY
from tests.kills.disk import MountError, SmallDisk, small_disk

pytestmark = pytest.mark.sqlite
Leave = Callable[[int], None]


@pytest.fixture
def leave(monkeypatch: pytest.MonkeyPatch) -> Leave:
    """Return what sets the free space of a disk of 100 GiB, in MiB."""
    free = [1000]

    def disk_of(_: object) -> object:
        return SimpleNamespace(f_frsize=MIB, f_blocks=100 * 1024, f_bavail=free[0])

    monkeypatch.setattr(os, "statvfs", disk_of)
    monkeypatch.setattr(reserve, "CHECKED_S", 0.0)
    return lambda mib: free.__setitem__(0, mib)


def app_on(folder: Path, options: str = "") -> tuple[Dueline, Task[..., None]]:
    """Return an application with a task."""
    app = Dueline(f"sqlite:///{folder}/jobs.db{options}")
    app.webhooks(secret=KEY)

    @app.task(name="t")
    def work(_: object) -> None:
        pass

    return app, work


def test_new_jobs_are_refused_and_stored_ones_run(tmp_path: Path, leave: Leave) -> None:
    app, task = app_on(tmp_path)
    first = task.enqueue(1)
    leave(RESERVE_MIB - 1)
    for enqueue in (
        lambda: task.enqueue(2),
        lambda: task.using(unique="a").enqueue(2),
        lambda: task.enqueue_many([(2,), (3,)]),
    ):
        with pytest.raises(StoreUnavailable, match=r"MiB left, and 64\.0 MiB are reserved"):
            enqueue()
    app.run_worker(burst=True)
    assert first.result() is None
    leave(RESERVE_MIB + 40)  # and the log
    task.enqueue(2)
    app.close()


def test_more_is_reserved_than_the_disk_has(tmp_path: Path) -> None:
    url = "https://hooks.example.com/jobs"
    app, task = app_on(tmp_path, "?reserve=0")
    first = task.using(webhook=url).enqueue(1)
    app.close()
    app, task = app_on(tmp_path, "?reserve=9999999")
    with pytest.raises(StoreUnavailable, match="reserved"):
        task.enqueue(2)
    with pytest.raises(StoreUnavailable, match="reserved"):
        task.using(unique="a").enqueue(3)
    (row,) = app.store.find([JobId(bytes.fromhex(first.id))])
    assert row is not None
    Reserve(tmp_path / "jobs.db", 9_999_999).expect_room_for([Group((Drop(row),), jobs=(row,))])
    app.run_worker(["default"], burst=True)  # the end inserts the delivery
    assert app.job(first.id).status == "done"
    assert app.admin.count(f"queue:{webhooks.QUEUE}").jobs == 1
    assert app.admin.count("queue:default").jobs == 0
    app.close()


def test_a_transaction_is_refused_and_rolled_back(tmp_path: Path, leave: Leave) -> None:
    app, task = app_on(tmp_path)
    task.enqueue(1)
    leave(1)
    with pytest.raises(StoreUnavailable, match="reserved"), app.transaction() as tx:
        task.using(tx=tx).enqueue(2)
    app.close()


def test_the_reserve_is_an_option(tmp_path: Path, leave: Leave) -> None:
    leave(500)
    app, task = app_on(tmp_path, "?reserve=501")
    with pytest.raises(StoreUnavailable, match="reserved"):
        task.enqueue(1)
    app.close()
    leave(0)
    app, task = app_on(tmp_path, "?reserve=0")
    task.enqueue(1)
    app.close()
    for wrong in ("-1", "x", "1.5", "99999999"):
        with pytest.raises(ConfigError, match="not a valid SQLite URL"):
            _ = app_on(tmp_path, f"?reserve={wrong}")[0].store


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        with small_disk(folder) as made:
            yield made
    except MountError as error:
        pytest.skip(f"no disk can be mounted: {error}")


def test_a_disk_that_jobs_fill_up_is_drained(disk: SmallDisk) -> None:
    app, task = app_on(Path(disk.url.removeprefix("sqlite:///")).parent)
    stored = count()

    def enqueue() -> None:
        while next(stored) < 1000:
            task.enqueue("x" * 100_000)

    with pytest.raises(StoreUnavailable, match="reserved"):
        enqueue()
    assert next(stored) > 50
    app.run_worker(burst=True)
    assert app.admin.count("state:ready").jobs == 0
    app.close()
