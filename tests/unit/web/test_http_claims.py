"""The HTTP API: programs that claim and run jobs."""

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dueline import Context, Dueline, Failures, Retry, pipeline
from dueline.api import claim_sessions
from dueline.web import api
from dueline.web.http_api import waiting
from tests.harness.addresses import address
from tests.harness.clocks import HandClock
from tests.harness.http_api import Program


class Client(Program):
    """A worker in another language."""

    def claim(self, *queues: str, **more: Any) -> list[dict[str, Any]]:  # noqa: ANN401
        """Claim jobs."""
        body = {"queues": queues or ["default"], "most": 10, **more}
        jobs: list[dict[str, Any]] = self.call("POST", "/claims", body)["jobs"]
        return jobs

    def end(self, how: str, job: dict[str, Any], *, status: int = 200, **more: Any) -> Any:  # noqa: ANN401
        """End or extend a claim."""
        body = {"token": job["token"], **more}
        return self.call("POST", f"/claims/{job['id']}/{how}", body, status=status)


@pytest.fixture
def clock() -> HandClock:
    """Let time stand still."""
    return HandClock(time.time_ns() // 1000)  # a server expires records by its own


@pytest.fixture(params=["memory", "sqlite", pytest.param("redis", marks=pytest.mark.redis)])
def app(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    clock: HandClock,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Dueline]:
    """Open an application whose time stands still."""
    with address(request.param, tmp_path) as url:
        made = Dueline(url, clock=clock)
        monkeypatch.setattr(made.store, "clock_us", clock.wall_us)
        yield made
        made.close()


@pytest.fixture
def client(app: Dueline) -> Client:
    """Use the API as a worker."""
    return Client(api(app, role="worker"))


def test_a_job_is_claimed_extended_and_completed(
    app: Dueline, client: Client, clock: HandClock
) -> None:
    call = app.unchecked("shop.charge").using(priority=2, tenant="acme", headers={"a": "b"})
    job = call.enqueue(5, currency="EUR")
    (claimed,) = client.claim()
    assert {name: claimed[name] for name in ("id", "task", "args", "kwargs", "fence")} == {
        "id": job.id, "task": "shop.charge", "args": [5], "kwargs": {"currency": "EUR"}, "fence": 1,
    }  # fmt: skip
    assert (claimed["tenant"], claimed["priority"], claimed["headers"]) == ("acme", 2, {"a": "b"})
    assert job.status == "running"
    assert client.claim() == []
    clock.advance(20)
    extended = client.end("extend", claimed)
    assert extended["lease_until"] > claimed["lease_until"]
    assert not extended["is_cancelled"]
    clock.advance(20)
    assert client.claim() == []
    client.end("complete", claimed, result={"paid": True})
    assert job.result() == {"paid": True}
    lost = client.end("complete", claimed, status=409)
    assert lost["type"] == "urn:dueline:problem:lease-lost"
    attempt = app.admin.get(job.id).attempts[0]
    assert attempt.worker.endswith(":http")


def test_a_client_that_dies_loses_its_claim(app: Dueline, client: Client, clock: HandClock) -> None:
    job = app.unchecked("x").enqueue()
    (dead,) = client.claim(lease=5)
    clock.advance(6)
    (again,) = client.claim()
    assert (again["fence"], again["attempt"]) == (2, 1)
    for how in ("extend", "complete", "release"):
        client.end(how, dead, status=409)
    clock.advance(60)
    client.claim()
    clock.advance(60)
    assert client.claim() == []
    assert job.status == "dead"  # three workers died on it
    assert "Poison" in app.admin.get(job.id).summary.error


def test_a_claim_needs_its_token(app: Dueline, client: Client) -> None:
    app.unchecked("x").enqueue()
    (job,) = client.claim()
    client.end("complete", {**job, "token": "0" * 32}, status=409)
    client.end("complete", {**job, "token": "x"}, status=422)
    client.end("complete", {**job, "id": "0" * 32}, status=409)
    client.end("complete", {**job, "id": "x"}, status=422)
    waiting_job = app.unchecked("x").using(after=9).enqueue()
    client.end("complete", {"id": waiting_job.id, "token": "0" * 32}, status=409)
    client.end("complete", job)


def test_failures_are_retried_as_the_task_says(
    app: Dueline, client: Client, clock: HandClock
) -> None:
    @app.task(name="flaky", retry=Retry(attempts=2, delays=[10]))
    def flaky() -> None: ...

    job = flaky.enqueue()
    client.end("fail", client.claim()[0], error="Timeout", message="no answer")
    assert job.status == "retrying"
    clock.advance(10)
    (second,) = client.claim()
    assert second["attempt"] == 2
    client.end("fail", second, error="Timeout", message="no answer", traceback="line 5")
    details = app.admin.get(job.id)
    assert (details.summary.state, details.summary.error) == ("dead", "Timeout: no answer")
    assert details.traceback == "line 5"
    other = app.unchecked("other").enqueue()
    client.end("fail", client.claim()[0], error="Later", retry_after=30)
    clock.advance(29)
    assert client.claim() == []
    clock.advance(1)
    client.end("fail", client.claim()[0], error="Never", retry=False)
    assert other.status == "dead"


def test_released_jobs_use_no_attempt(app: Dueline, client: Client, clock: HandClock) -> None:
    job = app.unchecked("x").enqueue()
    client.end("release", client.claim()[0])
    (again,) = client.claim()
    assert again["attempt"] == 1
    client.end("release", again, after=60)
    assert client.claim() == []
    clock.advance(60)
    client.end("complete", client.claim()[0])
    assert job.status == "done"


def test_a_cancel_request_reaches_the_client(app: Dueline, client: Client) -> None:
    job = app.unchecked("x").enqueue()
    (claimed,) = client.claim()
    assert not job.cancel()
    assert client.end("extend", claimed)["is_cancelled"]
    client.end("fail", claimed, error="Stopped")
    assert job.status == "cancelled"
    again = app.unchecked("x").enqueue()
    (claimed,) = client.claim()
    client.end("release", claimed)
    assert again.cancel()
    assert client.claim() == []


def test_a_request_before_an_end_decides_what_it_is_called(app: Dueline, client: Client) -> None:
    # C19
    failures: list[dict[str, Any]] = [{"retry": False}, {"retry_after": 3600}, {}]
    for failure in failures:
        job = app.unchecked("x").enqueue()
        (claimed,) = client.claim()
        assert not job.cancel()
        client.end("fail", claimed, error="Stopped", **failure)
        assert job.status == "cancelled"
    job = app.unchecked("x").enqueue()
    (claimed,) = client.claim()
    assert not job.cancel()
    client.end("complete", claimed)
    assert job.status == "done"


def test_limits_hold_for_clients_and_workers(
    app: Dueline, client: Client, clock: HandClock
) -> None:
    app.semaphore("gpu", capacity=2)

    @app.task(name="train", limits=["gpu"])
    def train(ctx: Context) -> None: ...

    jobs = [train.enqueue() for _ in range(4)]
    first, second = client.claim()
    assert client.claim() == []
    elsewhere = Client(api(app, role="worker"))  # another process
    assert elsewhere.claim() == []
    assert [job.status for job in jobs].count("ready") == 2
    client.end("complete", first)
    (third,) = client.claim() + elsewhere.claim()  # both waited: it is the turn of one
    clock.advance(20)
    client.end("extend", second)
    clock.advance(15)  # the lease and permit of the third have ended
    (fourth,) = client.claim() or elsewhere.claim()
    assert {third["id"], fourth["id"]} <= {job.id for job in jobs}
    client.end("extend", third, status=409)
    elsewhere.end("extend", second, status=409)
    elsewhere.end("complete", second)
    client.end("complete", fourth)
    clock.advance(60)
    while left := client.claim():
        for one in left:
            client.end("complete", one)
    assert {job.status for job in jobs} == {"done"}


def test_rates_hold_for_clients(app: Dueline, client: Client, clock: HandClock) -> None:
    app.rate("bank", 2, per=60)
    call = app.unchecked("charge").using(limits=["bank"])
    for _ in range(3):
        call.enqueue()
    assert len(client.claim()) == 2
    assert client.claim() == []
    clock.advance(61)
    assert len(client.claim(lease=3600)) >= 1


def test_pauses_and_unknown_tasks_are_heeded(
    app: Dueline, client: Client, clock: HandClock
) -> None:
    one, two = (app.unchecked(name).enqueue() for name in ("one", "two"))
    app.pause("default", task="two")
    (first,) = client.claim()
    assert first["id"] == one.id
    app.resume("default", task="two")
    clock.advance(10)
    assert client.claim(tasks=["three"]) == []
    (second,) = client.claim(tasks=["two"])
    assert second["id"] == two.id
    app.unchecked("two").enqueue()
    app.pause("default")
    clock.advance(10)
    assert client.claim() == []


def test_steps_of_workflows_get_their_first_arguments(app: Dueline, client: Client) -> None:
    @app.task(name="fetch")
    def fetch(page: str) -> str:
        return page

    @app.task(name="count")
    def count(text: str, word: str) -> int:
        return text.count(word)

    flow = app.start(pipeline(fetch.step("index"), count.step("a")))
    (step,) = client.claim()
    client.end("complete", step, result="banana")
    (last,) = client.claim()
    assert (last["task"], last["args"]) == ("count", ["banana", "a"])
    client.end("complete", last, result=3)
    assert flow.result() == 3


def test_jobs_run_at_most_once_where_the_queue_says_so(
    app: Dueline, client: Client, clock: HandClock
) -> None:
    app.queue("once", deliver="at_most_once")
    job = app.unchecked("x", queue="once").enqueue()
    assert client.claim("once")
    clock.advance(60)
    assert client.claim("once") == []
    assert job.status == "lost"


def _reversed(data: bytes) -> bytes:
    return data[::-1]


def test_arguments_that_cannot_be_shown_are_left_to_other_workers(
    app: Dueline, client: Client, clock: HandClock
) -> None:
    app.payloads.add("reverse", 70, encode=_reversed, decode=_reversed)

    @app.task(name="secret", codec="reverse")
    def secret(text: str) -> None: ...

    job = secret.enqueue("x")
    assert client.claim() == []
    assert job.status in ("ready", "scheduled", "retrying")
    clock.advance(40)
    app.run_worker(["default"], burst=True, monitor=False)
    assert job.status == "done"


def test_clients_are_shown_among_the_workers(app: Dueline, client: Client) -> None:
    client.claim("mail", tasks=["send"], worker="ruby-7")
    (worker,) = app.admin.workers()
    assert worker.worker.endswith(":ruby-7")
    assert (worker.queues, worker.tasks, worker.slots) == (("mail",), ("send",), 0)


def test_old_sessions_are_closed(
    app: Dueline, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_sessions, "SESSIONS_MAX", 5)
    app.semaphore("gpu", capacity=1)
    app.unchecked("x").using(limits=["gpu"]).enqueue()
    (held,) = client.claim(worker="first")
    for number in range(6):
        assert client.claim(worker=f"w{number}") == []
    client.end("complete", held)


@pytest.mark.parametrize(
    "body",
    [
        {"queues": []},
        {"queues": ["A b"]},
        {"queues": ["default"] * 21},
        {"queues": ["default"], "most": 0},
        {"queues": ["default"], "most": 101},
        {"queues": ["default"], "wait": 31},
        {"queues": ["default"], "lease": 0},
        {"queues": ["default"], "worker": "a/b"},
    ],
)
def test_claims_out_of_range_are_refused(body: object) -> None:
    app = Dueline("memory://")
    Client(api(app, role="worker")).call("POST", "/claims", body, status=422)
    app.close()


def test_a_claim_waits_for_a_job() -> None:
    app = Dueline("memory://")
    client = Client(api(app, role="worker"))
    later = threading.Timer(0.1, lambda: app.unchecked("x").enqueue())
    later.start()
    assert len(client.claim(wait=20)) == 1
    later.join()
    assert client.claim(wait=0.05) == []
    app.close()


def test_only_some_requests_wait_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "WAITING_MAX", 0)
    app = Dueline("memory://")
    client = Client(api(app, role="worker"))
    body = {"queues": ["default"], "wait": 1}
    assert client.call("POST", "/claims", body, status=429)["hint"]
    app.close()


def test_a_client_that_left_gets_no_job(app: Dueline) -> None:
    job = app.unchecked("x").enqueue()
    body = b'{"queues": ["default"], "wait": 5}'
    page = api(app, role="worker")
    messages = [{"type": "http.request", "body": body}, {"type": "http.disconnect"}]
    sent: list[Any] = []

    async def receive() -> Any:  # noqa: ANN401
        return messages.pop(0) if len(messages) > 1 else messages[0]

    async def send(message: Any) -> None:  # noqa: ANN401
        sent.append(message)

    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
    scope = {
        "type": "http", "method": "POST", "path": "/claims", "root_path": "", "headers": headers,
        "query_string": b"", "client": ("127.0.0.1", 1), "scheme": "http",
        "server": ("127.0.0.1", 80), "http_version": "1.1",
    }  # fmt: skip

    async def ask() -> None:
        await page(scope, receive, send)

    asyncio.run(ask())
    assert sent[0]["status"] == 200
    assert job.status == "ready"


def test_claims_count_for_a_task_that_pauses_itself(
    app: Dueline, client: Client, clock: HandClock
) -> None:
    @app.task(name="t", retry=Retry(attempts=9, delays=[1]), pause_after=Failures(2, probe_every=5))
    def act() -> None: ...

    other = Client(api(app, role="worker"))  # another server
    act.enqueue_many([()] * 4)
    for job in client.claim(most=2):
        other.end("fail", job, error="Timeout", message="no answer")
    assert app.queues.engine.catalog.settings("default").paused_tasks == ("t",)
    clock.advance(1)
    assert client.claim() == []
    clock.advance(5)
    client.claim()
    (probe,) = client.claim()
    assert other.claim() == []
    other.end("complete", probe)
    assert app.queues.engine.catalog.settings("default").paused_tasks == ()
    assert len(client.claim()) == 3
