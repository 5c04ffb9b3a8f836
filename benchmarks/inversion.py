"""How many less urgent jobs start before an urgent one that is there.

`python -m benchmarks.inversion FOLDER SHARDS` is the worker: it notes each start as a letter, so
that the size of the file is how many jobs have started.
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import ours
from benchmarks.commands import Sample
from dueline import Dueline
from dueline.core.claim_buffer import buffer_size

SHARDS = {"ours": 1, "8 shards": 8}
THREADS = 4
RUN_S = 0.005
URGENT = 40
URGENT_EVERY_S = 0.1
WAIT_S_MAX = 60.0

BUFFER = buffer_size(RUN_S * 1e6, THREADS)
MOST = THREADS + BUFFER
"""Those that run, and those that are held. What is claimed before the worker looks comes on top,
by the engine's promise, but is asked of nobody."""


def measure(folder: Path) -> Mapping[str, Sample]:
    """Enqueue urgent jobs beside a backlog, on default settings, one shard and several."""
    found: dict[str, Sample] = {}
    for name, shards in SHARDS.items():
        place = folder / f"{shards}shards"
        place.mkdir()
        behind = sorted(_measured(place, shards))
        found[name] = {"p50_behind": behind[len(behind) // 2], "most_behind": behind[-1]}
    return found


def _measured(folder: Path, shards: int) -> list[int]:
    log = folder / "starts"
    log.touch()
    app, task = _open(folder, shards)
    backlog = round(2 * URGENT * URGENT_EVERY_S * THREADS / RUN_S)
    task.enqueue_many([("l",)] * backlog)
    ready: list[int] = []
    with subprocess.Popen([sys.executable, "-m", __name__, str(folder), str(shards)]) as worker:
        try:
            _wait_for(log, backlog // 10)
            for _ in range(URGENT):
                task.using(priority=1).enqueue("u")
                ready.append(log.stat().st_size)
                time.sleep(URGENT_EVERY_S)
            is_loaded = log.stat().st_size < backlog
            _wait_for(log, backlog + URGENT)
        finally:
            worker.terminate()
    app.close()
    assert is_loaded, "the backlog came to its end before the urgent jobs did"
    starts = log.read_text()
    begun = [place for place, letter in enumerate(starts) if letter == "u"]
    return [starts.count("l", there, start) for there, start in zip(ready, begun, strict=True)]


def _open(folder: Path, shards: int) -> tuple[Dueline, Any]:
    app = Dueline(f"sqlite:///{folder / 'ours.db'}")
    app.queue(ours.QUEUE, shards=shards)
    descriptor = os.open(folder / "starts", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    @app.task(name="bench.note", queue=ours.QUEUE)
    def note(letter: str) -> None:
        os.write(descriptor, letter.encode())
        time.sleep(RUN_S)

    return app, note


def _wait_for(log: Path, count: int) -> None:
    give_up_s = time.monotonic() + WAIT_S_MAX
    while log.stat().st_size < count:
        assert time.monotonic() < give_up_s, "jobs are missing"
        time.sleep(0.01)


if __name__ == "__main__":
    _open(Path(sys.argv[1]), int(sys.argv[2]))[0].run_worker([ours.QUEUE], concurrency=THREADS)
