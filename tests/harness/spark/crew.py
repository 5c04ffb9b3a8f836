"""Processes on Spark that share a queue, and what became of their jobs."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from checker.journal import Event, events_of
from dueline import Dueline
from dueline.core.job import JobId
from dueline.core.job_status import status_of
from dueline.jobs import results
from dueline.jobs.history import attempts
from simulation.judge import Final, Recorded, judge
from tests.kills.processes import told_in
from tests.kills.workload import FOLDER_VARIABLE, QUEUE, file_in
from tests.unit.spark.standalone import WORKERS, Cluster

ROOT = Path(__file__).parents[3]
TICK_S = 0.05


class Crew:
    """Processes that share a queue and a folder of diaries."""

    def __init__(self, folder: Path, **variables: str) -> None:
        """Start none yet."""
        self._folder = folder
        self._env = os.environ | {FOLDER_VARIABLE: str(folder)} | variables
        self._crashes: list[Event] = []
        self.app = Dueline(file_in(folder))

    def knows(self, **variables: str) -> None:
        """Give processes further variables."""
        self._env = self._env | variables

    def start(self, module: str, *arguments: object) -> "subprocess.Popen[bytes]":
        """Start a process of ours, in a session of its own.

        Where one stands still in ours, the system hangs up on all of us when our shell ends.
        """
        with (self._folder / "stderr").open("ab") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", module, *map(str, arguments)],
                cwd=ROOT, env=self._env, stderr=errors, start_new_session=True,
            )  # fmt: skip

    def said(self) -> str:
        """Read what went wrong in them."""
        return told_in(self._folder / "stderr")

    def crashed(self, process: "subprocess.Popen[bytes]") -> None:
        """Wait until a process has killed itself, and write that down."""
        assert process.wait() == -signal.SIGKILL, self.said()
        now_us = time.time_ns() // 1000
        self._crashes.append(Event(now_us, str(process.pid), "ok", "crash"))

    def drain(self) -> None:
        """Have a plain worker do what is left, and wait until nothing is."""
        worker = self.start("tests.kills.worker", 0)
        try:
            while self.left():
                assert worker.poll() is None, self.said()
                time.sleep(TICK_S)
        finally:
            worker.terminate()
            worker.wait()

    def left(self) -> int:
        """Count the jobs that have not ended."""
        return len(list(self.app.queues.engine.jobs_of(QUEUE)))

    def final(self, job: str) -> Final:
        """Read how a job ended."""
        job_id = JobId(bytes.fromhex(job))
        row = self.app.store.find([job_id])[0]
        if row is not None:
            return Final(status_of(row, self.app.queues.engine.time.latest_us()))
        outcome = results.read(self.app.store, job_id)
        assert outcome is not None
        return Final(outcome.state, int(outcome.value) if outcome.value else None)

    def events(self) -> list[Event]:
        """Read all diaries."""
        return self._crashes + [
            event
            for path in self._folder.glob("*.events")
            for event in events_of(path.read_bytes())
        ]

    def faults(self) -> dict[str, Any]:
        """Judge what happened; nothing is there to be told if all is well."""
        events = self.events()
        ids = {event.id for event in events if event.f == "enqueue"}
        finals: dict[str, Final] = {job: self.final(job) for job in ids}
        recorded = [Recorded(*told) for told in self.recorded()]
        report = judge(events, finals, recorded, prefetch=0)
        return {verdict: stories for verdict, stories in report.faults.items() if stories}

    def recorded(self) -> list[tuple[str, int, str]]:
        """Read the queue's own history: job, claim, outcome."""
        return [(end.job, end.fence, end.outcome) for end in attempts(self.app.store, QUEUE, 1)]


def expect_on_a_cluster(crew: Crew, machines: Cluster, folder: Path, app: Dueline) -> None:
    """Enqueue, run, read and follow on two workers of which executors are killed."""
    from tests.unit.spark import cluster

    before = machines.parts()
    crew.knows(SPARK_HOME=str(machines.home), **{cluster.MASTER_VARIABLE: machines.master})
    process = crew.start("tests.unit.spark.cluster", folder)
    assert process.wait() == 0, crew.said()
    assert len(machines.parts() - before) == WORKERS  # each ran some of it
    assert not list(app.queues.engine.jobs_of(cluster.QUEUE))
    told = list(attempts(app.store, cluster.QUEUE, cluster.SHARDS))
    # A claim whose job waits for a place of Spark's is released before its handler starts.
    ends = Counter(end.outcome for end in told if end.outcome != "given_back")
    assert ends == {"done": cluster.ROWS, "crashed": 1}
    assert len({end.job for end in told}) == cluster.ROWS
    starts = Counter(int(note.name.split(".")[0]) for note in folder.glob("*.ran"))
    assert starts == dict.fromkeys(range(cluster.ROWS), 1) | {cluster.ROWS // 2: 2}
    app.close()
