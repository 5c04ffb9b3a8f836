"""Workers that are woken, and workers that are not."""

import os
import select
from collections.abc import Callable, Sequence
from typing import Literal
from unittest.mock import Mock

import pytest

from dueline.coordination.worker_registry import KnownTasks, Presence, announce
from dueline.core.attempt import Failed, GivenBack
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.lane import Lane
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import Extend, Store
from dueline.core.wakeup import (
    FALLBACK_US,
    FALLBACK_US_MAX,
    WAKE_AHEAD_US,
    LocalWakeups,
    Signal,
    Wakeup,
    merged,
    read_wakeup,
)
from dueline.jobs import pauses
from dueline.jobs.queue import Queues
from dueline.stores.memory.store import MemoryStore
from dueline.worker.assignment import Assignment
from dueline.worker.backoff import LISTING_AGE_US_MAX
from dueline.worker.idle_turns import COUNTED_EVERY_US, TURN_US, IdleTurns
from dueline.worker.poller import WAIT_US_MIN
from tests.harness.calls import LEASE_US, call, calls, claim_all, put
from tests.harness.clocks import HandClock
from tests.harness.failing_store import FailingStore, Fault
from tests.harness.waking import IDLE_US, Lossy, engine, idle, start_of
from tests.harness.worker_bench import Bench

IDLE_WAITS = 20
POLL_US_MAX = 5 * SECOND_US


COUNTED = ["add", "claim", "settle", "find", "scan", "walk", "lanes", "sweep", "read", "commit"]


class Counting(FailingStore):
    """Counts calls by name; sweeps and claims that change nothing are counted, too."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, {})
        self.counted: dict[str, int] = {}

    def __getattribute__(self, name: str) -> object:
        if name in COUNTED:
            self.counted[name] = self.counted.get(name, 0) + 1
        return super().__getattribute__(name)


@pytest.fixture
def queues(store: Store, clock: HandClock) -> Queues:
    return engine(store, clock, LocalWakeups())


def crowd(queues: Queues, clock: HandClock, count: int = 99) -> None:
    """Report other idle workers of the queue, which stay for hours."""
    later_us, tasks = clock.wall_us() + 3600 * SECOND_US, ("tests.task", "tests.other")
    for number in range(count):
        name = f"other:{number}:0"
        other = Presence(name, ("default",), (*tasks, "tests.chunked"), 1, 0, 0, later_us, 0)
        version = queues.engine.ids.token()
        announce(queues.engine.store, other, version=version, beat_every_us=SECOND_US)


def test_an_idle_worker_is_woken_by_a_job(queues: Queues, clock: HandClock) -> None:
    # O1
    at_us = clock.wall_us() + IDLE_US + 1
    assert start_of(idle(queues, clock), clock, at_us, lambda: put(queues, call(1))) == at_us


def test_a_job_in_another_queue_wakes_nobody(queues: Queues, clock: HandClock) -> None:
    wakeup = Signal()
    listener = queues.engine.wakeups.listen(["mail"], wakeup)
    put(queues, call(1))
    assert (listener.take(), wakeup.is_set()) == ([], False)
    put(queues, call(2, queue="mail"))
    assert (bool(listener.take()), wakeup.is_set()) == (True, True)
    assert not listener.take()
    listener.close()
    put(queues, call(3, queue="mail"))
    assert not listener.take()


@pytest.mark.parametrize("after_us", [0, 1, 700_000, 2_000_000, 4_799_999, 4_800_000, 5_700_000])
def test_with_every_wake_up_lost_a_job_starts_within_the_fallback_poll(
    store: Store, clock: HandClock, after_us: int
) -> None:
    # O2
    queues = engine(store, clock, Lossy())
    at_us = clock.wall_us() + IDLE_US + after_us
    start_us = start_of(idle(queues, clock), clock, at_us, lambda: put(queues, call(1)))
    assert at_us <= start_us <= at_us + POLL_US_MAX


def test_a_worker_that_has_found_a_job_looks_for_more_soon(store: Store, clock: HandClock) -> None:
    """Else the second job of a queue that was idle waits for the fallback poll, as the first."""
    queues = engine(store, clock, Lossy())
    bench = idle(queues, clock)
    began_us: list[int] = []

    def meanwhile() -> None:
        if len(bench.wakeup.waits_s) == IDLE_WAITS:
            put(queues, call(1))
        bench.run_all()
        if len(bench.runner.began) > len(began_us):
            began_us.append(clock.wall_us())
            put(queues, call(1 + len(began_us)))
            if len(began_us) == 2:
                bench.worker.stop()

    bench.wakeup.meanwhile = meanwhile
    bench.run()
    assert began_us[1] - began_us[0] <= LISTING_AGE_US_MAX


@pytest.mark.slow
@pytest.mark.parametrize("ahead_us", [1, 3_000_000, WAKE_AHEAD_US, WAKE_AHEAD_US + 1, 9_000_000])
@pytest.mark.parametrize("phase_us", [0, 2_000_000])
def test_a_job_that_is_due_later_starts_at_its_time(
    queues: Queues, clock: HandClock, ahead_us: int, phase_us: int
) -> None:
    # T1: it is told of, or seen by a look before it is due
    at_us = clock.wall_us() + IDLE_US + phase_us
    due_us = at_us + ahead_us
    bench = idle(queues, clock)
    start_us = start_of(bench, clock, at_us, lambda: put(queues, call(1, due_us=due_us)))
    assert due_us <= start_us <= due_us + WAIT_US_MIN


@pytest.mark.parametrize("phase_us", [0, 1_200_000, 2_400_000, 3_600_000])
def test_a_job_that_is_due_at_midnight_starts_at_its_time(clock: HandClock, phase_us: int) -> None:
    # T1: it is listed in a later bucket, which a poll before midnight must read on every store
    class Distant(MemoryStore):
        scope: Literal["process", "machine", "network"] = "network"

    queues = engine(Distant(clock=clock), clock, LocalWakeups())
    midnight_us = (clock.wall_us() // DAY_US + 1) * DAY_US
    clock.advance(us=midnight_us - clock.wall_us() - 2 * IDLE_US - phase_us)
    at_us = clock.wall_us() + IDLE_US
    start_us = start_of(
        idle(queues, clock), clock, at_us, lambda: put(queues, call(1, due_us=midnight_us))
    )
    assert midnight_us <= start_us <= midnight_us + WAIT_US_MIN


@pytest.mark.parametrize("phase_us", range(0, 4_800_000, 800_000))
def test_a_job_beyond_midnight_starts_at_its_time(
    queues: Queues, clock: HandClock, phase_us: int
) -> None:
    # T1: it lies in a lane of the next bucket, which is read before it begins
    width_us = QueueSettings().width_us
    midnight_us = (clock.wall_us() // width_us + 1) * width_us
    clock.advance(us=midnight_us - clock.wall_us() - IDLE_US - phase_us)
    put(queues, call(1, due_us=midnight_us + 1))
    assert start_of(idle(queues, clock), clock, midnight_us, lambda: None) == midnight_us + 1


def test_a_job_in_the_lane_that_a_wake_up_names_is_claimed_without_a_look(
    store: Store, clock: HandClock
) -> None:
    # O1: and nothing is claimed or read for it in vain
    counting = Counting(store)
    queues = engine(counting, clock, LocalWakeups())

    def put_alone() -> None:
        put(queues, call(1))
        counting.counted.clear()

    at_us = clock.wall_us() + IDLE_US + 1
    bench = idle(queues, clock)
    seen: dict[str, int] = {}
    submit = bench.runner.submit

    def submitted(assignments: Sequence[Assignment]) -> None:
        seen.update(counting.counted)
        submit(assignments)

    bench.runner.submit = submitted  # type: ignore[method-assign]
    assert start_of(bench, clock, at_us, put_alone) == at_us
    assert (seen.get("lanes", 0), seen["claim"]) == (0, 1)


@pytest.mark.parametrize("ahead_us", [0, 2 * SECOND_US])
def test_a_more_urgent_lane_that_is_known_goes_before_the_one_that_is_named(
    queues: Queues, clock: HandClock, ahead_us: int
) -> None:
    # T3
    due_us = clock.wall_us() + IDLE_US + ahead_us
    put(queues, call(1, priority=5, due_us=due_us))
    bench = idle(queues, clock, threads=1)
    start_of(bench, clock, due_us, lambda: put(queues, call(2, due_us=due_us)))
    assert bench.runner.began[0] == 1


def test_an_urgent_lane_whose_wake_up_was_lost_is_found_right_after(
    queues: Queues, clock: HandClock
) -> None:
    # T3: one claim from the named lane, then the lists are read
    bench = idle(queues, clock, threads=1)

    def put_both() -> None:
        clock.advance(us=LISTING_AGE_US_MAX + 1)  # it has not looked for so long
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LocalWakeups, "wake", Lossy.wake)
            put(queues, call(7, priority=5))
        put(queues, *(call(number) for number in range(3)))

    began: list[int] = []

    def meanwhile() -> None:
        if len(bench.wakeup.waits_s) == 40:
            put_both()
        bench.run_all()
        if len(bench.runner.began) == 4:
            began[:] = bench.runner.began
            bench.worker.stop()

    bench.wakeup.meanwhile = meanwhile
    bench.run()
    assert began.index(7) <= 1


@pytest.mark.parametrize("paused", ["queue", "tenant"])
def test_a_wake_up_for_what_is_paused_is_no_claim(
    queues: Queues, clock: HandClock, paused: str
) -> None:
    tenants = ("t",) if paused == "tenant" else ()
    pauses.pause(queues.engine, "default", tenants=tenants)
    bench = idle(queues, clock)
    since_us = clock.wall_us()

    def meanwhile() -> None:
        if len(bench.wakeup.waits_s) == 20:
            put(queues, call(1, tenant="t"))
        bench.run_all()
        if clock.wall_us() > since_us + IDLE_US:
            bench.worker.stop()

    bench.wakeup.meanwhile = meanwhile
    assert bench.run() == []


def test_a_wake_up_may_be_late_and_come_twice(queues: Queues, clock: HandClock) -> None:
    bench = idle(queues, clock)
    (job,) = put(queues, call(1))

    def meanwhile() -> None:
        bench.run_all()
        if len(bench.wakeup.waits_s) == 10:
            queues.engine.announce([job])
            queues.engine.announce([job._replace(lane=job.lane._replace(tenant="gone"))])
        if len(bench.wakeup.waits_s) == 30:
            bench.worker.stop()

    bench.wakeup.meanwhile = meanwhile
    assert bench.run() == [1]


def test_wake_ups_of_one_channel_are_one() -> None:
    lane = Lane("q", 0, 1, 0, "")
    wakeups = [Wakeup("q", 7, lane), Wakeup("r", 1), Wakeup("q", 5, lane)]
    assert merged(wakeups) == [Wakeup("q", 5, lane), Wakeup("r", 1)]
    assert merged([*wakeups, Wakeup("q", 9, lane._replace(shard=1))])[0] == Wakeup("q", 5)
    assert read_wakeup(wakeups[0].to_bytes(200)) == wakeups[0]


def test_more_wake_ups_than_a_listener_keeps_ask_for_a_poll() -> None:
    wakeups = LocalWakeups()
    listener = wakeups.listen(["q"], Signal())
    for shard in range(40):
        wakeups.wake([Wakeup("q", 7, Lane("q", shard, 1, 0, ""))])
    assert None in {wakeup.lane for wakeup in listener.take()}


def test_an_event_ends_a_wait_with_a_descriptor_beside_it() -> None:
    signal = Signal()
    reader, writer = os.pipe()
    assert not signal.wait_or_read(reader, 0)
    os.write(writer, b"x")
    assert signal.wait_or_read(reader, 60)
    signal.set()
    signal.set()
    assert (signal.is_set(), signal.wait(60)) == (True, True)
    signal.clear()
    assert (signal.is_set(), signal.wait(0)) == (False, False)
    with pytest.MonkeyPatch.context() as patch:  # as above 1,023 open files
        patch.setattr(select, "select", Mock(side_effect=ValueError))
        assert signal.wait_or_read(reader, 60)
    os.close(reader)
    os.close(writer)


def test_nobody_is_woken_for_what_the_next_look_sees_in_time(
    queues: Queues, clock: HandClock
) -> None:
    listener = queues.engine.wakeups.listen(["default"], Signal())
    put(queues, call(1, due_us=clock.wall_us() + WAKE_AHEAD_US + 1))
    assert not listener.take()
    put(queues, call(1, due_us=clock.wall_us() + WAKE_AHEAD_US))
    assert listener.take()


def fail(bench: Bench) -> None:
    """Let what is ready fail for good."""
    bench.runner.begin()
    bench.runner.end(Failed("E", "", "", retry=False))


@pytest.mark.parametrize("change", ["retry", "retry_all", "redrive"])
def test_whoever_lets_a_job_be_due_sooner_wakes_the_workers(
    queues: Queues, clock: HandClock, change: str
) -> None:
    (job,) = put(queues, call(1, due_us=clock.wall_us() + IDLE_US))
    if change == "redrive":
        bench = Bench(queues, clock)
        clock.advance(us=IDLE_US)
        bench.wakeup.meanwhile = lambda: fail(bench)
        bench.run()
        assert queues.find(job.id).status == "dead"
    listener = queues.engine.wakeups.listen(["default"], Signal())
    if change == "retry_all":
        row = queues.find(job.id).row
        assert row is not None
        assert queues.retry_all([row]) == 1
    else:
        queues.retry(job.id)
    assert listener.take()


def test_a_job_that_is_tried_again_or_given_back_wakes_the_others(
    queues: Queues, clock: HandClock
) -> None:
    put(queues, call(1))
    bench = Bench(queues, clock)
    listener = queues.engine.wakeups.listen(["default"], Signal())
    heard: list[bool] = []

    def once() -> None:
        heard.append(bool(listener.take()))
        bench.runner.begin()
        bench.runner.end(GivenBack() if len(heard) == 1 else Failed("E", "", "", retry=False))

    bench.wakeup.meanwhile = once
    bench.run()
    assert heard[:2] == [False, True]


@pytest.mark.parametrize("number", range(1, 4))
@pytest.mark.parametrize("fault", Fault)
def test_a_wake_up_outlives_a_store_that_fails(
    store: Store, clock: HandClock, number: int, fault: Fault
) -> None:
    plan: dict[int, Fault] = {}
    failing = FailingStore(store, plan)
    queues = engine(failing, clock, LocalWakeups())
    at_us = clock.wall_us() + IDLE_US + 1

    def put_then_fail() -> None:
        put(queues, call(1))
        plan[failing.calls + number] = fault

    start_us = start_of(idle(queues, clock), clock, at_us, put_then_fail)
    # A claim whose answer was lost is claimed again when its lease is over.
    lost_us = LEASE_US + FALLBACK_US if (number, fault) == (1, Fault.AFTER) else 0
    assert start_us <= at_us + SECOND_US + lost_us


def test_a_worker_whose_slots_are_full_is_woken_once_it_has_room(
    queues: Queues, clock: HandClock
) -> None:
    put(queues, call(1))
    bench = idle(queues, clock, threads=1)
    began_us: dict[int, int] = {}

    def slowly() -> None:
        bench.runner.begin()
        for number in bench.runner.began:
            began_us.setdefault(number, clock.wall_us())
        if len(bench.wakeup.waits_s) == 2:
            put(queues, call(2, priority=1))
        if len(bench.wakeup.waits_s) == 200:
            bench.runner.end()
            bench.wakeup.set()
        if len(began_us) == 2:
            bench.runner.end()
            bench.worker.stop()

    bench.wakeup.meanwhile = slowly
    bench.run()
    assert began_us[2] - began_us[1] <= 200 * 50_000


def test_a_worker_that_may_not_claim_waits_without_spinning(
    queues: Queues, clock: HandClock
) -> None:
    # a suspect runs alone for a second, and looks are due meanwhile
    put(queues, call(1))
    (claimed,) = claim_all(queues, worker="dead:1:0")
    queues.engine.store.settle([Extend(claimed, claimed.at_us, started=True)])
    clock.advance(us=LEASE_US)
    put(queues, calls(10, 12))
    bench = idle(queues, clock, threads=4)
    since_us = clock.wall_us()

    def a_second() -> None:
        bench.runner.begin()
        if clock.wall_us() - since_us >= SECOND_US:
            bench.runner.end()
        if len(bench.runner.began) == 3 and not bench.runner.active:
            bench.worker.stop()

    bench.wakeup.meanwhile = a_second
    bench.run()
    assert len(bench.wakeup.waits_s) < 50


@pytest.mark.slow
@pytest.mark.parametrize("others", [19, 40, 99, 500])
@pytest.mark.parametrize("after_us", [0, 700_000, 5_700_000, 17_000_000])
def test_workers_take_turns_so_that_one_of_them_polls_soon(
    store: Store, clock: HandClock, others: int, after_us: int
) -> None:
    # O2: each polls more rarely, all of them together no more rarely than every quarter of a second
    queues = engine(store, clock, Lossy())
    crowd(queues, clock, others)
    at_us = clock.wall_us() + 2 * IDLE_US + after_us
    start_us = start_of(idle(queues, clock), clock, at_us, lambda: put(queues, call(1)))
    gap_us = min(max(FALLBACK_US, (others + 1) * TURN_US), FALLBACK_US_MAX)
    assert at_us <= start_us <= at_us + gap_us


@pytest.mark.parametrize("kind", ["no room", "quiet", "another task", "another queue", "gone"])
def test_a_worker_counts_only_on_those_that_can_find_its_jobs(
    queues: Queues, clock: HandClock, kind: str
) -> None:
    # O2
    store, now_us = queues.engine.store, clock.wall_us()
    for number in range(99):
        other = Presence(
            f"other:{number}:0",
            ("mail" if kind == "another queue" else "default",),
            ("tests.other" if kind == "another task" else "tests.task",),
            1,
            int(kind == "no room"),
            0,
            now_us - (LEASE_US if kind == "gone" else 0),
            0,
            is_quiet=kind == "quiet",
        )
        announce(store, other, version=queues.engine.ids.token(), beat_every_us=LEASE_US)
    turns = IdleTurns(queues.engine, ["default", "mail"], KnownTasks(["tests.task"]))
    assert turns.gap_us() == FALLBACK_US
    alone = IdleTurns(queues.engine, ["default"], KnownTasks(["tests.task"]))
    assert alone.gap_us() == FALLBACK_US


@pytest.mark.slow
@pytest.mark.parametrize("ahead_us", [1, 9_000_000, WAKE_AHEAD_US, WAKE_AHEAD_US + 1, 70_000_000])
@pytest.mark.parametrize("phase_us", [0, 2_000_000, 11_000_000])
def test_a_worker_that_polls_in_turn_starts_a_job_at_its_time(
    queues: Queues, clock: HandClock, ahead_us: int, phase_us: int
) -> None:
    # T1
    crowd(queues, clock)
    at_us = clock.wall_us() + 2 * IDLE_US + phase_us
    due_us = at_us + ahead_us
    bench = idle(queues, clock)
    start_us = start_of(bench, clock, at_us, lambda: put(queues, call(1, due_us=due_us)))
    assert due_us <= start_us <= due_us + WAIT_US_MIN


@pytest.mark.parametrize("is_known", [True, False])
def test_a_worker_that_polls_in_turn_sees_a_pause_before_it_claims(
    store: Store, clock: HandClock, *, is_known: bool
) -> None:
    # also if nothing has told it of the pause; the job was known before, or comes later
    queues, silent = (
        engine(store, clock, wakeups) for wakeups in (LocalWakeups(), Lossy())
    )  # fmt: skip
    crowd(queues, clock)
    bench = idle(queues, clock)
    ended_us = clock.wall_us() + 10 * IDLE_US
    put_us, paused_us = 3 * IDLE_US, 3 * IDLE_US + (6 if is_known else -1) * SECOND_US
    due_us = clock.wall_us() + 3 * IDLE_US + 15 * SECOND_US
    steps: list[tuple[int, Callable[[], object]]] = [
        (put_us, lambda: put(queues, call(1, due_us=due_us if is_known else 0))),
        (paused_us, lambda: pauses.pause(silent.engine, "default")),
    ]
    steps.sort(key=lambda step: step[0])
    began_us = clock.wall_us()

    def meanwhile() -> None:
        wait_us = round(bench.wakeup.waits_s[-1] * 1e6)
        if steps and clock.wall_us() + wait_us >= began_us + steps[0][0]:
            clock.advance(us=max(0, began_us + steps[0][0] - clock.wall_us()))
            steps.pop(0)[1]()
        bench.run_all()
        if clock.wall_us() > ended_us:
            bench.worker.stop()

    bench.wakeup.meanwhile = meanwhile
    bench.run()
    assert not steps
    assert not bench.runner.began


@pytest.mark.slow
@pytest.mark.parametrize("others", [0, 99])
@pytest.mark.parametrize("is_fresh", [True, False])
def test_a_hundred_idle_workers_read_less_than_10_times_a_second(
    store: Store, clock: HandClock, *, is_fresh: bool, others: int
) -> None:
    # O3, by the reads of one; of those that are alone a hundred, in different queues, read more
    crowd(engine(store, clock, LocalWakeups()), clock, others)
    counting = Counting(store)
    queues = engine(counting, clock, LocalWakeups())
    bench = idle(queues, clock)
    if not is_fresh:
        put(queues, calls(0, 3))
    began_us = clock.wall_us()
    beaten_us = [began_us]
    minutes_us, settled_us = 600 * SECOND_US, 90 * SECOND_US

    def live() -> None:
        bench.run_all()
        if clock.wall_us() - began_us < settled_us:
            counting.counted.clear()  # it settles down first
            beaten_us[0] = clock.wall_us()
        elif clock.wall_us() - beaten_us[0] >= LEASE_US // 3:
            beaten_us[0] = clock.wall_us()
            bench.beat()
        if clock.wall_us() - began_us > minutes_us:
            bench.worker.stop()

    bench.wakeup.meanwhile = live
    bench.run()
    seconds = (minutes_us - settled_us) / SECOND_US
    calls_made = counting.counted
    reads = sum(calls_made.get(name, 0) for name in ("lanes", "read", "find", "scan"))
    counts = -(-seconds * SECOND_US // COUNTED_EVERY_US)
    assert reads - calls_made["lanes"] <= counts  # nothing else is read
    assert 100 * reads / seconds <= (10 if others else 25)
    tells_heads = not isinstance(store, MemoryStore)
    assert 100 * calls_made.get("claim", 0) / seconds <= (0 if is_fresh or tells_heads else 25)
    assert 100 * (calls_made["commit"] - 1) / seconds <= 10  # beats, and one farewell
    assert not calls_made.get("settle", 0)
