"""What handlers report in child processes."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.harness.programs import WAIT_S, Program

TASKS = """
from dueline import Context, Dueline

app = Dueline(URL)

@app.task(name="count")
def count(ctx: Context, n: int) -> int:
    ctx.set_meta(rows=n)
    ctx.progress(n, 9)
    return n
"""


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Program]:
    program = Program(tmp_path, TASKS)
    yield program
    program.close()


@pytest.mark.parametrize("more", [(), ("--recycle-jobs", "1")], ids=["", "each leaves"])
def test_reports_of_child_processes_are_there_when_the_end_is(
    jobs: Program, more: Sequence[str]
) -> None:
    jobs.work("--processes", "1", *more)
    for number in range(5):
        job = jobs.module.count.enqueue(number)
        assert job.result(timeout=WAIT_S) == number
        assert (job.meta, job.progress.done) == ({"rows": number}, number)
