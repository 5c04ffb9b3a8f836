"""What a worker answers by HTTP: metrics, probes, and how many workers are needed (C15, V5, O8)."""

import json
import random
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, NoReturn

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as open_metrics,
)
from prometheus_client.parser import text_string_to_metric_families

from dueline import (
    BadInput,
    ConfigError,
    Dueline,
    DurableContext,
    Retry,
    StoreUnavailable,
)
from dueline.admin.functions import living_functions
from dueline.api.launch import make_worker
from dueline.api.worker_http import Listener, listening
from dueline.api.worker_plan import plan_of
from dueline.core.attempt import Done, Ended
from dueline.durable.stopped import stopped_in
from dueline.worker.settler import Settler
from dueline.worker.store_calls import counted_calls
from dueline.worker.tally import Tally
from tests.harness.calls import claim_all
from tests.harness.markdown import ROOT
from tests.harness.programs import Program, wait_for
from tests.harness.servers import absent

RULES = ROOT / "deploy" / "prometheus" / "dueline-rules.yml"


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Return what a scrape says: names with the values of their labels, sorted by label."""
    return {
        (one.name, *(value for _, value in sorted(one.labels.items()))): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


class Stage:
    """An application, a worker that works in bursts or until stopped, and what it answers."""

    def __init__(self, app: Dueline, *, burst: bool = True) -> None:
        self.app = app
        self.tally = Tally()
        plan = plan_of(app.serving(None), 4, 0, 0, burst=burst)
        self.worker = make_worker(app, plan, tally=self.tally)
        self.listener = Listener(app.engine, self.worker, self.tally, 4)

    def get(self, path: str, accept: str = "", **query: str) -> tuple[int, str]:
        answer = self.listener.answer(path, {key: [one] for key, one in query.items()}, accept)
        return answer.status.value, answer.body


@contextmanager
def running(stage: Stage) -> Iterator[None]:
    """Run the worker in a thread meanwhile."""
    thread = threading.Thread(target=stage.worker.run)
    thread.start()
    try:
        yield
    finally:
        stage.worker.stop()
        thread.join()


@pytest.fixture
def app() -> Iterator[Dueline]:
    made = Dueline("memory://")

    @made.task(name="add", queue="sums")
    def add(number: int) -> int:
        return number + 1

    @made.task(name="fail", retry=Retry(attempts=2, delays=[0]))
    def fail() -> NoReturn:
        raise ValueError("no")

    yield made
    made.close()


def test_metrics_count_every_end_of_an_attempt(app: Dueline) -> None:
    stage = Stage(app)
    app.send("add", [1], queue="sums")
    app.send("add", [2], queue="sums", priority=5)
    app.send("add", [3], queue="sums", expires=0.05)
    time.sleep(0.06)
    app.send("fail")
    stage.worker.run()
    status, text = stage.get("/metrics")
    assert status == HTTPStatus.OK
    found = samples(text)
    assert found["dueline_jobs_finished_total", "done", "sums", "add"] == 2
    assert found["dueline_jobs_finished_total", "expired", "sums", "add"] == 1
    assert found["dueline_jobs_finished_total", "dead", "default", "fail"] == 1
    assert found["dueline_jobs_requeued_total", "retried", "default", "fail"] == 1
    assert found["dueline_job_run_seconds_count", "default", "fail"] == 2
    assert found["dueline_job_run_seconds_bucket", "+Inf", "sums", "add"] == 2
    assert found["dueline_job_lateness_seconds_count", "high", "sums"] == 1
    assert found["dueline_job_lateness_seconds_count", "normal", "default"] == 1
    assert found["dueline_priority_inversions_total", "sums"] == 0
    assert ("dueline_priority_inversions_total", "default") not in found
    assert found["dueline_jobs", "default", "dead"] == 1
    assert found["dueline_store_up",] == 1
    assert "process_cpu_seconds_total" in text, "the metrics of the application"
    text = stage.get("/metrics", "application/openmetrics-text")[1]
    assert list(open_metrics(text))  # type: ignore[no-untyped-call]


def states(app: Dueline) -> Iterator[str]:
    return (function.state for function in living_functions(app.engine))


def test_metrics_of_durable_functions() -> None:
    app = Dueline("memory://")
    code = {"first": "pay"}

    def pay(amount: int) -> int:
        if not amount:
            raise ValueError("no")
        return amount

    @app.durable(name="order", queue="shop", retry=Retry(attempts=2, delays=[0]))
    def order(ctx: DurableContext, amount: int) -> None:
        ctx.step(pay, 1, name=code["first"], undo=pay)
        ctx.sleep(60 if amount == 9 else 0.05)
        ctx.step(pay, amount, name="pay")
        ctx.wait_signal("go")

    stage = Stage(app, burst=False)
    for amount in (0, 3, 9):
        order.enqueue(amount)
    waits = order.enqueue(4)
    with running(stage):
        wait_for(lambda: sum(stage.tally.totals().steps.values()) == 9, "the steps")
        wait_for(lambda: [*states(app)].count("waiting") == 2, "the waits")
        code["first"] = "charge"
        waits.signal("go", 1)
        wait_for(lambda: len(stopped_in(app.engine, "shop")) == 1, "the stop")
    found = samples(stage.get("/metrics")[1])
    steps = {key[1:3]: value for key, value in found.items() if key[0].endswith("steps_total")}
    assert steps == {
        ("step", "done"): 6, ("step", "retried"): 1, ("step", "failed"): 1, ("undo", "done"): 1,
    }  # fmt: skip
    assert found["dueline_function_replay_seconds_count", "shop", "order"] >= 8
    assert found["dueline_jobs_requeued_total", "stopped", "shop", "order"] >= 1
    assert found["dueline_jobs_requeued_total", "suspended", "shop", "order"] >= 4
    assert found["dueline_functions", "sleeping", "order"] == 1
    assert found["dueline_functions", "waiting", "order"] == 1
    assert found["dueline_functions", "stopped", "order"] == 1
    assert found["dueline_functions_capped",] == 0
    assert found["dueline_functions_stopped_oldest_seconds", "shop"] >= 0
    app.close()


def test_the_wait_for_a_limit_is_measured(app: Dueline) -> None:
    @app.task(name="limited", limits=["host"])
    def limited() -> None:
        pass

    stage = Stage(app)
    limited.enqueue()
    stage.worker.run()
    found = samples(stage.get("/metrics")[1])
    assert found["dueline_job_wait_limit_seconds_count", "host"] == 1


def test_calls_of_the_store_are_timed_by_their_outcome(app: Dueline) -> None:
    store, tally = app.engine.store, Tally()
    app.send("add", [1], queue="sums")
    row = next(iter(app.engine.jobs_of("sums")))
    with counted_calls(store, tally):
        assert len(store.find([row.id])) == 1
        claim_all(app.queues, row.lane)
        claim_all(app.queues, row.lane)
        with pytest.raises(TypeError):
            store.find(7)  # type: ignore[arg-type]
    assert store.find([row.id])
    calls, claims = tally.totals().calls, tally.totals().claims
    assert sum(calls["find", "ok"].counts) == sum(calls["find", "error"].counts) == 1
    assert claims == {("sums", "new"): 1, ("sums", "empty"): 1}


def test_a_shard_without_a_claiming_worker_is_unowned(app: Dueline) -> None:
    app.send("add", [1], queue="sums")
    time.sleep(0.01)
    found = samples(Stage(app).get("/metrics")[1])
    shards = app.engine.catalog.settings("sums").shards
    assert found["dueline_shards_unowned", "sums"] == shards
    ages = [value for key, value in found.items() if "checkpoint_age" in key[0] and "sums" in key]
    assert (len(ages), sum(age > 0 for age in ages)) == (shards, 1)


def test_lost_claims_are_counted_once(app: Dueline) -> None:
    tally = Tally()
    settler = Settler(app.engine, app.tasks, random.Random(1), app.hooks, tally)
    app.send("add", [1], queue="sums")
    (job,) = claim_all(app.queues, *app.engine.lanes_of("sums"))
    late = Ended(job, Done(b""), 1, 2)
    assert settler.settle([late], []) == []
    assert settler.settle([late], []) == [job] == settler.settle([late], [])
    totals = tally.totals()
    assert totals.lost == {"sums": 1}
    assert totals.attempts == {("sums", "add", "done"): 1}


def test_gauges_show_the_backlog_and_are_kept(app: Dueline) -> None:
    stage = Stage(app)
    app.queue("quiet")
    app.send("add", [1], queue="sums")
    app.send("add", [2], queue="sums", after=3600)
    for _ in range(2):
        found = samples(stage.get("/metrics")[1])
        assert found["dueline_jobs", "sums", "ready"] == 1
        assert found["dueline_jobs", "sums", "scheduled"] == 1
        assert found["dueline_jobs", "quiet", "ready"] == 0
        assert found["dueline_backlog_due", "sums", "0"] == 1
        assert found["dueline_queue_workers", "sums"] == 0
        assert found["dueline_worker_slots", "free"] == 4
        app.send("add", [3], queue="sums")  # which the next scrape does not read yet


def test_a_scrape_says_when_the_store_does_not_answer(
    app: Dueline, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(app)
    stage.worker.is_claiming = True
    monkeypatch.setattr(type(app.engine.store), "read", _unavailable)
    assert samples(stage.get("/metrics")[1])["dueline_store_up",] == 0
    assert stage.get("/livez") == (200, "alive\n"), "a restart would not help"
    assert stage.get("/readyz") == (503, "The store does not answer: away\n")
    assert stage.get("/scale", queue="default") == (503, "away\n")


def _unavailable(*_: object, **__: object) -> NoReturn:
    raise StoreUnavailable("away")


def test_probes_tell_a_worker_that_drains_and_one_that_is_stuck(app: Dueline) -> None:
    stage = Stage(app, burst=False)
    assert stage.get("/readyz") == (503, "The worker has not asked for jobs yet.\n")
    with running(stage):
        wait_for(lambda: stage.get("/readyz") == (200, "ready\n"), "the worker is ready")
    assert stage.get("/readyz") == (503, "The worker is draining.\n")
    assert stage.get("/livez")[0] == HTTPStatus.OK
    stage.worker._turned_us -= 61_000_000
    assert stage.get("/livez")[0] == HTTPStatus.SERVICE_UNAVAILABLE
    assert stage.get("/nothing")[0] == HTTPStatus.NOT_FOUND


def test_a_quiet_worker_is_not_ready(app: Dueline) -> None:
    # O12
    stage = Stage(app, burst=False)
    with running(stage):
        wait_for(lambda: stage.get("/readyz") == (200, "ready\n"), "the worker is ready")
        stage.worker._claimer.set_quiet(is_quiet=True)
        text = "The worker is quiet: it claims no jobs until it is resumed.\n"
        assert stage.get("/readyz") == (503, text)
        assert stage.get("/livez") == (200, "alive\n")
        stage.worker._claimer.set_quiet(is_quiet=False)
        assert stage.get("/readyz") == (200, "ready\n")


def test_a_worker_that_has_lost_all_its_slots_is_not_ready(app: Dueline) -> None:
    # O12
    go_on = threading.Event()

    @app.task(name="stuck", timeout=0.1, retry=Retry(attempts=1))
    def stuck() -> None:
        go_on.wait()

    stage = Stage(app, burst=False)
    with running(stage):
        try:
            stuck.enqueue_many([()] * 4)
            text = "All slots are lost: their handlers go on after their time limits. Restart it.\n"
            wait_for(lambda: stage.get("/readyz") == (503, text), "all slots are lost")
        finally:
            go_on.set()
        wait_for(lambda: stage.get("/readyz") == (200, "ready\n"), "the handlers have ended")


def test_a_worker_whose_claims_fail_is_not_ready(
    app: Dueline, monkeypatch: pytest.MonkeyPatch
) -> None:
    # O12
    stage = Stage(app, burst=False)
    with running(stage):
        wait_for(lambda: stage.get("/readyz") == (200, "ready\n"), "the worker is ready")
        with monkeypatch.context() as patch:
            patch.setattr(type(app.engine.store), "claim", _unavailable)
            app.send("add", [1], queue="sums")
            text = "The worker claims no jobs: its last call of the store failed.\n"
            wait_for(lambda: stage.get("/readyz") == (503, text), "its claims fail")
        wait_for(lambda: stage.get("/readyz") == (200, "ready\n"), "the worker is ready again")


def test_a_scale_is_json_or_a_number(app: Dueline) -> None:
    stage = Stage(app)
    for number in range(9):
        app.send("add", [number], queue="sums", after=5 * (number % 2))
    query = {"queue": "sums,default", "within": "1s"}
    status, text = stage.get("/scale", **query)
    assert status == HTTPStatus.OK
    found = json.loads(text)
    assert (found["desired_workers"], found["due_backlog"], found["running"]) == (3, 9, 0)
    assert found["run_seconds"] == 1
    assert found["slots"] == 4
    assert stage.get("/scale", format="plain", **query) == (200, "3\n")
    assert json.loads(stage.get("/scale", ahead="0s", **query)[1])["due_backlog"] == 5
    app.pause("sums")
    assert json.loads(stage.get("/scale", queue="sums")[1])["desired_workers"] == 0


@pytest.mark.parametrize(
    ("query", "status"),
    [({}, 400), ({"queue": "x"}, 404), ({"queue": "sums", "within": "0s"}, 400),
     ({"queue": "sums", "within": "soon"}, 400), ({"queue": "sums", "target": "fast"}, 400)],
)  # fmt: skip
def test_a_scale_is_refused_with_a_reason(
    app: Dueline, query: Mapping[str, str], status: int
) -> None:
    found, text = Stage(app).get("/scale", **query)
    assert found == status
    assert text.endswith("\n")


@pytest.mark.parametrize(
    ("text", "address"),
    [("9465", ("127.0.0.1", 9465)), (":0", ("127.0.0.1", 0)), ("[::1]:80", ("::1", 80)),
     ("0.0.0.0:9465", ("0.0.0.0", 9465))],  # noqa: S104
)  # fmt: skip
def test_without_an_address_only_this_machine_is_answered(
    text: str, address: tuple[str, int]
) -> None:
    assert plan_of(["q"], 1, 0, 0, http=text).http == address


@pytest.mark.parametrize("text", ["", "host", "a:b", "a:99999", "me@a:1", "a:1/x", "http://a:1"])
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match="must be ADDRESS:PORT"):
        plan_of(["q"], 1, 0, 0, http=text)


def test_requests_are_bounded(app: Dueline) -> None:
    stage = Stage(app)
    with listening(("127.0.0.1", 0), stage.listener) as port:
        with pytest.raises(ConfigError, match="Cannot listen"):
            listening(("127.0.0.1", port), stage.listener).__enter__()
        with pytest.raises(urllib.error.HTTPError, match="501") as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", data=b"x", timeout=9)
        refused.value.close()
        many = "&".join(f"queue={number}" for number in range(99))
        with pytest.raises(urllib.error.HTTPError, match="400") as refused:
            fetch(port, f"/scale?{many}")
        refused.value.close()


def fetch(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=9) as answer:
        return str(answer.read().decode())


def is_answered(port: int) -> bool:
    try:
        return fetch(port, "/livez") == "alive\n"
    except (urllib.error.URLError, ConnectionError):
        return False


PROGRAM = """
from dueline import Dueline

app = Dueline(URL)


@app.task(name="twice")
def twice(number: int) -> int:
    return 2 * number
"""


PROMETHEUS = """
global: {{scrape_interval: 200ms, evaluation_interval: 200ms}}
rule_files: ["{rules}"]
scrape_configs: [{{job_name: dueline, static_configs: [{{targets: ["127.0.0.1:{port}"]}}]}}]
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


def asked_of(port: int, path: str) -> dict[str, Any]:
    """Ask Prometheus; while it starts, it has nothing."""
    try:
        found: dict[str, Any] = json.loads(fetch(port, f"/api/v1/{path}"))["data"]
    except (urllib.error.URLError, ConnectionError):
        return {}
    return found


@contextmanager
def prometheus(folder: Path, target: int) -> Iterator[int | None]:
    """Run Prometheus, which scrapes a port; yield its own port, None where it is absent."""
    program = shutil.which("prometheus")
    if program is None:
        yield None
        return
    port, config = free_port(), folder / "prometheus.yml"
    config.write_text(PROMETHEUS.format(port=target, rules=RULES), encoding="utf-8")
    server = subprocess.Popen(
        [program, f"--config.file={config}", f"--storage.tsdb.path={folder}/data",
         f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"],
    )  # fmt: skip
    try:
        yield port
    finally:
        server.kill()
        server.wait()


def done_by(port: int) -> list[str]:
    """Return how many jobs Prometheus knows to be done."""
    some = asked_of(port, "query?query=dueline_jobs_finished_total").get("result", [])
    return [one["value"][1] for one in some if one["metric"]["outcome"] == "done"]


@pytest.mark.long
def test_prometheus_scrapes_a_real_worker_with_child_processes(tmp_path: Path) -> None:
    program, port = Program(tmp_path, PROGRAM), free_port()
    try:
        for number in range(30):
            program.module.twice.enqueue(number)
        with prometheus(tmp_path, port) as server:
            program.work("--processes", "2", "--http", f":{port}")
            wait_for(lambda: is_answered(port), "the worker listens")
            done = ("dueline_jobs_finished_total", "done", "default", "twice")
            wait_for(lambda: samples(fetch(port, "/metrics")).get(done) == 30, "all are counted")
            found = samples(fetch(port, "/metrics"))
            assert found["dueline_claims_total", "default", "new"] == 30
            assert found["dueline_store_op_seconds_count", "claim", "ok", "sqlite"] > 0
            assert fetch(port, "/readyz") == "ready\n"
            assert fetch(port, "/scale?queue=default&format=plain") == "0\n"
            if server is None:
                absent("prometheus", "apt-get install prometheus")
            wait_for(lambda: done_by(server) == ["30"], "Prometheus has counted all")
            groups = asked_of(server, "rules")["groups"]
            health = {one["name"]: one["health"] for group in groups for one in group["rules"]}
            assert len(health) > 5
            assert set(health.values()) == {"ok"}
    finally:
        program.close()
