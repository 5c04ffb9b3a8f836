"""Tenants that have more turns than others."""

import random
from collections import Counter
from pathlib import Path

from dueline.jobs.queue import EnqueueRequest
from dueline.worker.claimer import Claimer
from tests.harness.world import world_on


def a_worker_claims_by_weight_while_all_have_jobs(kind: str, limit: int, tmp_path: Path) -> None:
    # F8: within 5 %, whoever floods
    world = world_on(kind, tmp_path)
    world.queues.engine.catalog.configure("q", weights=(("a", 3),), shards=2)
    for tenant, count in (("a", 200), ("b", 400), ("c", 60)):
        bodies = [b"[1]"] * count
        world.queues.enqueue(EnqueueRequest("q", "t", 0, bodies, None, 0, tenant))
    claimer, chance = Claimer(world.queues.engine, ["q"], "w1"), random.Random(7)
    claimer.refresh()
    found: Counter[str] = Counter()
    while sum(found.values()) < 200:
        found.update(one.job.lane.tenant for one in claimer.claim(limit, {}))
        if chance.random() < 0.2:
            claimer.refresh()
    total = sum(found.values())
    for tenant, part in (("a", 3 / 5), ("b", 1 / 5), ("c", 1 / 5)):
        assert abs(found[tenant] / total - part) <= 0.05, found
    world.store.close()
