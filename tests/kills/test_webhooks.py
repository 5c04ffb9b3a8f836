"""Workers killed around the ends of jobs: each webhook is delivered, at least once.

DUELINE_KILLS sets the number of kills.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.addresses import WITH_ADDRESS, address
from tests.harness.webhooks import receiving, shop

KILLS = int(os.environ.get("DUELINE_KILLS", "2"))
JOBS = 40

PROGRAM = """
import os
from tests.harness.webhooks import shop

app = shop(os.environ["URL"])
app.queue("default", lease=1)
app.queue("webhooks", lease=1, keep=3600)
app.run_worker(["default", "webhooks"], concurrency=4)
"""


@pytest.fixture(params=WITH_ADDRESS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with address(request.param, tmp_path) as made:
        yield made


def test_each_end_is_delivered_although_workers_are_killed(url: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    environment = {**os.environ, "URL": url, "PYTHONPATH": str(Path.cwd())}
    chance = random.Random(KILLS)
    with receiving() as (hook, receiver):
        app = shop(url)
        does = app.task_named("does").using(webhook=hook)
        expected: set[str] = set()
        for kill in range(KILLS + 1):
            is_last = kill == KILLS
            if not is_last:
                expected |= {job.id for job in does.enqueue_many([("done",)] * JOBS)}
            before = len(receiver.received)
            worker = subprocess.Popen([sys.executable, "program.py"], cwd=tmp_path, env=environment)
            give_up_s = time.monotonic() + 60
            while len(receiver.received) == before and time.monotonic() < give_up_s:
                if is_last and {got.job[0] for got in receiver.received} == expected:
                    break
                time.sleep(0.002)
            if is_last:
                while {got.job[0] for got in receiver.received} != expected:
                    assert time.monotonic() < give_up_s, "a webhook is never delivered"
                    time.sleep(0.05)
            time.sleep(chance.uniform(0, 0.1))
            worker.send_signal(signal.SIGKILL)
            worker.wait()
        by_id = {got.id: got.job for got in receiver.received}
        assert len(by_id) == len(expected), "each end has one id, however often it is sent"
        app.close()
