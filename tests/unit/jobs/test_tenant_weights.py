"""Tenants that have more turns than others."""

import random
from collections import Counter
from pathlib import Path

import pytest

from dueline import Dueline
from dueline.core.errors import BadInput
from dueline.jobs.queue import EnqueueRequest
from dueline.jobs.tenant_weights import TenantWeights
from dueline.worker.claimer import Claimer
from tests.harness.world import EVERY_KIND, world_on

WEIGHTS = {"a": 9, "b": 3, "d": 2}
TENANTS = "abcd"


def served(
    weights: TenantWeights, limit: int, claims: int, *, tenants: str = TENANTS
) -> Counter[str]:
    """Share out jobs of tenants who always have more, claim after claim."""
    counts: Counter[str] = Counter()
    for _ in range(claims):
        kinds = [(0, tenant) for tenant in tenants]
        weights.present(kinds)
        shares = weights.shares(kinds, limit)
        given = [kind for kind, count in shares.items() for _ in range(count)]
        weights.given(given)
        counts.update(tenant for _, tenant in given)
    return counts


@pytest.mark.parametrize("limit", [1, 2, 7, 100])
def test_weights_hold_to_a_turn_however_few_are_claimed_at_once(limit: int) -> None:
    # F8
    weights = TenantWeights()
    weights.weights = WEIGHTS
    count = 600 // limit
    counts = served(weights, limit, count)
    total = sum(WEIGHTS.values()) + 1
    for tenant in TENANTS:
        fair = limit * count * WEIGHTS.get(tenant, 1) / total
        assert abs(counts[tenant] - fair) <= 2, counts


def test_who_was_away_saved_nothing_up_and_who_owes_is_not_forgiven() -> None:
    weights = TenantWeights()
    weights.weights = {"a": 3}
    served(weights, 10, 100, tenants="ac")
    back = served(weights, 1, 40, tenants="abc")  # b had nothing to do so far
    assert [back[tenant] for tenant in "abc"] == [24, 8, 8]
    weights.present([(0, "b")])
    weights.given([(0, "b")] * 20)
    served(weights, 1, 1, tenants="ac")
    owing = served(weights, 1, 40, tenants="abc")
    assert owing["b"] == 0


def test_each_priority_is_shared_by_itself() -> None:
    weights = TenantWeights()
    weights.weights = {"a": 3}
    weights.present([(0, "a"), (0, "b"), (9, "a"), (9, "b")])
    weights.given([(9, "a")] * 300)
    assert weights.shares([(0, "a"), (0, "b")], 4) == {(0, "a"): 3, (0, "b"): 1}


@pytest.mark.parametrize("limit", [1, 8])
@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_worker_claims_by_weight_while_all_have_jobs(
    kind: str, limit: int, tmp_path: Path
) -> None:
    # F8: within 5 %, whoever floods
    world = world_on(kind, tmp_path)
    world.queues.engine.catalog.configure("q", weights=(("a", 3),), shards=2)
    for tenant, count in (("a", 200), ("b", 400), ("c", 60)):
        bodies = [b"[1]"] * count
        world.queues.enqueue(EnqueueRequest("q", "t", 0, bodies, None, 0, tenant))
    claimer, chance = Claimer(world.queues.engine, ["q"], "w1"), random.Random(7)
    claimer.refresh()
    counts: Counter[str] = Counter()
    while sum(counts.values()) < 200:
        counts.update(claimed.job.lane.tenant for claimed in claimer.claim(limit, {}))
        if chance.random() < 0.2:
            claimer.refresh()
    total = sum(counts.values())
    for tenant, part in (("a", 3 / 5), ("b", 1 / 5), ("c", 1 / 5)):
        assert abs(counts[tenant] / total - part) <= 0.05, counts
    world.store.close()


def test_what_is_not_taken_up_others_take(tmp_path: Path) -> None:
    app = Dueline(f"sqlite:///{tmp_path}/a.db?synchronous=NORMAL")
    ran: list[str] = []

    @app.task(name="note", queue="q")
    def note(text: str) -> None:
        ran.append(text)

    app.queue("q", weights={"a": 1000, "b": 1})
    note.using(tenant="a").enqueue("a")
    note.using(tenant="b").enqueue_many(("b",) for _ in range(30))
    app.run_worker(["q"], burst=True)
    assert Counter(ran) == {"a": 1, "b": 30}
    assert app.queues.engine.catalog.settings("q").weights == (("a", 1000),)
    app.close()


@pytest.mark.parametrize("weight", [0, -1, 1001, 1.5])
def test_a_weight_that_cannot_be_is_refused(weight: int) -> None:
    with pytest.raises(BadInput, match=r"`weights` must be .*got \(.a., "):
        Dueline("memory://").queue("q", weights={"a": weight})
