"""Simulated against real: three recorded workloads, then run with other settings (P7, P9).

`.venv-spark/bin/python -m benchmarks.foresight` runs each workload with real workers, simulates
two other settings from its history, and really runs these. It prints Markdown tables: the start
latencies of both, their error, and whether it is within 20 % or 5 ms. Then it runs what the planner
recommends, and one step less. `benchmarks.foresight_size` measures the simulator.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from benchmarks.foresight_workloads import WORKLOADS, Setting, Workload
from dueline.foresight.planner import Asked, plan
from dueline.foresight.replay import Task
from dueline.foresight.scenario import Changes
from dueline.foresight.summary import Outcome
from dueline.foresight.target import target_of
from dueline.spark.pipeline.delta import place_of
from dueline.spark.pipeline.engine import Settings
from dueline.spark.pipeline.pipeline import Pipeline
from dueline.spark.pipeline.what_if import Period, Prepared

TARGET = "p95<0.8s"
"""Of the bursts: what the planner is asked for."""

ERROR_MAX, ERROR_US = 0.20, 5_000
MANY_US = 10**18


@contextmanager
def workers(url: str, setting: Setting, queue: str) -> Iterator[None]:
    """Run worker processes."""
    words = [sys.executable, "-m", "dueline", "worker", "benchmarks.foresight_app:app",
             "-q", queue, "-c", str(setting.slots), "--quiet"]  # fmt: skip
    running = [
        subprocess.Popen(words, env=environment(url, setting), stderr=subprocess.DEVNULL)
        for _ in range(setting.workers)
    ]
    try:
        yield
    finally:
        for one in running:
            one.terminate()
        for one in running:
            one.wait()


def environment(url: str, setting: Setting) -> dict[str, str]:
    """Return the environment of the application."""
    return os.environ | {
        "FORESIGHT_STORE": url, "FORESIGHT_WEIGHTS": setting.weights,
        "FORESIGHT_WAREHOUSE": str(setting.warehouse),
    }  # fmt: skip


def produce(url: str, setting: Setting, workload: str, seconds: float) -> None:
    """Make the calls of a workload at their times, in a process of its own, and wait for all."""
    words = [sys.executable, "-m", "benchmarks.foresight_app", workload, str(seconds)]
    subprocess.run(words, env=environment(url, setting), check=True, timeout=10 * seconds)


class Recorded(NamedTuple):
    """A run that really happened: its store and its tables."""

    url: str
    lake: Path


def run(url: str, workload: Workload, setting: Setting, folder: Path, seconds: float) -> Recorded:
    """Really run a workload with a setting."""
    with workers(url, setting, workload.queue):
        time.sleep(4)  # until they have started
        produce(url, setting, workload.queue, seconds)
        time.sleep(0.5)
    return Recorded(url, folder)


def prepare(recorded: Recorded, queue: str, settings: Sequence[Changes] = ()) -> Prepared:
    """Return the simulator of a recorded run."""
    made = Pipeline(place_of(str(recorded.lake)), Settings(recorded.url, (queue,)))
    return made.simulator(Period(0, MANY_US), settings, lambda _: None)


def row(workload: str, name: str, real: Outcome, simulated: Outcome) -> str:
    """Return a line of the table."""
    aim = target_of("p99<1s")
    found = [one.latencies(aim) for one in (real, simulated)]
    cells, is_good = [workload, name], True
    for place in (1, 2, 3):
        true, guess = (one[place] for one in found)
        is_near = abs(guess - true) <= max(ERROR_MAX * true, ERROR_US)
        is_good &= is_near
        mark = "" if is_near else " !"
        cells.append(f"{true / 1000:.1f} / {guess / 1000:.1f} ms{mark}")
    return f"| {' | '.join(cells)} | {'yes' if is_good else 'no'} |"


def compare(workload: Workload, seconds: float, address: str = "") -> Iterator[str]:
    """Run a workload and its other settings; yield lines of the table."""
    changes = [one.changes(workload.recorded) for one in workload.others]
    with tempfile.TemporaryDirectory() as folder:
        recorded = run(url_of(address, folder, "0"), workload, workload.recorded,
                       Path(folder, "0"), seconds)  # fmt: skip
        prepared = prepare(recorded, workload.queue, changes)
        made = prepared.simulator
        tasks = [Task(None), Task(Changes()), *map(Task, changes)]
        real, in_force, *simulated = made.run(tasks)
        name = f"{workload.name}, {'PostgreSQL' if address else 'SQLite'}"
        yield row(name, f"{workload.recorded.name} (recorded)", real, in_force)
        for number, (one, guess) in enumerate(zip(workload.others, simulated, strict=True), 1):
            again = run(url_of(address, folder, str(number)), workload, one,
                        Path(folder, str(number)), seconds)  # fmt: skip
            (true,) = prepare(again, workload.queue).simulator.run([Task(None)])
            yield row(name, one.name, true, guess)


def planned(workload: Workload, seconds: float) -> Iterator[str]:
    """Record a workload, and run what the planner recommends, and one worker less."""
    aim = target_of(TARGET)
    with tempfile.TemporaryDirectory() as folder:
        recorded = run(url_of("", folder, "0"), workload, workload.recorded, Path(folder, "0"),
                       seconds)  # fmt: skip
        prepared = prepare(recorded, workload.queue)
        asked = Asked(aim, (workload.queue,), None, prepared.capacities)
        found = plan(prepared.simulator, asked)
        if found.workers is None:
            yield f"| {workload.name} | {aim} | no plan | | |"
            return
        for count in filter(None, (found.workers, found.workers - 1)):
            setting = replace(workload.recorded, workers=count)
            again = run(url_of("", folder, str(count)), workload, setting,
                        Path(folder, str(count)), seconds)  # fmt: skip
            (real,) = prepare(again, workload.queue).simulator.run([Task(None)])
            latencies, meets = real.latencies(aim), "yes" if real.meets(aim) else "no"
            name = "recommended" if count == found.workers else "one less"
            p95 = f"{latencies.p95_us / 1000:.0f} ms"
            cells = (
                workload.name,
                str(aim),
                f"{count} ({name})",
                p95,
                f"{latencies.late:.1%}",
                meets,
            )
            yield f"| {' | '.join(cells)} |"


def url_of(address: str, folder: str, name: str) -> str:
    """Return the address of a new store."""
    if not address:
        return f"sqlite:///{folder}/{name}.db"
    schema = f"foresight_{os.getpid()}_{name}_{time.monotonic_ns() % 10**6}"
    url = f"{address}{'&' if '?' in address else '?'}schema={schema}"
    subprocess.run([sys.executable, "-m", "dueline", "migrate", "--store", url], check=True,
                   stdout=subprocess.DEVNULL)  # fmt: skip
    return url


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="of each run")
    parser.add_argument("--only", action="append", choices=[*WORKLOADS], help="a workload")
    parser.add_argument("--postgres", metavar="URL", help="record the first one there as well")
    asked = parser.parse_args()
    print("| workload | setting | p50, real / simulated | p95 | p99 | within 20 % or 5 ms |")
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    for name in asked.only or WORKLOADS:
        for line in compare(WORKLOADS[name](asked.seconds), asked.seconds):
            print(line, flush=True)
    if asked.postgres:
        first = (asked.only or [*WORKLOADS])[0]
        for line in compare(WORKLOADS[first](asked.seconds), asked.seconds, asked.postgres):
            print(line, flush=True)
    if "bursts" in (asked.only or WORKLOADS):
        print("\n| workload | target | workers | p95 | late | meets it |")
        print("| --- | --- | --- | --- | --- | --- |", flush=True)
        for line in planned(WORKLOADS["bursts"](asked.seconds), asked.seconds):
            print(line, flush=True)


if __name__ == "__main__":
    main()
