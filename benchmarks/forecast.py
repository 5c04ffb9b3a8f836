"""`python -m benchmarks.forecast`: how many starts are within the 80 % interval of their forecast.

Real workers run a workload; after a while jobs that wait are forecast, and compared with when they
started. Minutes are scaled down: forecasts are checked each second instead of every 15.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import NamedTuple

from dueline import Dueline, Retry
from dueline.coordination import notes
from dueline.core.job import Job
from dueline.foresight.checks import check_forecasts
from dueline.foresight.forecast import Forecast
from dueline.foresight.job_forecast import forecast_of
from dueline.jobs.history import attempts

WORKERS, SLOTS = 2, 4
QUEUE = "work"
CHECK_EVERY_S, ASK_EVERY_S, ASKED = 1.0, 0.5, 3

app = Dueline()
app.queue(QUEUE, weights={"large": 3})
app.semaphore("api", capacity=2)


@app.task(name="f.work", queue=QUEUE, retry=Retry(delays=[0.5] * 4))
def work(mean_s: float, fails: float = 0.0) -> None:
    """Take a while, and fail sometimes."""
    time.sleep(random.lognormvariate(0, 0.5) * mean_s * 0.88)
    if random.random() < fails:
        raise ValueError("it failed")


@app.task(name="f.call", queue=QUEUE, limits=["api"])
def call(mean_s: float) -> None:
    """Take longer, two at a time."""
    time.sleep(random.lognormvariate(0, 0.7) * mean_s * 0.78)


def steady(random_: random.Random, _: int) -> None:
    """Enqueue for a second: nearly as much as the workers can run, some of it with retries."""
    work.enqueue_many([(0.08, 0.05)] * round(random_.gauss(84, 12)))
    work.using(after=random_.uniform(2, 8)).enqueue(0.08)


def bursts(random_: random.Random, second: int) -> None:
    """Enqueue for a second: a burst each ten seconds, of tenants with weights, due then."""
    for tenant in ("large", "small", "other") if second % 10 == 0 else ():
        burst = [(0.08,)] * max(1, round(random_.gauss(150, 40)))
        work.using(tenant=tenant, after=10).enqueue_many(burst)
    for tenant in ("large", "small"):
        work.using(tenant=tenant).enqueue_many([(0.08,)] * random_.randrange(21))


def limits(random_: random.Random, _: int) -> None:
    """Enqueue for a second: long jobs that share two permits, and short ones."""
    call.enqueue_many([(0.6,)] * random_.randrange(7))
    work.enqueue_many([(0.08,)] * 45)


WORKLOADS: dict[str, Callable[[random.Random, int], None]] = {
    "steady": steady, "bursts": bursts, "limits": limits,
}  # fmt: skip


class Asked(NamedTuple):
    """A forecast of a job. after_us: how long after the first possible start it expects it."""

    job: str
    fence: int
    forecast: Forecast
    kind: str


@contextmanager
def workers(store: str) -> Iterator[None]:
    """Run the workers as processes of their own, without maintenance."""
    command = [sys.executable, "-m", "dueline", "--app", "benchmarks.forecast:app", "worker",
               "-q", QUEUE, "-c", str(SLOTS), "--no-monitor"]  # fmt: skip
    running = [
        subprocess.Popen(
            command, env={**os.environ, "DUELINE_STORE": store}, stderr=subprocess.DEVNULL
        )
        for _ in range(WORKERS)
    ]
    try:
        yield
    finally:
        for one in running:
            one.send_signal(signal.SIGTERM)
        for one in running:
            one.wait()


def measure(name: str, store: str, *, seconds: int, learn: int, seed: int) -> dict[str, object]:
    """Run one workload; return the share of starts within their intervals."""
    os.environ["DUELINE_STORE"] = store
    random_, asked = random.Random(seed), dict[tuple[str, int], Asked]()
    refused: Counter[str] = Counter()
    with workers(store):
        time.sleep(2)
        began_s = checked_s = asked_s = time.monotonic()
        for second in count():
            WORKLOADS[name](random_, second)
            end_s = began_s + second + 1
            while (now_s := time.monotonic()) < end_s:
                if now_s - checked_s > CHECK_EVERY_S:
                    _check(random_)
                    checked_s = now_s
                if second >= learn and now_s - asked_s > ASK_EVERY_S:
                    asked_s = now_s
                    for job in _waiting(random_, ASKED):
                        _ask(job, asked, refused)
                time.sleep(0.05)
            if second >= seconds:
                break
        while app.queues.engine.store.lanes(
            QUEUE, 0, until_bucket=2**40, after=None, limit=1
        ).pointers and any(True for _ in app.queues.engine.jobs_of(QUEUE)):
            time.sleep(0.5)
    return {"workload": name, "refused": dict(refused), **_coverage(asked)}


def _check(random_: random.Random) -> None:
    """Check forecasts as the maintenance leader does."""
    if puts := check_forecasts(app.queues, None, random_.random).puts:
        app.store.commit(notes.PARTITION, puts)


def _waiting(random_: random.Random, number: int) -> list[Job]:
    now_us = app.queues.engine.time.latest_us()
    rows = [one for one in app.queues.engine.jobs_of(QUEUE) if not one.is_claimed()]
    rows = [one for one in rows if one.at_us < now_us + 10_000_000]
    return random_.sample(rows, min(number, len(rows)))


def _ask(job: Job, asked: dict[tuple[str, int], Asked], refused: Counter[str]) -> None:
    now_us = app.queues.engine.time.latest_us()
    found = forecast_of(app.queues.engine, job, now_us)
    if isinstance(found, str):
        refused[found.partition(":")[0]] += 1
    else:
        kind = "ready" if job.at_us <= now_us else "later"
        asked.setdefault((job.id.hex(), job.fence + 1), Asked(job.id.hex(), job.fence, found, kind))


def _coverage(asked: dict[tuple[str, int], Asked]) -> dict[str, object]:
    starts = {
        (one.job, one.fence): one.started_us for one in attempts(app.queues.engine.store, QUEUE, 1)
    }
    within: Counter[str] = Counter()
    number: Counter[str] = Counter()
    misses: list[float] = []
    widths: list[float] = []
    for key, one in asked.items():
        start_us = starts.get(key)
        if not start_us:
            continue
        is_within = one.forecast.earliest_us <= start_us <= one.forecast.latest_us
        for kind in ("all", one.kind):
            number[kind] += 1
            within[kind] += is_within
        misses.append(abs(start_us - one.forecast.expected_us) / 1e6)
        widths.append((one.forecast.latest_us - one.forecast.earliest_us) / 1e6)
    return {
        "forecasts": dict(number),
        "covered": {kind: round(within[kind] / number[kind], 3) for kind in number},
        "median_miss_s": round(sorted(misses)[len(misses) // 2], 3) if misses else None,
        "median_width_s": round(sorted(widths)[len(widths) // 2], 3) if widths else None,
    }


def main() -> None:
    """Measure the workloads, and print a line of JSON for each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.forecast", description=__doc__)
    parser.add_argument("--only", action="append", choices=WORKLOADS, help="a workload; repeatable")
    parser.add_argument("--seconds", type=int, default=100, help="duration of a workload")
    parser.add_argument("--learn", type=int, default=40, help="seconds before the first forecast")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    if os.environ.get("BENCH_FORECAST"):  # one workload in a process of its own
        with tempfile.TemporaryDirectory() as folder:
            store = os.environ.get("DUELINE_STORE") or f"sqlite:///{folder}/jobs.db"
            found = measure(
                asked.only[0], store, seconds=asked.seconds, learn=asked.learn, seed=asked.seed
            )
            print(json.dumps(found), flush=True)
        return
    for name in asked.only or WORKLOADS:
        options = {"only": name, "seconds": asked.seconds, "learn": asked.learn, "seed": asked.seed}
        words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
        subprocess.run(
            [sys.executable, "-m", "benchmarks.forecast", *words],
            env={**os.environ, "BENCH_FORECAST": "1"},
            check=True,
        )


if __name__ == "__main__":
    from benchmarks.forecast import main as run  # the workers' application, not `__main__`'s

    run()
