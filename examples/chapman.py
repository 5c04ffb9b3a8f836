"""144 checks side by side, then reports; one of four workers is killed.

Why: a semaphore bounds what all processes do together, and what comes after a group runs once.
"""

import subprocess
import sys
import time
from tempfile import TemporaryDirectory

from dueline import Dueline, group, pipeline

CHECKS, CAPACITY, WORKERS = 144, 16, 4
own = None if sys.argv[1:] else TemporaryDirectory()  # goes when the program ends
STORE = sys.argv[1] if own is None else f"sqlite:///{own.name}/jobs.db"
app = Dueline(STORE)
app.queue("default", lease=6)
app.semaphore("smtp", capacity=CAPACITY)


@app.task(name="check_smtp", limits=["smtp"])
def check_smtp(host: int) -> tuple[float, float]:
    """Ask a server, here one that is thought up; answer when that began, and when it ended."""
    began = time.monotonic()
    time.sleep(0.05 + host / 10_000)
    return began, time.monotonic()


@app.task(name="analyse")
def analyse(checks: list[tuple[float, float]]) -> tuple[int, int]:
    """Count the checks, and how many ran at once at most."""
    return len(checks), max(sum(a <= began < b for a, b in checks) for began, _ in checks)


@app.task(name="update_reports")
def update_reports(counts: tuple[int, int]) -> str:
    """Put the numbers into words."""
    return f"{counts[0]} servers were checked, never more than {counts[1]} at once"


def main() -> None:
    """Start it all, kill a worker in the middle, and see in the history how often what ran."""
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
    told = subprocess.check_output([sys.executable, "-m", "dueline", "--store", STORE, "events"])
    for task in (b"check_smtp", b"analyse", b"update_reports"):
        print(f"{task.decode()} ended {told.count(task)} times")


if __name__ == "__main__":
    app.run_worker(concurrency=8) if own is None else main()
