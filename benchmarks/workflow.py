"""How fast one worker process runs a large group, and the step that gathers it."""

import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks import ours
from benchmarks.commands import Sample
from dueline import Dueline, group, pipeline

CHILDREN = 10_000
PER_S_LEAST = 20_000
"""Children a second without results and history, at NORMAL."""


def measure(folder: Path) -> Mapping[str, Sample]:
    """Run a group and its callback, without results and history and with both."""
    return {
        name: _measured(folder / f"{name}.db", is_lean=name == "ours")
        for name in ("ours", "default settings")
    }


def _measured(path: Path, *, is_lean: bool) -> Sample:
    app = Dueline(ours.sqlite(path, "NORMAL"))
    if is_lean:
        app.queue(ours.QUEUE, history="off", keep=0)

    @app.task(name="bench.child", queue=ours.QUEUE)
    def child(number: int) -> int:
        return number

    @app.task(name="bench.gather", queue=ours.QUEUE)
    def gather(numbers: list[int]) -> int:
        return len(numbers)

    child.enqueue_many([(number,) for number in range(CHILDREN)])
    plain, _ = _per_s(app)
    flow = app.start(pipeline(group(child.step(n) for n in range(CHILDREN)), gather.step()))
    steps, cpu_us = _per_s(app)
    assert flow.status == "done", flow.status
    app.close()
    return {"per_s": steps, "cpu_us": cpu_us, "part_of_plain_jobs": steps / plain}


def _per_s(app: Dueline) -> tuple[float, float]:
    began, began_cpu = time.perf_counter(), time.process_time()
    ours.drain(app)
    cpu_us = (time.process_time() - began_cpu) / CHILDREN * 1e6
    return CHILDREN / (time.perf_counter() - began), cpu_us
