"""Chunks of handlers: none is lost or doubled, and all are stored before the outcome (C26)."""

import threading
from collections.abc import Collection
from contextlib import suppress

import pytest

from dueline import BadInput, Context, Dueline, DurableContext, JobFailed, Retry
from dueline.api.chunks import POLL_IDLE_S, POLL_S, ChunkReader
from dueline.core.clock import SECOND_US
from dueline.core.errors import StoreUnavailable, Unknown
from dueline.core.job import Claim, JobId
from dueline.jobs import chunk_records
from dueline.jobs.queue import Found, Queues
from dueline.tasks import chunks
from dueline.tasks.chunks import Emitted
from dueline.worker.chunk_inbox import ChunkInbox
from dueline.worker.chunk_writer import ChunkWriter
from tests.harness.clocks import HandClock
from tests.harness.failing_store import FailingStore, Fault
from tests.harness.queues import queues_on
from tests.harness.world import World

JOB = JobId(bytes(16))
EACH: tuple[Fault, ...] = tuple(Fault)


class Quiet(ChunkInbox):
    """An inbox whose writer has no thread: the test writes."""

    def emit(self, emitted: Emitted) -> None:
        self._chunks.append(emitted)


def emitted(number: int, *, job: JobId = JOB, fence: int = 1) -> Emitted:
    return Emitted(Claim(job, fence), fence, number, str(number))


def numbers(queues: Queues, job: JobId = JOB) -> list[tuple[int, int]]:
    """Read all chunks, each page by a reader that goes on where the last one stopped."""
    places: list[tuple[int, int]] = []
    place = None
    while chunks := chunk_records.read(queues.engine.store, job, place):
        places += [chunk.place for chunk in chunks]
        place = chunks[-1].place
    return places


@pytest.mark.parametrize("fault", EACH)
def test_a_write_without_an_answer_is_repeated_as_it_was(world: World, fault: Fault) -> None:
    for call in range(1, 6):
        queues = queues_on(FailingStore(world.store, {call: fault}), world.clock)
        job, inbox = JobId(bytes([call] * 16)), Quiet()
        writer = ChunkWriter(queues.engine, inbox)
        for number in range(1, 7):
            inbox.emit(emitted(number, job=job))
            with suppress(Unknown):
                if number % 2:
                    writer.write()
        for _ in EACH:
            with suppress(Unknown):
                writer.write()
        assert numbers(world.queues, job) == [(1, number) for number in range(1, 7)]


def test_a_reader_goes_on_after_any_chunk(queues: Queues) -> None:
    """Read on after each chunk, also where others of its record follow."""
    # rule T2
    writer = ChunkWriter(queues.engine, inbox := Quiet())
    for number in range(1, 10):
        inbox.emit(emitted(number))
        if number % 3 == 0:
            writer.write()
    every = numbers(queues)
    assert every == [(1, number) for number in range(1, 10)]
    for count in range(1, 10):
        place = chunk_records.ChunkPlace(1, count)
        rest = chunk_records.read(queues.engine.store, JOB, place)
        assert [chunk.place for chunk in rest] == every[count:]


def test_a_later_claim_removes_what_earlier_ones_emitted(queues: Queues) -> None:
    inbox = Quiet()
    old, new = ChunkWriter(queues.engine, inbox), ChunkWriter(queues.engine, other := Quiet())
    for number in range(1, 4):
        inbox.emit(emitted(number))
    old.write()
    assert numbers(queues) == [(1, 1), (1, 2), (1, 3)]
    other.emit(emitted(1, fence=2))
    new.write()
    assert numbers(queues) == [(2, 1)]
    inbox.emit(emitted(4))
    old.write()  # a stale worker, whose claim was lost
    assert numbers(queues) == [(2, 1)], "a reader is given the last claim only"
    assert [chunk.place for chunk in chunk_records.read(queues.engine.store, JOB,
            chunk_records.ChunkPlace(1, 3))] == [(2, 1)]  # fmt: skip


def test_chunks_of_lost_claims_are_dropped(queues: Queues) -> None:
    writer = ChunkWriter(queues.engine, inbox := Quiet())
    inbox.emit(emitted(1))
    writer.forget([Claim(JOB, 1)])
    assert not writer.has_unwritten()
    writer.write()
    assert numbers(queues) == []


def test_many_chunks_share_a_record(queues: Queues, clock: HandClock) -> None:
    writer = ChunkWriter(queues.engine, inbox := Quiet())
    for number in range(1, 1001):
        inbox.emit(emitted(number))
    writer.write()
    assert len(queues.engine.store.read(f"chunks/{JOB.hex()}", after=None, limit=10)) == 1
    assert numbers(queues) == [(1, number) for number in range(1, 1001)]
    clock.advance(us=chunk_records.KEEP_US + SECOND_US)
    assert numbers(queues) == []


def test_what_cannot_be_emitted_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNKS_MAX", 3)
    monkeypatch.setattr(chunks, "BYTES_MAX", 100)
    app = Dueline("memory://")
    errors: list[str] = []

    @app.task(name="answer")
    def answer(ctx: Context) -> None:
        for chunk in (object(), float("nan"), "x" * chunks.CHUNK_BYTES_MAX, "x" * 100):
            with pytest.raises(BadInput) as caught:
                ctx.emit(chunk)
            errors.append(caught.value.message)
        for number in range(3):
            ctx.emit(number)
        with pytest.raises(BadInput, match="has emitted 3 chunks"):
            ctx.emit(3)
        with app.transaction() as tx, pytest.raises(BadInput, match="emits chunks"):
            ctx.finish(tx, None)

    @app.durable(name="lasting", retry=Retry(attempts=1))
    def lasting(ctx: DurableContext) -> None:
        ctx.emit(1)

    job, other = answer.enqueue(), lasting.enqueue()
    app.run_worker(concurrency=1, burst=True)
    assert job.status == "done"
    assert len(errors) == 4
    assert [chunk.value for chunk in job.chunks()] == [0, 1, 2]
    with pytest.raises(JobFailed, match="cannot emit"):
        other.result(timeout=0)


def test_an_idle_reader_polls_less_often_until_a_chunk_arrives() -> None:
    app = Dueline("memory://")

    @app.task(name="answer")
    def answer(ctx: Context) -> None:
        ctx.emit("so far")

    job = answer.enqueue()
    reader = ChunkReader(app.queues, app.clock, JobId(bytes.fromhex(job.id)), None)
    pauses = []
    for _ in range(12):
        assert reader.poll() == []
        pauses.append(reader.pause_s)
    assert pauses == [POLL_S] * 9 + [POLL_IDLE_S] * 3
    app.run_worker(concurrency=1, burst=True)
    assert [chunk.value for chunk in reader.poll()] == ["so far"]
    assert reader.pause_s == POLL_S
    app.close()


def test_a_plain_call_drops_its_chunks() -> None:
    app = Dueline("memory://")

    @app.task(name="answer")
    def answer(ctx: Context) -> int:
        ctx.emit("so far")
        return 7

    assert answer() == 7


def test_a_reader_that_sees_the_end_reads_once_more() -> None:
    """A chunk that arrives after a read that found nothing is read before the reader stops."""
    # rule T1
    app = Dueline("memory://")

    @app.task(name="answer")
    def answer() -> None: ...

    job = answer.enqueue()
    app.run_worker(concurrency=1, burst=True)
    find = Queues.find

    def find_later(queues: Queues, job_id: JobId) -> Found:
        writer = ChunkWriter(queues.engine, inbox := Quiet())
        inbox.emit(emitted(1, job=job_id))
        writer.write()
        return find(queues, job_id)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Queues, "find", find_later)
        assert [chunk.value for chunk in job.chunks()] == [1]


def test_chunks_are_stored_before_the_outcome() -> None:
    """An outcome is not stored while chunks of its attempt cannot be."""
    app = Dueline("memory://")
    refused: list[str] = []
    write = ChunkWriter.write

    @app.task(name="answer")
    def answer(ctx: Context) -> None:
        ctx.emit("last word")

    job = answer.enqueue()

    def refuse_first(writer: ChunkWriter, *, ended: Collection[Claim] = ()) -> None:
        if not writer.has_unwritten() or threading.current_thread().name == "dueline-chunks":
            return
        if len(refused) < 3:
            refused.append(job.status)
            raise StoreUnavailable("The store is away.")
        write(writer, ended=ended)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ChunkWriter, "write", refuse_first)
        app.run_worker(concurrency=1, burst=True)
    assert refused == ["running"] * 3
    assert [chunk.value for chunk in job.chunks()] == ["last word"]
