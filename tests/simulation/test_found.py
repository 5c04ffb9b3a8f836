"""What lives found wrong, by itself and as small as it gets."""

import pytest

from checker.journal import Event
from dueline.core.call_options import CallOptions, Rule
from dueline.core.clock import SECOND_US
from dueline.core.errors import StoreUnavailable, Unknown
from dueline.core.ids import Ids
from dueline.core.lane import DEAD_SUFFIX, bucket_of, task_key
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import Drop, Extend, Move
from dueline.jobs.queue import Queues
from dueline.store_tests.calls import ids_of, rows_in
from dueline.worker.claimer import Claimer
from simulation.deploying import in_vain
from simulation.people import Version
from tests.harness.calls import LEASE_US, WIDTH_US, call, claim_all, number_of, put, row_of
from tests.harness.clocks import NOW_US, HandClock
from tests.harness.cluster import Cluster
from tests.harness.queues import queues_on
from tests.harness.stepped_store import SteppedMemoryStore
from tests.harness.worker_bench import Bench


class Stopped(BaseException):
    """The process ended here."""


def test_a_suspect_starts_though_another_that_waited_was_lost(
    queues: Queues, clock: HandClock
) -> None:
    put(queues, call(1), call(2), call(3))
    for job in claim_all(queues):
        queues.engine.store.settle([Extend(job, job.at_us, started=True)])
    clock.advance(us=LEASE_US + 1)  # all three killed their worker
    bench = Bench(queues, clock)
    lost: list[int] = []

    def lose_the_next() -> None:
        if not lost and bench.runner.ready:
            waiting = bench.worker._marked_starts._suspects[0]
            lost.append(number_of(waiting))
            bench.worker._lose([waiting])  # as the beat does, which is told so
        bench.run_all()

    bench.wakeup.meanwhile = lose_the_next
    began = bench.run()
    assert sorted([*began, *lost]) == [1, 2, 3]


def test_a_job_that_is_being_carried_is_found_where_jobs_age() -> None:
    clock, cluster = HandClock(), Cluster()
    steps: list[str] = []

    def stop(name: str) -> None:
        steps.append(name)
        if steps[-2:] == ["decide", "marks"]:  # the row is a stub, and nothing more
            raise Stopped

    defaults = QueueSettings(aging_us=SECOND_US)
    store = SteppedMemoryStore(clock, cluster=cluster)
    queues = queues_on(store, clock, defaults)
    (job,) = put(queues, call(1))
    to = job.lane._replace(priority=9)
    move = Move(job, job.at_us, queues.engine.ids.token(), bucket_of(NOW_US, WIDTH_US), 0, 0, to=to)
    with pytest.raises(Stopped):
        SteppedMemoryStore(clock, cluster=cluster, step=stop).settle([move])
    claimer = Claimer(queues.engine, ["default"], "here:1:abcd")
    claimed = []
    for _ in range(3):  # it is carried to its end, then seen where it is
        claimer.refresh()
        claimed += claimer.claim(10, {})
    assert [number_of(one.job) for one in claimed] == [1]


def test_of_an_add_that_failed_half_way_it_is_said_which_half() -> None:
    steps: list[str] = []

    def fail(name: str) -> None:
        steps.append(name)
        if steps.count("insert") == 2 and name == "insert":
            raise StoreUnavailable("refused")

    first = row_of(1)
    second = row_of(2)._replace(lane=first.lane._replace(priority=1))
    store = SteppedMemoryStore(HandClock(), step=fail)
    assert store.add([first, second]) == [True, False]
    assert store.find([first.id, second.id]) == [first, None]


def test_verdicts_of_which_some_were_applied_are_not_told_as_refused() -> None:
    steps: list[str] = []

    def fail(name: str) -> None:
        steps.append(name)
        if name == "decide" and steps.count("decide") == 2:
            raise StoreUnavailable("refused")

    rows = [row_of(1), row_of(2)]
    store = SteppedMemoryStore(HandClock(), step=fail)
    assert store.add(rows) == [True, True]
    with pytest.raises(Unknown):
        store.settle([Drop(row) for row in rows])
    assert store.find([row.id for row in rows]) == [None, rows[1]]
    steps[:] = ["decide"]  # so that the next one is refused
    with pytest.raises(StoreUnavailable) as raised:
        store.settle([Drop(rows[1])])
    assert not isinstance(raised.value, Unknown)


def test_what_has_ended_is_not_run_again_when_it_is_sent_again(
    queues: Queues, clock: HandClock
) -> None:
    ended, waits = put(queues, call(1), call(2)._replace(due_us=NOW_US + 60 * SECOND_US))
    assert Bench(queues, clock).run() == [1]
    queues.enqueue_again([ended, waits, row_of(7)])
    found = queues.engine.store.find([ended.id, waits.id, row_of(7).id])
    assert [row is not None for row in found] == [False, True, True]


def test_what_has_ended_and_had_a_key_is_not_run_again_when_it_is_sent_again(
    queues: Queues, clock: HandClock
) -> None:
    opts = CallOptions(unique=Rule("k")).to_bytes()
    (ended,) = put(queues, call(1)._replace(opts=opts))
    assert Bench(queues, clock).run() == [1]
    queues.enqueue_again([ended])
    assert queues.engine.store.find([ended.id]) == [None]
    assert put(queues, call(2)._replace(opts=opts))


def test_a_carry_that_was_cut_off_is_seen_through_by_whoever_lists_the_lane() -> None:  # K4
    steps: list[str] = []

    def stop(name: str) -> None:
        steps.append(name)
        if steps[-2:] == ["decide", "marks"]:  # the row is a stub, and nothing more
            raise Stopped

    cluster = Cluster()
    store = SteppedMemoryStore(HandClock(), cluster=cluster)
    dead = row_of(1)._replace(lane=row_of(1).lane._replace(queue="default" + DEAD_SUFFIX))
    assert store.add([dead]) == [True]
    token, listing = Ids().token(), bucket_of(NOW_US, WIDTH_US)
    back = Move(dead, NOW_US, token, listing, 0, 0, to=row_of(1).lane)
    with pytest.raises(Stopped):
        SteppedMemoryStore(HandClock(), cluster=cluster, step=stop).settle([back])
    assert rows_in(store, dead.lane) == []
    assert ids_of(rows_in(store, row_of(1).lane)) == [dead.id]


def test_an_extension_that_comes_late_takes_nothing_from_a_later_one(
    queues: Queues, clock: HandClock
) -> None:
    put(queues, call(1))
    (job,) = claim_all(queues)
    queues.engine.store.settle([Extend(job, job.at_us + 2 * LEASE_US)])
    assert list(queues.engine.store.settle([Extend(job, job.at_us + LEASE_US, started=True)])) == [
        True
    ]
    clock.advance(us=2 * LEASE_US + 1)
    assert claim_all(queues) == []
    clock.advance(us=LEASE_US)
    (again,) = claim_all(queues)
    assert again.crashes == 1


@pytest.mark.parametrize(("fence", "is_in_vain"), [(1, False), (3, True)])
def test_a_claim_reported_after_the_move_is_in_vain_if_its_fence_is_later(
    fence: int, *, is_in_vain: bool
) -> None:
    moving = {"proc": "old", "id": "j", "type": "ok", "attempt": 2}
    events = [
        Event(t=1, proc="caller", f="enqueue", id="j", type="ok", note="7"),
        Event(t=2, f="claim", **moving),  # type: ignore[arg-type]  # fields of several types
        Event(t=3, f="carry", **moving),  # type: ignore[arg-type]  # likewise
        Event(t=4, proc="other", f="claim", id="j", type="ok", attempt=fence),
    ]
    version = Version({})
    found = in_vain(events, {7: task_key("fresh", 0)}, {"old": version, "other": version})
    assert bool(found) == is_in_vain
