"""What hooks hear, and what they cannot change."""

import functools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline import BadInput, Cancel, Dueline, JobFailed, Retry, Snooze
from dueline.jobs.queue import Queues
from dueline.tasks.hooks import (
    ClaimEvent,
    EnqueueEvent,
    RanEvent,
    RunEvent,
    SettleEvent,
    SettleName,
)
from dueline.worker.settler import Settler
from tests.harness.calls import call, claim_all, put
from tests.harness.clocks import HandClock

STORES = [
    pytest.param("memory://", marks=pytest.mark.memory),
    pytest.param("memory://?transactional=off", marks=pytest.mark.memory),
    pytest.param("sqlite://{folder}/jobs.db?synchronous=NORMAL", marks=pytest.mark.sqlite),
]


@pytest.fixture(params=STORES)
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Dueline]:
    made = Dueline(request.param.format(folder=f"/{tmp_path}"))

    @made.task(name="does", retry=Retry(attempts=2, base=0, cap=0))
    def does(what: str) -> None:
        if what == "fail":
            raise ValueError("no")
        if what == "cancel":
            raise Cancel
        if what == "snooze":
            raise Snooze(3600)

    yield made
    made.close()


def enqueue(app: Dueline, *whats: str) -> list[str]:
    """Enqueue a job for each word; answer the ids."""
    return [app.task_named("does").enqueue(what).id for what in whats]


def test_an_enqueue_is_told_before_and_after(app: Dueline) -> None:
    # A6
    before: list[EnqueueEvent] = []
    after: list[EnqueueEvent] = []
    app.on("before_enqueue")(before.append)
    app.on("after_enqueue")(after.append)
    jobs = app.task_named("does").using(priority=3, tenant="acme").enqueue_many([("a",), ("b",)])
    assert before == [EnqueueEvent("does", "default", 3, "acme", None, 2)]
    assert [list(event.job_ids) for event in after] == [[job.id for job in jobs]]


def test_a_hook_at_the_claim_postpones_and_cancels(app: Dueline) -> None:
    # A6
    seen: list[ClaimEvent] = []
    ran: list[str] = []

    @app.on("claim")
    def judge(event: ClaimEvent) -> None:
        seen.append(event)
        if event.tenant == "late":
            raise Snooze(3600)
        if event.tenant == "stranger":
            raise Cancel("nothing for strangers")
        raise ValueError("that changes nothing")

    app.on("before_run")(lambda event: ran.append(event.job_id))
    task = app.task_named("does")
    plain, late, stranger = (
        task.using(tenant=tenant, priority=2).enqueue("do") for tenant in ("", "late", "stranger")
    )
    app.run_worker(burst=True)
    assert [job.status for job in (plain, late, stranger)] == ["done", "scheduled", "cancelled"]
    assert ran == [plain.id], "no handler of the others is called"
    events = {event.job_id: event for event in seen}
    assert set(events) == {plain.id, late.id, stranger.id}
    event = events[late.id]
    assert (event.task, event.queue, event.tenant, event.priority) == ("does", "default", "late", 2)
    assert (event.attempt, event.fence) == (1, 1)
    assert event.due_us <= event.claimed_us
    with pytest.raises(JobFailed, match="nothing for strangers"):
        stranger.result(timeout=0)
    late.retry()
    app.run_worker(burst=True)
    assert [event.attempt for event in seen if event.job_id == late.id] == [1, 1]


def test_a_hook_before_it_may_refuse_an_enqueue_and_no_other_hook_may(app: Dueline) -> None:
    # A6
    def refuse(event: EnqueueEvent) -> None:
        raise PermissionError(event.task)

    @app.on("after_enqueue")
    def complain(event: EnqueueEvent) -> None:
        raise ValueError(event.task)

    enqueue(app, "well")
    app.on("before_enqueue")(refuse)
    with pytest.raises(PermissionError, match="does"):
        enqueue(app, "well")
    assert len(list(app.queues.engine.jobs_of("default"))) == 1


@pytest.mark.slow
def test_runs_and_ends_are_told(app: Dueline) -> None:
    # A6
    began: list[RunEvent] = []
    ran: list[RanEvent] = []
    ends: list[tuple[str, SettleEvent]] = []

    def note(name: str, event: SettleEvent) -> None:
        ends.append((name, event))

    app.on("before_run")(began.append)
    app.on("after_run")(ran.append)
    names: list[SettleName] = ["retry", "done", "dead", "cancelled"]
    for name in names:
        app.on(name)(functools.partial(note, name))
    good, bad, gone, _ = enqueue(app, "well", "fail", "cancel", "snooze")
    app.run_worker(burst=True)
    assert len(began) == len(ran) == 5
    assert sorted((event.job_id, event.attempt) for event in began if event.job_id == bad) == [
        (bad, 1),
        (bad, 2),
    ]
    assert {(event.ending, event.error) for event in ran} == {
        ("Done", ""),
        ("Failed", "ValueError: no"),
        ("Cancelled", ""),
        ("Snoozed", ""),
    }
    assert {(name, event.job_id, event.attempt) for name, event in ends} == {
        ("done", good, 1),
        ("retry", bad, 1),
        ("dead", bad, 2),
        ("cancelled", gone, 1),
    }
    by_name = dict(ends)
    assert by_name["retry"].error == by_name["dead"].error == "ValueError: no"
    assert by_name["retry"].again_us is not None
    assert by_name["dead"].again_us is None


def test_a_hook_that_fails_is_logged_and_changes_nothing(
    app: Dueline, caplog: pytest.LogCaptureFixture
) -> None:
    # A6
    def fails(event: object) -> None:
        raise RuntimeError("hook")

    app.on("before_run")(fails)
    app.on("after_run")(fails)
    app.on("done")(fails)
    enqueue(app, "well")
    app.run_worker(burst=True)
    assert not list(app.queues.engine.jobs_of("default"))
    failed = [record.message for record in caplog.records if record.name == "dueline.tasks.hooks"]
    assert failed == [f"the hook {name} failed" for name in ("before_run", "after_run", "done")]


def test_runs_are_told_also_where_nothing_is_kept(app: Dueline) -> None:
    # A6
    app.queue("default", history="off", keep=0)
    ran: list[RanEvent] = []
    done: list[SettleEvent] = []
    enqueue(app, "well")
    app.run_worker(burst=True)  # from now on it knows the shorter way
    app.on("after_run")(ran.append)
    app.on("done")(done.append)
    (job_id,) = enqueue(app, "well")
    app.run_worker(burst=True)
    assert [event.job_id for event in ran] == [event.job_id for event in done] == [job_id]


def test_a_hook_of_another_name_is_refused(app: Dueline) -> None:
    with pytest.raises(BadInput, match="no hook 'ack'"):
        app.on("ack")  # type: ignore[call-overload]


def test_a_lost_claim_is_told_once(queues: Queues, clock: HandClock) -> None:
    # A6, C7
    app = Dueline("memory://")
    lost: list[SettleEvent] = []
    app.on("lease_lost")(lost.append)
    settler = Settler(queues.engine, {}, random.Random(1), app.hooks)
    put(queues, call(1))
    (job,) = claim_all(queues)
    clock.advance(3600)
    claim_all(queues)
    for _ in range(2):
        assert settler.extend([job], set()).lost == [job]
        settler.lost([job])
    assert [(event.job_id, event.fence) for event in lost] == [(job.id.hex(), 1)]
