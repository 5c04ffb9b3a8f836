"""A counter of what a process enqueues, for Prometheus."""

from functools import cache

from dueline.api.application import Dueline
from dueline.core.extras import extra
from dueline.tasks.hooks import EnqueueEvent

with extra("web"):
    from prometheus_client import REGISTRY, CollectorRegistry, Counter


def count_enqueues(app: Dueline, *, registry: CollectorRegistry = REGISTRY) -> None:
    """Count the jobs that this process enqueues, as `dueline_jobs_enqueued_total`.

    Jobs that are stored in a transaction count before its commit.

    Args:
        app: The application; call this once, where its module is imported.
        registry: Where the counter is registered. Workers serve the default registry in
            `/metrics`, except for what their child processes count.
    """
    counter = _counter(registry)

    @app.on("after_enqueue")
    def count(event: EnqueueEvent) -> None:
        counter.labels(event.queue, event.task).inc(event.count)


@cache
def _counter(registry: CollectorRegistry) -> Counter:
    """Return the counter of a registry, which several applications share."""
    text = "Jobs that this process enqueued."
    return Counter("dueline_jobs_enqueued", text, ("queue", "task"), registry=registry)
