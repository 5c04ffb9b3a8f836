"""An application on a Redis store: workflows, schedules, streams, unique keys, a worker."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from dueline import Dueline, Unique, group, pipeline
from dueline.core.errors import Duplicate
from tests.harness.redis import NAMES, new_url

pytestmark = pytest.mark.redis


@pytest.fixture(params=[*NAMES, "redis-cluster"])
def app(request: pytest.FixtureRequest) -> Iterator[Dueline]:
    app = Dueline(new_url(request.param))
    yield app
    app.close()


def test_workflows_run_and_their_results_are_kept(app: Dueline) -> None:
    @app.task(name="double")
    def double(number: int) -> int:
        return 2 * number

    @app.task(name="total")
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    parts = group(double.step(number) for number in range(5))
    started = app.start(pipeline(parts, total.step()))
    app.run_worker(burst=True)
    assert started.result(timeout=10) == 20


def test_a_schedule_is_one_job_for_each_occurrence(app: Dueline) -> None:
    ran = list[int]()

    @app.task(name="tick")
    def tick() -> None:
        ran.append(1)

    app.schedule("tick", tick, every=timedelta(seconds=1))
    with app.worker():
        tick.using(after=2.5).enqueue().result(timeout=30)
    assert len(ran) >= 2


def test_a_unique_key_is_held_once(app: Dueline) -> None:
    @app.task(name="send")
    def send(to: str) -> str:
        return to

    first = send.using(unique=Unique("{to}", mode="reject")).enqueue("ann")
    with pytest.raises(Duplicate) as error:
        send.using(unique=Unique("{to}", mode="reject")).enqueue("ann")
    assert error.value.job_id == first.id
    app.run_worker(burst=True)
    assert first.result(timeout=10) == "ann"


def test_an_idle_worker_is_woken(app: Dueline) -> None:
    @app.task(name="answer")
    def answer() -> int:
        return 42

    with app.worker():
        for _ in range(3):
            assert answer.enqueue().result(timeout=20) == 42


def test_events_are_read_in_their_order(app: Dueline) -> None:
    clicks = app.stream("clicks", shards=2)
    clicks.append_many([({"user": number}, str(number)) for number in range(50)])
    assert sorted(event.value["user"] for event in clicks.read()) == list(range(50))
