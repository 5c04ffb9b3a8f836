"""A random run of a queue, and what was seen of it at each moment."""

import random
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dueline.api.raw_queue import RawQueue
from dueline.core.call_options import CallOptions
from dueline.core.errors import Conflict, NotFound
from dueline.core.job import JobId
from dueline.core.job_status import status_of
from dueline.core.lane import dead_queue, living_queue
from dueline.core.queue_settings import QueueSettings
from dueline.jobs.history_batch import unbundled
from dueline.jobs.queue import EnqueueRequest
from dueline.tasks.hooks import Hooks
from tests.harness.clocks import HandClock
from tests.harness.queues import queues_on
from tests.harness.world import store_on

ROUNDS = 120
QUEUE = "mail"

State = tuple[str, str, int, str, int]


class Life:
    """A random life of a queue whose history is `all`, and what was seen of it."""

    def __init__(self, kind: str, folder: Path, seed: int) -> None:
        """Open a store; nothing has happened yet."""
        self.clock = HandClock()
        self.chance = random.Random(seed)
        self.queues = queues_on(
            store_on(kind, folder, self.clock),
            self.clock,
            QueueSettings(history="all", shards=2, shards_read=2, lease_us=3_000_000),
        )
        self.queues.engine.catalog.configure(QUEUE)
        host: Any = SimpleNamespace(queues=self.queues, tasks={}, hooks=Hooks())
        self.hands = [RawQueue(host, QUEUE) for _ in range(2)]
        self.held: list[Any] = []
        self.known: list[JobId] = []
        self.seen: dict[int, Mapping[str, State]] = {}
        self.lapsed: dict[int, set[str]] = {}

    def lead(self) -> None:
        """Live for some rounds, and look around after each; end all claims at last."""
        acts = [self.put, self.put, self.claim, self.claim, self.settle, self.settle,
                self.cancel, self.change, self.retry, self.extend]  # fmt: skip
        for _ in range(ROUNDS):
            self.clock.advance(us=self.chance.choice([3, 700, 40_000, 900_000, 2_000_000]))
            self.chance.choice(acts)()
            self.look()
        self.clock.advance(3700)
        while leased := self.hands[0].claim(100):
            self.hands[0].ack(leased)

    def put(self) -> None:
        """Enqueue a few, some for later, some that expire."""
        due_us = self.queues.engine.time.latest_us() + self.chance.choice(
            [0, 0, 0, 500_000, 9_000_000]
        )
        expires_us = due_us + self.chance.choice([800_000, 60_000_000])
        opts = CallOptions(expires_us=expires_us).to_bytes() if self.chance.random() < 0.3 else b""
        priority, tenant = self.chance.choice([0, 5]), self.chance.choice(["", "acme"])
        calls = EnqueueRequest(QUEUE, "t", 0, [b"[]"] * 3, due_us, priority, tenant, opts)
        self.known += [job.id for job in self.queues.enqueue(calls)]

    def claim(self) -> None:
        """Claim some; of those that are held, some are forgotten, as if their worker had died."""
        self.held = [held for held in self.held if self.chance.random() < 0.8]
        hand = self.chance.choice(self.hands)
        self.held += [(hand, delivery) for delivery in hand.claim(4)]

    def settle(self) -> None:
        """Say of one what became of it; too late for some."""
        if self.held:
            hand, delivery = self.held.pop(self.chance.randrange(len(self.held)))
            self.chance.choice([
                hand.ack,
                hand.ack,
                hand.release,
                lambda taken: hand.nack(taken, delay=self.chance.choice([0, 1, 5]), reason="no"),
                lambda taken: hand.reject(taken, "bad"),
            ])([delivery])  # fmt: skip

    def extend(self) -> None:
        """Hold one longer."""
        if self.held:
            hand, delivery = self.chance.choice(self.held)
            hand.extend([delivery])

    def cancel(self) -> None:
        """Cancel any job."""
        self._try(self.queues.cancel)

    def retry(self) -> None:
        """Run any job now, a dead one anew."""
        self._try(self.queues.retry)

    def change(self) -> None:
        """Give any job another priority, or another time."""
        if self.chance.random() < 0.5:
            self._try(lambda job: self.queues.change(job, priority=self.chance.choice([0, 3, 9])))
        else:
            at_us = self.queues.engine.time.latest_us() + 4_000_000
            self._try(lambda job: self.queues.reschedule(job, at_us))

    def _try(self, act: Any) -> None:
        job_id = self.chance.choice(self.known) if self.known else None
        row = self.queues.engine.store.find([job_id])[0] if job_id else None
        if row is not None and not (row.is_claimed() and row.at_us <= self.clock.wall_us()):
            with suppress(Conflict, NotFound, ValueError):
                act(job_id)

    def look(self) -> None:
        """Take a picture of all jobs that have a row."""
        self.clock.advance(us=1)
        now_us = self.clock.wall_us()
        rows = [
            job
            for queue in (QUEUE, dead_queue(QUEUE))
            for job in self.queues.engine.jobs_of(queue)
            if not job.outcome
        ]
        self.lapsed[now_us] = {
            job.id.hex() for job in rows if job.is_claimed() and job.at_us <= now_us
        }
        self.seen[now_us] = {
            job.id.hex(): (
                living_queue(job.lane.queue),
                {"running": "running", "dead": "dead"}.get(status_of(job, now_us), "waiting"),
                job.lane.priority,
                job.lane.tenant,
                job.fence if job.lane.queue == QUEUE else 0,
            )
            for job in rows
            if job.id.hex() not in self.lapsed[now_us]
        }
        self.clock.advance(us=1)

    def history(self) -> list[Any]:
        """Read all that was told."""
        from tests.harness.spark.tables import line_of

        return [
            line_of(QUEUE, event)
            for shard in range(2)
            for row in self.queues.engine.store.tail(
                f"{QUEUE}!history", shard, after=None, limit=100_000
            ).rows
            for event in unbundled(row)
        ]
