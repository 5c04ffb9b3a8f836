"""A move of jobs that wait for others to another store (W14, rule J5)."""

from pathlib import Path

import pytest

from dueline import Dueline, Retry
from dueline.admin.move import Mover
from dueline.core.clock import SystemClock

NAMES = ("old", "new")


class Side:
    """An application on one of the stores. ran: the arguments of calls, on both."""

    def __init__(self, url: str, ran: list[str], broken: set[str]) -> None:
        """Open the store."""
        self.app = app = Dueline(url)

        @app.task(name="work", retry=Retry(attempts=1))
        def work(name: str) -> None:
            ran.append(name)
            if name in broken:
                raise ValueError(name)

        self.work = work


@pytest.mark.slow
@pytest.mark.sqlite
def test_jobs_still_wait_in_the_other_store(tmp_path: Path) -> None:
    """For jobs that wait there, are dead there, or have ended before the move."""
    ran: list[str] = []
    broken = {"dead"}
    for name in NAMES:
        (tmp_path / name).mkdir()
    old, new = (Side(f"sqlite:///{tmp_path}/{name}/q.db", ran, broken) for name in NAMES)
    old.app.queue("quiet", keep=0)
    ended = old.work.using(queue="quiet").enqueue("ended")
    dead = old.work.enqueue("dead")
    later = old.work.using(after=600).enqueue("later")
    flow = old.app.start(old.work.using(after=600).step("step"))
    waits = old.work.using(depends_on=[ended, later]).enqueue("waits")
    held = old.work.using(depends_on=dead).enqueue("held")
    after_flow = old.work.using(depends_on=flow).enqueue("after flow")
    old.app.run_worker(["default", "quiet"], burst=True)
    assert sorted(ran) == ["dead", "ended"]
    del ran[:]
    broken.clear()
    Mover(
        old.app.queues, new.app.queues, NAMES,
        clock=SystemClock(), report=lambda *_: None, grace_us=0,
    ).run()  # fmt: skip

    def burst() -> None:
        new.app.run_worker(["default", "quiet"], burst=True)

    burst()
    assert ran == []
    states = {new.app.job(job.id).explain().reason for job in (waits, after_flow)}
    assert states == {"jobs"}
    assert new.app.job(held.id).explain().reason == "held"
    new.app.job(later.id).retry()
    burst()
    assert ran == ["later", "waits"]
    new.app.job(dead.id).retry()
    new.app.job(new.app.flow(flow.id).step(0).id).retry()
    burst()
    assert sorted(ran[2:]) == ["after flow", "dead", "held", "step"]
    for side in (old, new):
        side.app.close()
