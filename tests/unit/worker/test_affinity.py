"""Which shards several workers look at (O3)."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dueline.coordination.worker_registry import NO_TASKS, KnownTasks, Presence, present
from dueline.core.job import JobId
from dueline.core.lane import Lane
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import Store
from dueline.jobs.lane_planner import Prospect, plan
from dueline.jobs.queue import EnqueueRequest
from dueline.worker.claimer import Claimer
from dueline.worker.heartbeat import CHANGE_EVERY_US, ROOM_EVERY_US, Load, PresenceReporter
from dueline.worker.shard_affinity import (
    WHOLE_EVERY_US,
    Known,
    ShardAffinity,
    affinity_of,
    preferred_shards,
)
from tests.harness.world import EVERY_KIND, World, world_on

SHARDS = 8
JOBS = 200
"""So many that some come to each shard."""


LEASE_US = QueueSettings().lease_us


class Member:
    """A worker that claims, beats when it is told to, and prefers some shards."""

    def __init__(self, world: World, name: str) -> None:
        self.reporter = PresenceReporter(world.queues.engine, name, serving=("q",))
        self.affinity = ShardAffinity(world.queues.engine, name)
        self._claimer = Claimer(world.queues.engine, ["q"], name, affinity=self.affinity)

    def beat(self, *, held: int = 0) -> None:
        self.reporter.report(Load(slots=4, held=held))

    def claim(self, limit: int = 10 * JOBS) -> set[JobId]:
        """Look once, and claim what it finds."""
        self._claimer.refresh()
        job_ids: set[JobId] = set()
        while len(job_ids) < limit and (taken := self._claimer.claim(limit - len(job_ids), {})):
            job_ids |= {claimed.job.id for claimed in taken}
        return job_ids


def shared(world: World, *names: str) -> list[Member]:
    """Make members of a queue of several shards, who beat and have looked at all of it once."""
    world.queues.engine.catalog.configure("q", shards=SHARDS)
    members = [Member(world, name) for name in names]
    for member in members:
        member.beat()
    for member in members:
        assert member.claim() == set()
    return members


def put(world: World) -> dict[JobId, int]:
    """Enqueue jobs, some to each shard; tell the shard of each."""
    jobs = world.queues.enqueue(EnqueueRequest("q", "t", 0, [b"[1]"] * JOBS))
    assert {job.lane.shard for job in jobs} == set(range(SHARDS))
    return {job.id: job.lane.shard for job in jobs}


@pytest.fixture(params=EVERY_KIND)
def world(request: pytest.FixtureRequest) -> World:
    return world_on(request.param, request.getfixturevalue("tmp_path"))


workers = st.lists(st.booleans(), min_size=1, max_size=12).map(
    lambda rooms: tuple(Known(f"w{number}", has_room) for number, has_room in enumerate(rooms))
)


@given(living=workers, shards=st.integers(1, 40))
def test_every_shard_is_looked_at_by_one_and_where_that_has_no_room_by_another_that_has(
    living: tuple[Known, ...], shards: int
) -> None:
    # H10
    rested = tuple(known._replace(has_room=True) for known in living)
    home = {known.worker: preferred_shards(known.worker, "q", shards, rested) for known in living}
    assert Counter(shard for own in home.values() for shard in own) == dict.fromkeys(
        range(shards), 1
    )
    assert max(map(len, home.values())) <= -(-shards // len(living))  # nobody has many more
    preferred = {
        known.worker: preferred_shards(known.worker, "q", shards, living) for known in living
    }
    is_any = any(known.has_room for known in living)
    for known in living:
        assert home[known.worker] <= preferred[known.worker]
        for shard in home[known.worker]:
            helpers = [x for x in living if shard in preferred[x.worker] and x != known]
            assert len(helpers) == (not known.has_room and is_any)
            assert all(helper.has_room for helper in helpers)


def test_who_is_not_known_to_live_looks_at_all() -> None:
    assert preferred_shards("w9", "q", 3, (Known("w1", has_room=True),)) == {0, 1, 2}
    assert preferred_shards("w9", "q", 3, ()) == {0, 1, 2}


def test_workers_claim_from_shards_of_their_own(world: World) -> None:
    # H10
    member, other = shared(world, "w1", "w2")
    jobs = put(world)
    first = member.claim()
    second = other.claim()
    assert first | second == set(jobs)
    assert {job for job in jobs if ("q", jobs[job]) in member.affinity.others} == second
    assert len({jobs[job] for job in second}) == SHARDS // 2
    world.store.close()


def test_the_shards_of_a_dead_worker_wait_two_seconds_and_then_for_nobody(world: World) -> None:
    member, dead = shared(world, "w1", "dead")
    jobs = put(world)
    job_ids = member.claim()
    assert job_ids < set(jobs)
    world.clock.advance(us=WHOLE_EVERY_US)
    assert job_ids | member.claim() == set(jobs)
    world.clock.advance(us=LEASE_US // 2 + 1)
    member.beat()
    member.claim()  # it looks at all of them, as every two seconds
    more = put(world)
    assert member.claim() == set(more)  # whose beat is stale is preferred by nobody
    assert dead.affinity.others
    world.store.close()


def test_another_helps_who_has_no_room_until_it_has_again(world: World) -> None:
    full, free = shared(world, "full", "free")
    put(world)
    assert 0 < len(free.claim()) < JOBS
    full.beat(held=4)
    assert len(free.claim()) > 0
    full.beat(held=3)
    put(world)
    assert len(free.claim()) < JOBS
    world.store.close()


@pytest.fixture
def distant(monkeypatch: pytest.MonkeyPatch) -> World:
    """Make a queue of eight shards in a store with transactions that counts as far away."""
    world = world_on("memory", Path())
    monkeypatch.setattr(type(world.store), "scope", "network")
    world.queues.engine.catalog.configure("q", shards=8)
    return world


def test_with_transactions_no_job_waits_for_the_worker_of_its_shard(distant: World) -> None:
    engine = distant.queues.engine
    for name in ("w1", "w2"):
        PresenceReporter(engine, name, serving=("q",)).report(Load(4, 0))
    affinity = affinity_of(engine, "w1", NO_TASKS)
    assert affinity is not None
    claimer = Claimer(engine, ["q"], "w1", affinity=affinity)
    claimer.refresh()
    assert 0 < len(affinity.others) < 8
    jobs = {distant.put() for _ in range(40)}
    claimer.refresh()
    own, others = ([claimed.job for claimed in claimer.claim(40, {})] for _ in range(2))
    assert {job.id for job in own + others} == jobs
    assert {("q", job.lane.shard) for job in others} == affinity.others
    new = distant.row(distant.put())
    claimer.learn(new.lane, new.at_us)
    assert [claimed.job.id for claimed in claimer.claim(1, {})] == [new.id]


def test_with_transactions_an_idle_worker_does_not_read_who_else_there_is(
    distant: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = distant.queues.engine
    affinity = affinity_of(engine, "w1", NO_TASKS)
    assert affinity is not None
    claimer = Claimer(engine, ["q"], "w1", affinity=affinity)
    reads: list[object] = []

    def noted(store: Store) -> Sequence[Presence]:
        reads.append(store)
        return present(store)

    monkeypatch.setattr("dueline.worker.shard_affinity.present", noted)
    for _ in range(3):
        claimer.refresh()
    assert len(reads) == 1  # before it has found anything, too
    distant.put()
    claimer.refresh()
    assert claimer.claim(1, {})
    claimer.refresh()
    claimer.refresh()
    assert len(reads) == 2


@pytest.mark.parametrize("new", [KnownTasks(["sell", "send"]), KnownTasks(["sell"], [64])])
def test_a_shard_is_left_only_to_workers_that_know_all_of_its_tasks(
    world: World, new: KnownTasks
) -> None:
    engine, places = world.queues.engine, [("q", shard, 1) for shard in range(8)]
    mine = {"old": KnownTasks(["sell"]), "new": new}
    members = {name: ShardAffinity(engine, name, known) for name, known in mine.items()}
    for name, known in mine.items():
        PresenceReporter(engine, name, serving=("q",), known=known).report(Load(4, 0))
    for affinity in members.values():
        affinity.chosen(places)
    assert members["new"].others == frozenset()
    assert 0 < len(members["old"].others) < len(places)


def test_changes_are_reported_soon_and_not_too_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = world_on("memory", None)  # type: ignore[arg-type]
    (member,) = shared(world, "w1")

    def held() -> list[int]:
        return [member.held for member in present(world.store)]

    world.clock.advance(us=ROOM_EVERY_US)
    member.reporter.report_change(Load(slots=4, held=4))
    assert held() == [4]
    member.reporter.report_change(Load(slots=4, held=0, running=3))
    assert held() == [4]  # not too often
    member.reporter.report_change(Load(slots=4, held=4, is_draining=True))
    assert [member.is_draining for member in present(world.store)] == [True]  # but this at once
    world.clock.advance(us=CHANGE_EVERY_US)
    member.reporter.report_change(Load(slots=4, held=0))
    assert held() == [0]
    world.clock.advance(us=ROOM_EVERY_US)
    monkeypatch.setattr(type(world.store), "scope", "network")
    member.reporter.report_change(Load(slots=4, held=3))
    assert held() == [0]
    member.reporter.report_change(Load(slots=4, held=4))
    assert held() == [4]
    member.reporter.report_change(Load(slots=4, held=1))
    assert held() == [4]
    world.clock.advance(us=ROOM_EVERY_US)
    member.reporter.report_change(Load(slots=4, held=1))
    assert held() == [1]
    assert affinity_of(world.queues.engine, "w1", NO_TASKS) is not None
    monkeypatch.undo()
    assert affinity_of(world.queues.engine, "w1", NO_TASKS) is None


OWN, OTHERS, URGENT = (
    Prospect(priority, "", 7, Lane("q", shard, 0, priority, ""))
    for priority, shard in ((0, 0), (0, 1), (9, 1))
)


@pytest.mark.parametrize(
    ("prospects", "preferred"),
    [
        ([], []),
        ([OTHERS], [OTHERS]),
        ([OWN, OTHERS], [OWN]),
        ([OWN, OTHERS, URGENT], [OWN, OTHERS, URGENT]),
    ],
)
@pytest.mark.parametrize("is_strict", [False, True])
def test_lanes_of_its_own_shards_come_first_unless_another_is_more_urgent(
    distant: World, prospects: list[Prospect], preferred: list[Prospect], *, is_strict: bool
) -> None:
    affinity = ShardAffinity(distant.queues.engine, "w1", is_strict=is_strict)
    affinity.others = frozenset({("q", 1)})
    assert affinity.preferred(prospects) == (prospects if is_strict else preferred)


def test_the_shards_of_others_come_last_among_lanes_that_are_as_old() -> None:
    def lane(shard: int, priority: int = 0) -> Lane:
        return Lane("q", shard, 0, priority, "")

    prospects = [
        Prospect(0, "", 7, lane(0)),
        Prospect(0, "", 7, lane(1)),
        Prospect(0, "", 6, lane(2)),
        Prospect(9, "", 7, lane(3, 9)),
    ]
    others = {("q", 0), ("q", 2), ("q", 3)}
    wants = plan(prospects, limit=4, room={}, turn=0, others=others)
    assert [want.lane.shard for want in wants] == [3, 2, 1, 0]
    assert [want.lane.shard for want in plan(prospects, limit=4, room={}, turn=0)] == [3, 2, 0, 1]
