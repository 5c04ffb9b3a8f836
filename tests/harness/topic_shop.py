"""An application with subscribers to topics, on a clock that is moved by hand."""

from collections import Counter
from typing import Any

from dueline import Dueline, Subscription
from dueline.api.deliveries import LEASE_US, Deliveries, deliver_all
from dueline.core.clock import SECOND_US
from dueline.core.store import Store
from tests.harness.clocks import HandClock

GUARD_S = 0.3
EXPIRED_S = LEASE_US / SECOND_US + 1


class TopicShop:
    """One process: two tasks that subscribe, `welcome` to one topic and `audit` to several.

    ended: jobs that were cancelled, as if they had run, by task and argument.
    """

    def __init__(self, store: Store, clock: HandClock) -> None:
        """Open an application on a store, and declare the tasks."""
        self.clock = clock
        self.app = app = Dueline("memory://", clock=clock)
        vars(app)["store"] = store
        self.ended = Counter[tuple[str, str]]()

        @app.task(on="user.created", name="welcome")
        def welcome(user: Any) -> None: ...  # noqa: ANN401

        @app.task(on=Subscription("user.*", start="oldest"), name="audit", queue="audit")
        def audit(user: Any) -> None: ...  # noqa: ANN401

    def deliver(self) -> int:
        """Move events until there are none; return how many steps moved some."""
        self.clock.advance(GUARD_S)
        return deliver_all(self.app)

    def begin(self) -> Deliveries:
        """Return the deliveries of a worker, which the caller steps."""
        return Deliveries(self.app)

    def waiting(self) -> Counter[tuple[str, str]]:
        """Count the waiting jobs, by task and argument."""
        peek = self.app.queues.peek
        rows = [row for queue in ("default", "audit") for row in peek(queue, 1000)]
        return Counter((row.task, row.body.decode()) for row in rows)

    def end_jobs(self) -> None:
        """End all waiting jobs."""
        self.ended += self.waiting()
        for queue in ("default", "audit"):
            for row in self.app.queues.peek(queue, 1000):
                assert self.app.queues.cancel(row.id)
