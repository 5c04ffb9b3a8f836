"""dueline and RQ on one Redis server, in turns: `python -m benchmarks.redis_peers [ROUNDS]`.

Each measurement is a process of its own on an empty server with `appendfsync everysec`. dueline
has its default settings; RQ runs its SimpleWorker, which does not fork, and keeps no results.
Prints the median rates and the processor time of the client for a job as JSON, and the ratios.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from tools.redis import Server

PORT: Final = 63795
TEXT: Final = "x" * 100
NOOP: Final = "benchmarks.redis_peers.noop"
PART: Final = 10_000
COUNTS: Final = {
    "dueline": {"drain": 20_000, "bulk": 50_000, "singles": 3_000},
    "rq": {"drain": 1_000, "bulk": 5_000, "singles": 2_000},
}
"""Number of jobs of each measurement: some seconds each."""


def noop(text: str) -> None:
    """Do nothing."""
    del text


def rate(count: int, run: Callable[[], object]) -> dict[str, float]:
    """Return the rate and the processor time of this process for each job."""
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    run()
    cpu_us = (time.process_time() - began_cpu_s) / count * 1e6
    return {"per_s": count / (time.perf_counter() - began_s), "cpu_us": cpu_us}


def measure_dueline(command: str, count: int, url: str) -> dict[str, float]:
    """Measure dueline."""
    from dueline import Dueline  # noqa: PLC0415  (each side is imported alone)

    app = Dueline(url)
    task = app.task(name="bench.noop")(noop)
    task.enqueue(TEXT)
    app.run_worker(burst=True)

    def put_many() -> None:
        for first in range(0, count, PART):
            task.enqueue_many([(TEXT,)] * min(PART, count - first))

    def put() -> None:
        for _ in range(count):
            task.enqueue(TEXT)

    if command == "drain":
        put_many()
        return rate(count, lambda: app.run_worker(burst=True))
    return rate(count, put_many if command == "bulk" else put)


def measure_rq(command: str, count: int, url: str) -> dict[str, float]:
    """Measure RQ."""
    import logging  # noqa: PLC0415

    import redis  # noqa: PLC0415
    import rq  # noqa: PLC0415

    logging.disable()
    connection: Any = redis.Redis.from_url(url)
    queue = rq.Queue(connection=connection)
    worker = rq.SimpleWorker([queue], connection=connection)
    queue.enqueue(NOOP, TEXT, result_ttl=0)
    worker.work(burst=True, logging_level="WARNING")

    def put_many() -> None:
        for first in range(0, count, PART):
            queue.enqueue_many(
                [
                    rq.Queue.prepare_data(NOOP, (TEXT,), result_ttl=0)
                    for _ in range(min(PART, count - first))
                ]
            )

    def put() -> None:
        for _ in range(count):
            queue.enqueue(NOOP, TEXT, result_ttl=0)

    if command == "drain":
        put_many()
        return rate(count, lambda: worker.work(burst=True, logging_level="WARNING"))
    return rate(count, put_many if command == "bulk" else put)


SIDES: Final = {"dueline": measure_dueline, "rq": measure_rq}


def compare(rounds: int) -> dict[str, Any]:
    """Measure both in turns; return medians and ratios."""
    measured: dict[str, dict[str, list[dict[str, float]]]] = {
        command: {side: [] for side in SIDES} for command in COUNTS["rq"]
    }
    for _ in range(rounds):
        for command, sides in measured.items():
            for side, samples in sides.items():
                samples.append(measured_alone(side, command))
    report: dict[str, Any] = {}
    for command, sides in measured.items():
        rates = {
            side: {key: round(median(sample[key] for sample in samples), 1) for key in samples[0]}
            for side, samples in sides.items()
        }
        report[command] = {
            **rates,
            "ratio": round(rates["dueline"]["per_s"] / rates["rq"]["per_s"], 2),
            "ratio of processor time": round(rates["rq"]["cpu_us"] / rates["dueline"]["cpu_us"], 2),
        }
    return report


def measured_alone(side: str, command: str) -> dict[str, float]:
    """Measure one side in a process of its own, on an empty server."""
    with TemporaryDirectory() as folder:
        server = Server("redis", Path(folder), port=PORT, fsync="everysec")
        server.start()
        try:
            words = [sys.executable, "-m", "benchmarks.redis_peers", side, command, server.url]
            done = subprocess.run(words, check=True, stdout=subprocess.PIPE, timeout=300)
        finally:
            server.kill()
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def main() -> None:
    """Run one side, or both in turns."""
    if len(sys.argv) > 2:
        side, command, url = sys.argv[1:]
        print(json.dumps(SIDES[side](command, COUNTS[side][command], url)))
    else:
        print(json.dumps(compare(int(sys.argv[1]) if sys.argv[1:] else 5), indent=2))


if __name__ == "__main__":
    main()
