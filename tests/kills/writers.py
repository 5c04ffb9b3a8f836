"""`python -m tests.kills.writers`: sixteen writers and a worker on one file.

SECONDS, from the environment, says for how long.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dueline.api.application import Dueline
from dueline.core.errors import NotFound
from dueline.core.job import JobId
from tests.kills.workload import FOLDER_VARIABLE, file_in

ROOT = Path(__file__).parent.parent.parent
WRITERS = 16
SECONDS = 30.0
END_S_MAX = 60.0


class Crowd(NamedTuple):
    """What all writers together did, and what became of the jobs they were told are stored.

    states: of the jobs that were not cancelled, and of those that were; "gone" is a loss.
    """

    calls: int
    slowest_s: float
    errors: Sequence[str]
    states: Counter[str]
    states_of_cancelled: Counter[str]


def crowd(folder: Path, *, seconds: float, writers: int = WRITERS) -> Crowd:
    """Let writers and a worker loose on a queue in an empty folder; look at what is left."""
    environment = os.environ | {FOLDER_VARIABLE: str(folder)}
    python = [sys.executable, "-m"]
    worker = subprocess.Popen([*python, "tests.kills.worker", "0"], cwd=ROOT, env=environment)
    crew = [
        subprocess.Popen(
            [*python, "tests.kills.writer", str(seconds)],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
        )
        for _ in range(writers)
    ]
    try:
        said = [_said(writer, seconds) for writer in crew]
        worker.send_signal(signal.SIGTERM)
        # It may have come so late that it does not handle the signal yet.
        assert worker.wait(END_S_MAX) in {0, -signal.SIGTERM}
    finally:
        for process in [worker, *crew]:
            process.kill()
            process.wait()
    app = Dueline(file_in(folder))
    cancelled = {job for answer in said for job in answer["cancelled"]}
    stored = {job for answer in said for job in answer["stored"]} - cancelled
    answer = Crowd(
        sum(answer["calls"] for answer in said),
        max(answer["slowest_s"] for answer in said),
        [error for answer in said for error in answer["errors"]],
        Counter(state_of(app, job) for job in stored),
        Counter(state_of(app, job) for job in cancelled),
    )
    app.close()
    return answer


def _said(writer: "subprocess.Popen[bytes]", seconds: float) -> dict[str, Any]:
    out, _ = writer.communicate(timeout=seconds + END_S_MAX)
    assert writer.returncode == 0
    said: dict[str, Any] = json.loads(out)
    return said


def state_of(app: Dueline, job: str) -> str:
    """Name the state of a job; "gone" where it is not known."""
    try:
        return app.queues.find(JobId(bytes.fromhex(job))).status
    except NotFound:
        return "gone"


def main() -> int:
    """Run it once and print what happened as JSON; answer 1 where there is a fault."""
    seconds = float(os.environ.get("SECONDS") or SECONDS)
    with tempfile.TemporaryDirectory() as folder:
        report = crowd(Path(folder), seconds=seconds)
    print(json.dumps({"seconds": seconds, "writers": WRITERS, **report._asdict()}, indent=2))  # noqa: T201
    return 1 if report.errors or report.states["gone"] or report.states_of_cancelled["gone"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
