"""What operators and programs do, on each store that several processes can open."""

import logging
import time
from collections.abc import Callable

import pytest

from dueline import Batch, Dueline, Retry
from dueline.admin.redrives import PacedRedrive
from dueline.admin.search import JobFilter
from dueline.coordination.worker_registry import present
from dueline.web import api, dashboard
from tests.harness.http_api import Program
from tests.harness.steering import answer_to, ask, presence_of
from tests.harness.web import Shop, Visitor

PATIENCE_S = 5
"""How long an operator waits at most."""

log = logging.getLogger("shop")


def in_time(is_so: Callable[[], object]) -> bool:
    """Wait for something, as long as an operator does at most."""
    until_s = time.monotonic() + PATIENCE_S
    while not (answer := is_so()) and time.monotonic() < until_s:
        time.sleep(0.01)
    return bool(answer)


@pytest.mark.long
def test_every_page_shows_and_steers_a_store(url: str) -> None:
    """Open each page of a shop, and make the changes that pages offer."""
    # V8
    shop = Shop(url)
    try:
        admin = Visitor(dashboard(shop.app, role="admin"))
        for path in shop.paths():
            assert "<script>alert" not in admin.text(path)
        assert shop.scheduled in admin.text("/jobs?q=tenant:acme+priority>3")
        assert admin.get("/series.json").json()["failed"][-1] is None  # this step is not over
        done = admin.post("/jobs/change", {"q": "state:dead task:shop.send", "what": "retry"})
        assert done.headers["location"].endswith("notice=retried&n=2")
        admin.post("/queues/mail/pause")
        assert "paused" in admin.text("/queues")
        audit = admin.text("/audit")
        assert audit.index("pause queue") < audit.index("retry all")
    finally:
        shop.app.close()


def test_programs_enqueue_and_run_jobs(url: str) -> None:
    """Use a store through the API only."""
    # A7
    app = Dueline(url)
    app.semaphore("gpu", capacity=1)
    program = Program(api(app, role="admin"))
    body = {"task": "train", "args": [1], "queue": "models", "limits": ["gpu"]}
    first = program.call("POST", "/jobs", body, status=201, idempotency_key="k-1")
    again = program.call("POST", "/jobs", body, status=201, idempotency_key="k-1")
    assert (again["id"], again["repeated"]) == (first["id"], True)
    program.call("POST", "/jobs", {**body, "args": [2]}, status=422, idempotency_key="k-1")
    second = program.call("POST", "/jobs", {**body, "args": [2]}, status=201)
    claim = {"queues": ["models"], "most": 10, "wait": 10}
    (job,) = program.call("POST", "/claims", claim)["jobs"]  # one permit
    proof = {"token": job["token"]}
    extended = program.call("POST", f"/claims/{job['id']}/extend", proof)
    assert extended["lease_until"] >= job["lease_until"]
    program.call("POST", f"/claims/{job['id']}/complete", {**proof, "result": [1.5, "é"]})
    program.call("POST", f"/claims/{job['id']}/complete", proof, status=409)
    (other,) = program.call("POST", "/claims", claim)["jobs"]
    assert {job["id"], other["id"]} == {first["id"], second["id"]}
    assert program.call("POST", f"/jobs/{other['id']}/cancel", {}) == {"ended": False}
    proof = {"token": other["token"]}
    assert program.call("POST", f"/claims/{other['id']}/extend", proof)["is_cancelled"]
    program.call("POST", f"/claims/{other['id']}/fail", {**proof, "error": "Stopped"})
    assert program.call("GET", f"/jobs/{job['id']}/result?wait=10")["result"] == [1.5, "é"]
    assert program.call("GET", f"/jobs/{other['id']}/result?wait=10")["state"] == "cancelled"
    many = [{"task": "x", "args": [n], "queue": "models"} for n in range(20)]
    made = program.call("POST", "/jobs/bulk", {"jobs": many}, status=201, idempotency_key="k-2")
    same = program.call("POST", "/jobs/bulk", {"jobs": many}, status=201, idempotency_key="k-2")
    assert [job["id"] for job in made] == [job["id"] for job in same]
    listed = program.call("GET", "/jobs?filter=queue:models&limit=100")["jobs"]
    assert len(listed) == 20
    app.close()


def test_a_worker_is_steered(url: str) -> None:
    """Steer a worker on a real store in real time."""
    # O13
    app = Dueline(url)

    @app.task(name="work")
    def work() -> str:
        return "done"

    with app.worker(["default"]):
        engine = app.engine
        assert in_time(lambda: present(engine.store))
        quiet = ask(engine, "quiet")
        assert in_time(lambda: answer_to(engine, quiet))
        job = work.enqueue()
        ping = ask(engine, "ping")
        assert in_time(lambda: answer_to(engine, ping))
        assert in_time(lambda: presence_of(engine).is_quiet)
        assert job.explain().reason == "quiet"
        ask(engine, "resume")
        assert job.result(timeout=10) == "done"
        ask(engine, "stop")
        assert in_time(lambda: not present(engine.store))
    app.close()


def test_a_group_is_paused(url: str) -> None:
    """Pause a group of a running consumer on a real store."""
    # O13
    app = Dueline(url)
    clicks = app.stream("clicks", shards=2)
    seen: list[int] = []

    @clicks.consumer("billing")
    def bill(batch: Batch) -> None:
        seen.extend(event.value for event in batch.events)

    with app.consuming():
        clicks.append(1)
        assert in_time(lambda: seen == [1])
        clicks.pause(group="billing")
        time.sleep(0.6)  # more than a check of the settings
        clicks.append(2)
        time.sleep(0.6)
        assert (seen, sum(lag.rows for lag in clicks.lag("billing"))) == ([1], 1)
        clicks.resume(group="billing")
        assert in_time(lambda: seen == [1, 2])
    app.close()


def test_dead_jobs_are_redriven(url: str) -> None:
    """Redrive dead jobs on a real store in real time."""
    # R17
    app = Dueline(url)

    @app.task(name="fail", retry=Retry(attempts=1))
    def fail() -> None:
        raise ValueError

    for _ in range(3):
        fail.enqueue()
    app.run_worker(["default"], burst=True)
    run = PacedRedrive(app.queues, JobFilter(task="fail"), "task:fail", 1_000, "ann")
    run.begin()
    assert sum(page.done for page in run.run()) == 3
    assert [redrive.state for redrive in app.admin.redrives()] == ["done"]
    assert app.admin.count("state:dead").jobs == 0
    app.close()


def test_the_log_of_a_failed_attempt_is_kept(url: str) -> None:
    """Run a task that fails once, and one that keeps nothing."""
    # V11
    app = Dueline(url)

    @app.task(name="flaky", logs="failed", retry=Retry(attempts=2, delays=[0]))
    def flaky(word: str) -> None:
        log.warning("first\nfake \x1b[31m%s", word)
        try:
            [].pop()
        except IndexError:
            log.exception("failed")
            raise

    @app.task(name="mute", retry=Retry(attempts=1))
    def mute() -> None:
        log.warning("nobody keeps this")
        raise ValueError

    job, other = flaky.enqueue("red"), mute.enqueue()
    app.run_worker(["default"], burst=True)
    assert [line.fence for line in job.logs()] == [1, 2]
    first, second, *rest = job.logs()[0].text.splitlines()
    assert first.endswith("Z WARNING shop: first")
    assert second == "    fake \\x1b[31mred"
    assert rest[0].endswith("Z ERROR shop: failed")
    assert rest[1] == "    Traceback (most recent call last):"
    assert rest[-1] == "    IndexError: pop from empty list"
    assert other.logs() == []
    assert [line.fence for line in app.admin.get(str(job.id)).lines] == [1, 2]
    app.close()
