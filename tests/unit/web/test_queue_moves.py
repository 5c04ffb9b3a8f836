"""Moves of jobs to another queue on the dashboard, and over HTTP (O6)."""

from collections.abc import Iterator

import pytest

from dueline import Dueline
from dueline.api.job_handle import parse_id
from dueline.web import api, dashboard
from tests.harness.http_api import Program
from tests.harness.web import Visitor


@pytest.fixture
def app() -> Iterator[Dueline]:
    made = Dueline("memory://")
    made.queue("slow")
    made.task(name="work")(len)
    yield made
    made.close()


def queue_of(app: Dueline, job_id: str) -> str:
    """Return the queue of a job."""
    (row,) = app.engine.store.find([parse_id(job_id)])
    assert row is not None
    return row.lane.queue


def test_http_moves_jobs(app: Dueline) -> None:
    task = app.task_named("work")
    job, held = task.enqueue("a"), task.using(order_key="k").enqueue("a")
    program = Program(api(app, role="admin"))
    body = {"filter": "queue:default", "to": "slow"}
    expected = {"moved": 1, "left": {"order key": 1}}
    assert program.call("POST", "/jobs/move", {**body, "dry_run": True}) == expected
    assert queue_of(app, job.id) == "default"
    assert program.call("POST", "/jobs/move", body) == expected
    assert program.call("GET", f"/jobs/{job.id}")["queue"] == "slow"
    program.call("POST", f"/jobs/{job.id}/move", {"to": "default"})
    assert queue_of(app, job.id) == "default"
    program.call("POST", f"/jobs/{held.id}/move", {"to": "slow"}, status=409)
    program.call("POST", f"/jobs/{job.id}/move", {"to": "none"}, status=404)
    program.call("POST", "/jobs/move", {"filter": "", "to": "slow"}, status=422)


def test_the_dashboard_moves_jobs(app: Dueline) -> None:
    task = app.task_named("work")
    jobs = [task.enqueue("a") for _ in range(3)]
    visitor = Visitor(dashboard(app, role="admin"))
    assert "Move" in visitor.text(f"/jobs/{jobs[0].id}")
    visitor.post(f"/jobs/{jobs[0].id}/move", {"to": "slow"})
    boxes = {f"job-{jobs[1].id}": "on", "q": "", "what": "move", "to": "slow"}
    visitor.post("/jobs/selected", boxes)
    assert [queue_of(app, job.id) for job in jobs] == ["slow", "slow", "default"]
    assert "what=move" not in visitor.text("/jobs")
    assert "what=move" in visitor.text("/jobs?q=queue:default")
    assert "To the queue" in visitor.text("/jobs/change?q=queue:default&what=move")
    for like, why in ((":running+queue:slow", "cannot be moved"), (":ready", "names no queue")):
        assert why in visitor.get(f"/jobs/change?q=state{like}&what=move").text
    visitor.post("/jobs/change", {"q": "queue:default", "what": "move", "to": "slow"})
    assert queue_of(app, jobs[2].id) == "slow"
    for form in ({"what": "move", "q": "queue:slow"}, {"what": "move", "q": "", "to": "slow"}):
        assert visitor.post("/jobs/change", form).status_code == 400
    actions = [(action.what, action.result) for action in app.admin.actions()]
    assert actions[:2] == [("move to slow", "1 jobs"), ("move to slow", "done")]
