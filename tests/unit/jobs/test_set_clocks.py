"""A wall clock that is set ahead for some seconds, and what it leaves behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline import Dueline
from dueline.admin.health import examine
from tests.harness.clocks import HandClock

AHEAD_S = 7200


@pytest.fixture
def app(tmp_path: Path, clock: HandClock) -> Iterator[Dueline]:
    """Make an application whose machine's clock is moved by hand."""
    app = Dueline(f"sqlite:///{tmp_path}/q.db", clock=clock)
    yield app
    app.close()


def test_only_what_was_written_meanwhile_waits_and_it_is_named(
    app: Dueline, clock: HandClock
) -> None:
    # T4
    @app.task(name="plain")
    def plain() -> None: ...

    before = plain.enqueue()
    clock.jump(AHEAD_S)
    clock.advance(3)
    meanwhile = plain.enqueue()
    clock.advance(4)
    clock.jump(-AHEAD_S)
    after = plain.enqueue()
    clock.advance(1)
    app.run_worker(burst=True)
    assert [job.status for job in (before, after)] == ["done", "done"]
    assert meanwhile.status == "scheduled"
    explanation = meanwhile.explain()
    assert "a clock that was ahead" in str(explanation)
    assert "1h59m" in str(explanation)
    (check,) = (
        check for check in examine(app.queues.engine).checks if "ahead wrote" in check.finding
    )
    assert check.verdict == "warning"
    assert "1 jobs" in check.finding
    assert "reschedule" in check.advice


def test_jobs_that_are_stored_ahead_of_their_time_are_no_sign_of_it(
    app: Dueline, clock: HandClock
) -> None:
    # T4
    @app.task(name="plain")
    def plain() -> None: ...

    app.schedule("often", plain, every=5.0)
    plain.using(after=3600).enqueue()
    app.run_worker(burst=True)
    clock.advance(1)
    assert not [
        check for check in examine(app.queues.engine).checks if "ahead wrote" in check.finding
    ]
