"""What a task requires of its store is refused where the store cannot hold it (A14)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dueline import BadInput, ConfigError, Dueline, DurableContext

WITHOUT = "memory://?transactional=off"


@pytest.fixture
def app() -> Iterator[Dueline]:
    made = Dueline(WITHOUT)
    yield made
    made.close()


@pytest.mark.parametrize("word", ["transactions", "joined transactions", "durable", "fifo"])
def test_calls_and_workers_are_refused_with_the_reason(app: Dueline, word: str) -> None:
    app.queue("mail", shards=4)
    task = app.task(name="pay", queue="mail", requires=f"{word}")(len)
    reason = rf'pay requires "{word}", which does not hold here'
    for call in (
        lambda: task.enqueue("a"),
        lambda: task.enqueue_many([("a",)]),
        lambda: app.enqueue_many([task.call("a")]),
        lambda: app.send("pay", ["a"]),
        lambda: app.start(task.step("a")),
        lambda: app.schedules.set("s", task, ["a"], every=60),
        lambda: task.map(["a"], name="b"),
        lambda: app.run_worker(["mail"], burst=True),
    ):
        with pytest.raises(ConfigError, match=reason):
            call()
    with pytest.raises(ConfigError, match=reason), app.worker(["mail"]):
        pass
    app.run_worker(["default"], burst=True)  # which does not serve the queue of the task
    assert not list(app.admin.list().jobs)


def test_a_store_that_holds_it_is_used(tmp_path: Path) -> None:
    app = Dueline(f"sqlite:///{tmp_path}/jobs.db")
    task = app.task(name="pay", requires="fifo, durable, transactions")(len)

    @app.durable(name="wait", requires="durable")
    def wait(_ctx: DurableContext) -> int:
        return 1

    job, durable = task.enqueue("a"), wait.enqueue()
    app.run_worker(burst=True)
    assert (job.status, durable.status) == ("done", "done")
    app.queue("default", shards=2)
    with pytest.raises(ConfigError, match="the queue default has 2 shards"):
        task.enqueue("a")
    app.queue("other", shards=1)
    task.using(queue="other").enqueue("a")
    app.close()


@pytest.mark.parametrize(
    "requires", ["", "fifo transactions", "fifo,,durable", "speed", 7, ["fifo"]]
)
def test_other_words_are_refused(app: Dueline, requires: Any) -> None:  # noqa: ANN401
    with pytest.raises(BadInput, match="`requires` cannot have"):
        app.task(name="pay", requires=requires)(len)
