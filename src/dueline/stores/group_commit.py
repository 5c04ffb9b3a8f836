"""Inserts of several threads in one write: a group commit.

Threads that enqueue at the same time share a write. The first one waits for its turn, and writes
the jobs of all that wait behind it; each of these is woken by itself afterwards. No thread waits
for company, and each call returns after the write that has its jobs. Shared by all stores.
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

from dueline.core.errors import BadInput, DuelineError, JobTimeout, Unknown
from dueline.core.job import Job
from dueline.core.wakeup import Wakeup

JOBS_MAX: Final = 1000
"""Maximum number of jobs of other calls in one write."""

BYTES_MAX: Final = 1 << 20
"""Size of the bodies after which no further call joins a write."""

TURN_S: Final = 0.05
"""Time after which a call waits for its turn itself, in seconds, if the thread before it was
interrupted and woke nobody."""

HANGS_S: Final = 0.2
"""Time after which a write to a server holds up no others, in seconds: another thread writes, too.
"""

WRITERS: Final = 2
"""Number of threads of a process that insert at once, if a write takes so long."""

OF_ONE: Final = (BadInput, OverflowError, TypeError, ValueError)
"""Errors caused by the rows of one call; any other error fails the whole write."""

Turn = TypeVar("Turn")


class Inserted(NamedTuple):
    """What an insert did.

    Attributes:
      held: For each job whether it is certainly stored.
      wakeups: What was sent to idle workers with it.
    """

    held: Sequence[bool]
    wakeups: Sequence[Wakeup] = ()


class Call:
    """The jobs of one call, and its progress.

    Attributes:
      answer: What the insert did, once it is over without an error.
      taker: The call whose thread writes it; None while it waits.
      has_left: Its thread has left, so that it writes no other call any more.
    """

    __slots__ = ("_turn", "answer", "error", "has_left", "is_over", "jobs", "process", "taker")

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs = jobs
        self.taker: Call | None = None
        self.has_left = self.is_over = False
        self.answer: Inserted  # once it was written
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


class GroupCommit(ABC, Generic[Turn]):
    """Inserts the jobs of several threads at once.

    Attributes:
      busy: Errors after which nothing was written, and the turn comes again.
    """

    busy: ClassVar[tuple[type[Exception], ...]] = ()

    def __init__(self) -> None:
        self._waiting: deque[Call] = deque()

    @abstractmethod
    def _run(self, call: Call) -> bool:
        """Call `_lead` if this thread may write now; return whether it may."""

    @abstractmethod
    def _write(self, turn: Turn, calls: Sequence[Call]) -> None:
        """Write the jobs of all calls; set the answer, or the error, of each."""

    def _error_for(self, error: BaseException) -> BaseException:
        """Return the error of a write for another call."""
        # A time limit may have interrupted the writing thread after the write.
        is_of_store = isinstance(error, DuelineError) and not isinstance(error, JobTimeout)
        return copy(error) if is_of_store else _unknown()

    def add(self, jobs: Sequence[Job]) -> Inserted:
        """Insert jobs, possibly together with those of other threads.

        Raises the errors of an insert, except for those of other calls' jobs.
        """
        call = Call(jobs)
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

    def _is_first(self, call: Call) -> bool:
        """Return whether a call waits for its turn; without it another thread took it."""
        try:
            return self._waiting[0] is call
        except IndexError:
            return False

    def _wake_first(self) -> None:
        """Wake the first call that waits: no thread may be before it any more."""
        with suppress(IndexError):
            self._waiting[0].wake()

    def _leave(self, call: Call) -> None:
        """Withdraw a call that was not written; raise Unknown if another thread writes it."""
        try:
            self._waiting.remove(call)
        except ValueError:
            if not call.is_over:
                raise _unknown() from None

    def _lead(self, call: Call, turn: Turn) -> None:
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

    def _take(self, call: Call) -> list[Call]:
        """Take all waiting calls; none if this one was taken by another thread."""
        try:
            self._waiting.remove(call)
        except ValueError:
            return []
        call.taker = call
        calls, jobs, size = [call], 0, 0
        if not self._waiting:
            return calls
        with suppress(IndexError):  # none is left: another thread may take some, too
            while jobs < JOBS_MAX and size < BYTES_MAX:
                other = self._waiting.popleft()
                if other.process == call.process:  # not those of the parent process of a fork
                    other.taker = call
                    calls.append(other)
                    jobs += len(other.jobs)
                    size += sum(len(job.body) for job in other.jobs)
        return calls

    def _put_back(self, calls: Sequence[Call]) -> None:
        for call in calls:
            call.taker = None
        self._waiting.extendleft(reversed(calls))


class ServerCommit(GroupCommit[None]):
    """Inserts of several threads in a store on a server, one write after the other.

    Args:
      insert: Inserts jobs; what is stored already stays as it is, so that a call can be repeated.
    """

    def __init__(self, insert: Callable[[Sequence[Job]], Inserted]) -> None:
        super().__init__()
        self._insert = insert
        self._process = os.getpid()
        self._turns = _turns()
        self._began_s = 0.0

    def _run(self, call: Call) -> bool:
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

    def _write(self, turn: None, calls: Sequence[Call]) -> None:
        del turn
        try:
            inserted = self._insert([job for call in calls for job in call.jobs])
        except OF_ONE:
            if len(calls) == 1:
                raise
            for call in calls:
                self._write_one(call)
            return
        held = iter(inserted.held)
        for call in calls:
            answers = list(islice(held, len(call.jobs)))
            call.answer = inserted._replace(held=answers)

    def _write_one(self, call: Call) -> None:
        try:
            call.answer = self._insert(call.jobs)
        except (DuelineError, *OF_ONE) as error:
            if isinstance(error, JobTimeout):
                raise
            call.error = error


def _turns() -> Sequence[threading.RLock]:
    return [threading.RLock() for _ in range(WRITERS)]


def _unknown() -> Unknown:
    return Unknown(
        "The thread that wrote these jobs together with its own was interrupted.",
        hint="Repeat the call with the same ids.",
    )
