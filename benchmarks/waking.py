"""How soon durable functions go on: `python -m benchmarks.waking STORE [JOBS]`.

STORE is an empty store. Functions that wait for a signal, then those that sleep, go on one after
the other, beside JOBS due jobs or in an idle queue. One worker, in a process of its own, runs all.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import quantiles

from dueline import Dueline, DurableContext

QUEUE = "waking"
FUNCTIONS = 40
"""Number of functions of each kind."""

EVERY_S = 0.25
SLOTS = 8
JOB_S = 0.002
FILL_S = 10.0
FILLED_PER_S = 5_000
"""Jobs that are enqueued before the first signal, at least so many in a second."""

START_S = 3.0


def app_on(store: str, folder: Path) -> Dueline:
    """Make the application of both processes."""
    app = Dueline(store)
    app.queue(QUEUE, shards=1)

    def note(kind: str, since_s: float) -> None:
        with (folder / kind).open("a") as file:
            file.write(f"{time.time() - since_s}\n")

    @app.task(name="job", queue=QUEUE)
    def job(_number: int) -> None:
        time.sleep(JOB_S)

    @app.durable(name="signalled", queue=QUEUE)
    def signalled(ctx: DurableContext) -> None:
        note("signals", ctx.wait_signal("go", type=float))

    @app.durable(name="sleeping", queue=QUEUE)
    def sleeping(ctx: DurableContext, until: float) -> None:
        ctx.sleep(until - ctx.step(time.time, name="begin"))
        note("sleeps", until)

    return app


def work(store: str, folder: Path) -> None:
    """Work until killed."""
    app_on(store, folder).run_worker([QUEUE], concurrency=SLOTS)


def measure(store: str, jobs: int) -> dict[str, list[float]]:
    """Return the median and the 95th percentile of the latency of each kind, in ms."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        app = app_on(store, folder)
        signals_s = time.time() + FILL_S + jobs / FILLED_PER_S
        sleeps_s = signals_s + FUNCTIONS * EVERY_S
        waiting = [app.task_named("signalled").enqueue() for _ in range(FUNCTIONS)]
        for number in range(FUNCTIONS):
            app.task_named("sleeping").enqueue(sleeps_s + number * EVERY_S)
        app.run_worker([QUEUE], concurrency=SLOTS, burst=True)
        app.task_named("job").enqueue_many([(number,) for number in range(jobs)])
        worker = subprocess.Popen([sys.executable, "-m", "benchmarks.waking", store, "work", name])
        time.sleep(max(START_S, signals_s - time.time()))
        for handle in waiting:
            handle.signal("go", time.time())
            time.sleep(EVERY_S)
        time.sleep(max(0.0, sleeps_s + FUNCTIONS * EVERY_S - time.time()) + START_S)
        worker.kill()
        worker.wait()
        return {kind: _percentiles(folder / kind) for kind in ("signals", "sleeps")}


def _percentiles(file: Path) -> list[float]:
    """Return the median and the 95th percentile; functions that did not go on count, too."""
    seconds = [float(line) for line in file.read_text().splitlines()] if file.exists() else []
    seconds += [float("inf")] * (FUNCTIONS - len(seconds))
    places = quantiles(seconds, n=20, method="inclusive")
    return [round(1e3 * places[9], 1), round(1e3 * places[18], 1)]


if __name__ == "__main__":
    if sys.argv[2:3] == ["work"]:
        work(sys.argv[1], Path(sys.argv[3]))
    else:
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]) if sys.argv[2:] else 0)))
