"""Which lanes a claim looks at."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from dueline.core.lane import Lane, Pointer, lane_tenant
from dueline.jobs.lane_rotation import LaneRotation
from dueline.jobs.tenant_round_robin import interleaved

NOW_US = 1_000_000


def lane(priority: int = 0, tenant: str = "", *, bucket: int = 5, queue: str = "q") -> Lane:
    """Name a lane by what matters."""
    return Lane(queue, 0, bucket, priority, tenant)


def rota_of(*lanes: Lane, heads: Mapping[Lane, int | None] | None = None) -> LaneRotation:
    """Make a rota of lanes, each listed under its own bucket."""
    rota = LaneRotation()
    rota.renew([Pointer(each.bucket, each) for each in lanes], heads or {})
    return rota


def first(
    rota: LaneRotation, count: int, *, now_us: int = NOW_US, room: Mapping[str, int] | None = None
) -> list[Lane]:
    """List the lanes of the first kinds."""
    return [pointer.lane for pointer in rota.first(count, now_us, room or {})]


def test_no_more_kinds_are_looked_at_than_are_asked_for() -> None:
    lanes = [lane(tenant=f"{n:03}") for n in range(500)]
    assert first(rota_of(*lanes), 3) == lanes[:3]


def test_larger_priorities_come_first() -> None:
    # T2
    low, high = lane(-5), lane(7, "b")
    assert first(rota_of(low, high), 1) == [high]
    assert first(rota_of(low, high), 2) == [high, low]


def test_all_lanes_of_a_kind_come_with_it() -> None:
    old, new = lane(bucket=4), lane(bucket=5)
    assert first(rota_of(old, new, lane(tenant="b")), 1) == [old, new]


def test_a_tenant_with_many_keys_has_no_more_turns_than_others() -> None:
    # F8
    keys = [lane(tenant=lane_tenant("a", [f"host:{n:03}"])) for n in range(100)]
    plain, other = lane(tenant="a"), lane(tenant="b")
    rota = rota_of(*keys, plain, other)
    assert first(rota, 2) == [keys[0], other]
    assert first(rota, 4) == [keys[0], other, keys[1], keys[2]]
    rota.visited({keys[0]: NOW_US, other: NOW_US})
    assert first(rota, 3) == [keys[1], other, keys[2]]
    rota.renew([Pointer(5, each) for each in (*keys, plain, other)], {})  # turns go on
    assert first(rota, 3) == [keys[1], other, keys[2]]
    rota.visited(dict.fromkeys(keys, NOW_US))
    assert first(rota, 9)[:2] == [other, plain]


def test_who_has_nothing_left_under_its_limits_has_no_turn_until_something_is_due() -> None:
    limited, plain = lane(tenant=lane_tenant("a", ["s"])), lane(tenant="a")
    rota = rota_of(limited, plain)
    rota.visited({limited: None})
    assert first(rota, 9) == [plain]
    rota.visited({plain: NOW_US + 5})
    assert first(rota, 9) == []
    assert first(rota, 9, now_us=NOW_US + 5) == [plain]
    rota.visited({limited: NOW_US})
    assert set(first(rota, 9, now_us=NOW_US + 5)) == {limited, plain}


def test_tenants_come_in_turn_also_after_the_list_is_read_again() -> None:
    # T4: who was visited waits for all others
    lanes = [lane(tenant=name) for name in "abcde"]
    rota = rota_of(*lanes)
    rota.visited({lanes[0]: NOW_US, lanes[1]: NOW_US})
    assert first(rota, 9) == [*lanes[2:], *lanes[:2]]
    newcomer = lane(tenant="0")
    rota.renew([Pointer(5, each) for each in (newcomer, *lanes)], {})
    assert first(rota, 9) == [*lanes[2:], *lanes[:2], newcomer]


def test_what_is_empty_or_due_later_has_no_turn() -> None:
    empty, later, due = lane(tenant="a"), lane(tenant="b"), lane(tenant="c")
    heads = {empty: None, later: NOW_US + 5, due: NOW_US}
    told = rota_of(empty, later, due, heads=heads)
    checked = rota_of(empty, later, due)
    checked.visited(heads)
    for rota in (told, checked):
        assert first(rota, 9) == [due]
        rota.visited({due: None})
        assert first(rota, 9) == []
        assert not rota.has_due(NOW_US + 4)
        assert rota.has_due(NOW_US + 5)
        assert first(rota, 9, now_us=NOW_US + 5) == [later]
        rota.visited({later: None})
        assert not rota.has_due(NOW_US + 99)


def test_who_was_idle_is_last_in_turn_once_something_is_due() -> None:
    idle, *others = (lane(tenant=name) for name in "abc")
    rota = rota_of(idle, *others, heads={idle: NOW_US + 5})
    assert first(rota, 9) == others
    assert first(rota, 9, now_us=NOW_US + 4) == others
    assert first(rota, 9, now_us=NOW_US + 5) == [*others, idle]


def test_a_queue_without_room_takes_no_turn_from_others() -> None:
    full, free = lane(9, queue="full"), lane(queue="free")
    rota = rota_of(full, free)
    assert first(rota, 1, room={"full": 0, "free": 1}) == [free]
    assert first(rota, 1, room={"full": 1}) == [full]


KINDS = st.tuples(st.integers(-2, 2), st.sampled_from("abcd"), st.integers(1, 3))


@given(
    kinds=st.sets(KINDS, max_size=20),
    visits=st.lists(st.tuples(KINDS, st.none() | st.integers(-3, 3))),
    count=st.integers(1, 30),
)
def test_nothing_that_may_be_due_is_left_out_for_good(
    kinds: set[tuple[int, str, int]],
    visits: list[tuple[tuple[int, str, int], int | None]],
    count: int,
) -> None:
    # invariant 1: visiting what comes first until nothing comes visits all that may be due
    lanes = {kind: lane(kind[0], kind[1], bucket=kind[2]) for kind in kinds}
    rota = rota_of(*sorted(lanes.values()))
    heads: dict[Lane, int | None] = {}
    for kind, ahead in visits:
        if kind in lanes:
            heads[lanes[kind]] = None if ahead is None else NOW_US + ahead
            rota.visited({lanes[kind]: heads[lanes[kind]]})
            rota.first(1, NOW_US, {})
    for now_us in (NOW_US, NOW_US + 2):
        due = {
            lane
            for lane in lanes.values()
            if (at_us := heads.get(lane, NOW_US)) is not None and at_us <= now_us
        }
        seen: set[Lane] = set()
        while firsts := first(rota, count, now_us=now_us):
            assert not seen.intersection(firsts)
            seen.update(firsts)
            rota.visited(dict.fromkeys(firsts, None))
            heads |= dict.fromkeys(firsts, None)
        assert seen == due


def test_the_jobs_of_one_claim_are_run_in_the_turns_of_their_tenants() -> None:
    """Else the first tenant of a claim would have all of its jobs run before the others."""
    names = ["a0", "a1", "a2", "b0", "b1", "c0", "low a", "low b"]
    lanes = [Lane("q", 0, 1, 0 if name[0] == "l" else 1, name.split()[-1][0]) for name in names]
    ordered = interleaved(names, lanes)
    assert ordered == ["a0", "b0", "c0", "a1", "b1", "a2", "low a", "low b"]
