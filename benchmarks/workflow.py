"""How fast one worker process runs a large group, and the step that gathers it."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import ours
from dueline import Dueline, group, pipeline

CHILDREN = 10_000
PER_S_LEAST = 20_000
LEAN = "without_results_and_history"
"""What the bar is held against; the other way is that of the defaults."""


def measure(folder: Path, rounds: int) -> Mapping[str, Any]:
    """Run a group and its callback, several times; one job in some that is no step, beside it."""
    found: dict[str, Any] = {"children": CHILDREN}
    for way in (LEAN, "with_both"):
        app = Dueline(ours.sqlite(folder / f"{way}.db", "NORMAL"))
        if way == LEAN:
            app.queue(ours.QUEUE, history="off", keep=0)
        steps, plain = _measured(app, rounds)
        app.close()
        found[way] = {
            "children_per_s": round(steps[rounds // 2]),
            "most": round(steps[-1]),
            "of_jobs_that_are_no_steps": round(steps[rounds // 2] / plain[rounds // 2], 2),
        }
    return found


def bars(found: Mapping[str, Any]) -> Sequence[Mapping[str, object]]:
    """Compare with what is asked (W1)."""
    measured = found[LEAN]["children_per_s"]
    return [
        {
            "what": f"children of a group a second, {LEAN}",
            "at_least": PER_S_LEAST,
            "measured": measured,
            "is_met": measured >= PER_S_LEAST,
        }
    ]


def _measured(app: Dueline, rounds: int) -> tuple[list[float], list[float]]:
    @app.task(name="bench.child", queue=ours.QUEUE)
    def child(number: int) -> int:
        return number

    @app.task(name="bench.gather", queue=ours.QUEUE)
    def gather(numbers: list[int]) -> int:
        return len(numbers)

    steps, plain = [], []
    for _ in range(rounds):
        child.enqueue_many([(number,) for number in range(CHILDREN)])
        plain.append(_per_s(app))
        flow = app.start(pipeline(group(child.step(n) for n in range(CHILDREN)), gather.step()))
        steps.append(_per_s(app))
        assert flow.status == "done", flow.status
    return sorted(steps), sorted(plain)


def _per_s(app: Dueline) -> float:
    began = time.perf_counter()
    ours.drain(app)
    return CHILDREN / (time.perf_counter() - began)
