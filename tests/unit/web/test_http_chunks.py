"""Partial results over HTTP, on the dashboard and on the command line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dueline import Context, Dueline, Job
from dueline.cli import run
from dueline.web import api, dashboard
from tests.harness.http_api import Program
from tests.harness.web import Visitor

HIDDEN = "hunter2"


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Dueline]:
    made = Dueline(f"sqlite:///{tmp_path}/jobs.db")

    @made.task(name="answer")
    def answer(ctx: Context, count: int) -> int:
        for number in range(count):
            ctx.emit({"n": number, "password": HIDDEN} if number % 2 else f"word\n{number}")
        return count

    yield made
    made.close()


@pytest.fixture
def job(app: Dueline) -> Job[Any]:
    ended: Job[Any] = app.task_named("answer").enqueue(7)
    app.run_worker(concurrency=1, burst=True)
    return ended


def events(text: str) -> list[dict[str, str]]:
    """Read server-sent events."""
    blocks = [block for block in text.split("\n\n") if block]
    return [dict(line.split(": ", 1) for line in block.split("\n")) for block in blocks]


def test_events_go_on_after_the_last_id(app: Dueline, job: Job[Any]) -> None:
    program = Program(api(app, role="producer"))
    path = f"/jobs/{job.id}/chunks"
    answer = program.ask("GET", path)
    assert answer.headers["content-type"].startswith("text/event-stream")
    first, *found, last = events(answer.text)
    assert first == {"retry": "100"}
    assert last == {"event": "end", "data": "{}"}
    assert [each["id"] for each in found] == [f"1-{number}" for number in range(1, 8)]
    values = [json.loads(each["data"])["value"] for each in found]
    assert values[:2] == ["word\n0", {"n": 1, "password": HIDDEN}]
    rest = program.ask("GET", f"{path}?after=1-1", last_event_id="1-5")
    assert [each.get("id") for each in events(rest.text)[1:]] == ["1-6", "1-7", None]
    rest = program.ask("GET", f"{path}?after=1-7")
    assert [each.get("event") for each in events(rest.text)[1:]] == ["end"]


def test_a_response_ends_before_its_job(app: Dueline) -> None:
    waits: Job[Any] = app.task_named("answer").enqueue(1)
    program = Program(api(app, role="producer"))
    assert events(program.ask("GET", f"/jobs/{waits.id}/chunks?wait=0").text) == [{"retry": "100"}]


def test_bad_requests_are_refused(app: Dueline, job: Job[Any]) -> None:
    program = Program(api(app, role="producer"))
    program.call("GET", f"/jobs/{job.id}/chunks?after=x", status=422)
    program.call("GET", f"/jobs/{job.id}/chunks?wait=31", status=422)
    program.call("GET", f"/jobs/{'0' * 32}/chunks", status=404)
    Program(api(app, role="reader")).call("GET", f"/jobs/{job.id}/chunks", status=403)


def test_the_page_of_a_job_shows_the_last_chunks(app: Dueline, job: Job[Any]) -> None:
    page = Visitor(dashboard(app)).get(f"/jobs/{job.id}").text
    assert "Partial results" in page
    assert "word\n6" in page
    assert HIDDEN not in page


def test_the_command_prints_chunks(
    app: Dueline, job: Job[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    front = ["--store", app.url, "jobs", "chunks"]
    assert run([*front, job.id, "--follow", "--after", "1-5", "-o", "ndjson"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["id"], line["value"]) for line in lines] == [
        ("1-6", {"n": 5, "password": HIDDEN}), ("1-7", "word\n6"),
    ]  # fmt: skip
    assert run([*front, app.task_named("answer").enqueue(1).id]) == 0
    assert capsys.readouterr().out == ""
