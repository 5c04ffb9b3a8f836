"""Pauses of single jobs on the dashboard, and over HTTP."""

from collections.abc import Iterator

import pytest

from dueline import Dueline
from dueline.web import api, dashboard
from tests.harness.http_api import Program
from tests.harness.web import Visitor

PAGES = ("/", "/queues", "/queues/default", "/jobs", "/jobs?q=state:paused", "/tasks", "/audit")


@pytest.fixture
def app() -> Iterator[Dueline]:
    made = Dueline("memory://")
    made.task(name="work")(len)
    yield made
    made.close()


def test_http_pauses_and_resumes(app: Dueline) -> None:
    job = app.task_named("work").enqueue("a")
    program = Program(api(app, role="admin"))
    program.call("POST", f"/jobs/{job.id}/pause")
    found = program.call("GET", f"/jobs/{job.id}")
    assert (found["state"], found["next"]) == ("paused", found["due"])
    assert program.call("GET", "/queues/default")["paused"] == 1
    assert program.call("GET", "/stats")["paused"] == 1
    program.call("POST", f"/jobs/{job.id}/resume")
    assert job.status == "ready"
    program.call("POST", f"/jobs/{job.id}/resume", status=409)


def test_the_dashboard_pauses_and_resumes(app: Dueline) -> None:
    job = app.task_named("work").enqueue("a")
    visitor = Visitor(dashboard(app, role="admin"))
    visitor.post(f"/jobs/{job.id}/pause", {})
    assert job.status == "paused"
    for path in (*PAGES, f"/jobs/{job.id}"):
        assert visitor.send("GET", path).status_code == 200, path
    page = visitor.text(f"/jobs/{job.id}")
    assert f"dueline jobs resume {job.id}" in page
    assert f"/jobs/{job.id}/resume" in page
    assert f"/jobs/{job.id}/retry" not in page
    visitor.post(f"/jobs/{job.id}/resume", {})
    assert job.status == "ready"
    assert [action.what for action in app.admin.actions()][:2] == ["resume", "pause"]
