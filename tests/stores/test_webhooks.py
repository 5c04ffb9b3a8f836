"""Webhooks at the ends of jobs, on each store that several processes can open (A16)."""

import time
from typing import Any

from dueline import Dueline, Job
from tests.harness.webhooks import receiving, shop, work


def test_each_end_is_delivered_once(url: str) -> None:
    # rule T3
    with receiving() as (address, receiver):
        app = shop(url)
        does = app.task_named("does").using(webhook=address, tenant="acme")
        jobs: dict[str, Job[Any]] = {
            what: does.enqueue(what) for what in ("done", "dead", "cancelled")
        }
        waits = does.using(after=3600).enqueue("waits")
        assert waits.cancel()
        late = does.using(expires=0.01).enqueue("late")
        plain = app.task_named("does").enqueue("plain")
        time.sleep(0.05)
        work(app)
        expected = {(job.id, what) for what, job in jobs.items()}
        expected |= {(waits.id, "cancelled"), (late.id, "expired")}
        assert sorted(got.job for got in receiver.received) == sorted(expected)
        assert plain.status == "done"
        by_job = {got.job[0]: got for got in receiver.received}
        event = by_job[jobs["dead"].id].event
        assert event["type"] == "job.dead"
        assert event["data"]["error"] == "ValueError: no"
        assert (event["data"]["task"], event["data"]["queue"]) == ("does", "default")
        assert event["data"]["tenant"] == "acme"
        assert {got.path for got in receiver.received} == {"/hooks?token=hidden"}
        jobs["dead"].retry()  # it ends once more
        work(app)
        assert [got.job for got in receiver.received][-1] == (jobs["dead"].id, "dead")
        assert len({got.id for got in receiver.received}) == len(expected) + 1
        app.close()


def test_a_failing_address_is_called_again_and_delays_no_job(url: str) -> None:
    with receiving() as (address, receiver):
        receiver.refuse += [500, 302, 410]
        app = shop(url)
        job: Job[Any] = app.task_named("does").using(webhook=address).enqueue("done")
        app.run_worker(["default"], burst=True)
        assert job.result(timeout=0) == "done"
        assert receiver.received == []
        work(app)
        assert [got.job for got in receiver.received] == [(job.id, "done")]
        app.close()


def test_another_process_shows_no_address(url: str) -> None:
    with receiving() as (address, _):
        app = shop(url)
        job: Job[Any] = app.task_named("does").using(webhook=address).enqueue("done")
        app.run_worker(["default"], burst=True)
        other = Dueline(url)
        (delivery,) = other.admin.list("queue:webhooks").jobs
        for shown in (other.admin.get(delivery.id), other.admin.get(job.id)):
            assert "hidden" not in str(shown.arguments)
            assert "hidden" not in str(shown.summary)
        assert delivery.limits == ("webhooks:127.0.0.1",)
        other.close()
        app.close()
