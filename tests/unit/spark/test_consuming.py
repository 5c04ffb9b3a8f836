"""Jobs run on Spark: a query is one worker among others (R4)."""

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dueline import BadInput, Context, Dueline, Retry, Snooze
from dueline.core.job import Job
from dueline.jobs.history import attempts
from tests.harness.spark.writers import notes, noting

JOBS, MANY = 200, 40
POISON, KILLS_ONCE, RAISES_ONCE, RAISES, SNOOZES = 13, 57, 77, 99, 111
END_S = 300


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Dueline]:
    """Make an application that is nowhere to be imported: its functions are sent."""
    app = Dueline(f"sqlite:///{tmp_path / 'jobs.db'}?synchronous=NORMAL")
    app.queue("work", shards=3, lease=2)
    yield app
    app.close()


def ends(app: Dueline) -> Counter[str]:
    """Count how attempts ended."""
    return Counter(one.outcome for one in attempts(app.store, "work", 3))


def dead(app: Dueline) -> list[Job]:
    """List the dead."""
    return list(app.queues.engine.jobs_of("work!dead"))


@pytest.mark.long
def test_each_job_runs_once_and_what_its_handler_does_becomes_of_it_alone(
    spark: Any, app: Dueline, tmp_path: Path
) -> None:
    from dueline.spark import consume

    note, ran = noting(tmp_path), tmp_path

    @app.task(name="work", queue="work", retry=Retry(attempts=2, base=0.001, cap=0.001))
    def work(ctx: Context, number: int) -> int:
        import os
        import signal

        is_first = not [*ran.glob(f"{number}.*.ran")]  # a claim may be released unstarted
        note(number)
        if number == POISON or (number == KILLS_ONCE and is_first):
            os.kill(os.getpid(), signal.SIGKILL)
        if number == RAISES or (number == RAISES_ONCE and ctx.attempt == 1):
            raise ValueError(number)
        if number == SNOOZES and is_first:
            raise Snooze(0.001)
        return -number

    @app.task(name="later", queue="work")
    async def later(number: int) -> int:
        note(number)
        return -number

    jobs = work.enqueue_many([(number,) for number in range(JOBS)])
    last = later.enqueue(JOBS)
    query = consume(spark, app, "work", members=1, burst=True)
    assert query.awaitTermination(END_S)
    again = {POISON: 3, KILLS_ONCE: 2, RAISES_ONCE: 2, RAISES: 2, SNOOZES: 2}
    assert notes(tmp_path) == Counter(dict.fromkeys(range(JOBS + 1), 1) | again)
    assert [jobs[number].result(timeout=1) for number in (0, KILLS_ONCE, SNOOZES)] == [
        0, -KILLS_ONCE, -SNOOZES,
    ]  # fmt: skip
    assert last.result(timeout=1) == -JOBS
    found = {outcome: count for outcome, count in ends(app).items() if outcome != "given_back"}
    assert found == {"done": JOBS - 1, "dead": 2, "crashed": 3, "retried": 2, "snoozed": 1}
    assert sorted(job.error.partition(":")[0] for job in dead(app)) == ["Poison", "ValueError"]
    assert not list(app.queues.engine.jobs_of("work"))
    assert query.lastProgress["ended"] == {
        "Done": JOBS - 1,
        "Crashed": 4,
        "Failed": 3,
        "Snoozed": 1,
    }


@pytest.mark.long
def test_many_jobs_are_run_at_once_and_one_that_kills_its_process_harms_none(
    spark: Any, app: Dueline, tmp_path: Path
) -> None:
    from dueline.spark import consume

    def score_many(table: Any) -> list[int]:
        import os
        import signal

        numbers = table.column("number").to_pylist()
        (tmp_path / f"{len(numbers)}.{os.urandom(8).hex()}.ran").touch()
        if POISON in numbers:
            os.kill(os.getpid(), signal.SIGKILL)
        return [-number for number in numbers]

    @app.task(name="score", queue="work")
    def score(number: int) -> int:
        raise AssertionError(number)

    jobs = score.enqueue_many([(number,) for number in range(MANY)])
    query = consume(spark, app, "work", members=1, burst=True, arrow={"score": score_many})
    assert query.awaitTermination(END_S)
    assert [job.result(timeout=1) for job in jobs[:3]] == [0, -1, -2]
    assert ends(app)["done"] == MANY - 1
    assert [job.error.partition(":")[0] for job in dead(app)] == ["Poison"]
    assert max(notes(tmp_path)) == MANY


def test_a_queue_is_shared_with_another_query_and_a_plain_worker(
    spark: Any, app: Dueline, tmp_path: Path
) -> None:
    from dueline.spark import consume

    @app.task(name="meet", queue="work")
    def meet(number: int) -> str:
        """Wait until three processes have come: each of the workers runs one of these."""
        import os
        import time

        (tmp_path / f"{os.getpid()}.met").touch()
        while len(list(tmp_path.glob("*.met"))) < 3:
            time.sleep(0.01)
        return f"{number}"

    jobs = meet.enqueue_many([(number,) for number in range(3)])
    queries = [consume(spark, app, ["work"], members=1) for _ in range(2)]
    plain = threading.Thread(
        target=app.run_worker, args=(["work"],), kwargs={"concurrency": 1, "burst": True}
    )
    plain.start()
    try:
        assert [job.result(timeout=END_S) for job in jobs] == ["0", "1", "2"]
        assert queries[0].isActive
    finally:
        for query in queries:
            query.stop()
        plain.join()
    assert [query.exception() for query in queries] == [None, None]
    assert not queries[0].isActive
    outcomes = [one.outcome for one in attempts(app.store, "work", 3)]
    assert sorted(one for one in outcomes if one != "given_back") == ["done"] * 3
    assert len({one.worker for one in attempts(app.store, "work", 3)}) == 3


def test_spark_is_let_go_of_while_there_is_nothing_to_do(
    spark: Any, app: Dueline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dueline.spark import consume
    from dueline.spark.worker import executors as fleet

    monkeypatch.setattr(fleet, "IDLE_US", 1000)
    note = noting(tmp_path)
    app.task(name="note", queue="work")(note)
    task = app.task_named("note")
    query = consume(spark, app, "work", members=1)
    try:
        task.enqueue(0).result(timeout=END_S)
        while query.lastProgress["members"]:
            query.awaitTermination(0.01)
        task.enqueue(1).result(timeout=END_S)
    finally:
        query.stop()
    assert notes(tmp_path) == {0: 1, 1: 1}


@pytest.mark.long
def test_an_application_that_executors_cannot_load_ends_the_query(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dueline import ConfigError
    from dueline.spark import consume
    from dueline.spark.worker import spark_worker

    app = Dueline(f"sqlite:///{tmp_path / 'jobs.db'}")
    app.task(name="print", queue="work")(lambda: None)
    app.task_named("print").enqueue()
    monkeypatch.setattr(spark_worker, "place_of", lambda _: "nowhere_at_all:app")
    query = consume(spark, app, "work", members=1)
    with pytest.raises(ConfigError, match=r"nowhere_at_all"):
        query.awaitTermination(END_S)
    with pytest.raises(BadInput, match="`members` must be an integer of at least 1"):
        consume(spark, app, "work", members=0)
    assert next(iter(app.queues.engine.jobs_of("work"))).crashes == 0
    app.close()


def test_a_task_that_spark_runs_twice_is_served_once() -> None:
    from dueline.spark.worker.driver_server import Gate, come

    gate = Gate("127.0.0.1", "127.0.0.1", key=b"secret")
    line = gate.expect(1)
    first = come(gate.address, 1)
    assert first is not None
    came: list[object] = []
    second = threading.Thread(target=lambda: came.append(come(gate.address, 1)))
    second.start()
    first.send_bytes(b"words")
    assert line.recv_bytes() == b"words"
    assert second.is_alive()  # it must not end well while the first works
    first.close()
    with pytest.raises(EOFError):
        line.recv_bytes()
    line.close()
    second.join()
    assert came == [None]
    assert come(gate.address, 1) is None
    assert come(gate.address, 2) is None
    gate.close()


def test_who_does_not_know_the_key_is_sent_away() -> None:
    from multiprocessing import AuthenticationError

    from dueline.spark.worker.driver_server import Gate, come

    gate = Gate("127.0.0.1", "127.0.0.1", key=b"secret")
    line = gate.expect(1)
    with pytest.raises(AuthenticationError):
        come(gate.address._replace(key=b"guess"), 1)
    assert not line.has_come
    assert "secret" not in repr(gate.address)
    gate.close()


def test_a_query_without_tasks_claims_jobs_since_it_starts_tasks_as_jobs_come() -> None:
    # H1: what no task is there for yet waits behind no other job
    from dueline.core.clock import SystemClock
    from dueline.spark.worker.executors import Fleet

    unused: Any = None
    fleet = Fleet(
        unused,
        unused,
        lambda _threads: unused,
        members=2,
        threads=8,
        clock=SystemClock(),
        now_us=lambda: 0,
        wakeup=threading.Event(),
        handlers={},
    )
    assert fleet.capacity == 8
    assert fleet.waiting_since_us() is None
