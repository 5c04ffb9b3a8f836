"""Stores that move while processes enqueue and work, and while the mover is killed (H16)."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dueline.api.connect import open_store
from dueline.core.store_capabilities import ListsLanes
from tests.harness.cassandra_node import keyspaces_on_a_node
from tests.harness.postgres import schemas
from tests.harness.redis import new_url

JOBS = """
import os, sys, time
from dueline import Dueline, EnqueueUnknown, Retry, StoreMoved, StoreUnavailable

ADDRESSES = sys.argv[1:3] if "dueline" not in sys.argv[0] else []
app = Dueline()
app.queue("default", history="all")

def note(name, text):
    file = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{text}\\n".encode())
    os.close(file)

@app.task
def mark(number: int, sleeps: float = 0) -> int:
    time.sleep(sleeps)
    note("ran", number)
    return number

@app.task(retry=Retry.fixed(2, attempts=3))
def fails_once(number: int) -> int:
    if not os.path.exists(f"failed-{number}"):
        note(f"failed-{number}", number)
        raise ValueError("once")
    note("ran", number)
    return number
"""
PRODUCER = """
import itertools, sys, time
from jobs import ADDRESSES, app, fails_once, mark, note
from dueline import EnqueueUnknown, StoreMoved, StoreUnavailable

base = int(sys.argv[3])
left = iter(ADDRESSES)
app.use_store(next(left))
for number in itertools.count(base):
    call = mark.using(priority=number % 3, after=number % 4, tenant=f"t{number % 2}")
    if number % 5 == 0:
        call = fails_once.using(unique=f"key-{number}")
    sleeps = (4.0,) if number % 50 == 1 else ()
    while True:
        try:
            call.enqueue(number, *sleeps)
            break
        except StoreMoved:
            note("switched", number)
            app.close()
            app.use_store(next(left))
        except EnqueueUnknown as error:
            print("unknown", error, file=sys.stderr, flush=True)
            raise
        except StoreUnavailable:
            time.sleep(0.2)
    note("asked", number)
    time.sleep(0.02)
"""


@pytest.fixture
def postgres() -> Iterator[str]:
    """An empty schema."""
    with schemas() as made:
        yield made.fresh()


@pytest.fixture
def cassandra() -> Iterator[str]:
    """An empty keyspace."""
    with keyspaces_on_a_node(1) as keyspaces:
        yield keyspaces.fresh()


def start(folder: Path, store: str, *words: str) -> "subprocess.Popen[bytes]":
    """Start a process."""
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, *words], cwd=folder, stderr=log, stdout=log,
            env={**os.environ, "DUELINE_STORE": store},
        )  # fmt: skip


def lines(folder: Path, name: str) -> list[int]:
    """Read the numbers in a file."""
    path = folder / name
    return [int(word) for word in path.read_text().split()] if path.exists() else []


def rows_left(url: str) -> int:
    """Count the rows of a store."""
    store = open_store(url)
    try:
        assert isinstance(store, ListsLanes)
        lanes = store.lanes_with_rows(after=None, limit=10_000).lanes
        return sum(
            len(store.scan(one, after=None, until_us=None, limit=1000).jobs) for one in lanes
        )
    finally:
        store.close()


def move(folder: Path, old: str, new: str, *, kills: int, seed: int) -> None:
    """Run the command; kill it some times, and run it to its end with an audit."""
    chance = random.Random(seed)
    words = ("-m", "dueline", "move", "--from", old, "--to", new)
    for number in range(kills):
        mover = start(folder, old, *words)
        time.sleep(chance.uniform(0.8, 3) if number else 11.5)
        mover.send_signal(signal.SIGKILL)
        mover.wait()
    mover = start(folder, old, *words, "--audit")
    assert mover.wait(timeout=300) == 0, (folder / "log").read_text()[-3000:]


def moved_with_processes(folder: Path, old: str, new: str, *, kills: int = 4) -> None:
    """Move a store with producers, workers and kills; check that each job ran once."""
    (folder / "jobs.py").write_text(JOBS)
    (folder / "producer.py").write_text(PRODUCER)
    with ExitStack() as stack:

        def run(store: str, *words: str) -> "subprocess.Popen[bytes]":
            process = start(folder, store, *words)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        worker = ("-m", "dueline", "worker", "jobs:app", "--processes", "0", "-c", "4")
        before = run(old, *worker)
        producers = [run(old, "producer.py", old, new, str(base)) for base in (0, 100_000)]
        give_up_s = time.monotonic() + 60
        while len(lines(folder, "asked")) < 150:
            assert time.monotonic() < give_up_s, (folder / "log").read_text()[-3000:]
            time.sleep(0.1)
        move(folder, old, new, kills=kills, seed=len(new))
        assert before.wait(timeout=60) == 3  # it has ended what it ran, and says where to
        run(new, *worker)
        wanted = len(lines(folder, "asked")) + 40
        while len(lines(folder, "asked")) < wanted:
            assert [one.poll() for one in producers] == [None, None], (folder / "log").read_text()
            time.sleep(0.1)
        for one in producers:
            one.send_signal(signal.SIGKILL)
            one.wait()
        give_up_s = time.monotonic() + 120
        while rows_left(new):
            assert time.monotonic() < give_up_s
            time.sleep(0.3)
    assert rows_left(old) == 0
    assert len(lines(folder, "switched")) == 2
    ran = Counter(lines(folder, "ran"))
    assert set(ran.values()) == {1}, {one: many for one, many in ran.items() if many > 1}
    assert set(lines(folder, "asked")) <= set(ran)
    assert len(set(ran) - set(lines(folder, "asked"))) <= 2  # of producers that were killed


@pytest.mark.postgres
def test_sqlite_to_postgresql(tmp_path: Path, postgres: str) -> None:
    moved_with_processes(tmp_path, f"sqlite:///{tmp_path}/old.db", postgres)


@pytest.mark.cassandra
def test_sqlite_to_cassandra(tmp_path: Path, cassandra: str) -> None:
    moved_with_processes(tmp_path, f"sqlite:///{tmp_path}/old.db", cassandra)


@pytest.mark.postgres
@pytest.mark.cassandra
def test_postgresql_to_cassandra(tmp_path: Path, postgres: str, cassandra: str) -> None:
    moved_with_processes(tmp_path, postgres, cassandra)


@pytest.mark.postgres
@pytest.mark.cassandra
def test_cassandra_to_postgresql(tmp_path: Path, postgres: str, cassandra: str) -> None:
    moved_with_processes(tmp_path, cassandra, postgres)


@pytest.mark.redis
def test_sqlite_to_redis(tmp_path: Path) -> None:
    moved_with_processes(tmp_path, f"sqlite:///{tmp_path}/old.db", new_url())


@pytest.mark.postgres
@pytest.mark.redis
def test_redis_to_postgresql(tmp_path: Path, postgres: str) -> None:
    moved_with_processes(tmp_path, new_url(), postgres)


@pytest.mark.redis
def test_redis_to_valkey(tmp_path: Path) -> None:
    moved_with_processes(tmp_path, new_url(), new_url("valkey"), kills=2)


@pytest.mark.sqlite
def test_workers_of_the_new_store_may_start_first(tmp_path: Path) -> None:
    # One was killed, one lives on: it runs what arrives once the store is open.
    (tmp_path / "jobs.py").write_text(JOBS)
    old, new = (f"sqlite:///{tmp_path}/{name}.db" for name in ("old", "new"))
    start(tmp_path, old, "-c", "from jobs import mark; [mark.enqueue(n) for n in range(20)]").wait()
    worker = ("-m", "dueline", "worker", "jobs:app", "--processes", "0", "-c", "2")
    log = tmp_path / "log"

    with ExitStack() as stack:
        processes = []
        for number in (1, 2):
            processes.append(start(tmp_path, new, *worker))
            stack.callback(processes[-1].wait)
            stack.callback(processes[-1].kill)
            while not log.exists() or log.read_text().count("serves default") < number:
                time.sleep(0.05)
            processes[0].kill()
        command = ("-m", "dueline", "move", "--from", old, "--to", new)
        assert start(tmp_path, old, *command).wait(timeout=120) == 0, log.read_text()[-3000:]
        give_up_s = time.monotonic() + 60
        while len(lines(tmp_path, "ran")) < 20:
            assert time.monotonic() < give_up_s, log.read_text()[-3000:]
            time.sleep(0.1)
        assert processes[1].poll() is None
    assert sorted(lines(tmp_path, "ran")) == list(range(20))
