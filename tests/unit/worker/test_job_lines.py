"""What handlers log is kept with the attempt (V11)."""

import asyncio
import logging
import threading
from pathlib import Path

import pytest

from dueline import BadInput, Context, Dueline, Retry
from dueline.jobs import attempt_lines
from dueline.jobs.attempt_lines import ATTEMPTS_MAX
from dueline.worker.job_lines import LINE_CHARACTERS_MAX, LINES_CHARACTERS_MAX, JobLines
from tests.harness.programs import Program, wait_for

log = logging.getLogger("shop")


@pytest.fixture
def app() -> Dueline:
    return Dueline("memory://")


def burst(app: Dueline) -> None:
    app.run_worker(["default"], burst=True, monitor=False)


def test_the_last_lines_are_kept_and_long_ones_are_cut(app: Dueline) -> None:
    @app.task(name="work", logs="all")
    def work() -> None:
        for number in range(1_000):
            log.warning("%d %s", number, "x" * 100)
        log.warning("y" * 10 * LINE_CHARACTERS_MAX)

    job = work.enqueue()
    burst(app)
    (kept,) = job.logs()
    assert len(kept.text) <= LINES_CHARACTERS_MAX
    assert " 999 " in kept.text
    assert " 800 " not in kept.text
    assert max(map(len, kept.text.splitlines())) <= LINE_CHARACTERS_MAX


def test_attempts_that_were_done_keep_it_only_with_all(app: Dueline) -> None:
    @app.task(name="some", logs="failed")
    def some(ctx: Context) -> None:
        log.warning("done %s", ctx.job_id)

    @app.task(name="every", logs="all")
    async def every() -> int:
        await asyncio.sleep(0)
        log.warning("awaited")
        return 1

    jobs = [some.enqueue(), every.enqueue()]
    burst(app)
    assert [len(job.logs()) for job in jobs] == [0, 1]
    assert jobs[1].logs()[0].text.endswith("WARNING shop: awaited")
    assert jobs[1].result() == 1
    assert not [
        handler for handler in logging.getLogger().handlers if isinstance(handler, JobLines)
    ]


def test_each_attempt_keeps_its_own_and_old_ones_go(app: Dueline) -> None:
    @app.task(name="fail", logs="failed", retry=Retry(attempts=ATTEMPTS_MAX + 5, delays=[0]))
    def fail(ctx: Context) -> None:
        log.warning("attempt %d", ctx.attempt)
        raise ValueError

    job = fail.enqueue()
    burst(app)
    kept = job.logs()
    assert [line.fence for line in kept] == list(range(6, ATTEMPTS_MAX + 6))
    assert all(line.text.endswith(f"attempt {line.fence}") for line in kept)


def test_jobs_at_the_same_time_and_other_threads_do_not_mix(app: Dueline) -> None:
    both = threading.Barrier(2)

    @app.task(name="work", logs="all")
    def work(name: str) -> None:
        both.wait(10)
        log.warning("of %s", name)
        both.wait(10)
        aside = threading.Thread(target=lambda: log.warning("of nobody"))
        aside.start()
        aside.join()

    jobs = {name: work.enqueue(name) for name in "ab"}
    burst(app)
    for name, job in jobs.items():
        (kept,) = job.logs()
        assert kept.text.splitlines()[0].endswith(f"of {name}")
        assert len(kept.text.splitlines()) == 1


def test_a_record_that_cannot_be_formatted_harms_nothing(
    app: Dueline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)

    @app.task(name="work", logs="all")
    def work() -> None:
        log.warning("%d", "no number")
        log.warning("fine")

    job = work.enqueue()
    burst(app)
    assert job.logs()[0].text.endswith("fine")


def test_lines_expire_with_the_history(app: Dueline) -> None:
    app.queue("default", history_keep=60)

    @app.task(name="work", logs="all")
    def work() -> None:
        log.warning("once")

    job = work.enqueue()
    burst(app)
    place = attempt_lines.place_of(job._id)
    records = app.store._records[place]  # type: ignore[attr-defined]
    (record,) = records.values() if isinstance(records, dict) else records
    assert record.expires_us is not None
    assert 0 < record.expires_us - job.logs()[0].ended_us <= 60_000_000


def test_only_three_words_are_known(app: Dueline) -> None:
    with pytest.raises(BadInput, match="logs"):
        app.task(name="work", logs="some")(lambda: None)  # type: ignore[call-overload]


PROGRAM = """
import logging
from dueline import Dueline, Retry

app = Dueline(URL)


@app.task(name="fail", logs="failed", retry=Retry(attempts=1))
def fail() -> None:
    logging.getLogger("shop").warning("in a child")
    raise ValueError
"""


@pytest.mark.slow
def test_lines_come_from_child_processes(tmp_path: Path) -> None:
    program = Program(tmp_path, PROGRAM)
    try:
        job = program.module.fail.enqueue()
        program.work("--processes", "1")
        wait_for(job.logs, "its lines are kept")
        assert job.logs()[0].text.endswith("WARNING shop: in a child")
    finally:
        program.close()
