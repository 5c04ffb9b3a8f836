"""The counter of what a process enqueues (V5)."""

from prometheus_client import CollectorRegistry

from dueline import Dueline
from dueline.contrib.prometheus import count_enqueues


def test_all_applications_of_a_process_share_a_counter() -> None:
    registry = CollectorRegistry()
    for number in (1, 2):
        app = Dueline("memory://")
        count_enqueues(app, registry=registry)

        @app.task(name="add", queue="sums")
        def add(number: int) -> None: ...

        add.enqueue(number)
        add.enqueue_many([(1,), (2,)])
        app.enqueue_many([add.using(queue="more").call(1)])
        app.close()
    name = "dueline_jobs_enqueued_total"
    assert registry.get_sample_value(name, {"queue": "sums", "task": "add"}) == 6
    assert registry.get_sample_value(name, {"queue": "more", "task": "add"}) == 2
