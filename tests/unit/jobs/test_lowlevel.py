"""Queues by hand, without tasks."""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from dueline import BadInput, Dueline, LeaseLost, pipeline
from dueline.admin.health import examine
from dueline.api.raw_queue import RawQueue
from dueline.tasks.hooks import SettleEvent
from tests.harness.clocks import HandClock
from tests.harness.worker_bench import Bench

STORES = [
    pytest.param("memory://", marks=pytest.mark.memory),
    pytest.param("memory://?transactional=off", marks=pytest.mark.memory),
    pytest.param("sqlite://{folder}/jobs.db?synchronous=NORMAL", marks=pytest.mark.sqlite),
]


@pytest.fixture(params=STORES)
def app(request: pytest.FixtureRequest, tmp_path: Path, clock: HandClock) -> Iterator[Dueline]:
    made = Dueline(request.param.format(folder=f"/{tmp_path}"), clock=clock)
    yield made
    made.close()


@pytest.fixture
def raw(app: Dueline) -> RawQueue:
    return RawQueue(app, "raw", lease=30)


def bodies(raw: RawQueue) -> list[bytes]:
    """Claim all there is."""
    return [job.body for job in raw.claim(1000)]


def test_what_was_put_in_is_claimed_and_acked(app: Dueline, raw: RawQueue) -> None:
    # A3, C4: ack ends it
    ids = raw.put([b"[1]", b"[2]"], task="of.another.framework")
    first, second = raw.claim(10)
    assert [first.id, second.id] == ids
    assert (first.body, first.task, first.attempt, first.fence) == (
        *(b"[1]", "of.another.framework"),
        *(1, 1),
    )
    assert app.job(first.id).status == "running"
    first.ack()
    assert app.job(first.id).status == "done"
    assert app.job(first.id).result(timeout=0) is None
    with pytest.raises(LeaseLost):
        first.ack()
    assert raw.ack([second, second]) == [second.id]


def test_the_most_urgent_come_first_and_none_early(raw: RawQueue, clock: HandClock) -> None:
    raw.put([b"1"])
    raw.put([b"2"], priority=9)
    raw.put([b"3"], after=60)
    raw.put([b"4"], due=raw.claim(1)[0].due + timedelta(seconds=120))
    assert bodies(raw) == [b"1"]
    clock.advance(29)
    assert bodies(raw) == []


def test_a_nack_delivers_again_not_before_its_delay(raw: RawQueue, clock: HandClock) -> None:
    # C4
    raw.put([b"1"])
    raw.claim(1)[0].nack(60, reason="upstream")
    clock.advance(59)
    assert raw.claim(1) == []
    clock.advance(2)
    (again,) = raw.claim(1)
    assert (again.attempt, again.job.error) == (2, "Nack: upstream")


def test_nacked_too_often_it_is_dead(app: Dueline, raw: RawQueue) -> None:
    # C4
    (job_id,) = raw.put([b"1"])
    for _ in range(8):
        raw.claim(1)[0].nack(0)
    assert (raw.claim(1), app.job(job_id).status) == ([], "dead")


def test_a_release_delivers_again_at_once_and_spends_no_attempt(raw: RawQueue) -> None:
    # C4
    raw.put([b"1"])
    for fence in range(1, 12):
        (job,) = raw.claim(1)
        assert (job.attempt, job.fence) == (1, fence)
        job.release()


def test_what_is_rejected_is_dead_and_tells_why(app: Dueline, raw: RawQueue) -> None:
    # C4
    dead: list[SettleEvent] = []
    app.on("dead")(dead.append)
    (job_id,) = raw.put([b"1"])
    raw.claim(1)[0].reject("no such customer")
    assert app.job(job_id).status == "dead"
    assert [job.error for job in dead] == ["Rejected: no such customer"]
    app.job(job_id).retry()
    assert bodies(raw) == [b"1"]


def test_a_job_that_was_asked_to_stop_is_cancelled_unless_it_is_acked(
    app: Dueline, raw: RawQueue
) -> None:
    # C19
    ids = raw.put([b"%d" % number for number in range(4)])
    rejected, nacked, released, acked = raw.claim(4)
    assert not any(app.job(job_id).cancel() for job_id in ids)
    rejected.reject("no such customer")
    nacked.nack(0)
    released.release()
    acked.ack()
    assert [app.job(job_id).status for job_id in ids] == ["cancelled"] * 3 + ["done"]
    assert raw.claim(1) == []


def test_a_job_that_was_asked_to_stop_is_not_claimed_again(
    app: Dueline, raw: RawQueue, clock: HandClock
) -> None:
    # C19
    (job_id,) = raw.put([b"1"])
    raw.claim(1)
    app.job(job_id).cancel()
    clock.advance(31)
    other = RawQueue(app, "raw", lease=30)
    assert (other.claim(1), app.job(job_id).status) == ([], "cancelled")


def test_a_claim_lasts_as_long_as_it_is_extended(raw: RawQueue, clock: HandClock) -> None:
    # C6
    raw.put([b"1"])
    (job,) = raw.claim(1)
    for _ in range(5):
        clock.advance(29)
        assert raw.claim(1) == []
        job.extend()
    job.extend(100)
    clock.advance(99)
    assert raw.claim(1) == []
    clock.advance(2)
    (other,) = raw.claim(1)
    assert (other.fence, other.attempt, other.job.crashes) == (2, 1, 1)
    for late in (job.ack, job.nack, job.release, job.extend):
        with pytest.raises(LeaseLost):
            late()
    with pytest.raises(LeaseLost):
        job.reject("late")
    other.ack()


def test_one_call_acks_many_and_names_those_that_were_lost(
    app: Dueline, raw: RawQueue, clock: HandClock
) -> None:
    # C5
    ids = raw.put([b"%d" % number for number in range(100)])
    leased = raw.claim(1000)
    raw.extend(leased[:97], 3600)
    clock.advance(31)
    assert len(raw.claim(1000)) == 3
    assert raw.ack(leased) == ids[97:]
    assert [app.job(job_id).status for job_id in ids[:97]] == ["done"] * 97
    assert raw.ack([]) == []


def test_what_takes_three_claimers_with_it_is_dead(
    app: Dueline, raw: RawQueue, clock: HandClock
) -> None:
    (job_id,) = raw.put([b"1"])
    for _ in range(3):
        assert len(raw.claim(1)) == 1
        clock.advance(31)
    assert (raw.claim(1), app.job(job_id).status) == ([], "dead")


@pytest.mark.parametrize("body", ["1", b"{", b'"' + b"x" * 300_000 + b'"'])
def test_a_body_that_is_no_json_is_refused(raw: RawQueue, body: bytes) -> None:
    with pytest.raises(BadInput):
        raw.put([b"1", body])
    assert bodies(raw) == []


def test_wrong_numbers_are_refused(app: Dueline, raw: RawQueue) -> None:
    for most in (0, 1001, True):
        with pytest.raises(BadInput):
            raw.claim(most)
    with pytest.raises(BadInput):
        RawQueue(app, "raw", lease=0)
    with pytest.raises(BadInput):
        raw.put([b"1"], due=datetime(2026, 1, 1))  # noqa: DTZ001  (the mistake)


def test_jobs_with_limits_are_claimed_within_them(
    app: Dueline, raw: RawQueue, clock: HandClock
) -> None:
    app.semaphore("gpu", capacity=2)
    jobs = [app.unchecked("x", queue="raw").using(limits=["gpu"]).enqueue() for _ in range(4)]
    first, second = raw.claim(10)
    other = RawQueue(app, "raw", lease=30)
    assert (raw.claim(10), other.claim(10)) == ([], [])
    first.ack()
    (third,) = raw.claim(10) + other.claim(10)  # both waited: it is the turn of one
    clock.advance(20)
    second.extend()
    clock.advance(15)  # the lease and the permit of the third have ended
    (fourth,) = raw.claim(10) or other.claim(10)
    with pytest.raises(LeaseLost):
        third.extend()
    second.ack()
    fourth.ack()
    clock.advance(60)
    while left := raw.claim(10) or other.claim(10):
        assert raw.ack(left) == []
    assert {job.status for job in jobs} == {"done"}


def test_jobs_of_paused_tasks_wait(app: Dueline, raw: RawQueue, clock: HandClock) -> None:
    raw.put([b"1"], task="one")
    raw.put([b"2"], task="two")
    app.pause("raw", task="two")
    assert bodies(raw) == [b"1"]
    app.resume("raw", task="two")
    clock.advance(10)
    assert bodies(raw) == [b"2"]


def test_a_step_has_the_arguments_that_its_workflow_gives_it(app: Dueline, raw: RawQueue) -> None:
    @app.task(name="fetch", queue="raw")
    def fetch(page: str) -> str:
        return page

    @app.task(name="count", queue="raw")
    def count(text: str, word: str, *, at: int = 0) -> int:
        return text.count(word, at)

    flow = app.start(pipeline(fetch.step("index"), count.step("a", at=1)))
    (step,) = raw.claim(10)
    step.ack()
    (last,) = raw.claim(10)
    assert json.loads(last.body) == {"args": [None, "a"], "kwargs": {"at": 1}}
    last.ack()
    assert flow.status == "done"


def test_it_always_has_room_for_the_next_job(app: Dueline, raw: RawQueue) -> None:
    assert raw.claim(1) == []
    (job,) = raw.put([b"1"])
    assert "none free" not in app.job(job).explain().sentence


def test_it_counts_as_a_worker_that_knows_every_task(
    app: Dueline, raw: RawQueue, clock: HandClock
) -> None:
    def check() -> list[str]:
        return [check.finding for check in examine(app.engine).checks if check.name == "queue raw"]

    (job_id,) = raw.put([b"[1]"])
    assert check() == ["no live worker serves it; jobs that are ready: 1"]
    (leased,) = raw.claim(1)
    leased.release()
    assert check() == []
    assert app.job(job_id).explain().reason == "waiting"
    bench = Bench(app.queues, clock, serving={"raw": None}, tasks=["other"])
    assert bench.run() == []
    assert check() == []  # a worker has moved it to the lane of its task
    assert bodies(raw) == [b"[1]"]
    clock.advance(3 * 30 + 60)
    assert check() == ["no live worker serves it; jobs that are ready: 1"]
