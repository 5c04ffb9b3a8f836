"""One SQLite connection, its transactions and errors."""

import random
import threading
import time
import weakref
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import apsw

from dueline.core.clock import SECOND_US, Clock
from dueline.core.disk_wait import LIMIT_US, RESUMED_S, DiskWait
from dueline.core.errors import (
    BadInput,
    DuelineError,
    SchemaMismatch,
    StoreCorrupt,
    StoreReplaced,
    StoreUnavailable,
    Unknown,
)
from dueline.core.store import BESIDE_A_TRANSACTION
from dueline.core.system import at_fork
from dueline.stores.sqlite import damage, file
from dueline.stores.sqlite.errors import translated
from dueline.stores.sqlite.wal_checkpointer import Checkpointer

T = TypeVar("T")

Database = apsw.Connection
SCHEMA_VERSION = 2
APPLICATION_ID = 0x6475_656C  # "duel"
LOCK_WAIT_S = 60.0
"""Maximum time that a call waits for other writers, in seconds."""

PROGRESS_STEPS = 1_000_000
"""Number of SQLite's steps, some milliseconds, after which a long statement reports progress."""

LOCK_BLOCKS_MS = 100
"""Time for which SQLite itself waits for a lock, in milliseconds: it tries every millisecond, which
takes no Python, and every process is as likely to get it. Threads can be interrupted in between."""

PLACE_CHECK_US = SECOND_US
"""Maximum age in microseconds of the last check that the file is still at its path, for a call
that reads. A commit is always checked before it is acknowledged."""

CACHE_KIB = 6_000
"""Maximum size of the page cache: a worker that drains a backlog fills it, and gains no more."""

_PAUSE_S_MAX = 0.016
_UNFLUSHED = "NORMAL"
_inherited: list[apsw.Connection] = []
"""Connections of a parent process: never used, and never closed, in a forked child."""


def fetch(database: apsw.Connection, statement: str, bound: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Run a query and return all its rows."""
    return database.execute(statement, bound).fetchall()


def first(database: apsw.Connection, statement: str, bound: Sequence[Any] = ()) -> Any:  # noqa: ANN401
    """Run a query and return its first row: its value for one column, None without a row."""
    return database.execute(statement, bound).get


def blobs(values: Sequence[bytes]) -> object:
    """Bind a sequence of bytes, at least one, as a table for one statement."""
    return apsw.carray(tuple(values))


def texts(values: Sequence[str]) -> object:
    """Bind a sequence of strings, at least one, as a table for one statement."""
    return apsw.carray(tuple(values))


def integers(values: Sequence[int]) -> object:
    """Bind a sequence of integers, at least one, as a table for one statement."""
    return apsw.carray(array("q", values))


class Executor(Protocol):
    """Runs a store's calls: a connection, or an open transaction on it."""

    def read(self, work: Callable[[apsw.Connection], T]) -> T: ...  # noqa: D102
    def write(self, work: Callable[[apsw.Connection], T]) -> T: ...  # noqa: D102
    def write_unflushed(self, work: Callable[[apsw.Connection], T]) -> T: ...  # noqa: D102


class SqliteConnection:
    """A connection that each process opens on first use, and that its threads share.

    There is one for all calls. With a second one for transactions, a thread that waits for the file
    would hold the first, and the thread that has the file could wait for it.

    Args:
      path: The queue file, absolute.
      synchronous: FULL or NORMAL.
      clock: The machine's clock.
      may_be_shared: Whether the folder may be writable for every user.
      mode: Permissions of the file.
      timeout_us: Maximum time that a call waits for other writers, and for the disk, in
        microseconds; None for the defaults, LOCK_WAIT_S and disk_wait.LIMIT_US.
    """

    def __init__(
        self,
        path: Path,
        *,
        synchronous: str,
        clock: Clock,
        may_be_shared: bool = False,
        mode: int = file.OWNER_ONLY,
        timeout_us: int | None = None,
    ) -> None:
        self._path = path
        self._timeout_us = timeout_us
        self._mode = mode
        self._may_be_shared = may_be_shared
        self._synchronous = synchronous
        self._flushes = ""  # the present setting of `synchronous`; "" if unknown
        self._clock = clock
        self._lock = threading.RLock()  # re-entered by a thread that has a transaction open
        self._examining = threading.Lock()
        self.disk = DiskWait(str(path), timeout_us or LIMIT_US)
        self._examined_disk = DiskWait(str(path), timeout_us or LIMIT_US)
        self._database: apsw.Connection | None = None
        self._checkpointer: Checkpointer | None = None
        self._identity: file.Identity | None = None
        self._has_moved = array("i", [0])
        self._place_checked_us = 0
        self._jitter = random.Random()
        self._is_held_for_fork = self._is_examined = False
        _close_at_fork(weakref.ref(self))

    def close(self) -> None:
        """Close the connection; the next call opens the file that is at the path then.

        Raises:
          StoreUnavailable: Another thread uses it, such as one that waits for the disk.
        """
        try:
            self._acquire()
            with self.disk:
                self._close()
                self._identity = None
        finally:
            try:  # noqa: SIM105  (see `run`)
                self._lock.release()
            except RuntimeError:
                pass

    def _close(self) -> None:
        if self._checkpointer is not None:
            self._checkpointer.close()
        if self._database is not None:
            self._database.close()
        self._checkpointer = self._database = None

    def before_fork(self) -> None:
        """Close the connection, so that the child does not inherit it; hold the locks."""
        self._is_examined = not self._examining.acquire(timeout=self._lock_wait_s)
        try:
            self._acquire()
            self._is_held_for_fork = True
        except StoreUnavailable:
            self._is_held_for_fork = False
        if self._is_held_for_fork:
            self._close()

    def after_fork_in_parent(self) -> None:
        """Release the locks; the next call opens the file again."""
        if self._is_held_for_fork:
            self._lock.release()
        if not self._is_examined:
            self._examining.release()

    def after_fork_in_child(self) -> None:
        """Drop everything that belongs to the parent."""
        if self._database is not None:  # the lock was not acquired in time
            _inherited.append(self._database)
        self._lock, self._examining = threading.RLock(), threading.Lock()
        self._checkpointer = self._database = None
        self.disk.forget()
        self._examined_disk.forget()

    def read(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run `work` on the connection, outside a write transaction."""
        return self.run(work, checks_itself=False)

    def examine(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run `work`, which reads for seconds, on a connection of its own: other calls go on."""
        self.read(self._check_place)
        with self._examining:  # a fork waits for it: a child must not inherit the connection
            try:
                with (
                    self._examined_disk as disk,
                    closing(self._connect(apsw.SQLITE_OPEN_READONLY)) as database,
                ):
                    database.set_busy_timeout(round(self._lock_wait_s * 1000))
                    database.set_progress_handler(disk.progressed, PROGRESS_STEPS)
                    database.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                    return work(database)
            except apsw.Error as error:
                raise self.translated(error) from error

    def write(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run `work` as one immediate transaction, all or nothing.

        Raises:
          StoreUnavailable: Not written (lock timeout, disk full, no permission).
          Unknown: The commit failed half-way; it may or may not be stored.
          StoreCorrupt: The file is damaged; not written.
        """
        return self.run(lambda database: self.commit(database, work))

    def write_unflushed(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run `work` as `write` does, but a loss of power may undo it until the next flush."""
        return self.run(lambda database: self.commit(database, work, _UNFLUSHED))

    def flush(self) -> None:
        """Make unflushed writes survive a loss of power."""
        if self._synchronous != _UNFLUSHED:  # a commit flushes all earlier ones
            self.write(lambda database: database.pragma("user_version", SCHEMA_VERSION))

    def commit(
        self, database: apsw.Connection, work: Callable[[apsw.Connection], T], flushes: str = ""
    ) -> T:
        """Run `work` as a transaction of the thread that holds the connection."""
        refuse_beside(database)
        try:  # from here on: a handler's time limit may strike behind any call
            self._begin(database, flushes or self._synchronous)
            result = work(database)
            self._commit(database)
        except BaseException:
            _roll_back(database)
            raise
        return result

    def _begin(self, database: apsw.Connection, flushes: str) -> None:
        """Begin a transaction with a `synchronous` setting."""
        if self._flushes != flushes:
            self._flushes = ""
            database.execute(f"PRAGMA synchronous = {flushes}")
            self._flushes = flushes
        database.execute("BEGIN IMMEDIATE")

    @contextmanager
    def transaction(self) -> Iterator[apsw.Connection]:
        """Hold one immediate transaction open until the end of the block; other threads wait.

        Raises:
          BadInput: This thread has one open.
          StoreUnavailable: As in `write`.
        """
        try:
            self._acquire()
            with self.disk:
                database = self._patiently(self._checked)
            refuse_beside(database)
            try:
                with self.disk:
                    self._patiently(lambda: self._begin(database, self._synchronous))
                self.disk.holder = threading.get_ident()
                yield database
                self.expect_open(database)
                with self.disk:
                    self._commit(database)
            except BaseException:
                with self.disk:
                    _roll_back(database)
                raise
            finally:
                self.disk.holder = 0
        except apsw.Error as error:
            raise self.translated(error) from error
        finally:
            try:  # noqa: SIM105  (see `run`)
                self._lock.release()
            except RuntimeError:
                pass

    def expect_open(self, database: apsw.Connection) -> None:
        """Raise StoreUnavailable if the open transaction was rolled back."""
        if not _is_in_transaction(database):
            raise StoreUnavailable(
                f"The transaction on {self._path} was rolled back before its end.",
                hint="A failed statement rolled it back, or the process forked.",
            )

    def _commit(self, database: apsw.Connection) -> None:
        try:
            database.execute("COMMIT")
        except apsw.FullError:  # the commit frame was not written, so nothing is
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise
        except apsw.Error as error:
            if database.in_transaction:
                database.execute("ROLLBACK")
                raise
            raise Unknown(
                f"SQLite could not finish a commit to {self._path}: {error}.",
                hint="Check the disk; repeat the call with the same ids.",
            ) from error
        self._check_place(database)
        if self._checkpointer is not None:
            self._checkpointer.committed(database)

    def _check_place(self, database: apsw.Connection) -> None:
        """Check that the open file is still the one at its path.

        Raises:
          StoreReplaced: It is not; no other process sees what is written to it.
        """
        checked_us = self._clock.monotonic_us()
        moved, _ = self._has_moved.buffer_info()
        database.file_control("main", apsw.SQLITE_FCNTL_HAS_MOVED, moved)
        if self._has_moved[0]:
            raise self._replaced()
        self._place_checked_us = checked_us

    def _checked(self) -> apsw.Connection:
        """Return the open connection; its place was checked within PLACE_CHECK_US."""
        database = self._database or self._open()
        if self._clock.monotonic_us() - self._place_checked_us > PLACE_CHECK_US:
            self._check_place(database)
        return database

    def run(self, work: Callable[[apsw.Connection], T], *, checks_itself: bool = True) -> T:
        """Run `work` on the connection.

        Args:
          work: What to run; it is repeated while another process holds the file's lock.
          checks_itself: It commits, and each commit checks the file's place.
        """
        try:
            if not self._lock.acquire(blocking=False):
                self._acquire()
            with self.disk:
                try:
                    try:
                        return work((checks_itself and self._database) or self._checked())
                    except (apsw.BusyError, apsw.LockedError):
                        return self._patiently(lambda: work(self._checked()))
                except UnicodeDecodeError as error:
                    self._move_unreadable(error)
                    return self._patiently(lambda: work(self._checked()))
        except apsw.Error as error:
            raise self.translated(error) from error
        finally:
            # Only the lock knows whether this thread has it: a handler's time limit may strike
            # before `_acquire` is left, or in another call than the release itself.
            try:  # noqa: SIM105
                self._lock.release()
            except RuntimeError:
                pass

    def _move_unreadable(self, error: UnicodeDecodeError) -> None:
        """Move rows with unreadable text to the damage table.

        Raises: StoreCorrupt: no such row was found.
        """
        if not self._patiently(self._move_damaged):
            raise StoreCorrupt(
                f"The queue file {self._path} has text that is not UTF-8: {error}.",
                hint="Run `dueline doctor`.",
            ) from error

    def _move_damaged(self) -> int:
        """Move rows with unreadable text to the damage table; return how many."""
        database = self._checked()
        if database.in_transaction:  # the caller's own
            return 0
        now_us = self._clock.wall_us()
        return self.commit(database, lambda mine: damage.move_damaged(mine, now_us=now_us))

    @property
    def _lock_wait_s(self) -> float:
        return LOCK_WAIT_S if self._timeout_us is None else self._timeout_us / SECOND_US

    def _acquire(self) -> None:
        """Acquire the lock; give up at once while its thread waits for a disk that does not answer.

        Raises:
          StoreUnavailable: Another thread has the lock.
        """
        give_up_s = time.monotonic() + self._lock_wait_s
        while (left_s := give_up_s - time.monotonic()) > 0:
            disk_s = max(RESUMED_S, self.disk.left_us() / SECOND_US)
            if self._lock.acquire(timeout=min(left_s, disk_s)):
                return
            if not self.disk.left_us():
                raise self.disk.error()
        raise self._waited()

    def _patiently(self, work: Callable[[], T]) -> T:
        """Retry `work` while others hold the file's lock, with jitter, up to LOCK_WAIT_S.

        BEGIN IMMEDIATE takes the lock, so a busy error means that nothing was written. SQLite's
        busy handler, whose pauses grow, starves some of several writers; waiting for the lock
        (LOCK_BLOCKS_MS) and the jitter here do not.
        """
        give_up_us = self._clock.monotonic_us() + round(self._lock_wait_s * SECOND_US)
        pause_s = 0.0005
        while True:
            try:
                return work()
            except (apsw.BusyError, apsw.LockedError) as error:
                if self._clock.monotonic_us() > give_up_us:
                    raise self._waited() from error
            self.disk.progressed()  # the disk answered
            self._clock.sleep(pause_s * (0.5 + self._jitter.random()))
            pause_s = min(pause_s * 1.5, _PAUSE_S_MAX)

    def _connect(self, flags: int) -> apsw.Connection:
        if file.is_sealed(self._path):  # SQLite could not create the log's index
            flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
            return apsw.Connection(f"{self._path.as_uri()}?immutable=1", flags=flags)
        return apsw.Connection(str(self._path), flags=flags)

    def _open(self) -> apsw.Connection:
        file.check_library()
        if self._identity is not None and self._identity != file.identity_of(self._path):
            raise self._replaced()
        file.prepare(self._path, may_be_shared=self._may_be_shared, mode=self._mode)
        is_sealed = file.is_sealed(self._path)
        database = self._connect(apsw.SQLITE_OPEN_READWRITE)
        try:
            database.set_busy_timeout(0)
            database.setlk_timeout(LOCK_BLOCKS_MS, 0)
            database.set_progress_handler(self.disk.progressed, PROGRESS_STEPS)
            # Without it, each new value of a limit or a range has the statement compiled again.
            database.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
            # A file of another program stays as it is, its log included.
            database.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            self._set_up(database)
            if not is_sealed:
                file.restrict(self._path, self._mode)
                database.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
                database.execute("PRAGMA journal_mode = WAL")
            self._flushes = ""
            # On macOS, a plain fsync leaves data in the cache of the drive.
            database.execute("PRAGMA fullfsync = ON")
            database.execute("PRAGMA temp_store = MEMORY")
            database.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            identity = file.identity_of(self._path)
            self._check_place(database)  # after reading the identity: it is that of the open file
        except BaseException:
            database.close()
            raise
        self._identity = identity
        self._checkpointer = Checkpointer(
            self._path,
            database,
            lambda: identity == file.identity_of(self._path),
            flushes=self._synchronous != _UNFLUSHED,
        )
        self._database = database
        return database

    def _set_up(self, database: apsw.Connection) -> None:
        if database.pragma("user_version") != SCHEMA_VERSION:
            self._transact(database, self._create)
        if database.pragma("application_id") != APPLICATION_ID:
            raise self._stranger()

    @staticmethod
    def _transact(database: apsw.Connection, work: Callable[[apsw.Connection], object]) -> None:
        database.execute("BEGIN IMMEDIATE")
        try:
            work(database)
            database.execute("COMMIT")
        except BaseException:
            _roll_back(database)
            raise

    def _create(self, database: apsw.Connection) -> None:
        """Create the tables in a new file, unless another process has done it meanwhile."""
        version = database.pragma("user_version")
        application = database.pragma("application_id")
        tables = database.execute("SELECT count(*) FROM sqlite_schema").get
        if application != APPLICATION_ID and (application or version or tables):
            raise self._stranger()
        if version == SCHEMA_VERSION:
            return
        if version == 1:
            raise SchemaMismatch.too_old(f"The queue file {self._path} has schema 1")
        if version:
            raise SchemaMismatch(
                f"The queue file {self._path} has schema {version}; this dueline knows "
                f"{SCHEMA_VERSION}.",
                hint="Upgrade dueline on this machine; the file was left as it is.",
            )
        if tables:
            raise StoreCorrupt(
                f"The queue file {self._path} has tables but no schema version: it is damaged.",
                hint="Restore it from a backup, or save what can be read (`.recover`).",
            )
        from importlib import resources  # noqa: PLC0415  (a megabyte, for new files only)

        script = resources.files(__package__).joinpath("schema.sql").read_text("utf-8")
        for _ in database.execute(script):
            pass
        database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _stranger(self) -> SchemaMismatch:
        return SchemaMismatch(
            f"The file {self._path} is a database of another program.",
            hint="Choose another file for the queue; this one was left as it is.",
        )

    def _replaced(self) -> StoreReplaced:
        return StoreReplaced(
            f"The queue file {self._path} was removed or replaced while this process used it; "
            "the call is not stored.",
            hint="Put the file back from a backup if that was a mistake, and restart all "
            "processes that used it.",
        )

    def _waited(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"Other writers kept the queue file {self._path} locked for {self._lock_wait_s:g} s.",
            hint="Look for a program that holds a transaction open on it.",
        )

    def translated(self, error: apsw.Error) -> DuelineError:
        """Translate an error of SQLite."""
        return translated(error, self._path)


def _is_in_transaction(database: apsw.Connection) -> bool:
    try:
        return database.in_transaction
    except apsw.ConnectionClosedError:  # by a fork
        return False


def refuse_beside(database: apsw.Connection) -> None:
    """Refuse a write outside the open transaction of the same thread."""
    if database.in_transaction:
        raise BadInput(BESIDE_A_TRANSACTION, hint="Use tx=, or call after the block.")


@contextmanager
def savepoint(database: apsw.Connection) -> Iterator[None]:
    """Roll back the statements of the block if it raises; the transaction stays open."""
    database.execute("SAVEPOINT block")
    try:
        yield
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK TO block")
            database.execute("RELEASE block")
        raise
    database.execute("RELEASE block")


def _roll_back(database: apsw.Connection) -> None:
    if _is_in_transaction(database):
        database.execute("ROLLBACK")


def _close_at_fork(connection: weakref.ref[SqliteConnection]) -> None:
    """Close a connection before a fork.

    SQLite keeps one table of locks for each process and file. A child that inherits an open
    connection inherits the table but not the locks. Its own connections then lock nothing, and the
    parent deletes the log on close while the child writes to it: acknowledged jobs are lost.
    """

    def call(step: Callable[[SqliteConnection], None]) -> None:
        if (alive := connection()) is not None:
            step(alive)

    at_fork(
        before=lambda: call(SqliteConnection.before_fork),
        after_in_parent=lambda: call(SqliteConnection.after_fork_in_parent),
        after_in_child=lambda: call(SqliteConnection.after_fork_in_child),
    )
