"""Run 144 checks in parallel, then create a report; kill one of four workers (W1).

Why: a semaphore limits jobs across all processes, and the step after a group runs once.
"""

import subprocess
import sys
import time
from tempfile import TemporaryDirectory

from dueline import Dueline, group, pipeline

CHECKS, CAPACITY, WORKERS = 144, 16, 4
own = None if sys.argv[1:] else TemporaryDirectory()  # deleted when the program ends
STORE = sys.argv[1] if own is None else f"sqlite:///{own.name}/jobs.db"
app = Dueline(STORE)
app.queue("default", lease=6)
app.semaphore("smtp", capacity=CAPACITY)


@app.task(name="check_smtp", limits=["smtp"])
def check_smtp(host: int) -> tuple[float, float]:
    """Simulate a server check; return when it started and ended."""
    began = time.monotonic()
    time.sleep(0.05 + host / 10_000)
    return began, time.monotonic()


@app.task(name="analyse")
def analyse(checks: list[tuple[float, float]]) -> tuple[int, int]:
    """Return the number of checks, and how many ran at the same time at most."""
    return len(checks), max(sum(a <= began < b for a, b in checks) for began, _ in checks)


@app.task(name="update_reports")
def update_reports(counts: tuple[int, int]) -> str:
    """Describe the result."""
    return f"{counts[0]} servers checked, at most {counts[1]} at the same time"


def main() -> None:
    """Start the workflow, kill a worker, and count in the history how often each task ended."""
    crew = [subprocess.Popen([sys.executable, __file__, STORE]) for _ in range(WORKERS)]
    checks = group(check_smtp.step(host) for host in range(CHECKS))
    flow = app.start(pipeline(checks, analyse.step(), update_reports.step()))
    while flow.progress.done < CHECKS // 4:
        time.sleep(0.02)
    crew[0].kill()
    print(flow.result(timeout=120))
    for worker in crew:
        worker.terminate()
    print(f"{[worker.wait() for worker in crew].count(-9)} of {WORKERS} workers was killed")
    events = subprocess.check_output([sys.executable, "-m", "dueline", "--store", STORE, "events"])
    for task in (b"check_smtp", b"analyse", b"update_reports"):
        print(f"{task.decode()} ended {events.count(task)} times")


if __name__ == "__main__":
    app.run_worker(concurrency=8) if own is None else main()
