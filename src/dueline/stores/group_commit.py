"""Calls of several threads in one write: a group commit.

Threads that enqueue at the same time, or that write records, share a write. The first one waits for
its turn, and writes the items of all that wait behind it; each of these is woken by itself
afterwards. No thread waits for company, and each call returns after the write that has its items.
Shared by all stores.
"""

import os
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from itertools import islice
from typing import ClassVar, Final, Generic, NamedTuple, TypeVar

from dueline.core.errors import OF_ONE_CALL, DuelineError, JobTimeout, Unknown
from dueline.core.job import Job
from dueline.core.store import Delete, Group
from dueline.core.wakeup import Wakeup

ITEMS_MAX: Final = 1000
"""Maximum number of items of other calls in one write."""

BYTES_MAX: Final = 1 << 20
"""Size of bodies and values after which no further call joins a write."""

TURN_S: Final = 0.05
"""Time after which a call waits for its turn itself, in seconds, if the thread before it was
interrupted and woke nobody."""

HANGS_S: Final = 0.2
"""Time after which a write to a server holds up no others, in seconds: another thread writes, too.
"""

WRITERS: Final = 2
"""Number of threads of a process that write at once, if a write takes so long."""

Turn = TypeVar("Turn")
Item = TypeVar("Item", bound=Job | Group)


class Written(NamedTuple):
    """What a write did.

    Attributes:
      held: For each job whether it is certainly stored; for each group whether it was applied.
      wakeups: What was sent to idle workers with it.
    """

    held: Sequence[bool]
    wakeups: Sequence[Wakeup] = ()


def may_share(groups: Sequence[Group]) -> bool:
    """Return whether groups are such that threads write them together: of records and jobs."""
    return len(groups) == 1 and not groups[0].verdicts and not groups[0].rows


def _bytes_in(item: Job | Group) -> int:
    if isinstance(item, Job):
        return len(item.body)
    writes = [write for commit in item.commits for write in commit.writes]
    values = sum(len(write.value) for write in writes if not isinstance(write, Delete))
    return values + sum(len(job.body) for job in item.jobs)


class Call(Generic[Item]):
    """The items of one call, and its progress.

    Attributes:
      answer: What the write did, once it is over without an error.
      taker: The call whose thread writes it; None while it waits.
      has_left: Its thread has left, so that it writes no other call any more.
    """

    __slots__ = ("_turn", "answer", "error", "has_left", "is_over", "items", "process", "taker")

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self.taker: Call[Item] | None = None
        self.has_left = self.is_over = False
        self.answer: Written  # once it was written
        self.error: BaseException | None = None
        self.process = os.getpid()
        self._turn = threading.Lock()
        self._turn.acquire()

    def end(self, error: BaseException | None = None) -> None:
        """Note that it is over, and wake its thread."""
        self.error = error
        self.is_over = True
        self.wake()

    def wait(self) -> None:
        """Wait for the thread before it, or for TURN_S."""
        self._turn.acquire(timeout=TURN_S)

    def wake(self) -> None:
        """Wake its thread."""
        with suppress(RuntimeError):  # it was woken already
            self._turn.release()


class GroupCommit(ABC, Generic[Turn, Item]):
    """Writes the items of several threads at once.

    Attributes:
      busy: Errors after which nothing was written, and the turn comes again.
    """

    busy: ClassVar[tuple[type[Exception], ...]] = ()

    def __init__(self) -> None:
        self._waiting: deque[Call[Item]] = deque()

    @abstractmethod
    def _run(self, call: Call[Item]) -> bool:
        """Call `_lead` if this thread may write now; return whether it may."""

    @abstractmethod
    def _write(self, turn: Turn, calls: Sequence[Call[Item]]) -> None:
        """Write the items of all calls; set the answer, or the error, of each."""

    def _error_for(self, error: BaseException) -> BaseException:
        """Return the error of a write for another call."""
        # A time limit may have interrupted the writing thread after the write.
        is_of_store = isinstance(error, DuelineError) and not isinstance(error, JobTimeout)
        return copy(error) if is_of_store else _unknown()

    def write(self, items: Sequence[Item]) -> Written:
        """Write items, possibly together with those of other threads.

        Raises the errors of a write, except for those of other calls' items.
        """
        call = Call(items)
        is_first = not self._waiting
        self._waiting.append(call)
        try:
            if not is_first and not self._is_first(call):
                call.wait()
            while not call.is_over:
                if call.taker is not None and call.taker.has_left:  # it was interrupted
                    call.end(_unknown())
                elif call.taker or not self._run(call):
                    call.wait()
        except BaseException:
            self._leave(call)
            raise
        finally:
            call.has_left = True
            if self._waiting:
                self._wake_first()
        if call.error is not None:
            raise call.error
        return call.answer

    def _is_first(self, call: Call[Item]) -> bool:
        """Return whether a call waits for its turn; without it another thread took it."""
        try:
            return self._waiting[0] is call
        except IndexError:
            return False

    def _wake_first(self) -> None:
        """Wake the first call that waits: no thread may be before it any more."""
        with suppress(IndexError):
            self._waiting[0].wake()

    def _leave(self, call: Call[Item]) -> None:
        """Withdraw a call that was not written; raise Unknown if another thread writes it."""
        try:
            self._waiting.remove(call)
        except ValueError:
            if not call.is_over:
                raise _unknown() from None

    def _lead(self, call: Call[Item], turn: Turn) -> None:
        """Write all waiting calls, unless another thread has taken this one."""
        calls = self._take(call)
        if not calls:
            return
        try:
            self._write(turn, calls)
        except self.busy:
            self._put_back(calls)
            raise
        except BaseException as error:
            for other in calls[1:]:
                other.end(self._error_for(error))
            call.is_over = True
            raise
        call.is_over = True
        for joined in calls[1:]:
            joined.end(joined.error)

    def _take(self, call: Call[Item]) -> list[Call[Item]]:
        """Take all waiting calls; none if this one was taken by another thread."""
        try:
            self._waiting.remove(call)
        except ValueError:
            return []
        call.taker = call
        calls, count, size = [call], 0, 0
        if not self._waiting:
            return calls
        with suppress(IndexError):  # none is left: another thread may take some, too
            while count < ITEMS_MAX and size < BYTES_MAX:
                other = self._waiting.popleft()
                if other.process == call.process:  # not those of the parent process of a fork
                    other.taker = call
                    calls.append(other)
                    count += len(other.items)
                    size += sum(map(_bytes_in, other.items))
        return calls

    def _put_back(self, calls: Sequence[Call[Item]]) -> None:
        for call in calls:
            call.taker = None
        self._waiting.extendleft(reversed(calls))


def write_together(
    calls: Sequence[Call[Item]],
    write: Callable[[Sequence[Item]], Written],
    of_one: tuple[type[Exception], ...] = OF_ONE_CALL,
) -> None:
    """Write the items of all calls at once; set the answer, or the error, of each.

    Args:
      write: Writes items; what is stored already stays as it is, so that this can be repeated.
      of_one: Errors caused by the items of one call; any other error fails the whole write.
    """
    try:
        written = write([item for call in calls for item in call.items])
    except of_one:
        if len(calls) == 1:
            raise
        kinds: tuple[type[Exception], ...] = (DuelineError, *of_one)
        for call in calls:
            try:
                call.answer = write(call.items)
            except JobTimeout:
                raise
            except kinds as error:
                call.error = error
        return
    held = iter(written.held)
    for call in calls:
        answers = list(islice(held, len(call.items)))
        call.answer = written._replace(held=answers)


class ServerCommit(GroupCommit[None, Item]):
    """Writes of several threads in a store on a server, one after the other.

    Args:
      write: Writes items, see `write_together`.
    """

    def __init__(self, write: Callable[[Sequence[Item]], Written]) -> None:
        super().__init__()
        self._write_items = write
        self._process = os.getpid()
        self._turns = _turns()
        self._began_s = 0.0

    def _run(self, call: Call[Item]) -> bool:
        if self._process != os.getpid():  # the threads of the parent process are not in this one
            self._process, self._turns = os.getpid(), _turns()
        now_s = time.monotonic()
        turns = self._turns if now_s - self._began_s > HANGS_S else self._turns[:1]
        try:
            if turns[0].acquire(blocking=False):
                self._began_s = now_s
            elif not any(turn.acquire(blocking=False) for turn in turns[1:]):
                return False
            self._lead(call, None)
        finally:
            # Only the locks know whether this thread has one: an interrupt may strike anywhere.
            for turn in turns:
                with suppress(RuntimeError):
                    turn.release()
        return True

    def _write(self, turn: None, calls: Sequence[Call[Item]]) -> None:
        del turn
        write_together(calls, self._write_items)


def _turns() -> Sequence[threading.RLock]:
    return [threading.RLock() for _ in range(WRITERS)]


def _unknown() -> Unknown:
    return Unknown(
        "The thread that wrote this together with its own was interrupted.",
        hint="Repeat the call with the same ids.",
    )
