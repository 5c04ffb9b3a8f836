"""Which lane is visited next."""

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dueline.core.lane import Lane, Pointer, lane_tenant, with_task
from dueline.core.store import Want
from dueline.jobs.lane_planner import SHARD_SHARE_MIN, Prospect, aged, plan, prospects
from tests.harness.worker_bench import wait_bound

NOW_US = 1_000_000


def lane(
    priority: int = 0, *, tenant: str = "", shard: int = 0, bucket: int = 5, queue: str = "q"
) -> Lane:
    """Name a lane by what matters."""
    return Lane(queue, shard, bucket, priority, tenant)


def listed(*lanes: Lane) -> list[Pointer]:
    """List lanes under their own buckets."""
    return [Pointer(each.bucket, each) for each in lanes]


def wants(
    pointers: Sequence[Pointer],
    next_at_us: Mapping[Lane, int | None] | None = None,
    *,
    limit: int = 10,
    turn: int = 0,
    room: Mapping[str, int] | None = None,
) -> list[Want]:
    """Plan from pointers to wants."""
    return plan(
        prospects(pointers, next_at_us or {}, NOW_US), limit=limit, room=room or {}, turn=turn
    )


def order(planned: Sequence[Want]) -> list[Lane]:
    """List the lanes of wants."""
    return [want.lane for want in planned]


def test_a_larger_priority_comes_first_whatever_its_tenant_shard_bucket_or_queue() -> None:
    # T2, T3
    low = lane(-(2**31), tenant="a", shard=0, bucket=1, queue="a")
    middle = lane(0, tenant="b", shard=1, bucket=9)
    high = lane(2**31 - 1, tenant="c", shard=2, bucket=3, queue="z")
    assert order(wants(listed(middle, low, high))) == [high, middle, low]


def test_the_lane_of_a_task_has_its_turn_among_those_of_its_tenant() -> None:
    # rule D16
    plain, limited = lane(tenant="a"), lane(tenant=lane_tenant("a", ["api"]), bucket=4)
    begun = with_task(lane(tenant="a", bucket=6), "f", 0)
    other = lane(tenant="b")
    assert order(wants(listed(begun, plain, limited, other))) == [begun, limited, plain, other]
    assert order(wants(listed(plain, begun, limited, other))) == [limited, plain, begun, other]
    high = lane(1, tenant="a")
    assert order(wants(listed(begun, high, plain))) == [high, begun, plain]


def test_of_lanes_that_differ_by_bucket_alone_the_oldest_is_visited() -> None:
    first, second, third = (lane(bucket=bucket) for bucket in (3, 4, 5))
    assert order(wants(listed(second, third, first))) == [first]


def test_the_age_of_a_lane_is_where_it_is_listed_then_its_bucket() -> None:
    old = Pointer(7, lane(bucket=3))  # only its future jobs are left: it is listed under them
    new = Pointer(6, lane(bucket=6))
    assert order(wants([old, new])) == [new.lane]
    same = Pointer(7, lane(bucket=6))
    assert order(wants([same, old])) == [old.lane]


def test_a_lane_of_running_jobs_hides_no_other() -> None:
    # T4
    running, waiting = lane(bucket=3), lane(bucket=4)
    later = {running: NOW_US + 1}
    assert order(wants(listed(running, waiting), later)) == [waiting]


def test_an_empty_lane_hides_no_other() -> None:
    empty, waiting = lane(bucket=3), lane(bucket=4)
    assert order(wants(listed(empty, waiting), {empty: None})) == [waiting]


def test_a_lane_whose_next_job_is_due_this_very_microsecond_is_visited() -> None:
    here = lane()
    assert order(wants(listed(here), {here: NOW_US})) == [here]


def test_a_lane_that_is_listed_twice_is_wanted_once() -> None:
    here = lane()
    assert order(wants([Pointer(5, here), Pointer(9, here)])) == [here]


def test_tenants_of_one_priority_start_in_turn_and_share_the_limit() -> None:
    # F8
    lanes = [lane(tenant=tenant) for tenant in "abc"]
    starts = [order(wants(listed(*lanes), turn=turn)) for turn in range(4)]
    assert [ordered[0].tenant for ordered in starts] == ["a", "b", "c", "a"]
    assert all(set(ordered) == set(lanes) for ordered in starts)
    assert {want.most for want in wants(listed(*lanes), limit=10)} == {4}


def test_a_tenant_that_floods_leaves_the_others_their_share() -> None:
    # F8: one job of B beside a flood of A over many shards
    flood = [lane(tenant="a", shard=shard) for shard in range(20)]
    single = lane(tenant="b")
    for turn in (0, 1):
        planned = wants(listed(*flood, single), limit=10, turn=turn)
        by_tenant = Counter(want.lane.tenant for want in planned[:2])
        assert Want(single, 5) in planned
        assert by_tenant["b"] == (turn == 1)


def test_one_tenant_gets_the_whole_limit() -> None:
    assert wants(listed(lane(tenant="a")), limit=7) == [Want(lane(tenant="a"), 7)]


def test_the_shards_of_a_queue_share_a_large_limit_and_other_queues_do_not() -> None:
    shards = [lane(shard=shard) for shard in range(8)]
    other = lane(queue="r")
    planned = wants(listed(*shards, other), limit=8001)
    assert planned == [*(Want(shard, 1001) for shard in shards), Want(other, 8001)]


def test_a_small_limit_is_not_spread_over_shards() -> None:
    shards = [lane(shard=shard) for shard in range(8)]
    assert {want.most for want in wants(listed(*shards), limit=1000)} == {SHARD_SHARE_MIN}
    assert {want.most for want in wants(listed(*shards), limit=7)} == {7}


def test_a_lane_wants_no_more_than_its_queue_has_room_for() -> None:
    full, narrow, wide = (lane(queue=queue) for queue in ("full", "narrow", "wide"))
    planned = wants(listed(full, narrow, wide), limit=10, room={"full": 0, "narrow": 3})
    assert planned == [Want(narrow, 3), Want(wide, 10)]


def test_room_below_zero_is_no_room() -> None:
    assert wants(listed(lane()), room={"q": -2}) == []


def test_room_is_not_spent_on_lanes_that_may_be_empty() -> None:
    # T2: every lane of the queue is wanted; whoever claims keeps to the room in all
    high, low = lane(9), lane(0)
    assert wants(listed(high, low), room={"q": 1}) == [Want(high, 1), Want(low, 1)]


# --- properties ------------------------------------------------------------------------------

lanes = st.builds(
    Lane,
    st.sampled_from(("q", "r")),
    st.integers(0, 2),
    st.integers(0, 4),
    st.sampled_from((-(2**31), -1, 0, 7, 2**31 - 1)),
    st.sampled_from(("", "a", "b")),
)
pointer_lists = st.lists(st.builds(Pointer, st.integers(0, 6), lanes), max_size=25)
visits = st.dictionaries(lanes, st.one_of(st.none(), st.integers(NOW_US - 2, NOW_US + 2)))


def kind_of(each: Lane) -> tuple[str, int, int, str]:
    """Say what a lane is apart from its bucket."""
    return (each.queue, each.shard, each.priority, each.tenant)


def may_hold_due(each: Lane, seen: Mapping[Lane, int | None]) -> bool:
    """Say whether a lane is worth a visit, in the plainest words."""
    at_us = seen.get(each, NOW_US)
    return at_us is not None and at_us <= NOW_US


@pytest.mark.slow
@given(pointer_lists, visits)
def test_prospects_are_the_oldest_lanes_worth_a_visit_one_of_each_kind(
    pointers: list[Pointer], seen: dict[Lane, int | None]
) -> None:
    worth = [pointer for pointer in pointers if may_hold_due(pointer.lane, seen)]
    expected = {
        kind: min(
            (pointer.listing, pointer.lane.bucket)
            for pointer in worth
            if kind_of(pointer.lane) == kind
        )
        for kind in {kind_of(pointer.lane) for pointer in worth}
    }
    lanes_of = Counter(kind_of(each) for each in {pointer.lane for pointer in worth})
    hiding = [kind[2] for kind, count in lanes_of.items() if count > 1]
    least = max(hiding, default=-(2**31))  # of lower priorities none, before the younger lanes
    expected = {kind: place for kind, place in expected.items() if kind[2] >= least}
    due = prospects(pointers, seen, NOW_US)
    assert {
        kind_of(prospect.lane): (prospect.listing, prospect.lane.bucket) for prospect in due
    } == expected
    assert len(due) == len(expected)
    assert all((prospect.priority, prospect.tenant) == prospect.lane[3:] for prospect in due)


@given(
    pointer_lists,
    st.integers(1, 20),
    st.integers(0, 7),
    st.dictionaries(st.sampled_from(("q", "r")), st.integers(0, 4)),
)
def test_a_plan_keeps_to_priorities_turns_ages_and_room(
    pointers: list[Pointer], limit: int, turn: int, room: dict[str, int]
) -> None:
    due = prospects(pointers, {}, NOW_US)
    planned = plan(due, limit=limit, room=room, turn=turn)
    by_lane = {prospect.lane: prospect for prospect in due}
    places = [by_lane[want.lane] for want in planned]
    assert len(set(order(planned))) == len(planned)
    # every prospect whose queue has room is wanted, none else
    assert {prospect.lane for prospect in places} == {
        prospect.lane for prospect in due if room.get(prospect.lane.queue, 1) > 0
    }
    assert [prospect.priority for prospect in places] == sorted(
        (prospect.priority for prospect in places), reverse=True
    )
    for priority in {prospect.priority for prospect in places}:
        same = [prospect for prospect in places if prospect.priority == priority]
        tenants = sorted({prospect.tenant for prospect in due if prospect.priority == priority})
        rank = {tenant: (n - turn) % len(tenants) for n, tenant in enumerate(tenants)}
        keys = [(rank[prospect.tenant], prospect.listing, prospect.lane) for prospect in same]
        assert keys == sorted(keys)
        share = -(-limit // len(tenants))
        for want in planned:
            if want.lane.priority == priority:
                assert want.most == min(share, room.get(want.lane.queue, share))


@given(pointer_lists, st.integers(1, 20))
def test_each_tenant_is_first_once_in_as_many_turns_as_there_are_tenants(
    pointers: list[Pointer], limit: int
) -> None:
    due: list[Prospect] = prospects(pointers, {}, NOW_US)
    if not due:
        return
    top = max(prospect.priority for prospect in due)
    tenants = {prospect.tenant for prospect in due if prospect.priority == top}
    firsts = [
        plan(due, limit=limit, room={}, turn=turn)[0].lane.tenant
        for turn in range(5, 5 + len(tenants))
    ]
    assert sorted(firsts) == sorted(tenants)


# --- aging -----------------------------------------------------------------------------------


def test_a_priority_rises_by_a_step_for_each_aging_waited() -> None:
    # T5
    assert [aged(3, waited_us, 10) for waited_us in (-5, 0, 9, 10, 25)] == [3, 3, 3, 4, 5]
    assert aged(3, 10**9, 0) == 3
    assert aged(-(2**31), 2**62, 1) == aged(2**31 - 1, 9, 1) == 2**31 - 1


@given(
    lower=st.integers(-50, 50),
    gap=st.integers(0, 50),
    aging_us=st.integers(1, 5_000),
    due_us=st.integers(0, 10**6),
    later_us=st.integers(0, 10**5),
    passed_us=st.integers(0, 10**6),
)
def test_no_job_goes_first_that_is_due_later_than_the_bound(
    *, lower: int, gap: int, aging_us: int, due_us: int, later_us: int, passed_us: int
) -> None:
    # T5: at whatever instant the lanes of both are compared
    low, high = lane(lower, tenant="a"), lane(lower + gap, tenant="b")
    bound_us = wait_bound(lower, lower + gap, aging_us)
    heads = {low: due_us, high: due_us + bound_us + later_us}
    now_us = heads[high] + passed_us
    due = prospects(listed(high, low), heads, now_us, {"q": aging_us})
    assert plan(due, limit=1, room={}, turn=0)[0].lane == low


def test_the_bound_is_no_longer_than_it_must_be() -> None:
    low, high = lane(0, tenant="a"), lane(4, tenant="b")
    heads = {low: 0, high: wait_bound(0, 4, 1000) - 1001}
    due = prospects(listed(high, low), heads, heads[high], {"q": 1000})
    assert plan(due, limit=1, room={}, turn=0)[0].lane == high


def test_jobs_age_in_the_queues_that_say_so() -> None:
    old, new = lane(0, queue="still"), lane(1, queue="q")
    heads = {old: 0, new: NOW_US}
    for aging, first in (({"q": 1}, new), ({"still": 1}, old), ({}, new)):
        due = prospects(listed(old, new), heads, NOW_US, aging)
        assert plan(due, limit=1, room={}, turn=0)[0].lane == first
