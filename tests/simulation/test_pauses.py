"""How long events wait while a stream is cut anew, and after its store was away."""

import pytest

from tests.simulation.flow import Flow, flowing

KINDS = pytest.mark.parametrize("is_stepped", [False, True], ids=["memory", "steps"])


@KINDS
@pytest.mark.parametrize("hears", [True, False], ids=["woken", "unheard"])
def test_no_event_waits_a_second_while_shards_are_added_and_taken_away(
    *, is_stepped: bool, hears: bool
) -> None:
    # H7: 1, then 7, then 3 shards, in use all the while; a beat is 2.5 s
    with flowing(Flow(is_stepped=is_stepped, hears=hears, ttl_us=10_000_000)) as flow:
        flow.until(5)
        for shards, instant_s in ((7, 9), (3, 13)):
            flow.cut(shards)
            flow.until(instant_s)
    late = [(at_us, wait_us) for at_us, wait_us in flow.waits_us if at_us > 5_000_000]
    assert len(late) > 1_000
    assert max(wait_us for _, wait_us in late) < 1_000_000
    assert all(numbers == sorted(numbers) for numbers in flow.found.values())


@KINDS
def test_no_event_waits_a_second_when_a_member_goes_though_all_others_are_busy(
    *,
    is_stepped: bool,
) -> None:
    # H6
    flow = Flow(
        is_stepped=is_stepped, hears=True, ttl_us=60_000_000, took_us=120_000, shards=4, members=4
    )
    with flowing(flow):
        flow.until(35)  # a beat comes every 15 seconds
        flow.leaving.add("member 0")
        flow.until(38)
        flow.leaving.add("member 1")
        flow.until(41)
    late = [wait_us for at_us, wait_us in flow.waits_us if at_us > 34_000_000]
    assert max(late) < 1_000_000
    assert set(flow.shards[-200:]) == set(range(4))


@pytest.mark.parametrize(
    ("is_stepped", "hears", "slow_s"),
    [(False, True, 0.5), (True, False, 2)],
    ids=["memory", "steps"],
)
def test_consumers_go_on_by_themselves_within_five_seconds_after_ten_minutes_of_outage(
    *, is_stepped: bool, hears: bool, slow_s: float
) -> None:
    # R8; a beat comes every 15 seconds only
    flow = Flow(is_stepped=is_stepped, hears=hears, ttl_us=60_000_000, shards=3)
    with flowing(flow):
        flow.until(5)
        flow.outage.begin(flow.world, 600, slow_s=slow_s)
        flow.until(605)
        before = len(flow.waits_us)
        assert all(at_us < 6_000_000 for at_us, _ in flow.waits_us)
        flow.until(610)
        again = set(flow.shards[before:])
        assert again == {0, 1, 2}
        flow.until(612)
    assert max(wait_us for at_us, wait_us in flow.waits_us if at_us > 611_000_000) < 1_000_000
    assert all(numbers == sorted(numbers) for numbers in flow.found.values())
