"""Disks that are full, files that were cut, and functions that operators end."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from dueline.api.connect import open_store
from dueline.core.errors import StoreReplaced, StoreUnavailable, Unknown
from dueline.core.job import JobId
from dueline.core.store import Group, Store
from dueline.store_tests.calls import NOW_US, claim, lane_of, new_job, new_jobs, put_in
from tests.harness.redis import StartServer, free_port
from tests.kills.disk import MountError, SmallDisk, small_disk
from tools.redis import RedisError, Server

pytestmark = [pytest.mark.redis, pytest.mark.slow]
BODY = b"x" * 900
MANY = 100_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        with small_disk(folder) as made:
            yield made
    except MountError as error:
        pytest.skip(f"no disk can be mounted: {error}")


def ids_in(store: Store) -> set[JobId]:
    page = store.scan(lane_of(), after=None, until_us=None, limit=MANY)
    return {job.id for job in page.jobs}


def put_until_full(store: Store) -> tuple[set[JobId], StoreUnavailable]:
    """Insert jobs until the server refuses one; return the acknowledged ones, and the error."""
    done: set[JobId] = set()
    while True:
        job = new_job(len(done) + 1, body=BODY)
        try:
            store.add([job])
        except StoreUnavailable as error:
            return done, error
        done.add(job.id)


def test_a_full_disk_refuses_writes_and_says_so(disk: SmallDisk, tmp_path: Path) -> None:
    server = Server("redis", tmp_path / "disk" / "server", port=free_port(), fsync="everysec")
    server.start()
    try:
        with closing(open_store(server.url)) as store:
            put_in(store, new_job(0))
            disk.fill()
            done, error = put_until_full(store)
            assert "disk" in error.hint
            assert done < ids_in(store)  # reads go on
            with pytest.raises(StoreUnavailable, match="MISCONF"):
                claim(store, lane_of())
            disk.free()
            until(lambda: claim(store, lane_of(), most=1, limit=1).jobs)
            put_in(store, new_job(10_001))
            server.kill()
            server.start()
            assert done < ids_in(store)
    finally:
        server.kill()


def until(holds: Callable[[], object]) -> None:
    """Repeat a call until it returns something and raises nothing."""
    is_over = False
    while not is_over:
        with suppress(StoreUnavailable):
            is_over = bool(holds())


def test_with_fsync_always_a_server_on_a_full_disk_ends_and_has_all_after_its_restart(
    disk: SmallDisk, tmp_path: Path
) -> None:
    server = Server("redis", tmp_path / "disk" / "server", port=free_port(), fsync="always")
    server.start()
    try:
        with closing(open_store(server.url)) as store:
            put_in(store, new_job(0))
            disk.fill()
            done, _ = put_until_full(store)
            assert server.pid is None
            disk.free()
            server.start()
            assert done < ids_in(store)
            put_in(store, new_job(10_001))
    finally:
        server.kill()


@pytest.mark.parametrize("cut", [1, 200, 2_500])
def test_what_lies_before_a_cut_in_the_file_is_there(start_server: StartServer, cut: int) -> None:
    server = start_server("always")
    with closing(open_store(server.url)) as store:
        first, last = new_jobs(20), [new_job(number, body=BODY) for number in range(101, 104)]
        put_in(store, *first)
        (job, *_) = claim(store, lane_of(), limit=1).jobs
        for each in last:
            put_in(store, each)
        server.kill()
        cut_file(server, cut)
        server.start()
        kept = ids_in(store)
        assert {job.id for job in first} <= kept
        gone = {job.id for job in last} - kept
        assert len(gone) == {1: 1, 200: 1, 2_500: 2}[cut]
        put_in(store, *last)
        assert len(ids_in(store)) == 23
        (again,) = claim(store, lane_of(), now_us=NOW_US + 10**9, most=1, limit=1, token=2).jobs
        assert again.fence > job.fence + 10_000


def cut_file(server: Server, size: int | None) -> None:
    """Cut bytes from the end of the append-only file, or all but its first kilobyte."""
    (path,) = (server.folder / "appendonlydir").glob("*.incr.aof")
    length = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(1000 if size is None else length - size)


def test_a_store_whose_beginning_was_cut_is_not_written_to(start_server: StartServer) -> None:
    server = start_server("always")
    with closing(open_store(server.url)) as store:
        put_in(store, *new_jobs(5))
        server.kill()
        cut_file(server, None)  # inside the functions, which are loaded first
        server.start()
        for _ in range(2):
            with pytest.raises(StoreReplaced) as error:
                put_in(store, new_job(9))
        assert "without its files" in error.value.hint


def test_a_server_that_refuses_a_cut_file_is_an_outage(start_server: StartServer) -> None:
    server = start_server("always", {"aof-load-truncated": "no"})
    with closing(open_store(server.url)) as store:
        put_in(store, *new_jobs(5))
        server.kill()
        cut_file(server, 7)
        with pytest.raises(RedisError, match="does not start"):
            server.start()
        with pytest.raises(StoreUnavailable) as error:
            store.find([new_job(1).id])
        assert "server is running" in error.value.hint


def test_a_call_that_an_operator_ends_has_written_nothing(start_server: StartServer) -> None:
    server = start_server(settings={"busy-reply-threshold": "1"})
    with closing(open_store(server.url)) as store:
        put_in(store, new_job(0))
        errors: list[StoreUnavailable] = []

        def put() -> None:
            try:
                store.together([Group(jobs=new_jobs(MANY))])
            except StoreUnavailable as error:
                errors.append(error)

        caller = threading.Thread(target=put)
        caller.start()
        while caller.is_alive() and server.ask("FUNCTION", "KILL") != "+OK":
            pass
        caller.join()
        (error,) = errors
        assert not isinstance(error, Unknown)
        assert "FUNCTION KILL" in error.message + error.hint
        assert ids_in(store) == {new_job(0).id}
        put_in(store, new_job(1))
