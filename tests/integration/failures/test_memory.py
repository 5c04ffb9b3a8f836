"""How much memory a worker takes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dueline import Dueline

PEAK_MB_MAX = 50
JOBS = 40_000

APP = """
from pathlib import Path
from dueline import Dueline

app = Dueline(f"sqlite:///{Path(__file__).parent}/queue.db")

@app.task(name="nothing")
def nothing(number: int, text: str) -> None: ...

@app.task(name="peak")
def peak() -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    (line,) = [line for line in lines if line.startswith("VmHWM:")]
    return int(line.split()[1])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux counts the memory")
def test_a_worker_that_drains_a_backlog_stays_small(tmp_path: Path) -> None:
    (tmp_path / "small.py").write_text(APP, encoding="utf-8")
    app = Dueline(f"sqlite:///{tmp_path}/queue.db")

    @app.task(name="nothing")
    def nothing(number: int, text: str) -> None: ...

    @app.task(name="peak")
    def peak() -> int:
        return 0

    nothing.enqueue_many([(number, "x" * 100) for number in range(JOBS)])
    last = peak.enqueue()
    subprocess.run(
        [sys.executable, "-m", "dueline", "worker", f"{tmp_path}/small.py:app", "--burst"],
        check=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("COV")},
    )
    peak_mb = last.result(0) / 1024
    app.close()
    assert peak_mb <= PEAK_MB_MAX
