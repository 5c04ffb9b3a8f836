"""Jobs and rows that are committed together."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, TypeVar

from dueline.core.attempt import Done, Ended, Outcome
from dueline.core.call_options import is_awaited
from dueline.core.errors import (
    BadInput,
    CommitUnknown,
    ConfigError,
    DuelineError,
    LeaseLost,
    Unknown,
)
from dueline.core.job import Job
from dueline.core.store import Bindings, Transactional, TransactionView
from dueline.core.store_capabilities import AwaitedConnection, Joined, JoinsTransactions
from dueline.core.wakeup import DeferredWakeups, Wakeups
from dueline.jobs import progress_records, results
from dueline.jobs.completion import Finished, finish, finish_of
from dueline.jobs.history import attempt_of
from dueline.jobs.queue import Queues
from dueline.tasks.handler import Handler
from dueline.tasks.progress import Progress, ProgressReport

T = TypeVar("T")


class Transaction:
    """An open transaction on the application's store, for the thread that opened it.

    Jobs that are enqueued with it, rows that are written in it, and the end of the job that is
    finished in it are committed together at the end of the block.

    Attributes:
      is_open: The block has not ended.

    Args:
      owner: The application: transactions of others are refused.
      queues: Its queues, outside the transaction.
      tasks: Its handlers, by name.
      inside: The store as the transaction sees it.
      wakeups: Sends wake-ups with the commit; by default the block does so after it.
    """

    __slots__ = (
        "_inside",
        "_is_committed",
        "_owner",
        "_queues",
        "_tasks",
        "_thread",
        "_wakeups",
        "is_open",
    )  # fmt: skip

    def __init__(
        self,
        owner: object,
        queues: Queues,
        tasks: Mapping[str, Handler],
        inside: TransactionView,
        wakeups: Wakeups | None = None,
    ) -> None:
        self.is_open = True
        self._is_committed = False
        self._owner = owner
        self._tasks = tasks
        self._inside = inside
        self._wakeups = DeferredWakeups(queues.engine.wakeups)
        self._queues = queues.inside(inside.store, wakeups or self._wakeups)
        self._thread = threading.get_ident()

    @property
    def is_committed(self) -> bool:
        """Whether it was committed; false if it is open, was rolled back, or that is unknown."""
        return self._is_committed

    def execute(self, statement: str, bindings: Bindings = ()) -> list[tuple[Any, ...]]:
        """Run a statement on your own tables; return its rows.

        Args:
            statement: The statement.
            bindings: Values for `?` in order, or by name for `:name`.

        Raises:
            BadInput: It is not a statement, or would end the transaction or change the queue's
            tables. Conflict: It violates a constraint of your table.
            StoreUnavailable: The disk is full, for example. The statement is undone and the
            transaction
                continues; if it cannot, the end of the block raises StoreUnavailable.
        """
        self._expect_mine()
        return self._inside.execute(statement, bindings)

    def queues_of(self, owner: object) -> Queues:
        """Return the queues inside the transaction for a task of the same application.

        Raises:
            BadInput: It belongs to another application or thread, or has ended.
        """
        self._expect_mine()
        if owner is not self._owner:
            raise BadInput(
                "The transaction belongs to another application.",
                hint="Open it with transaction() of the application that has the task.",
            )
        return self._queues

    def finish(
        self,
        job: Job,
        handler: Handler,
        value: object,
        started_us: int,
        report: ProgressReport | None,
    ) -> None:
        """End a job as done in this transaction; handlers call it as `Context.finish`.

        Raises:
            LeaseLost: Another worker may hold the job; nothing may be committed with it.
        """
        queues, store = self.queues_of(self._owner), self._inside.store
        if self._tasks.get(handler.name) is not handler:
            raise BadInput("The transaction and the job belong to different applications.")
        settings = queues.engine.catalog.settings(job.lane.queue)
        is_kept = results.kept_us(job, settings.keep_us) > 0 or is_awaited(job)
        result = handler.write_result(value, job) if is_kept else b""
        ended_us = max(queues.engine.time.latest_us(), started_us)
        ended = Ended(job, Done(result), started_us, ended_us)
        attempt = attempt_of(ended, outcome="done", error="")
        outcome = Outcome("done", ended_us, value=result.decode())
        end = finish_of(job, outcome, attempt, settings)
        if not finish(store, [Finished(job, end)])[0]:
            raise LeaseLost(f"The claim on job {job.id.hex()} was lost; nothing is committed.")
        if report is not None:  # the claim held, so no later one has a record
            last = Progress(report.done, report.total, report.note, ended_us, report.meta)
            token = queues.engine.ids.token()
            group = progress_records.written(
                job.id, last, fence=job.fence, now_us=ended_us, expect=None, version=token
            )
            store.together([group])

    async def afinish(
        self,
        job: Job,
        handler: Handler,
        value: object,
        started_us: int,
        report: ProgressReport | None,
    ) -> "Transaction":
        """End a job in a transaction on an asynchronous connection; return the transaction."""

        def end(tx: Transaction) -> Transaction:
            tx.finish(job, handler, value, started_us, report)
            return tx

        return await in_transaction(self, end)

    def wake(self) -> None:
        """Wake the workers for the jobs that were committed."""
        self._wakeups.release()

    def committed(self) -> None:
        """Note that it was committed, and wake the workers."""
        self._is_committed = True
        self.wake()

    def _expect_mine(self) -> None:
        if not self.is_open:
            raise BadInput("The transaction has ended.", hint="Use it inside its block.")
        if threading.get_ident() != self._thread:
            raise BadInput(
                "The transaction belongs to another thread.", hint="Open one in this thread."
            )


class CallersTransaction(Transaction):
    """A transaction that is open on a connection of the caller, who ends it.

    Args:
      store: The store outside it, which is asked for its outcome.
    """

    __slots__ = ("_id", "_store")

    def __init__(
        self,
        owner: object,
        queues: Queues,
        tasks: Mapping[str, Handler],
        inside: Joined,
        store: JoinsTransactions,
    ) -> None:
        view = TransactionView(inside.store, _no_statements)
        super().__init__(owner, queues, tasks, view, inside.wakeups)
        self._store = store
        self._id = ""

    @property
    def is_committed(self) -> bool:
        """Whether it was committed; one that is still open is rolled back first.

        False if the store does not answer: the worker then tries to end the job, and is refused
        if the transaction has done so.
        """
        if self._id:
            with suppress(DuelineError):
                self._is_committed = self._store.is_committed(self._id)
            self._id = ""
        return self._is_committed

    def finish(
        self,
        job: Job,
        handler: Handler,
        value: object,
        started_us: int,
        report: ProgressReport | None,
    ) -> None:
        """End a job as done in this transaction."""
        super().finish(job, handler, value, started_us, report)
        inside = self._inside.store
        assert isinstance(inside, JoinsTransactions)
        self._id = inside.transaction_id()
        self.is_open = False  # nothing but its outcome matters from now on


class AwaitedTransaction(Transaction):
    """A transaction that is open on an asynchronous connection of the caller.

    Args:
      owner: The application.
      queues: Its queues.
      connection: The connection.
      join: Returns the transaction for a thread that waits for the connection.
    """

    __slots__ = ("_connection", "_join")

    def __init__(
        self,
        owner: object,
        queues: Queues,
        connection: object,
        join: Callable[[AwaitedConnection], Transaction],
    ) -> None:
        super().__init__(owner, queues, {}, TransactionView(queues.engine.store, _no_statements))
        self._connection = connection
        self._join = join

    def queues_of(self, owner: object) -> Queues:  # noqa: ARG002  (none has any)
        """Raise BadInput: the call must be awaited."""
        raise BadInput(
            f"A {type(self._connection).__name__} as `tx` is asynchronous.",
            hint="Await the call: `await task.using(tx=session).aenqueue(...)`, or "
            "`aenqueue_many`, `app.astart(..., tx=session)` or `ctx.afinish(session, value)`.",
        )

    async def run(self, call: Callable[[Transaction], T]) -> T:
        """Run a call that uses the transaction in another thread, and return its result.

        Its statements run in this event loop, on the caller's connection. If this is cancelled, it
        waits for the end of the call, since nothing else may use the connection meanwhile.
        """
        import asyncio  # noqa: PLC0415  (slow to load)

        awaited = AwaitedConnection(self._connection, asyncio.get_running_loop())
        running = asyncio.ensure_future(asyncio.to_thread(lambda: call(self._join(awaited))))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])
            raise


async def in_transaction(tx: Transaction, call: Callable[[Transaction], T]) -> T:
    """Run a call in a transaction on a caller's asynchronous connection.

    Raises:
        BadInput: It is another transaction.
    """
    if not isinstance(tx, AwaitedTransaction):
        raise BadInput(
            "A transaction belongs to its thread, but this call enqueues in another one.",
            hint="Use an AsyncSession or a connection of asyncpg; or the whole transaction, with "
            "`enqueue` or `finish`, in asyncio.to_thread.",
        )
    return await tx.run(call)


@contextmanager
def transaction(
    owner: object, queues: Queues, tasks: Mapping[str, Handler]
) -> Iterator[Transaction]:
    """Open a transaction, and commit it at the end of the block unless that raises."""
    store = queues.engine.store
    if not isinstance(store, Transactional):
        raise ConfigError(
            f"The store ({store.describe()['store']}) does not support transactions.",
            hint="Use postgresql:// or sqlite:// (or memory:// in tests) for this application.",
        )
    tx: Transaction | None = None
    is_ending = False
    try:
        with store.transaction() as inside:
            tx = Transaction(owner, queues, tasks, inside)
            try:
                yield tx
            finally:
                tx.is_open = False
            is_ending = True
        tx.committed()
    except Unknown as error:
        if not is_ending:  # raised inside the block
            raise
        raise CommitUnknown(
            "The store did not say whether the transaction was committed.",
            hint="Check for one of its rows or jobs: either all of them are stored, or none.",
        ) from error


def joined(
    owner: object,
    queues: Queues,
    tasks: Mapping[str, Handler],
    tx: object,
    names: Iterable[str] = (),
) -> Transaction:
    """Return the transaction that was passed as `tx=`, or that is open on a caller's connection.

    Args:
        owner: The application.
        queues: Its queues.
        tasks: Its handlers, by name.
        tx: What was passed.
        names: Names of the queues that are used.

    Raises:
        BadInput: It is neither.
    """
    store, names = queues.engine.store, list(names)
    if isinstance(tx, Transaction) or not isinstance(store, JoinsTransactions):
        return expect_transaction(tx)

    def join(own: object) -> Transaction:
        inside = store.join(own, _shards_of(queues, names))
        return CallersTransaction(owner, queues, tasks, inside, store)

    return AwaitedTransaction(owner, queues, tx, join) if is_asynchronous(tx) else join(tx)


def is_asynchronous(tx: object) -> bool:
    """Return whether this is an asynchronous connection: of SQLAlchemy, asyncpg or psycopg."""
    return any(
        kind.__module__.startswith(("sqlalchemy.ext.asyncio", "asyncpg."))
        or (kind.__module__.startswith("psycopg") and kind.__name__.startswith("Async"))
        for kind in type(tx).__mro__
    )


def _shards_of(queues: Queues, names: Iterable[str]) -> list[tuple[str, int]]:
    settings = queues.engine.catalog.settings  # apart: a new queue must not wait for the commit
    return [(name, shard) for name in names for shard in range(settings(name).shards)]


def _no_statements(_statement: str, _bindings: Bindings) -> NoReturn:
    raise BadInput("Run statements on your own connection.")


def expect_transaction(tx: object) -> Transaction:
    """Return the transaction that was passed as `tx=`.

    Raises:
        BadInput: It is not a transaction.
    """
    if isinstance(tx, Transaction):
        return tx
    if any(kind.__module__ == "sqlite3" for kind in type(tx).__mro__):
        raise BadInput(
            "`tx` must not be a sqlite3.Connection: POSIX locks belong to the process, so dueline "
            "would lose its locks when Python's own SQLite closes the queue file.",
            hint="Write `with app.transaction() as tx:`, and tx.execute(...) for your rows.",
        )
    raise BadInput(
        f"`tx` must be a transaction (got a {type(tx).__name__}).",
        hint="Write `with app.transaction() as tx:`.",
    )
