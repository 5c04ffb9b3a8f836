"""Calls that coroutines enqueue at the same moment share a thread and a write."""

import asyncio
import os
import threading
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path

import pytest

from dueline import BadInput, Dueline, EnqueueUnknown, StoreUnavailable
from dueline.core.errors import Unknown
from dueline.core.job import Job as Row
from dueline.core.shared_calls import THREADS
from dueline.jobs.queue import EnqueueRequest
from dueline.tasks.hooks import EnqueueEvent

WAIT_S = 60
CALLS = 20


class Inserts:
    """The inserts of a store: how many jobs each had, and what it raises."""

    def __init__(self, app: Dueline, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.threads: set[int] = set()
        self.gate = threading.Event()
        self.error: Exception | None = None
        self._add = app.store.add
        monkeypatch.setattr(app.store, "add", self._insert)

    def _insert(self, jobs: Sequence[Row]) -> Sequence[bool]:
        self.sizes.append(len(jobs))
        self.threads.add(threading.get_ident())
        assert self.gate.wait(WAIT_S)
        if self.error is not None:
            raise self.error
        return self._add(jobs)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Dueline]:
    made = Dueline(f"sqlite:///{tmp_path}/jobs.db?synchronous=NORMAL")

    @made.task(name="send")
    def send(number: int) -> None: ...

    send.enqueue(0)  # the queue is known
    yield made
    made.close()


@pytest.fixture
def inserts(app: Dueline, monkeypatch: pytest.MonkeyPatch) -> Inserts:
    return Inserts(app, monkeypatch)


def count(app: Dueline) -> int:
    """Return how many jobs are stored."""
    return sum(1 for _ in app.engine.jobs_of("default"))


async def enqueue_all(app: Dueline, inserts: Inserts) -> list[object]:
    """Enqueue calls at the same moment, and let the store go on once all wait."""
    send = app.task_named("send")
    asking = [asyncio.ensure_future(send.aenqueue(number)) for number in range(CALLS)]
    while len(inserts.sizes) < THREADS:  # noqa: ASYNC110  (of threads)
        await asyncio.sleep(0.001)
    inserts.gate.set()
    return list(await asyncio.gather(*asking, return_exceptions=True))


def test_coroutines_that_wait_share_a_write_and_a_thread(app: Dueline, inserts: Inserts) -> None:
    jobs = asyncio.run(enqueue_all(app, inserts))
    assert sum(inserts.sizes) == CALLS
    assert len(inserts.sizes) <= THREADS + 1
    assert len(inserts.threads) <= THREADS
    assert len({job.id for job in jobs}) == CALLS  # type: ignore[attr-defined]
    assert count(app) == CALLS + 1


def test_one_call_waits_for_no_other(app: Dueline, inserts: Inserts) -> None:
    inserts.gate.set()
    asyncio.run(app.task_named("send").aenqueue(1))
    assert inserts.sizes == [1]


@pytest.mark.parametrize(("raised", "seen"), [(StoreUnavailable, StoreUnavailable),
                                              (Unknown, EnqueueUnknown)])  # fmt: skip
def test_a_write_that_fails_fails_for_each_of_its_calls(
    app: Dueline, inserts: Inserts, raised: type[StoreUnavailable], seen: type[StoreUnavailable]
) -> None:
    inserts.error = raised("The store is gone.")
    errors = asyncio.run(enqueue_all(app, inserts))
    assert {type(error) for error in errors} == {seen}
    assert len(set(map(id, errors))) == CALLS
    if seen is EnqueueUnknown:
        unsure = [error.jobs for error in errors]  # type: ignore[attr-defined]
        assert [len(jobs) for jobs in unsure] == [1] * CALLS
        assert len({jobs[0].id for jobs in unsure}) == CALLS


def test_what_is_wrong_with_one_call_is_its_own_error(app: Dueline, inserts: Inserts) -> None:
    send = app.task_named("send")
    inserts.gate.set()

    async def main() -> list[object]:
        calls = [send.aenqueue(1), send.aenqueue("no"), send.using(after=400_000_000).aenqueue(2)]
        return list(await asyncio.gather(*calls, send.aenqueue(3), return_exceptions=True))

    good, wrong, late, also_good = asyncio.run(main())
    assert isinstance(wrong, BadInput)
    assert isinstance(late, BadInput)
    assert good.status == also_good.status == "ready"  # type: ignore[attr-defined]
    assert count(app) == 3


def test_a_call_that_is_cancelled_before_it_is_taken_is_not_stored(
    app: Dueline, inserts: Inserts
) -> None:
    send = app.task_named("send")

    async def main() -> None:
        first = [asyncio.ensure_future(send.aenqueue(number)) for number in range(THREADS)]
        while len(inserts.sizes) < THREADS:  # noqa: ASYNC110  (of threads)
            await asyncio.sleep(0.001)
        waits = asyncio.ensure_future(send.aenqueue(99))
        await asyncio.sleep(0)
        waits.cancel()
        await asyncio.wait([waits])
        inserts.gate.set()
        await asyncio.gather(*first)

    asyncio.run(main())
    assert sum(inserts.sizes) == THREADS


def test_hooks_and_context_are_those_of_the_call(app: Dueline) -> None:
    who: ContextVar[str] = ContextVar("who")
    seen: list[str] = []

    @app.on("before_enqueue")
    def note(event: EnqueueEvent) -> None:
        seen.append(f"{event.task} of {who.get()}")

    async def main() -> None:
        who.set("ann")
        await app.task_named("send").aenqueue(1)

    asyncio.run(main())
    assert seen == ["send of ann"]


def test_the_context_of_the_call_is_there_while_it_is_encoded(
    app: Dueline, monkeypatch: pytest.MonkeyPatch
) -> None:
    who: ContextVar[str] = ContextVar("who")
    seen: list[str] = []

    async def main() -> None:
        async def one(name: str) -> None:
            who.set(name)
            await app.shared_enqueues.put(request)

        def request() -> EnqueueRequest:
            seen.append(who.get())
            return EnqueueRequest("default", "send", 0, [b"[1]"])

        await asyncio.gather(*map(one, ["ann", "ben"]))

    asyncio.run(main())
    assert sorted(seen) == ["ann", "ben"]


def test_loops_of_several_threads_share_an_application(app: Dueline) -> None:
    send = app.task_named("send")

    def run() -> None:
        async def main() -> None:
            await asyncio.gather(*(send.aenqueue(number) for number in range(CALLS)))

        asyncio.run(main())

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert count(app) == 3 * CALLS + 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_of_a_fork_waits_for_no_thread_of_its_parent(app: Dueline) -> None:
    shared = app.shared_enqueues
    shared._writing = THREADS  # as while the parent writes
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(app.task_named("send").aenqueue(1))
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert count(app) == 2
