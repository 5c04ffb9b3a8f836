"""Laws of random operations, compared with the memory store."""

from collections.abc import Callable, Collection, Sequence
from itertools import count
from typing import TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dueline.core.clock import SECOND_US, SystemClock
from dueline.core.job import Job, JobId, State
from dueline.core.lane import Lane, Marks, bucket_of
from dueline.core.store import (
    NO_VERSION,
    Claimed,
    Commit,
    Delete,
    Drop,
    Extend,
    Group,
    Lease,
    Move,
    Put,
    Row,
    Store,
    Verdict,
    Want,
    Write,
)
from dueline.store_tests.calls import (
    NOW_US,
    QUEUE,
    WIDTH_US,
    id_of,
    lane_of,
    new_job,
    pointers_in,
    records_in,
    rows_in,
    stream_of,
    token_of,
)
from dueline.store_tests.factory import StoreFactory
from dueline.store_tests.lane_list import GUARD_US, Reader, marks_of
from dueline.stores.memory.store import MemoryStore
from tests.harness.store_strategies import (
    PLACES,
    SLOTS_US,
    START_US,
    Change,
    Decision,
    Edit,
    Insert,
    changes,
    decisions,
    edits,
    inserts,
    pick,
    small,
)

Answer = TypeVar("Answer")

STEPS = 40
EXAMPLES_PER_RUN = 6
"""Number of examples of the Hypothesis profile that count as one run: a run is slow."""
SHARDS = (0, 1)
DEAD = lane_of(queue=f"{QUEUE}!dead")
PARTITIONS = ("p", "q")


def plain(job: Job | None) -> Job | None:
    """Return a job without what stores may choose: the position of a moved row, its worker."""
    if job is None:
        return None
    worker = job.worker if job.state == State.CLAIMED else ""
    return job._replace(pos_us=0, hop=0, worker=worker)


class StoreComparison(RuleBasedStateMachine):
    """Makes the same calls on a store and on the model, and compares everything."""

    def __init__(self, factory: StoreFactory) -> None:
        super().__init__()
        self.factory = factory
        self.url = factory.fresh()
        self.store: Store = factory.open(self.url)
        self.model = MemoryStore(SystemClock())
        self.now_us = NOW_US + START_US
        self.numbers = count(1)
        self.inserts: list[Job] = []
        self.read: list[Job] = []
        self.held: Sequence[Job] = ()
        self.lanes: dict[Lane, None] = {DEAD: None}
        # Lanes in which an insert was repeated whose job had been moved to another lane, or back: a
        # cursor may take it for a row until a claim comes to it, so the lane is claimed from early.
        self.repeated: set[Lane] = set()
        self.rows: dict[Lane, list[Job]] = {DEAD: []}
        self.marks = dict.fromkeys(SHARDS, Marks(-1, -1))
        self.readers = [Reader(self.store, QUEUE, shard) for shard in SHARDS]

    def teardown(self) -> None:
        """Close the store."""
        self.store.close()

    def both(self, call: Callable[[Store], Answer]) -> Answer:
        """Make a call on the store and on the model; compare the results."""
        answer = call(self.store)
        assert answer == call(self.model)
        return answer

    # Rules: jobs.

    @rule(drawn=st.lists(inserts, min_size=1, max_size=8), again=st.lists(small, max_size=2))
    def add(self, drawn: Sequence[Insert], again: Sequence[int]) -> None:
        jobs = [*self.living(again), *(self.insert(insert) for insert in drawn)]
        self.both(lambda store: list(store.add(jobs)))

    @rule(
        which=st.lists(st.tuples(small, st.integers(1, 4)), min_size=1, max_size=3),
        limit=st.integers(1, 6),
        lease_s=st.sampled_from((1, 15, 100)),
        worker=st.sampled_from(("one", "two")),
    )
    def claim(
        self, which: Sequence[tuple[int, int]], limit: int, lease_s: int, worker: str
    ) -> None:
        # Lanes with due jobs are last, so that `pick` prefers them.
        lanes = sorted(self.rows, key=self.due_in)
        chosen = {pick(lanes, number): most for number, most in which}
        wants = [Want(lane, most) for lane, most in chosen.items()]
        token = token_of(next(self.numbers))
        claimed, expected = (
            store.claim(
                wants, limit=limit, lease=Lease(self.now_us, lease_s * SECOND_US, worker, token)
            )
            for store in (self.store, self.model)
        )
        self.compare_claims(claimed, expected, set(chosen), limit)
        self.read.extend(claimed.jobs)  # the store's, with the keys that it gave them
        self.held = claimed.jobs or self.held

    def due_in(self, lane: Lane) -> bool:
        """Return whether a lane has a due job."""
        return bool(self.rows[lane]) and self.rows[lane][0].at_us <= self.now_us

    def compare_claims(
        self, claimed: Claimed, expected: Claimed, lanes: set[Lane], limit: int
    ) -> None:
        """Compare the results of a claim; a lane is skipped only at the limit."""
        assert [*map(plain, claimed.jobs)] == [*map(plain, expected.jobs)]
        assert [job.worker for job in claimed.jobs] == [job.worker for job in expected.jobs]
        assert {job_id: plain(job) for job_id, job in claimed.died.items()} == {
            job_id: plain(job) for job_id, job in expected.died.items()
        }
        expected_next = {lane: expected.next_at_us.get(lane) for lane in claimed.next_at_us}
        for lane in set(claimed.next_at_us) - set(expected.next_at_us):
            rows = self.rows[lane]  # skipped by the model, so it has not changed
            expected_next[lane] = rows[0].at_us if rows else None
        for lane, at_us in claimed.next_at_us.items():
            first_us = expected_next[lane]
            if at_us != first_us:
                is_unsure = lane in self.repeated and not self.store.transactional
                is_inexact = self.store.scope == "network" or is_unsure
                assert is_inexact, f"{at_us} instead of {first_us} in {lane}"
                assert at_us is not None
                assert self.now_us < at_us or is_unsure
                assert first_us is None or at_us < first_us
        assert set(claimed.next_at_us) == lanes or len(claimed.jobs) == limit

    @precondition(lambda self: self.read)
    @rule(drawn=st.lists(decisions, min_size=1, max_size=4))
    def settle(self, drawn: Sequence[Decision]) -> None:
        verdicts = self.verdicts(drawn)
        self.both(lambda store: list(store.settle(verdicts)))

    @rule(
        ahead_us=st.sampled_from((1, 5 * SECOND_US, 15 * SECOND_US, 40 * SECOND_US)),
        sweeps=st.integers(0, 2),
        is_forgetful=st.booleans(),
        is_reopened=st.sampled_from((False, False, False, True)),
    )
    def advance(self, ahead_us: int, sweeps: int, *, is_forgetful: bool, is_reopened: bool) -> None:
        self.now_us += ahead_us
        for reader in self.readers if is_forgetful else ():
            reader.forget()
        for _ in range(sweeps):
            for shard in SHARDS:
                self.sweep(shard)
        if is_reopened:
            self.store.close()
            self.store = self.factory.open(self.url)
            for reader in self.readers:
                reader.store = self.store

    def sweep(self, shard: int) -> None:
        """Sweep both; the marks may differ by the store's guard and its list."""
        for store in (self.store, self.model):
            store.sweep(QUEUE, shard, now_us=self.now_us, width_us=WIDTH_US)
        marks = marks_of(self.store, QUEUE, shard)
        closable = bucket_of(self.now_us, WIDTH_US) - 1
        assert marks.closed <= max(self.marks[shard].closed, closable)
        assert marks.closed >= bucket_of(self.now_us - GUARD_US, WIDTH_US) - 1

    # Rules: records, streams, groups.

    @rule(
        edits=st.lists(edits, max_size=3, unique_by=lambda edit: edit.key),
        numbers=st.lists(small, max_size=4),
    )
    def write(self, edits: Sequence[Edit], numbers: Sequence[int]) -> None:
        writes = [self.edited(edit) for edit in edits]
        partition = PARTITIONS[edits[0].partition if edits else 0]
        self.both(lambda store: store.commit(partition, writes))
        rows = [self.row(number) for number in numbers]
        self.both(lambda store: list(store.append(rows)))

    @rule(changes=st.lists(changes, min_size=1, max_size=3))
    def together(self, changes: Sequence[Change]) -> None:
        decided: set[JobId] = set()
        groups = []
        for drawn in changes:
            change = drawn if self.store.transactional else drawn.with_one_condition()
            verdicts = self.verdicts(change.decisions if self.read else (), decided)
            decided.update(verdict.job.id for verdict in verdicts)
            again = [job for job in self.living(change.again) if job.id not in decided]
            groups.append(
                Group(
                    verdicts=verdicts,
                    commits=[
                        Commit(PARTITIONS[edit.partition], [self.edited(edit)])
                        for edit in change.edits
                    ],
                    jobs=[*again, *(self.insert(insert) for insert in change.inserts)],
                    rows=[self.row(number) for number in change.rows],
                )
            )
        self.both(lambda store: list(store.together(groups)))

    # Compared after every step.

    @invariant()
    def everything_is_as_in_the_model(self) -> None:
        self.rows = {lane: rows_in(self.store, lane, page_size=3) for lane in self.lanes}
        for lane, rows in self.rows.items():
            assert [*map(plain, rows)] == [*map(plain, rows_in(self.model, lane))]
        ids = [job.id for job in self.inserts]
        stored, expected = (store.find(ids) for store in (self.store, self.model))
        assert [*map(plain, stored)] == [*map(plain, expected)]
        for shard in SHARDS:
            self.compare_listing(shard)
        for partition in PARTITIONS:
            records = records_in(self.store, partition, page_size=2)
            assert records == records_in(self.model, partition)
        assert stream_of(self.store, page_size=4) == stream_of(self.model)

    def compare_listing(self, shard: int) -> None:
        """Check that each job is listed in time, and that a reader finds it."""
        before, marks = self.marks[shard], marks_of(self.store, QUEUE, shard)
        self.marks[shard] = marks
        assert before.swept <= marks.swept <= marks.closed >= before.closed
        pointers = pointers_in(self.store, QUEUE, shard, page_size=5)
        assert pointers == sorted(set(pointers))
        assert all(pointer.listing > marks.swept for pointer in pointers)
        first = {pointer.lane: pointer.listing for pointer in reversed(pointers)}
        known = self.readers[shard].poll(self.now_us)
        for lane, rows in self.rows.items():
            if rows and (lane.queue, lane.shard) == (QUEUE, shard):
                due = max(bucket_of(rows[0].at_us, WIDTH_US), marks.closed + 1)
                assert first.get(lane, due + 1) <= due, "a job is not listed by its time"
                assert lane in known or rows[0].at_us > self.now_us, "a reader misses a job"

    # From drawn values to arguments.

    def insert(self, insert: Insert) -> Job:
        """Return a new job; its number is its index in `inserts`."""
        shard, priority, tenant = PLACES[insert.place]
        at_us = NOW_US + SLOTS_US[insert.slot]
        lane = lane_of(at_us, shard=shard, priority=priority, tenant=tenant)
        # Every second id is below those before it, so that ids and times disagree.
        number = len(self.inserts) if len(self.inserts) % 2 else 2**127 - len(self.inserts)
        job = new_job(number, at_us=at_us, lane=lane, body=b"x" * insert.body_bytes)
        self.inserts.append(job)
        self.read.append(job)
        self.lanes[lane] = None
        return job

    def living(self, which: Sequence[int]) -> list[Job]:
        """Return some inserted jobs that have a row, each once, to repeat their inserts."""
        chosen = sorted({pick(self.inserts, number) for number in which if self.inserts})
        rows = self.store.find([job.id for job in chosen])
        present = [(job, row) for job, row in zip(chosen, rows, strict=True) if row]
        self.repeated |= {job.lane for job, row in present if (row.lane, row.hop) != (job.lane, 0)}
        return [job for job, _ in present]

    def is_dropped_blindly(self, job: Job) -> bool:
        """Return whether the only change of a row is a delete without a condition (rule P5)."""
        return bool(job.outcome) and not self.store.transactional

    def verdicts(self, drawn: Sequence[Decision], decided: Collection[JobId] = ()) -> list[Verdict]:
        """Return outcomes, at most one for each job.

        Args: decided: Jobs with an outcome in the same call. What is deleted without a condition is
        deleted once: how often does not show in the answer.
        """
        made: dict[JobId, Verdict] = {}
        for decision in drawn:
            present = [row for rows in self.rows.values() for row in rows]
            pool = {"claim": self.held, "present": present, "past": self.read}[decision.source]
            job = pick(pool or self.read, decision.which)
            has_row = job.id not in decided and self.model.find([job.id])[0] is not None
            if has_row or not self.is_dropped_blindly(job):
                made.setdefault(job.id, self.verdict(job, decision))
        return list(made.values())

    def verdict(self, job: Job, decision: Decision) -> Verdict:
        """Return one outcome; only claims are extended."""
        if decision.kind == "drop" or self.is_dropped_blindly(job):
            return Drop(job)
        at_us = self.now_us + decision.ahead_s * SECOND_US
        if decision.kind == "extend" and job.is_claimed():
            return Extend(job, at_us, started=decision.is_started)
        lanes = list(self.lanes)
        to = None if decision.to is None else pick(lanes, decision.to)
        to = None if to == job.lane else to
        is_decided = decision.is_started and to is None  # one with an outcome stays in its place
        at_us = max(at_us, job.at_us) if is_decided else at_us
        return Move(
            job,
            at_us,
            token_of(next(self.numbers)),
            listing=bucket_of(at_us, WIDTH_US),
            errors=job.errors + 1,
            crashes=job.crashes,
            alone=decision.is_started,
            state=State.STARTED if decision.is_started else State.WAITING,
            outcome=b"done" if is_decided else b"",
            error="" if decision.is_started else "Fehler: ä",
            to=to,
        )

    def edited(self, edit: Edit) -> Write:
        """Return a write with the drawn expectation."""
        present = {
            record.key: record.version
            for record in records_in(self.model, PARTITIONS[edit.partition])
        }
        expect = {
            "anything": None,
            "nothing": NO_VERSION,
            "present": present.get(edit.key, NO_VERSION),
            "old": bytes(token_of(1)),
        }[edit.expect]
        if not edit.is_put:
            return Delete(edit.key, expect)
        number = next(self.numbers)
        return Put(edit.key, token_of(number), b"%d" % number, expect, edit.expires_us)

    def row(self, number: int) -> Row:
        """Return a row of the stream, from few numbers, so that rows are repeated."""
        # Stores without transactions do not compare: a repeat must be the same.
        held = number if self.store.transactional else number % 6
        return Row("log", 0, NOW_US + number % 2, id_of(number % 3), b"row %d" % held)


class ModelLaws:
    """The store behaves as the memory store does.

    Attributes:
      runs: Number of random runs; None for the Hypothesis profile's.
    """

    runs: int | None = None

    def test_any_life_is_the_models(self, factory: StoreFactory) -> None:
        run_state_machine_as_test(
            lambda: StoreComparison(factory),  # type: ignore[arg-type]  # it accepts a factory
            settings=settings(
                max_examples=self.runs or max(1, settings().max_examples // EXAMPLES_PER_RUN),
                stateful_step_count=STEPS,
                deadline=None,
                suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
            ),
        )
