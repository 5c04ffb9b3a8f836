"""Durable functions on a test clock."""

from typing import Any

from dueline import Job
from dueline.testing.bench import AppOnBench


def ended(bench: AppOnBench, job: Job[Any], *, turns: int = 20) -> Any:  # noqa: ANN401
    """Run a function to its end; return its result."""
    for _ in range(turns):
        bench.drain(raises=False)
        if job.status in ("done", "dead", "cancelled", "expired"):
            break
        bench.clock.advance(61)
    return job.result(timeout=0)


def error_of(bench: AppOnBench, job: Job[Any]) -> str:
    """Return the stored error of the function's row."""
    row = bench.app.queues.find(job._id).row
    return "" if row is None else row.error
