"""Durable functions of five steps: dueline and DBOS, in turns.

`python -m benchmarks.durable_peers PYTHON [ROUNDS] [--postgres URL]`, where PYTHON is the
interpreter of an environment with DBOS (`make .venv-peers/.lock`). URL names an empty database:
dueline's tables are made in its schema `dueline`, DBOS's in its own.

Each measurement is a process of its own, which starts functions and runs them; so many callers
start one and wait for its result, again and again: threads with plain functions, or coroutines with
coroutine functions. `signal` is the time from a signal to the start
of the step behind it. Both sides store each step before the next one begins, and survive a loss of
power. Prints the medians of all rounds as JSON.
"""

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

STEPS: Final = 5
FLIGHTS: Final = {1: 100, 50: 1_000}
"""How many functions run, by how many are in flight."""

COROUTINES: Final = "coroutines"
"""As many as the most in flight."""

SIGNALS: Final = 100
LIMIT_S: Final = 300


class Side(NamedTuple):
    """A library.

    Attributes:
      call: Runs a function, and waits for its result.
      acall: Runs a coroutine function, and waits for its result.
      signal: Starts a function that waits, sends it a signal, and returns the milliseconds until
        its next step.
    """

    call: Callable[[int], object]
    acall: Callable[[int], Awaitable[object]]
    signal: Callable[[], float]


def dueline_side(url: str, work: Callable[[Side], None]) -> None:
    """Do some work with dueline, in a process with a worker."""
    from dueline import Dueline, DurableContext  # noqa: PLC0415  (each side is imported alone)

    migrate = [sys.executable, "-m", "dueline", "migrate", "--store", url]
    subprocess.run(migrate, check=True, stdout=subprocess.DEVNULL)
    app = Dueline(url)
    waits, woken = threading.Event(), threading.Event()

    @app.durable(name="bench.steps")
    def steps(ctx: DurableContext, number: int) -> int:
        return sum(ctx.step(step, number) for _ in range(STEPS))

    @app.durable(name="bench.asteps")
    async def asteps(ctx: DurableContext, number: int) -> int:
        return sum([await ctx.step(astep, number) for _ in range(STEPS)])

    async def acall(number: int) -> object:
        return await (await asteps.aenqueue(number)).aresult(LIMIT_S)

    @app.durable(name="bench.waits")
    def waiting(ctx: DurableContext) -> None:
        waits.set()
        ctx.wait_signal("go")
        ctx.step(wake, woken)

    def signal() -> float:
        waits.clear()
        woken.clear()
        job = waiting.enqueue()
        waits.wait()
        time.sleep(0.1)  # until it is parked
        began_s = time.perf_counter()
        job.signal("go")
        woken.wait()
        took_ms = (time.perf_counter() - began_s) * 1e3
        job.result(LIMIT_S)
        return took_ms

    with app.worker(concurrency=max(FLIGHTS)):
        work(Side(lambda number: steps.enqueue(number).result(LIMIT_S), acall, signal))


def dbos_side(url: str, work: Callable[[Side], None]) -> None:
    """Do some work with DBOS."""
    from dbos import DBOS  # noqa: PLC0415

    DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR",
                 "run_admin_server": False})  # fmt: skip
    waits, woken = threading.Event(), threading.Event()
    stored = DBOS.step()(step)
    wakes = DBOS.step()(lambda: wake(woken))

    @DBOS.workflow()  # type: ignore[untyped-decorator]
    def steps(number: int) -> int:
        return sum(stored(number) for _ in range(STEPS))

    astored = DBOS.step()(astep)

    @DBOS.workflow()  # type: ignore[untyped-decorator]
    async def asteps(number: int) -> int:
        return sum([await astored(number) for _ in range(STEPS)])

    async def acall(number: int) -> object:
        return await (await DBOS.start_workflow_async(asteps, number)).get_result()

    @DBOS.workflow()  # type: ignore[untyped-decorator]
    def waiting() -> None:
        waits.set()
        DBOS.recv("go", timeout_seconds=LIMIT_S)
        wakes()

    def signal() -> float:
        waits.clear()
        woken.clear()
        handle = DBOS.start_workflow(waiting)
        waits.wait()
        time.sleep(0.1)
        began_s = time.perf_counter()
        DBOS.send(handle.workflow_id, "now", "go")
        woken.wait()
        took_ms = (time.perf_counter() - began_s) * 1e3
        handle.get_result()
        return took_ms

    DBOS.launch()
    work(Side(lambda number: DBOS.start_workflow(steps, number).get_result(), acall, signal))


def step(number: int) -> int:
    """Do nothing."""
    return number


async def astep(number: int) -> int:
    """Do nothing."""
    return number


def wake(woken: threading.Event) -> None:
    """Note that the step has begun."""
    woken.set()


SIDES: Final = {"dueline": dueline_side, "DBOS": dbos_side}


def measure(side: Side, flight: int, count: int) -> dict[str, float]:
    """Run functions, so many at a time."""
    side.call(0)
    took_ms: list[float] = []

    def run() -> None:
        for number in range(count // flight):
            began_s = time.perf_counter()
            side.call(number)
            took_ms.append((time.perf_counter() - began_s) * 1e3)

    callers = [threading.Thread(target=run) for _ in range(flight)]
    began_s, cpu_s = time.perf_counter(), time.process_time()
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    return rates(took_ms, began_s, cpu_s)


async def measure_coroutines(side: Side, flight: int, count: int) -> dict[str, float]:
    """Run coroutine functions, so many at a time."""
    await side.acall(0)
    took_ms: list[float] = []

    async def run() -> None:
        for number in range(count // flight):
            began_s = time.perf_counter()
            await side.acall(number)
            took_ms.append((time.perf_counter() - began_s) * 1e3)

    began_s, cpu_s = time.perf_counter(), time.process_time()
    await asyncio.gather(*(run() for _ in range(flight)))
    return rates(took_ms, began_s, cpu_s)


def rates(took_ms: list[float], began_s: float, cpu_s: float) -> dict[str, float]:
    """Return what calls took that began at these times."""
    return {
        "per_s": len(took_ms) / (time.perf_counter() - began_s),
        "p50_ms": median(took_ms),
        "cpu_ms": (time.process_time() - cpu_s) * 1e3 / len(took_ms),
    }


def measure_signals(side: Side) -> dict[str, float]:
    """Send signals, one after the other."""
    side.signal()
    places = quantiles([side.signal() for _ in range(SIGNALS)], n=100)
    return {"p50_ms": places[49], "p99_ms": places[98]}


def run_side(name: str, url: str, what: str) -> None:
    """Measure one thing of a side, and print it."""

    def work(side: Side) -> None:
        if what == "signal":
            found = measure_signals(side)
        elif what == COROUTINES:
            found = asyncio.run(measure_coroutines(side, *max(FLIGHTS.items())))
        else:
            found = measure(side, int(what), FLIGHTS[int(what)])
        print(json.dumps(found), flush=True)
        os._exit(0)  # whatever its threads do

    SIDES[name](url, work)


def measured_alone(python: str, name: str, url: str, what: str) -> dict[str, float]:
    """Measure in a process of its own."""
    command = [python, str(Path(__file__)), name, url, what]
    run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if run.returncode:
        raise SystemExit(f"{name} failed: {run.stderr[-2000:]}")
    found: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return found


def compare(peers: str, rounds: int, postgres: str) -> dict[str, Any]:
    """Measure both sides in turns; return the medians of each."""
    pythons = {"dueline": sys.executable, "DBOS": peers}
    samples: dict[str, dict[str, list[dict[str, float]]]] = {}
    for number in range(rounds):
        for store in ("SQLite", "PostgreSQL") if postgres else ("SQLite",):
            for what in (*map(str, FLIGHTS), COROUTINES, "signal"):
                for name, python in pythons.items():
                    with TemporaryDirectory() as folder:
                        url = postgres or f"sqlite:///{folder}/{number}.db"
                        if store == "SQLite":
                            url = f"sqlite:///{folder}/{number}.db"
                        found = measured_alone(python, name, url, what)
                    row = samples.setdefault(f"{store}, {what}", {})
                    row.setdefault(name, []).append(found)
    return {
        title: {
            name: {key: round(median(one[key] for one in found), 2) for key in found[0]}
            for name, found in row.items()
        }
        for title, row in samples.items()
    }


def main() -> None:
    """Run the comparison, or one side of it."""
    if sys.argv[1] in SIDES:
        run_side(*sys.argv[1:4])
        return
    values = sys.argv[1:]
    postgres = values.pop(values.index("--postgres") + 1) if "--postgres" in values else ""
    numbers = [value for value in values[1:] if value.isdigit()]
    rounds = int(numbers[0]) if numbers else 5
    print(json.dumps(compare(values[0], rounds, postgres), indent=1))


if __name__ == "__main__":
    main()
