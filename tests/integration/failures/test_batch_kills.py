"""A producer and two workers of a batch that are killed: each item ran, and has one result."""

import os
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path

from dueline import Dueline, NotFound
from tests.harness.programs import Program, wait_for

ITEMS = int(os.environ.get("DUELINE_TEST_BATCH", "20000"))
"""Number of items; a million is measured by hand."""

JOBS = """
from dueline import Dueline

app = Dueline(URL)


@app.task(name="square")
def square(number: int) -> int:
    return number * number
"""

PRODUCER = f"""
import resource
from jobs import square

square.map(range({ITEMS}), name="b")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""

MEMORY_MB_MAX = 300


def digest(values: object) -> str:
    """Return a digest of numbers, in their order."""
    found = sha256()
    for value in values:  # type: ignore[attr-defined]
        found.update(b"%d," % value)
    return found.hexdigest()


def stored(app: Dueline) -> int:
    """Return how many items are stored."""
    try:
        return len(app.batch("b"))
    except NotFound:
        return 0


def test_each_item_has_one_result(tmp_path: Path) -> None:
    # W16
    program = Program(tmp_path, JOBS)
    app: Dueline = program.module.app
    (tmp_path / "producer.py").write_text(PRODUCER, encoding="utf-8")
    command = [sys.executable, "producer.py"]
    began_s = time.monotonic()
    producer = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
    workers = [program.work("--no-monitor") for _ in range(2)]
    wait_for(lambda: stored(app) >= ITEMS // 4, "a quarter is stored")
    producer.kill()
    producer.wait()
    batch = app.batch("b")
    before = len(batch)
    assert before < ITEMS
    wait_for(lambda: batch.counts().done >= ITEMS // 10, "a tenth has run")
    for worker in workers:
        worker.kill()
        worker.wait()
    again = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    last = program.work("--no-monitor")
    counts = batch.wait(3600, progress=False)
    took_s = time.monotonic() - began_s
    assert (counts.items, counts.done) == (ITEMS, ITEMS)
    read_s = time.monotonic()
    assert digest(batch.results()) == digest(number * number for number in range(ITEMS))
    read_s = time.monotonic() - read_s
    last.terminate()
    last.wait()
    memory_mb = int(again.stdout)
    assert memory_mb < MEMORY_MB_MAX
    sys.stderr.write(
        f"{ITEMS} items, killed at {before}: {took_s:.1f} s, read in {read_s:.2f} s, "
        f"producer {memory_mb} MB\n"
    )
