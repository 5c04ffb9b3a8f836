"""Two versions of an application on one store, of which one has a new task."""

import pytest

from dueline import Dueline, pipeline
from dueline.admin.health import examine, is_ready
from dueline.core.clock import SECOND_US
from dueline.core.lane import dead_queue, task_of
from tests.harness.addresses import LONG_ON_CASSANDRA
from tests.harness.deploys import PATIENCE_S, rows_of, until, working


def version(url: str, *names: str) -> Dueline:
    """Make a version of an application that has some tasks."""
    app = Dueline(url)
    for name in names:
        app.task(name=f"shop.{name}")(lambda order: order)
    return app


def _turned(body: bytes) -> bytes:
    return body[::-1]


@pytest.mark.parametrize("url", LONG_ON_CASSANDRA, indirect=True)
def test_a_new_task_waits_for_a_worker_that_knows_it(url: str) -> None:
    """Deploy a version with a new task: the producer first, then the second worker."""
    # O9
    old, new = version(url, "sell"), version(url, "sell", "send")
    sell, send = new.task_named("shop.sell"), new.task_named("shop.send")
    with working(old):
        sent = [send.enqueue(n) for n in range(6)]
        sold = [sell.enqueue(n) for n in range(6)]
        flow = new.start(pipeline(sell.step(1), send.step()))
        until(lambda: {job.status for job in sold} == {"done"})
        until(lambda: all(task_of(row.lane) for row in rows_of(new, sent)))
        for job in sent:
            said = job.explain()
            assert said.reason == "task unknown"
            assert "no live worker knows task shop.send" in said.sentence
        ready = is_ready(new.engine, max_age_us=600 * SECOND_US)
        for checks in (ready, examine(new.engine).checks):
            (finding,) = [check.finding for check in checks if check.name == "queue default"]
            assert finding.startswith("no live worker knows task shop.send; ")
        assert {(row.errors, row.crashes) for row in rows_of(new, sent)} == {(0, 0)}
        assert [job.status for job in sent] == ["ready"] * len(sent)
        with working(new):
            until(lambda: {job.status for job in sent} == {"done"})
            more = [send.enqueue(n) for n in range(4)] + [sell.enqueue(n) for n in range(4)]
            until(lambda: {job.status for job in more} == {"done"})
            assert flow.result(timeout=PATIENCE_S) == 1
        assert {check.verdict for check in is_ready(new.engine, max_age_us=SECOND_US)} == {"good"}
    with working(old):  # a task may be registered while a worker runs
        old.task(name="shop.late")(lambda: None)
        late = old.task_named("shop.late").enqueue()
        until(lambda: late.status == "done")
        new.payloads.add("turned", 64, encode=_turned, decode=_turned)
        new.payloads.use("turned")
        turned = [sell.enqueue(n) for n in range(4)]
        until(lambda: all(task_of(row.lane) for row in rows_of(new, turned)))
        for job in turned:
            assert "knows task shop.sell and the codec 64" in job.explain().sentence
        with working(new):
            until(lambda: {job.status for job in turned} == {"done"})
    assert [job.result() for job in sent] == list(range(6))
    assert not list(new.engine.jobs_of(dead_queue("default")))
    for app in (old, new):
        app.close()
