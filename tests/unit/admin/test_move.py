"""Moving a store to another one: each job is in one of them, whatever process dies (H16)."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count

import pytest

from dueline.admin.health import PROBES
from dueline.admin.move import Moved, Mover
from dueline.admin.move_plan import MOVES, REFUSED, WAITED, rehearse
from dueline.coordination import worker_registry, worker_requests
from dueline.core.attempt import Outcome
from dueline.core.call_options import CallOptions, OrderPlace
from dueline.core.clock import SECOND_US
from dueline.core.errors import Conflict, Duplicate, EnqueueUnknown, StoreMoved, StoreUnavailable
from dueline.core.features import FILLING, KNOWN, PARTITION, names_of
from dueline.core.job import Job
from dueline.core.pagination import records_in
from dueline.core.store import Group, Put, Write
from dueline.jobs import cancel_requests, orders, progress_records, results
from dueline.jobs.queue import EnqueueRequest
from dueline.limits import semaphore
from dueline.schedules import scheduler
from dueline.schedules.schedule import Timing, all_stored
from dueline.streams import groups
from dueline.tasks.progress import Progress
from dueline.workflows import records as flow_records
from dueline.workflows import workflow
from dueline.workflows.graph import lay_out
from tests.harness.dead_workers import LONG_US, SHORT_S, beat, claim
from tests.harness.dying_store import Died, Dying
from tests.harness.queues import queues_on
from tests.harness.schedules import EVERY_US, TEMPLATE
from tests.harness.two_stores import NAMES, PAIRS, Two, two
from tests.harness.unique_jobs import keyed
from tests.harness.workflow_stage import NESTED
from tests.harness.world import World


@pytest.fixture(params=PAIRS)
def stores(request: pytest.FixtureRequest) -> Iterator[Two]:
    """Two empty stores."""
    with two(request.param) as made:
        yield made


def test_waiting_scheduled_retrying_and_dead_jobs_move(stores: Two) -> None:
    old, new = stores.old, stores.new
    ready, later = old.put(priority=5, tenant="acme"), old.put(after_s=3600)
    failed, dead = old.put(queue="w"), old.put(queue="x")
    old.back(old.claim(failed), after_s=600, errors=2, error="no")
    old.die(dead)
    before = {job_id: old.row(job_id) for job_id in (ready, later, failed, dead)}
    moved = stores.mover().run()
    assert moved.jobs == 4
    assert stores.rows(old) == []
    for job_id, was in before.items():
        row = new.row(job_id)
        assert row.at_us >= was.at_us
        assert row.at_us == was.at_us or job_id == ready
        same = ("id", "due_us", "enqueued_us", "task", "codec", "body", "opts", "fence", "errors",
                "crashes", "alone", "state", "error")  # fmt: skip
        assert [getattr(row, name) for name in same] == [getattr(was, name) for name in same]
        assert row.lane._replace(shard=0, bucket=0) == was.lane._replace(shard=0, bucket=0)
    new.queues.retry(dead)
    stores.clock.advance(4000)
    stores.run_due(new)
    assert stores.ran == dict.fromkeys(before, 1)


def test_the_old_store_refuses_calls_and_names_the_new_one(stores: Two) -> None:
    job_id = stores.old.put(after_s=60)
    other = stores.old.other()
    stores.mover().run()
    stores.clock.advance(10)
    with pytest.raises(StoreMoved, match="moved to new") as caught:
        other.enqueue(keyed(1))
    assert caught.value.address == "new"
    with pytest.raises(StoreMoved):
        World.put(stores.old)
    assert stores.new.row(job_id)


def test_a_running_job_is_waited_for(stores: Two) -> None:
    old = stores.old
    running, waiting = old.put(), old.put(queue="w")
    job = old.claim(running)
    passes = 0

    def report(text: str, moved: Moved) -> None:
        nonlocal passes
        if text == "moving jobs":
            passes += 1
            if passes == 3:
                assert moved.waiting == 1
                assert stores.new.row(waiting)
                old.end(job, Outcome("done", old.now_us, value="7"))

    moved = stores.mover(report=report).run()
    assert passes > 3
    assert moved.jobs == 1
    assert results.read(stores.new.store, running) == results.read(old.store, running)
    assert results.read(stores.new.store, running) is not None


def test_an_expired_claim_moves_and_counts_as_a_crash(stores: Two) -> None:
    job_id = stores.old.put()
    stores.old.claim(job_id, start=True)
    stores.clock.advance(31)
    stores.mover().run()
    job = stores.new.claim(job_id)
    assert (job.fence, job.crashes, job.alone) == (2, 1, True)


def test_a_late_outcome_is_refused_once_its_job_was_taken(stores: Two) -> None:
    job = stores.old.claim(stores.old.put())
    stores.clock.advance(31)
    stores.mover().run()
    with pytest.raises(AssertionError):
        stores.old.end(job, Outcome("done", stores.old.now_us))
    assert stores.new.row(job.id)


def test_progress_and_requests_to_cancel_move(stores: Two) -> None:
    old = stores.old
    job = old.claim(old.put())
    report = Progress(1, 2, "half", old.now_us)
    group = progress_records.written(
        job.id, report, fence=1, now_us=old.now_us, expect=b"", version=b"1" * 16
    )
    old.store.together([group])
    assert not old.queues.cancel(job.id)
    old.back(job, after_s=600)
    stores.mover().run()
    assert progress_records.read(stores.new.store, job.id) == report
    assert cancel_requests.asked(stores.new.store, [job.id]).keys() == {job.id}


def test_unique_keys_hold_across_the_move(stores: Two) -> None:
    old, new = stores.old, stores.new
    (waits,) = old.queues.enqueue(keyed(1, key="a", due_us=old.now_us + 60 * SECOND_US))
    (runs,) = old.queues.enqueue(keyed(2, key="b"))
    (kept,) = old.queues.enqueue(keyed(3, key="c", within_us=3600 * SECOND_US))
    for row in (runs, kept):
        old.claim(row.id)
    old.end(old.row(kept.id), Outcome("done", old.now_us))
    held = 0

    def report(text: str, _: Moved) -> None:
        nonlocal held
        if "is open" in text:
            stores.clock.advance(6)
            for key in "abc":
                with pytest.raises(Duplicate):
                    new.other().enqueue(keyed(9, key=key))
            held += 1
        elif text == "moving jobs" and held == 1:
            old.end(old.row(runs.id), Outcome("done", old.now_us))
            held += 1

    stores.mover(report=report).run()
    assert held == 2
    new.queues.enqueue(keyed(4, key="b"))
    for key in "ac":
        with pytest.raises(Duplicate):
            new.queues.enqueue(keyed(9, key=key))
    stores.clock.advance(61)
    stores.run_due(new)
    new.queues.enqueue(keyed(5, key="a"))
    with pytest.raises(Duplicate):
        new.queues.enqueue(keyed(9, key="c"))
    assert stores.ran[waits.id] == 1


def test_settings_limits_and_schedules_move(stores: Two) -> None:
    old, new = stores.old, stores.new
    old.queues.engine.catalog.configure("q", keep_us=77, is_paused=True, aging_us=SECOND_US)
    semaphore.define(old.store, "api", 3, ids=old.queues.engine.ids)
    scheduler.put(old.queues, "s", TEMPLATE, Timing(every_us=EVERY_US))
    stored = {row.id for row in stores.rows(old)}
    assert stored
    stores.mover().run()
    settings = new.other().engine.catalog.settings("q")
    assert (settings.keep_us, settings.is_paused, settings.aging_us) == (77, True, SECOND_US)
    assert semaphore.capacities(new.store) == {"api": 3}
    (schedule,) = all_stored(new.store)
    assert schedule.name == "s"
    assert {row.id for row in stores.rows(new)} == stored
    scheduler.advance_all(new.other())
    assert len(stores.rows(new)) >= len(stored)
    assert all_stored(old.store) == []


def test_older_versions_refuse_the_new_store_as_they_refused_the_old_one(
    stores: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    # rules V1 and V2: an older version would ignore the end and the headers
    monkeypatch.setattr("dueline.core.features.KNOWN", KNOWN | {"telepathy"})
    old, new = stores.old, stores.new
    template = TEMPLATE.changed(headers=(("by", "ann"),))
    scheduler.put(old.queues, "s", template, Timing(every_us=EVERY_US, times=5))
    old.queues.engine.catalog.adopt("telepathy")
    stores.mover().run()
    assert "telepathy" in names_of(new.store)
    (schedule,) = all_stored(new.store)
    assert schedule.schedule.template == template


def test_a_workflow_moves_once_no_step_of_it_runs(stores: Two) -> None:
    old, new = stores.old, stores.new
    start = workflow.begin(old.queues.engine, lay_out(NESTED, "f"), old.queues.admission.admit)
    workflow.send(old.queues.engine, start)
    first = old.claim(start.jobs[0].id)
    passes = 0

    def report(text: str, _: Moved) -> None:
        nonlocal passes
        if text != "moving jobs":
            return
        passes += 1
        if passes == 2:
            assert stores.rows(new) == []
            old.end(first, Outcome("done", old.now_us, value="1"))

    stores.mover(report=report).run()
    assert passes > 2
    assert len(stores.rows(new)) == len(start.jobs) - 1
    layout = flow_records.read(new.store, start.flow)
    assert layout == start.layout
    ends = flow_records.ends(new.store, start.flow, layout.blocks(), with_values=True)
    assert list(ends) == [0]
    assert [flow for flow, _ in flow_records.listed(new.store)] == [start.flow]


def test_streams_are_refused_by_name_and_nothing_changes(stores: Two) -> None:
    stores.old.put()
    groups.register(stores.old.store, "orders", "mail", from_us=0, version=b"1" * 16)
    plan = rehearse(stores.old.other().engine, stores.new.other().engine, is_begun=False)
    verdicts = {line.what: (line.many, line.verdict) for line in plan.lines}
    assert verdicts["ready jobs"] == (1, MOVES)
    assert verdicts["streams and groups"] == (1, REFUSED)
    with pytest.raises(Conflict, match="orders"):
        stores.mover().run()
    assert stores.old.other().enqueue(keyed(1))
    assert stores.mover().run(leave_streams=True).jobs == 2


def test_a_rehearsal_counts_running_jobs_and_refuses_a_store_that_is_in_use(stores: Two) -> None:
    stores.old.claim(stores.old.put())
    stores.new.put()
    plan = rehearse(stores.old.other().engine, stores.new.other().engine, is_begun=False)
    assert ("running jobs", 1, WAITED) in {line[:3] for line in plan.lines}
    assert [line.what for line in plan.refusals()] == ["lanes with jobs"]


def test_records_of_processes_in_the_new_store_refuse_no_move(stores: Two) -> None:
    # Whether its worker lives, was killed or answered an operator; a probe that was cut short.
    job_id = stores.old.put()
    beat(stores.new)
    for place in (worker_registry.REGISTRATIONS, worker_requests.ANSWERS, PROBES, "leases/daily"):
        stores.new.store.commit(place, (Put("key", b"1" * 16, b"{}"),))
    stores.mover().run()
    assert stores.new.row(job_id)


def test_a_new_store_with_declarations_is_refused_by_their_names(stores: Two) -> None:
    stores.old.put()
    scheduler.put(stores.new.queues, "s", TEMPLATE, Timing(every_us=EVERY_US))
    semaphore.define(stores.new.store, "api", 3, ids=stores.new.queues.engine.ids)
    with pytest.raises(Conflict, match="1 limits: the new store holds them; stop its workers"):
        stores.mover().run()
    assert stores.old.other().enqueue(keyed(1))


def test_claims_of_workers_that_died_are_not_waited_for_until_their_leases_end(
    stores: Two,
) -> None:
    old = stores.old
    old.queues.engine.catalog.configure("q", lease_us=LONG_US)
    job_id = old.put()
    beat(old, queues=("q", "other"))
    claim(old, lease_us=LONG_US)
    stores.clock.advance(SHORT_S)
    (entry,) = worker_registry.registrations(old.store)
    elsewhere = replace(entry.registration, born=f"{entry.registration.born}1")
    worker_registry.register(old.store, elsewhere, version=b"1" * 16)
    before_us = stores.clock.wall_us()
    stores.mover().run()
    assert stores.clock.wall_us() - before_us < LONG_US // 10
    assert stores.new.claim(job_id).fence == 2


def test_a_move_names_what_it_waits_for(stores: Two) -> None:
    old = stores.old
    job = old.claim(old.put())
    said = []

    def report(text: str, moved: Moved) -> None:
        if text == "moving jobs" and moved.waiting:
            said.append(moved.waits_for)
            old.end(job, Outcome("done", old.now_us))

    stores.mover(report=report).run()
    assert f"job {job.id.hex()} of " in said[0]
    assert "on worker w1, whose claim ends in " in said[0]


def test_the_keys_of_a_portion_are_taken_in_one_call(stores: Two) -> None:
    # Each call is a flush to the disk: one after another, they took most of a move.
    old = stores.old
    for number in range(40):
        old.queues.enqueue(keyed(number + 1, key=f"k{number}", due_us=old.now_us + 60 * SECOND_US))
    calls = count(1)
    queues = queues_on(Dying(stores.new.store, calls, dies_at=0), stores.clock)
    mover = Mover(old.other(), queues, NAMES, clock=stores.clock, report=lambda *_: None)
    mover.run()
    assert len(stores.rows(stores.new)) == 40
    assert next(calls) < 2 * 60


def test_nobody_uses_the_new_store_until_it_is_filled(stores: Two) -> None:
    stores.old.put()
    version = stores.new.queues.engine.ids.token()
    stores.new.store.commit(PARTITION, (Put(FILLING + "old", version, b"{}"),))
    with pytest.raises(StoreUnavailable, match="filled from old"):
        stores.new.put()


class Suspended(Dying):
    """A process that is suspended before it adds jobs, while the store moves."""

    stores: Two

    def add(self, jobs: Sequence[Job]) -> Sequence[bool]:
        """Move the store first."""
        self.stores.mover().run()
        self.stores.clock.advance(60)
        return list(self._store.add(jobs))


def test_a_call_that_comes_after_the_move_is_withdrawn(stores: Two) -> None:
    # Rule X1: it read the settings before, and stored its job long after.
    store = Suspended(stores.old.store, count(1), dies_at=0)
    store.stores = stores
    late = queues_on(store, stores.clock)
    with pytest.raises(EnqueueUnknown) as caught:
        late.enqueue(keyed(1)._replace(opts=b""))
    (job,) = caught.value.jobs
    assert stores.rows(stores.old) == []
    stores.new.other().enqueue_again(caught.value.jobs)
    assert stores.new.row(job.id)


def test_a_store_moves_back(stores: Two) -> None:
    first = stores.old.put(after_s=5000)
    stores.mover().run()
    second = stores.new.other().enqueue(keyed(2))[0].id
    stores.mover(back=True).run()
    assert {row.id for row in stores.rows(stores.old)} == {first, second}
    stores.clock.advance(6)
    with pytest.raises(StoreMoved, match="moved to old"):
        stores.new.other().enqueue(keyed(3))
    assert stores.old.other().enqueue(keyed(3, key="z"))
    stores.mover().run()
    assert len(stores.rows(stores.new)) == 3
    stores.clock.advance(6000)
    stores.run_due(stores.new)
    assert (stores.ran[first], stores.ran[second]) == (1, 1)


def test_a_second_move_to_elsewhere_is_refused(stores: Two) -> None:
    stores.old.put()
    stores.mover().run()
    other = Mover(
        stores.old.other(), stores.new.other(), ("old", "third"), clock=stores.clock,
        report=lambda *_: None,
    )  # fmt: skip
    with pytest.raises(Conflict, match="moved to new"):
        other.run()


class HeldBack(Dying):
    """The new store of a mover that is suspended before it inserts a portion."""

    stores: Two
    was_held = False

    def together(self, groups: Sequence[Group]) -> Sequence[bool]:
        """Insert a portion, on stores with transactions."""
        commits = [commit for group in groups for commit in group.commits]
        if any(commit.partition == "moves" for commit in commits):
            self._wait()
        return list(self._store.together(groups))

    def commit(self, partition: str, writes: Sequence[Write]) -> bool:
        """Insert a portion, on other stores."""
        if partition == "moves" and writes[0].key != "state":
            self._wait()
        return bool(self._store.commit(partition, writes))

    def _wait(self) -> None:
        """Let another mover continue, and the workers of the new store."""
        if not self.was_held:
            self.was_held = True
            self.stores.mover().run()
            self.stores.run_due(self.stores.new)


def test_a_suspended_mover_inserts_nothing_once_another_has_taken_over(stores: Two) -> None:
    # Rule X5.
    jobs = [stores.old.put() for _ in range(3)]
    held = HeldBack(stores.new.store, count(1), dies_at=0)
    held.stores = stores
    mover = Mover(
        stores.old.other(), queues_on(held, stores.clock), NAMES, clock=stores.clock,
        report=lambda *_: None,
    )  # fmt: skip
    with pytest.raises(Conflict, match="taken over"):
        mover.run()
    assert held.was_held
    stores.run_due(stores.new)
    assert stores.rows(stores.old) == stores.rows(stores.new) == []
    assert stores.ran == dict.fromkeys(jobs, 1)


FATAL = [*range(1, 60, 1), *range(60, 300, 3)]


@pytest.mark.long
@pytest.mark.parametrize("kinds", PAIRS[1:])
def test_a_mover_dies_at_any_call_and_the_next_one_continues(kinds: tuple[str, str]) -> None:
    finished = 0
    for fatal in FATAL:
        with two(kinds) as stores:
            finished += dies_at(stores, fatal)
        if finished > 3:
            return
    assert finished, "no run came to its end: raise FATAL"


def dies_at(stores: Two, fatal: int) -> bool:
    """Move two portions, die at a call, run what is due in the new store, move on."""
    old = stores.old
    jobs = [old.put(tenant=f"t{number % 2}") for number in range(4)]
    jobs += [old.queues.enqueue(keyed(1, key="k"))[0].id, old.put(after_s=50)]
    opts = CallOptions(order=OrderPlace("a")).to_bytes()
    in_order = EnqueueRequest("q", "t", 0, [b"[1]"] * 2, opts=opts)
    jobs += [row.id for row in old.queues.enqueue(in_order)]
    running = old.claim(old.put(queue="r"))
    ended = False

    def report(_text: str, moved: Moved) -> None:
        nonlocal ended
        if moved.waiting and not ended:
            ended = True
            stores.ran[running.id] += 1
            old.end(running, Outcome("done", old.now_us))

    has_died = True
    with suppress(Died):
        stores.mover(fatal, report).run()
        has_died = False
    with suppress(Died):
        stores.mover(fatal + 40, report).run() if has_died else None
    if has_died:
        stores.clock.advance(6)
        with suppress(StoreUnavailable):  # it may still be closed
            stores.new.other().engine.catalog.settings("q")
            stores.run_due(stores.new)
        stores.mover(report=report).run()
    stores.clock.advance(60)
    stores.run_due(stores.new)
    assert stores.rows(old) == []
    assert stores.rows(stores.new) == []
    assert stores.ran == dict.fromkeys([*jobs, running.id], 1), fatal
    places = records_in(stores.new.store, orders.partition_of("q", "a"))
    assert not any(orders.is_elsewhere(Put(*place)) for place in places), fatal
    said = stores.mover().audit()
    assert not said.has_failed, (fatal, said.findings)
    assert said.jobs.total() == len(jobs) + 1
    return not has_died
