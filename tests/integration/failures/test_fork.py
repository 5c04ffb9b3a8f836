"""A queue that is used on both sides of a fork."""

import subprocess
import sys
from pathlib import Path

import pytest

FORKING = """
import os, sys
from dueline import Dueline

app = Dueline(sys.argv[1])

@app.task(name="noop")
def noop(number: int) -> None:
    pass

def wait(pipe):
    assert os.read(pipe[0], 1)

def go(pipe):
    os.write(pipe[1], b"x")

noop.enqueue(0)
child_is_in, parent_is_out = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    noop.enqueue(1)
    go(child_is_in)
    wait(parent_is_out)
    for number in range(2, 10):
        noop.enqueue(number)
    app.close()
    os._exit(0)
noop.enqueue(10)
wait(child_is_in)
app.close()  # it must not take itself for the last one, and the log along
go(parent_is_out)
assert os.waitpid(child, 0)[1] == 0
"""

COUNTING = """
import sys
from dueline.api.connect import open_store
from dueline.core.lane import Lane

store = open_store(sys.argv[1])
page = store.lanes("default", 0, until_bucket=2**40, after=None, limit=10)
print(sum(len(store.scan(p.lane, after=None, until_us=None, limit=99).jobs) for p in page.pointers))
print(store.describe()["integrity"])
"""


COPYING = """
from dueline.stores.sqlite import wal_checkpointer as sqlite_checkpoint
sqlite_checkpoint.PAGES = 1  # a thread copies the log behind each commit
"""


def run(program: str, url: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, url],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("before", ["", COPYING])
def test_jobs_of_a_forked_child_outlive_the_connection_of_its_parent(
    tmp_path: Path, before: str
) -> None:
    url = f"sqlite:///{tmp_path}/q.db"
    run(before + FORKING, url)
    assert run(COUNTING, url).split() == ["11", "ok"]


@pytest.mark.parametrize("before", ["", COPYING])
def test_a_fork_waits_for_the_transactions_of_other_threads(tmp_path: Path, before: str) -> None:
    program = FORKING.replace(
        "child_is_in, parent",
        """
import threading
def produce(first):
    for number in range(first, first + 50):
        noop.enqueue(number)
threads = [threading.Thread(target=produce, args=(first,)) for first in (100, 200, 300)]
for thread in threads:
    thread.start()
child_is_in, parent""",
    ).replace("noop.enqueue(10)", "[thread.join() for thread in threads]")
    url = f"sqlite:///{tmp_path}/q.db"
    run(before + program, url)
    assert run(COUNTING.replace("limit=99", "limit=999"), url).split() == ["160", "ok"]
