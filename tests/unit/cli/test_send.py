"""Jobs by the name of a task, for producers that do not have its code."""

from typing import Any

import pytest

from dueline import BadInput, Dueline, Job
from tests.harness.shell import Shell


@pytest.fixture
def workers(tmp_path: Any) -> Dueline:  # noqa: ANN401
    app = Dueline(f"sqlite:///{tmp_path}/jobs.db")

    @app.task(name="shop.charge", queue="billing", priority=3)
    def charge(order: int, *, cents: int = 0) -> int:
        return order + cents

    return app


@pytest.fixture
def producer(workers: Dueline) -> Dueline:
    return Dueline(workers.url)


def work(app: Dueline) -> None:
    app.run_worker(concurrency=1, burst=True)


def test_a_job_is_enqueued_by_name_and_run_elsewhere(workers: Dueline, producer: Dueline) -> None:
    job: Job[Any] = producer.send("shop.charge", [5], {"cents": 2}, queue="billing")
    later = producer.send("shop.charge", [5], queue="billing", after=3600, tags=["late"])
    work(workers)
    assert job.result(0) == 7
    assert (later.status, later.tags) == ("scheduled", ("late",))


def test_arguments_that_do_not_fit_wait_with_the_reason(
    workers: Dueline, producer: Dueline
) -> None:
    billing = producer.unchecked("shop.charge", queue="billing")
    jobs = [billing.enqueue("five"), billing.enqueue(), billing.enqueue(5, euros=2)]
    work(workers)
    assert [job.status for job in jobs] == ["ready"] * 3
    errors = [workers.queues.find(bytes.fromhex(job.id)).row.error for job in jobs]  # type: ignore[arg-type, union-attr]
    assert "`order`: Expected `int`, got `str`" in errors[0]
    assert "missing a required argument: 'order'" in errors[1]
    assert "unexpected keyword argument 'euros'" in errors[2]


def test_a_task_of_the_application_is_checked_and_keeps_its_options(workers: Dueline) -> None:
    with pytest.raises(BadInput, match="`order`"):
        workers.send("shop.charge", ["five"])
    job = workers.send("shop.charge", [5])
    row = workers.queues.find(bytes.fromhex(job.id)).row  # type: ignore[arg-type]
    assert row is not None
    assert (row.lane.queue, row.lane.priority) == ("billing", 3)


@pytest.mark.parametrize(
    "terms", [{"name": ""}, {"name": "a", "queue": "No Queue"}, {"name": "a", "countdown": 5}]
)
def test_what_cannot_be_sent_is_refused(producer: Dueline, terms: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        producer.send(**terms)
    with pytest.raises(BadInput):
        producer.send("shop.charge", [object()])


def test_the_command_enqueues_without_the_code(shell: Shell) -> None:
    answer = shell(
        "--store", "sqlite:///jobs.db", "enqueue", "shop.charge", "5", "cents=2",
        "--unchecked", "--queue", "billing",
    )  # fmt: skip
    assert answer.code == 0, answer.err
    app = Dueline("sqlite:///jobs.db")
    app.task(name="shop.charge", queue="billing")(lambda order, cents: order + cents)
    work(app)
    assert app.job(answer.out.strip()).result(0) == 7
    app.close()
    answer = shell("--store", "sqlite:///typo.db", "enqueue", "shop.charge", "--unchecked")
    assert (answer.code, answer.why) == (7, "There is no store at typo.db.")
