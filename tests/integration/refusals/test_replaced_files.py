"""Queue files that are removed or replaced while processes use them."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dueline.api.application import Dueline
from dueline.core.errors import StoreReplaced
from dueline.stores.sqlite.wal_checkpointer import PAGES
from tests.harness.clocks import HandClock
from tests.harness.failing_world import World
from tests.harness.queue_files import fill

COMPANIONS = ("", "-wal", "-shm")


def remove(path: Path) -> None:
    for suffix in COMPANIONS:
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def replace(path: Path) -> None:
    other = path.with_name("other")
    other.mkdir(mode=0o700)
    fill(other / "new.db")
    (other / "new.db").replace(path)


BOTH = pytest.mark.parametrize("change", [remove, replace])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.db"


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def app(path: Path, clock: HandClock) -> Iterator[Dueline]:
    app = Dueline(f"sqlite:///{path}", clock=clock)
    app.queue("default")
    yield app
    app.close()


@BOTH
def test_no_job_is_acknowledged_into_a_removed_file(
    app: Dueline, path: Path, change: Callable[[Path], None]
) -> None:
    work = app.task(name="work")(lambda: None)
    work.enqueue()
    change(path)
    for _ in range(3):
        with pytest.raises(StoreReplaced, match="was removed or replaced") as caught:
            work.enqueue()
        assert str(path) in caught.value.message
        assert caught.value.hint


@BOTH
def test_no_transaction_is_committed_into_a_file_that_is_gone(
    app: Dueline, path: Path, change: Callable[[Path], None]
) -> None:
    work = app.task(name="work")(lambda: None)
    work.enqueue()

    def enqueue() -> None:
        with app.transaction() as tx:
            work.using(tx=tx).enqueue()
            change(path)

    with pytest.raises(StoreReplaced):
        enqueue()


@BOTH
def test_a_process_that_only_reads_notices_within_a_second(
    app: Dueline, path: Path, clock: HandClock, change: Callable[[Path], None]
) -> None:
    app.task(name="work")(lambda: None).enqueue()
    change(path)
    clock.advance(1.001)
    for _ in range(2):
        with pytest.raises(StoreReplaced):
            app.queues.engine.catalog.names()


def test_a_file_that_is_gone_is_not_made_again_behind_a_fork(app: Dueline, path: Path) -> None:
    work = app.task(name="work")(lambda: None)
    work.enqueue()
    remove(path)
    app.store._file.before_fork()  # type: ignore[attr-defined]
    app.store._file.after_fork_in_parent()  # type: ignore[attr-defined]
    with pytest.raises(StoreReplaced):
        work.enqueue()
    assert not path.exists()


def test_a_store_that_was_closed_opens_the_new_file(app: Dueline, path: Path) -> None:
    work = app.task(name="work")(lambda: None)
    work.enqueue()
    remove(path)
    with pytest.raises(StoreReplaced):
        work.enqueue()
    app.close()
    other = Dueline(f"sqlite:///{path}")
    job = other.task(name="work")(lambda: None).enqueue()
    assert job.status == "ready"
    other.close()


def test_the_log_of_a_replaced_file_is_not_copied_into_the_new_one(
    app: Dueline, path: Path
) -> None:
    work = app.task(name="work")(lambda _: None)
    work.enqueue("first")
    replace(path)
    (path.with_name("queue.db-wal")).rename(path.with_name("old-wal"))
    before = path.read_bytes()
    with pytest.raises(StoreReplaced):
        work.enqueue_many([("x" * 100_000,) for _ in range(PAGES // 20)])
    app.close()
    assert path.read_bytes() == before


@pytest.mark.slow
@BOTH
def test_a_worker_exits_when_its_file_is_removed(
    world: World, change: Callable[[Path], None]
) -> None:
    worker = world.worker()
    world.until_it_serves(worker)
    change(world.folder / "queue.db")
    assert worker.wait() == 3
    assert "was removed or replaced" in worker.log()
    assert "Traceback" not in worker.log()


def test_a_copy_in_the_place_of_the_file_is_another_file(app: Dueline, path: Path) -> None:
    work = app.task(name="work")(lambda: None)
    work.enqueue()
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").replace(path)
    with pytest.raises(StoreReplaced):
        work.enqueue()
