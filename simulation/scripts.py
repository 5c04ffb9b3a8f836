"""Short deterministic runs, each about one feature.

They have no faults of their own: `nth` injects a fault into each call in turn.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from dueline.core.call_options import CallOptions, Mode, Rule
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.job import JobId
from dueline.core.queue_settings import QueueSettings
from dueline.jobs.queue import EnqueueRequest, Queues
from dueline.jobs.queue_moves import QueueMoves
from simulation.people import Town
from simulation.scenario import QUEUE, Scenario

ASIDE = "aside"
SHORT_US = 20_000
LONG_US = 2_500_000

SETTINGS = QueueSettings(lease_us=3 * SECOND_US, width_us=SECOND_US, keep_us=DAY_US)

Act = Callable[[Town, Queues], object]


class Script(NamedTuple):
    """A function, and the settings of the queue."""

    act: Act
    settings: QueueSettings = SETTINGS
    workers: int = 1
    slots: int = 2
    hears: bool = True

    def scenario(self, *, is_stepped: bool) -> Scenario:
        """Return the run of the script."""
        return Scenario(
            is_stepped=is_stepped, settings=self.settings, faults=(), producers=0, calls=0,
            workers=self.workers, slots=self.slots, has_operator=False, keys=0,
            hears=self.hears, is_redeployed=False, lasts_us=10 * SECOND_US, drifts=False,
        )  # fmt: skip

    def begin(self, town: Town) -> None:
        """Start the processes of the script."""
        town.start_person("somebody", self.act)
        town.look_after_workers()


def calls(
    *fates: str,
    first: int = 1,
    took_us: int = SHORT_US,
    ahead_us: int = 0,
    priority: int = 0,
    options: CallOptions | None = None,
    now_us: int = 0,
) -> EnqueueRequest:
    """Create calls with these outcomes, in one write."""
    bodies = [json.dumps([n, took_us, fate]).encode() for n, fate in enumerate(fates, first)]
    opts = options.to_bytes() if options else b""
    due_us = now_us + ahead_us if ahead_us else None
    return EnqueueRequest(QUEUE, "work", 0, bodies, due_us, priority, "", opts)


def fated(*fates: str) -> Act:
    """Enqueue jobs with these outcomes, for the workers to run."""
    return lambda town, queues: town.put(queues, calls(*fates))


def unique(mode: Mode) -> Act:
    """Enqueue two jobs with one key, the first of them for later."""

    def act(town: Town, queues: Queues) -> None:
        options = CallOptions(unique=Rule("k", mode))
        now_us = town.world.now_us
        town.put(queues, calls("done", options=options, ahead_us=4 * SECOND_US, now_us=now_us))
        town.put(queues, calls("done", first=2, options=options))

    return act


def expire(town: Town, queues: Queues) -> None:
    """Enqueue a long job, and one behind it that expires meanwhile."""
    options = CallOptions(expires_us=town.world.now_us + 2 * SECOND_US)
    town.put(queues, calls("done", took_us=LONG_US))
    town.put(queues, calls("done", first=2, options=options))


def on_one(change: Callable[[Town, Queues, JobId], object], *, wait_us: int, took_us: int) -> Act:
    """Enqueue a job that is due in three seconds, and change it after some time."""

    def act(town: Town, queues: Queues) -> None:
        now_us = town.world.now_us
        requests = calls("done", took_us=took_us, ahead_us=3 * SECOND_US, now_us=now_us)
        for job_id in town.put(queues, requests):
            town.world.sleep(wait_us)
            town.insist(lambda job_id=job_id: change(town, queues, job_id))  # type: ignore[misc]

    return act


def redrive(town: Town, queues: Queues) -> None:
    """Enqueue a job that fails; redrive it, then cancel it."""
    for job_id in town.put(queues, calls("fails for good")):
        town.world.sleep(12 * SECOND_US)
        town.insist(lambda job_id=job_id: queues.retry(job_id))  # type: ignore[misc]


def requeue(town: Town, queues: Queues) -> None:
    """Enqueue a job with a key in a queue without workers; two processes move it to theirs."""
    options = CallOptions(unique=Rule("k", "reject"))
    request = calls("done", options=options, ahead_us=4 * SECOND_US, now_us=town.world.now_us)
    for _ in range(2):
        town.start_person("mover", move_all)
    town.put(queues, request._replace(queue=ASIDE))


def move_all(town: Town, queues: Queues) -> None:
    """Move what is in the queue without workers, again and again."""
    for _ in range(5):
        town.world.sleep(5 * SECOND_US // 2)
        town.insist(lambda: _move(queues))


def _move(queues: Queues) -> None:
    for _ in QueueMoves(queues, QUEUE).move_all(list(queues.engine.jobs_of(ASIDE))):
        pass


def deploy(town: Town, queues: Queues) -> None:
    """Enqueue more jobs than there are slots, and stop the worker."""
    town.put(queues, calls("done", "done", "done", "done", took_us=700_000))
    town.world.sleep(SECOND_US)
    for process, worker in town.workers:
        if not process.is_dead:
            worker.stop()


def trickle(town: Town, queues: Queues) -> None:
    """Enqueue a job each second, so that buckets are closed and cleaned."""
    for number in range(1, 6):
        town.put(queues, calls("done", first=number))
        town.world.sleep(2 * SECOND_US)


SCRIPTS: Mapping[str, Script] = {
    "done": Script(fated("done", "done", "done")),
    "tried again": Script(fated("fails", "snoozes", "done")),
    "dead": Script(fated("fails for good", "done")),
    "killed": Script(fated("kills", "done"), workers=2),
    "once": Script(fated("kills", "fails", "done"), replace(SETTINGS, deliver="at_most_once")),
    "section": Script(fated("in a section", "killed in a section", "done"), workers=2),
    "expired": Script(expire, slots=1),
    "replaced": Script(unique("replace")),
    "brought forward": Script(unique("earliest")),
    "cancelled": Script(
        on_one(lambda _town, queues, job: queues.cancel(job), wait_us=3_500_000, took_us=LONG_US)
    ),
    "carried": Script(
        on_one(
            lambda _town, queues, job: queues.change(job, priority=9),
            wait_us=SECOND_US,
            took_us=SHORT_US,
        ),
        replace(SETTINGS, aging_us=SECOND_US),
    ),
    "requeued": Script(requeue),
    "redriven": Script(redrive, workers=2),
    "deployed": Script(deploy),
    "shards": Script(fated(*["done"] * 5), replace(SETTINGS, shards=3, shards_read=3)),
    "swept": Script(trickle),
}
