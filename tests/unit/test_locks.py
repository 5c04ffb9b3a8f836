"""Objects that several threads use: each call waits while another thread is in one."""

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dueline.core.queue_settings import Quota
from dueline.core.store import Claimed, Drop
from dueline.jobs import decisions
from dueline.jobs.decisions import Decision
from dueline.limits import quota, semaphore
from dueline.limits.permits import HeldPermits
from dueline.store_tests.calls import lane_of, new_job
from dueline.streams.trial import HandlerIsolation
from dueline.worker.effects import Effects
from dueline.worker.tally import Tally
from tests.harness.clocks import HandClock
from tests.harness.permits import permits_of, take
from tests.harness.quotas import enqueue
from tests.harness.stream_stage import Stage
from tests.harness.world import world_on

WAIT_S = 0.05


def waits_for(lock: threading.Lock, call: Callable[[], object]) -> bool:
    """Return whether a call of another thread ends only once the lock is released."""
    done = threading.Event()

    def run() -> None:
        call()
        done.set()

    thread = threading.Thread(target=run, daemon=True)
    with lock:
        thread.start()
        is_early = done.wait(WAIT_S)
    assert done.wait(60)
    thread.join()
    return not is_early


JOB = new_job(1)
TALLIED: dict[str, Callable[[Tally], object]] = {
    "ended": lambda tally: tally.ended([]),
    "lost": lambda tally: tally.lost(JOB),
    "called": lambda tally: tally.called("claim", "done", 5),
    "scheduled": lambda tally: tally.scheduled([5]),
    "claimed": lambda tally: tally.claimed([], Claimed([JOB], {}, {})),
    "totals": Tally.totals,
}


@pytest.mark.parametrize("call", TALLIED.values(), ids=TALLIED)
def test_threads_count_one_after_the_other(call: Callable[[Tally], object]) -> None:
    tally = Tally()
    assert waits_for(tally._lock, lambda: call(tally))


PERMITTED: dict[str, Callable[[HeldPermits], object]] = {
    "begin": lambda permits: permits.begin(list, 9),
    "take": lambda permits: take(permits, "s"),
    "keep": lambda permits: permits.keep([]),
    "settle": lambda permits: permits.settle(list),
    "close": HeldPermits.close,
}


@pytest.mark.parametrize("call", PERMITTED.values(), ids=PERMITTED)
def test_a_heartbeat_and_a_claim_change_permits_in_turn(
    call: Callable[[HeldPermits], object],
) -> None:
    """Rule N4: the heartbeat extends them in a thread of its own."""
    world = world_on("memory", Path())
    semaphore.define(world.store, "s", 9, ids=world.queues.engine.ids)
    permits = permits_of(world)
    assert take(permits, "s") == 1
    assert waits_for(permits._lock, lambda: call(permits))


def test_permits_are_read_and_taken_in_one_turn() -> None:
    world = world_on("memory", Path())
    permits = permits_of(world)
    permits.begin(list, 9)
    turns: list[bool] = []
    see = HeldPermits._see

    def see_locked(self: HeldPermits, name: str) -> Any:  # noqa: ANN401
        turns.append(self._lock.locked())
        return see(self, name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HeldPermits, "_see", see_locked)
        assert take(permits, "s") == 1
    assert all(turns)
    assert turns


def test_threads_of_a_process_take_from_a_quota_in_turn() -> None:
    world = world_on("memory", Path())
    quota.set_quota(world.queues.engine, "q", Quota(depth=9))
    assert enqueue(world.queues) == 1
    (gate,) = world.queues.admission._gates.values()
    assert waits_for(gate.lock, lambda: enqueue(world.queues))


def test_handlers_start_and_end_in_turn() -> None:
    """Rule F7: a suspect runs alone."""
    isolation = HandlerIsolation(HandClock())
    assert waits_for(isolation._lock, lambda: isolation.enter("a", alone=False))
    assert waits_for(isolation._lock, lambda: isolation.leave("a"))


def test_threads_of_a_member_reserve_shards_in_turn() -> None:
    clock = HandClock()
    stage = Stage(world_on("memory", Path()).store, clock)
    member = stage.member(shards=3)
    stage.settle_down(member)
    for call in (lambda: member.begin(0), lambda: member.end(0), member.balance):
        assert waits_for(member._lock, call)


def test_threads_that_append_note_the_last_event_in_turn() -> None:
    clock = HandClock()
    stream = Stage(world_on("memory", Path()).store, clock).stream()
    assert waits_for(stream._lock, lambda: stream.append("a", key="k"))


def test_endings_are_handed_to_the_thread_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "carry", lambda *_: None)
    beside = Effects(cast("Any", SimpleNamespace(scope="network")))
    ended = Decision(Drop(new_job(1)))
    assert waits_for(beside._lock, lambda: beside.write([ended]))
    assert waits_for(beside._lock, beside._write_waiting)
    beside.close()


@pytest.mark.postgres
def test_rows_that_come_late_are_noted_in_turn() -> None:
    late_rows = pytest.importorskip("dueline.stores.postgres.late_rows")
    late = late_rows.LateRows()
    for call in (
        lambda: late.note([(lane_of(), 5)]),
        lambda: late.of(lane_of()),
        lambda: late.remove(lane_of(), {}),
        late.clear,
    ):
        assert waits_for(late._lock, call)
