"""A worker whose disk stands still."""

import os
import subprocess
import sys
import time
from pathlib import Path
from signal import SIGTERM

import pytest

from dueline import Dueline
from tests.kills.disk import MountError, frozen_disk, has_ended

PATIENCE_S = 120.0

TASKS = """
from dueline import Dueline

app = Dueline()


@app.task
def note(number: int) -> int:
    return number
"""


def test_a_worker_ends_although_its_disk_stands_still(tmp_path: Path) -> None:
    """Its thread that waits for the disk cannot be ended, and keeps nothing but its own memory."""
    (tmp_path / "tasks.py").write_text(TASKS)
    mounted = tmp_path / "disk"
    mounted.mkdir()
    try:
        with frozen_disk(mounted, tmp_path / "image") as disk:
            app = Dueline(disk.url)
            note = app.task(name="tasks.note")(lambda number: number)
            worker = subprocess.Popen(
                [sys.executable, "-m", "dueline", "worker", "tasks:app", "--drain", "1s"],
                cwd=tmp_path,
                env={**os.environ, "DUELINE_STORE": disk.url},
            )
            assert note.enqueue(1).result(timeout=PATIENCE_S) == 1
            disk.freeze()
            time.sleep(2)  # its calls are under way
            worker.send_signal(SIGTERM)
            until_s = time.monotonic() + PATIENCE_S
            while worker.poll() is None and not has_ended(worker.pid):
                assert time.monotonic() < until_s
                time.sleep(0.05)
            disk.thaw()
            assert worker.wait(PATIENCE_S) == 128 + SIGTERM
            app.close()
    except MountError as error:
        pytest.skip(f"no disk can be mounted: {error}")
