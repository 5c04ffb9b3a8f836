"""Workers killed while handlers emit: a reader that reconnects misses no chunk and sees none twice.

DUELINE_KILLS sets the number of kills.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline import Chunk, Dueline, Job
from tests.harness.addresses import WITH_ADDRESS, address

KILLS = int(os.environ.get("DUELINE_KILLS", "2"))
COUNT = 150

PROGRAM = """
import os, sys, time
from dueline import Context, Dueline, Retry

app = Dueline(os.environ["URL"])
app.queue("default", lease=1)

@app.task(name="answer", retry=Retry(base=0, attempts=100))
def answer(ctx: Context, count: int) -> int:
    for number in range(count):
        ctx.emit(number)
        time.sleep(0.005)
    return count

if __name__ == "__main__":
    app.run_worker(concurrency=4, processes=int(sys.argv[1]))
"""


@pytest.fixture(params=WITH_ADDRESS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with address(request.param, tmp_path) as made:
        yield made


def follow(url: str, job: Job[int], received: list[Chunk], chance: random.Random) -> None:
    """Read all chunks, by readers that stop after a few and are followed by others."""
    app = Dueline(url)
    while True:
        reader = app.job(job.id).chunks(after=received[-1].id if received else None)
        most = chance.randint(1, 30)
        for count, chunk in enumerate(reader, 1):
            received.append(chunk)
            if count == most:
                break
        else:
            app.close()
            return


def check(received: list[Chunk]) -> None:
    """Check that each attempt was read from its beginning, and the last one to its end."""
    runs: dict[str, list[int]] = {}
    for chunk in received:
        runs.setdefault(chunk.id.partition("-")[0], []).append(chunk.value)
    assert list(runs) == sorted(runs, key=int)
    for values in runs.values():
        assert values == list(range(values[0], values[-1] + 1)), "one is missed, or is there twice"
        assert values[0] == 0
    assert list(runs.values())[-1] == list(range(COUNT))


def test_readers_follow_jobs_whose_workers_are_killed(url: str, tmp_path: Path) -> None:
    (tmp_path / "answers.py").write_text(PROGRAM, encoding="utf-8")
    chance, app = random.Random(KILLS), Dueline(url)
    kills = 0
    while kills < KILLS:
        jobs: list[Job[int]] = [app.unchecked("answer").enqueue(COUNT) for _ in range(2)]
        chunks: list[list[Chunk]] = [[] for _ in jobs]
        readers = [
            threading.Thread(target=follow, args=(url, job, received, random.Random(kills)))
            for job, received in zip(jobs, chunks, strict=True)
        ]
        for reader in readers:
            reader.start()
        for _ in range(2):
            worker = subprocess.Popen(
                [sys.executable, "answers.py", str(kills % 2)], cwd=tmp_path,
                env={**os.environ, "URL": url},
            )  # fmt: skip
            begun = len(chunks[0])
            while readers[0].is_alive() and len(chunks[0]) == begun:
                time.sleep(0.01)
            time.sleep(chance.uniform(0, 0.7))
            worker.send_signal(signal.SIGKILL)
            worker.wait()
            kills += 1
        worker = subprocess.Popen(
            [sys.executable, "answers.py", "1"], cwd=tmp_path, env={**os.environ, "URL": url}
        )
        for reader in readers:
            reader.join(60)
            assert not reader.is_alive()
        worker.terminate()
        worker.wait()
        assert [job.status for job in jobs] == ["done"] * 2
        for received in chunks:
            check(received)
    app.close()
