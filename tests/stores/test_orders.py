"""Jobs that run in the order of their key, on each kind of store (T14, T16)."""

import itertools
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dueline import (
    BadInput,
    Dueline,
    DurableContext,
    OrderKey,
    Retry,
    StoreUnavailable,
    Unique,
)
from dueline.admin.move import Moved, Mover
from dueline.api.job_handle import Job
from dueline.core.clock import SystemClock
from dueline.core.job import Job as Row
from dueline.core.job import JobId
from dueline.core.pagination import records_in
from dueline.core.store import Delete, Transactional
from dueline.jobs import orders
from dueline.jobs.bulk import dead_before, drop_dead, sum_of
from tests.harness.addresses import IN_MEMORY, LONG_ON_CASSANDRA, address
from tests.harness.programs import wait_for

WAIT_S = 60.0

EVERY = [*IN_MEMORY, *LONG_ON_CASSANDRA]


class Ledger:
    """An application whose task notes what ran, and fails as often as it is told.

    ran: the arguments of calls, in order. broken: how often a call fails. together: keys of which
    two jobs ran at once. held: what calls wait for.
    """

    def __init__(self, url: str) -> None:
        """Open the store."""
        self.app = app = Dueline(url)
        self.ran: list[str] = []
        self.broken = Counter[str]()
        self.together: set[str] = set()
        self.held: dict[str, Callable[[], object]] = {}
        self._running = Counter[str]()
        self._lock = threading.Lock()

        @app.task(name="book", retry=Retry.fixed(0.01, attempts=3), order_key="acct-{account}")
        def book(account: str, name: str) -> str:
            with self._lock:
                self._running[account] += 1
                if self._running[account] > 1:
                    self.together.add(account)
                self.ran.append(name)
            self.held.get(name, bool)()
            try:
                if self.broken[name] > 0:
                    self.broken[name] -= 1
                    raise ValueError(name)
            finally:
                with self._lock:
                    self._running[account] -= 1
            return name

        self.book = book

    def call(self, *names: str, dead: Any = "block", **options: Any) -> list[Job[str]]:  # noqa: ANN401
        """Enqueue jobs of one key, one by one."""
        using = self.book.using(order_key=OrderKey("acct-{account}", dead), **options)
        return [using.enqueue("7", name) for name in names]

    def burst(self) -> None:
        """Run what is due."""
        self.app.run_worker(burst=True)

    def run_until_dead(self, job: Job[Any]) -> None:
        """Run what is due, until a job is dead."""

        def is_dead() -> bool:
            self.burst()
            return job.status == "dead"

        wait_for(is_dead, "it is dead")

    def drain(self) -> None:
        """Run all jobs."""
        with self.app.worker(concurrency=4):
            engine = self.app.engine
            wait_for(lambda: not (self.entries() or any(engine.jobs_of("default"))), "all end")

    def entries(self) -> list[str]:
        """Return the entries of the key."""
        partition = orders.partition_of("default", "acct-7")
        keys = [record.key for record in records_in(self.app.store, partition)]
        return [key for key in keys if key != orders._HEAD]


@pytest.fixture(params=EVERY)
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    """Make an application on an empty store."""
    with address(request.param, tmp_path) as url:
        made = Ledger(url)
        yield made
        made.app.close()


def test_jobs_of_a_key_run_in_the_order_of_their_calls(ledger: Ledger) -> None:
    """Retries are not passed; other keys go on; calls in bulk are in their order."""
    ledger.broken["1"] = 2
    ledger.call("0", "1", "2")
    ledger.book.enqueue("8", "other")
    ledger.book.enqueue_many([("7", str(number)) for number in range(3, 8)])
    ledger.app.enqueue_many([ledger.book.call("7", "8"), ledger.book.call("7", "9")])
    ledger.drain()
    mine = [name for name in ledger.ran if name != "other"]
    assert mine == [*"01112", *"3456789"]
    assert not ledger.together
    assert ledger.entries() == []


def test_a_later_priority_and_an_earlier_time_do_not_pass(ledger: Ledger) -> None:
    """The order is that of the calls; a job that is due later holds the others."""
    first = ledger.book.using(after=600).enqueue("7", "late")
    second = ledger.book.using(priority=9).enqueue("7", "urgent")
    ledger.burst()
    assert ledger.ran == []
    assert second.explain().reason == "order"
    assert first.id in str(second.explain())
    second.retry()  # now; it checks, and waits on
    ledger.burst()
    assert ledger.ran == []
    first.retry()
    ledger.drain()
    assert ledger.ran == ["late", "urgent"]


def test_a_dead_job_blocks_its_key_until_it_is_retried(ledger: Ledger) -> None:
    ledger.broken["0"] = 3
    first, second, third = ledger.call("0", "1", "2")
    ledger.run_until_dead(first)
    second.retry()
    ledger.burst()
    assert ledger.ran == ["0"] * 3
    why = second.explain()
    assert why.reason == "held"
    assert f"(`dueline dead retry {first.id}`) or deleted, as its call says" in str(why)
    first.retry()
    ledger.drain()
    assert ledger.ran == [*"0000", "1", "2"]
    assert third.status == "done"


def test_a_dead_job_that_is_deleted_frees_its_key(ledger: Ledger) -> None:
    ledger.broken["0"] = 3
    first, second = ledger.call("0", "1")
    ledger.run_until_dead(first)
    engine = ledger.app.engine
    dead = list(dead_before(engine, "default", engine.time.latest_us() + 1))
    assert sum_of(drop_dead(engine, dead)).done == 1
    ledger.burst()
    assert second.status == "done"


def test_a_dead_job_is_skipped_and_comes_last_when_it_is_retried(ledger: Ledger) -> None:
    ledger.broken["0"] = 3
    _, first, _ = ledger.call("before", "0", "1", dead="skip")  # it is released
    ledger.run_until_dead(first)
    ledger.drain()
    assert ledger.ran == ["before", *"000", "1"]
    (running,) = ledger.call("later", dead="skip", after=600)
    first.retry()
    ledger.burst()
    assert first.status != "done"
    assert running.id in str(first.explain())
    running.retry()
    ledger.drain()
    assert ledger.ran[5:] == ["later", "0"]


def test_the_queue_says_what_a_dead_job_does_unless_its_call_does(ledger: Ledger) -> None:
    """It counts when the job dies: one that blocks its key goes on to."""
    ledger.broken.update({"0": 3, "1": 3, "2": 3})
    first, second = ledger.call("0", "1", dead=None)
    ledger.run_until_dead(first)
    assert second.explain().facts["blocked_by"] == "queue"
    assert "or deleted, as its queue says" in str(second.explain())
    ledger.app.queue("default", dead_in_order="skip")
    ledger.burst()
    assert ledger.ran == ["0"] * 3
    third, last = ledger.call("2", dead="block")[0], ledger.call("3", dead=None)[0]
    ledger.app.queues.engine.catalog.forget("default")
    first.retry()
    ledger.run_until_dead(second)
    assert second.id not in str(third.explain())
    ledger.run_until_dead(third)
    assert ledger.ran[3:] == ["0", *"111", *"222"]
    assert last.explain().facts["blocked_by"] == "call"
    second.retry()  # others have passed it: it comes last
    third.retry()
    ledger.drain()
    assert ledger.ran[-3:] == ["2", "3", "1"]


def test_a_job_in_the_middle_ends_or_changes_and_the_order_stays(ledger: Ledger) -> None:
    """It is cancelled, expires, or has another priority: those after it wait on."""
    first, second, third = ledger.call("0", "1", "2", after=600)
    second.cancel()
    (fourth,) = ledger.call("3", expires=0.001)
    third.change(priority=5)
    ledger.call("4")
    ledger.burst()
    assert ledger.ran == []
    first.retry()
    third.retry()
    ledger.drain()
    assert ledger.ran == ["0", "2", "4"]
    assert [job.status for job in (second, fourth)] == ["cancelled", "expired"]


def test_a_job_without_an_entry_gets_one(ledger: Ledger) -> None:
    """As one whose caller stopped after it had stored the row."""
    first, second, third = ledger.call("0", "1", "2", after=600)
    partition = orders.partition_of("default", "acct-7")
    ledger.app.store.commit(partition, [Delete(ledger.entries()[1])])
    second.retry()
    third.retry()
    ledger.burst()
    assert ledger.ran == []
    assert len(ledger.entries()) == 3
    first.retry()
    ledger.drain()
    assert ledger.ran == ["0", "2", "1"]


def test_callers_at_once_get_one_order(ledger: Ledger) -> None:
    """Each caller's jobs run in the order of its calls, one at a time."""

    def call(caller: int) -> None:
        for number in range(5):
            ledger.book.enqueue("7", f"{caller} {number}")

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(call, range(3)))
    ledger.drain()
    by_caller = defaultdict(list)
    for name in ledger.ran:
        by_caller[name[0]].append(int(name[2:]))
    assert by_caller == {caller: [*range(5)] for caller in "012"}
    assert not ledger.together


def test_a_transaction_stores_a_job_in_its_order_or_not_at_all(ledger: Ledger) -> None:
    if not isinstance(ledger.app.store, Transactional):
        pytest.skip("no transactions")
    with ledger.app.transaction() as tx:
        ledger.call("0", "1", tx=tx)
    with suppress(ZeroDivisionError), ledger.app.transaction() as tx:
        ledger.call("never", tx=tx)
        raise ZeroDivisionError
    ledger.call("2")
    ledger.drain()
    assert ledger.ran == ["0", "1", "2"]


def test_a_unique_job_has_its_place(ledger: Ledger) -> None:
    unique = Unique("{name}", mode="existing")
    (first,) = ledger.call("0", after=600)
    (second,) = ledger.call("1", unique=unique)
    assert ledger.call("1", unique=unique)[0].id == second.id
    assert len(ledger.entries()) == 2
    ledger.burst()
    assert ledger.ran == []
    first.retry()
    ledger.drain()
    assert ledger.ran == ["0", "1"]


def test_what_cannot_have_an_order_is_refused(ledger: Ledger) -> None:
    book, app = ledger.book, ledger.app
    other = book.enqueue("7", "0")
    for options, words in (
        ({"depends_on": other}, "exclude each other"),
        ({"window": 5}, "exclude each other"),
        ({"unique": Unique("a", mode="last")}, "compares due times"),
        ({"unique": Unique("a", mode="replace")}, "the place of a job"),
        ({"order_key": ""}, "order_key"),
        ({"order_key": 3}, "a string or OrderKey"),
        ({"order_key": "{nothing}"}, "does not take"),
    ):
        with pytest.raises(BadInput, match=words):
            book.using(**options)
    with pytest.raises(BadInput, match="`dead` must be"):
        OrderKey("a", "later")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="The order key"):
        book.enqueue("7" * 600, "0")
    with pytest.raises(BadInput, match="`on` and `order_key` exclude"):
        app.task(name="heard", on="user.*", order_key="a")(print)
    with pytest.raises(BadInput, match="`map` does not take"):
        book.map([{"account": "7", "name": "1"}])
    with pytest.raises(BadInput, match="does not support"):
        book.step("7", "1")
    with pytest.raises(BadInput, match="cannot have the option"):
        app.schedules.set("s", book, ["7", "1"], every=30)

    @app.durable(name="long")
    def long(ctx: DurableContext) -> None: ...

    with pytest.raises(BadInput, match="durable function cannot"):
        long.using(order_key="a")


def test_lists_and_details_show_the_first_of_a_key(ledger: Ledger) -> None:
    first, second = ledger.call("0", "1", after=600)
    shown = {job.id: job.shown_state for job in ledger.app.admin.list("task:book").jobs}
    assert shown == {first.id: "scheduled", second.id: "waiting"}
    details = ledger.app.admin.get(second.id)
    assert (details.order_key, details.order_first) == ("acct-7", first.id)


def test_a_key_is_read_from_where_its_entries_begin(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleted entries are not read again; the head may expire, and numbers go on."""
    monkeypatch.setattr(orders, "_BEHIND", 4)
    engine = ledger.app.engine
    partition = orders.partition_of("default", "acct-7")
    ledger.book.enqueue_many([("7", str(number)) for number in range(9)])
    ledger.drain()
    head = orders._head_of(engine, partition)
    assert head.first > 4
    first, second = ledger.call("a", "b", after=600)
    engine.store.commit(partition, [Delete(orders._HEAD)])
    ledger.call("c")
    first.retry()
    second.retry()
    ledger.drain()
    assert ledger.ran[-3:] == ["a", "b", "c"]


def test_jobs_of_a_key_move_with_their_order(ledger: Ledger, tmp_path: Path) -> None:
    """Also while the first of them still runs in the old store, and others are called (X11)."""
    ledger.call("0", "1", "2")
    other = Ledger(f"sqlite:///{tmp_path}/other.db")
    other.ran, other.broken = ledger.ran, ledger.broken
    other.broken["1"] = 1
    is_open, began = threading.Event(), threading.Event()

    def wait() -> None:
        began.set()
        is_open.wait(WAIT_S)

    called: list[Job[str]] = []
    passes = itertools.count(1)

    def report(_: str, moved: Moved) -> None:
        if not moved.waiting or is_open.is_set():
            return
        with suppress(StoreUnavailable):
            called.extend([] if called else other.call("3"))
        other.burst()
        assert ledger.ran == ["0"]
        if next(passes) > 5:  # the others have checked whether it is their turn
            assert "still run there" in str(called[0].explain())
            is_open.set()

    ledger.held["0"] = wait
    with ledger.app.worker():
        assert began.wait(WAIT_S)
        old, new = ledger.app.queues, other.app.queues
        Mover(
            old, new, ("old", "new"), clock=SystemClock(), report=report, grace_us=0
        ).run()  # fmt: skip
    other.drain()
    assert ledger.ran == ["0", "1", "1", "2", "3"]
    assert not ledger.entries()
    other.app.close()


def test_a_row_that_one_read_misses_has_not_ended(ledger: Ledger) -> None:
    """As one that moves on a store without transactions."""
    first, _ = ledger.call("0", "1", after=600)
    store, missed = ledger.app.store, set[bytes]()
    find = store.find

    def find_later(ids: Sequence[JobId]) -> Sequence[Row | None]:
        rows = [row if row is None or row.id in missed else None for row in find(ids)]
        missed.update(ids)
        return rows

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "find", find_later)
        row = orders.first_of(ledger.app.engine, "default", "acct-7")
    assert row is not None
    assert row.id.hex() == first.id
