"""The parent's side of a child process."""

import socket
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Protocol

from dueline.core.attempt import Cancelled, Crashed, Each, Ended, Ending, Failed, GivenBack
from dueline.core.call_options import terms_of
from dueline.core.clock import SECOND_US
from dueline.core.errors import JobTimeout
from dueline.core.job import Claim, Job
from dueline.core.process_identity import resident_bytes
from dueline.tasks.handler import Handler
from dueline.worker.assignment import Assignment
from dueline.worker.child_board import Board, create_memory
from dueline.worker.child_protocol import (
    Extended,
    Finished,
    Leave,
    Lost,
    Message,
    Recall,
    Run,
    dump,
    load_ending,
    to_ended,
)
from dueline.worker.context_controls import BY_FORCE
from dueline.worker.execution import LOST_AFTER_US, interrupted_after_us
from dueline.worker.recycling import RecycleAfter
from dueline.worker.runner import LostSlot


class Process(Protocol):
    """A running process."""

    @property
    def pid(self) -> int: ...  # noqa: D102
    def kill(self) -> None: ...  # noqa: D102
    def wait(self) -> int: ...  # noqa: D102


class Pipe(Protocol):
    """The connection to a process."""

    def send_bytes(self, data: bytes, /) -> None: ...  # noqa: D102
    def recv_bytes(self) -> bytes: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


class ChildHandle:
    """A child process, its pipe, and the jobs that it was given.

    Args:
      process: The process.
      pipe: The connection to it.
      handlers: The handlers by task.
      board: The memory shared with it; None on another machine, which sends messages instead.

    Attributes:
      is_worn: Another child replaces it.
      is_leaving: Its replacement is ready, so it gets no more jobs.
      forced: Claims whose handlers are stopped by its death, alone or in a batch.
    """

    def __init__(
        self,
        process: Process,
        pipe: Pipe,
        handlers: Mapping[str, Handler],
        board: Board | None = None,
    ) -> None:
        self.process = process
        self.pipe = pipe
        self.given: dict[Claim, Assignment] = {}
        self.ran = 0
        self.is_ready = False
        self.is_recalled = False
        self.is_worn = False
        self.is_leaving = False
        self._is_exit_asked = False
        self._handlers = handlers
        self._has_kills = any(handler.kill_after_us is not None for handler in handlers.values())
        self._has_limits = any(handler.timeout_us is not None for handler in handlers.values())
        self.forced: set[Claim] = set()
        self._overdue: set[Claim] = set()
        self._outlived: set[Claim] = set()  # outlived claims without kill_after
        self._is_killed = False
        self._started: dict[Claim, int] = {}  # without a board
        self._finished: dict[Claim, Finished] = {}  # what its cell is too small for
        self._board = board
        self._free = [*board.cells()] if board else []
        self._cells: dict[Claim, int] = {}
        self._claims: dict[int, Claim] = {}

    def has_lone(self) -> bool:
        """Return whether it runs a job that must run alone."""
        return any(assignment.alone for assignment in self.given.values())

    def having(self, claims: Sequence[Claim]) -> list[Claim]:
        """Return those claims whose jobs it was given, alone or in a batch."""
        members = {
            member.job.claim() for assignment in self.given.values() for member in assignment.chunk
        }
        return [claim for claim in claims if claim in self.given or claim in members]

    def started(self) -> dict[Claim, int]:
        """Return the claims whose handlers run, and since when by the monotonic clock."""
        board = self._board
        if board is None:
            return dict(self._started)
        begun = {claim: board.started_us(cell) for claim, cell in self._cells.items()}
        return {claim: at_us for claim, at_us in begun.items() if at_us > 0}

    def unstarted(self) -> list[Claim]:
        """Return the claims whose handlers were not called."""
        board = self._board
        if board is None:
            return [claim for claim in self.given if claim not in self._started]
        return [claim for claim, cell in self._cells.items() if not board.started_us(cell)]

    def unstarted_since_us(self) -> list[int]:
        """Return since when each of its unstarted jobs waits."""
        waiting = [self.given[claim] for claim in self.unstarted()]
        return [assignment.since_us for assignment in waiting if not assignment.alone]

    # Messages to the child

    def give(self, offset_us: int, now_us: int, assignments: Sequence[Assignment]) -> None:
        """Send it jobs to run. offset_us: the store's time minus the monotonic clock."""
        claims = [assignment.job.claim() for assignment in assignments]
        terms = [terms_of(assignment.job) for assignment in assignments]
        self._has_kills |= any(term.kill_after_us for term in terms)
        self._has_limits |= any(term.timeout_us for term in terms)
        self.given.update(zip(claims, assignments, strict=True))
        cells: list[int] = []
        if self._board is not None:
            cells = [self._free.pop() for _ in claims]
            self._cells.update(zip(claims, cells, strict=True))
            self._claims.update(zip(cells, claims, strict=True))
        self.send(Run(offset_us, now_us, assignments, cells))

    def extend(self, until_us: Mapping[Claim, int]) -> None:
        """Send it the new ends of those of its claims that have not started."""
        unstarted = [self.given[claim] for claim in self.unstarted()]
        members = [
            member for assignment in unstarted for member in assignment.chunk or (assignment,)
        ]
        claims = [assignment.job.claim() for assignment in members]
        if ends_us := {claim: until_us[claim] for claim in claims if claim in until_us}:
            self.send(Extended(ends_us))

    def forget(self, lost: Sequence[Claim]) -> None:
        """Send it which of its claims were lost; it returns those that it has not started."""
        if theirs := self.having(lost):
            self.send(Lost(theirs))

    def recall(self) -> None:
        """Ask it to return the jobs that it has not started."""
        if not self.is_recalled and self.unstarted():
            self.is_recalled = True
            self.send(Recall())

    def ask_to_exit(self) -> None:
        """Take back its unstarted jobs; once it is idle, ask it to exit."""
        if self.given:
            self.recall()
        elif not self._is_exit_asked:
            self._is_exit_asked = True
            self.send(Leave())

    def send(self, message: Message) -> None:
        """Send a message. If the child is dead, its listener requeues its jobs."""
        try:
            self.pipe.send_bytes(dump(message))
        except OSError:
            return

    # Messages from the child

    def on_started(self, claim: Claim, monotonic_us: int) -> None:
        """Note that it calls a handler; the jobs of a batch are not given one by one."""
        if claim in self.given:
            self._started[claim] = monotonic_us

    def on_returned(self, claims: Sequence[Claim]) -> list[Assignment]:
        """Take back jobs that it will not start."""
        return [assignment for assignment in map(self._take, claims) if assignment is not None]

    def on_finished(self, finished: Finished) -> Ended | None:
        """Note that a handler ended; return that, None if its cell will be reported."""
        if self._board is not None:
            self._finished[finished.claim] = finished
            return None
        self.ran += 1
        given = self._take(finished.claim)
        return None if given is None else to_ended(finished, given.job)

    def on_written(self, cells: Sequence[int]) -> list[Ended]:
        """Read how the jobs of some cells ended."""
        self.ran += len(cells)
        ended = [self._ending(self._claims[cell]) for cell in cells]
        for cell in cells:
            self._take(self._claims[cell])
        return [attempt for attempt in ended if attempt is not None]

    def _take(self, claim: Claim) -> Assignment | None:
        """Forget a job that the child will neither start nor end; its cell is free then."""
        self._started.pop(claim, None)
        cell = self._cells.pop(claim, None)
        if cell is not None:
            assert self._board is not None, "cells are on it"
            self._board.start(cell, 0)
            del self._claims[cell]
            self._free.append(cell)
        return self.given.pop(claim, None)

    def _ending(self, claim: Claim) -> Ended | None:
        """Return how a job ended; None if it has not."""
        job = self.given[claim].job
        if (finished := self._finished.pop(claim, None)) is not None:
            return to_ended(finished, job)
        data = None if self._board is None else self._board.ending(self._cells[claim])
        return load_ending(data, job) if data else None

    # Limits

    def lost(self, monotonic_us: int, offset_us: int) -> dict[Claim, LostSlot]:
        """Return the slots whose handlers have outlived their limits, by claim."""
        lost: dict[Claim, LostSlot] = {}
        if not self._has_limits:
            return lost
        for claim, at_us in self.started().items():
            job = self.given[claim].job
            limit_us = interrupted_after_us(job, self._handlers.get(job.task))
            if limit_us is not None and monotonic_us - at_us >= limit_us + LOST_AFTER_US:
                lost[claim] = LostSlot(job, at_us + limit_us + offset_us)
        return lost

    def kill_lost(self, lost: Collection[Claim]) -> None:
        """Kill it once it runs only handlers that have outlived their limits."""
        if lost and not self._is_killed and set(lost) >= set(self.given):
            self._overdue.update(lost)
            self._outlived.update(lost)
            self._is_killed = True
            self.process.kill()

    def kill_overdue(self, monotonic_us: int) -> None:
        """Kill it if a handler runs longer than its `kill_after`, or is to end by force."""
        if not (self._has_kills or self.forced) or self._is_killed:
            return
        for claim, at_us in self.started().items():
            if self._members(self.given[claim]) & self.forced:
                self._is_killed = True
            limit_us = self._kill_after_us(self.given[claim].job)
            if limit_us is not None and monotonic_us - at_us >= limit_us:
                self._overdue.add(claim)
        if self._overdue or self._is_killed:
            self._is_killed = True
            self.process.kill()

    @staticmethod
    def _members(given: Assignment) -> set[Claim]:
        """Return the claims of an assignment, those of a batch without that of its leader."""
        return {assignment.job.claim() for assignment in given.chunk or (given,)}

    def recycle_if_due(self, wear: RecycleAfter, *, weigh: bool) -> None:
        """Mark it for replacement if it is due. weigh: check its memory, too."""
        if wear.jobs is not None and self.ran >= wear.jobs:
            self.is_worn = True
        if weigh and wear.memory_bytes is not None:
            self.is_worn = self.is_worn or resident_bytes(self.pid) >= wear.memory_bytes

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    def endings_of_dead(
        self, monotonic_us: int, offset_us: int
    ) -> tuple[list[Assignment], list[Ended]]:
        """Return what becomes of its jobs after it died.

        If it was killed because a handler ran too long, only that handler's job fails; one that
        was to end by force is cancelled. The jobs that ran next to it are released, and no crash
        is counted.

        Returns:
            The assignments that it had not started, in order, and the attempts that ended with it.
        """
        detail = self.death()
        waiting: list[Assignment] = []
        all_ended: list[Ended] = []
        started, now_us = self.started(), monotonic_us + offset_us
        for claim, given in self.given.items():
            ending: Ending
            if (ended := self._ending(claim)) is not None:
                all_ended.append(ended)
                continue
            if claim not in started:
                waiting.append(given)
                continue
            if claim in self._overdue:
                ending = self._killed(given)
            elif forced := self._members(given) & self.forced:
                ending = Cancelled(BY_FORCE)
                if given.chunk:
                    rest = self._members(given) - forced
                    released = [(claim, GivenBack(may_have_run=True)) for claim in rest]
                    ending = Each([*((claim, ending) for claim in forced), *released])
            else:
                is_beside = self._is_killed  # it ran next to a handler that was ended
                ending = GivenBack(may_have_run=True) if is_beside else Crashed(detail)
            all_ended.append(Ended(given.job, ending, started[claim] + offset_us, now_us))
        return waiting, all_ended

    def close(self) -> None:
        """Release what a dead child leaves."""
        self.pipe.close()
        if self._board is not None:
            self._board.close()

    def death(self) -> str:
        """Describe how the process ended."""
        code = self.process.wait()
        return f"The process died with signal {-code}." if code < 0 else f"It exited: {code}."

    def _kill_after_us(self, job: Job) -> int | None:
        own_us = terms_of(job).kill_after_us
        handler = self._handlers.get(job.task)
        return handler.kill_after_us if own_us is None and handler else own_us

    def _killed(self, given: Assignment) -> Failed:
        handler, limit_us = self._handlers[given.job.task], self._kill_after_us(given.job)
        name = "kill_after"
        if given.job.claim() in self._outlived:
            limit_us, name = interrupted_after_us(given.job, handler), "timeout"
        assert limit_us is not None
        message = f"killed: it ran longer than {limit_us / SECOND_US:g} s ({name})"
        policy, error = handler.retry, JobTimeout()
        wanted, case = policy.wants(error), policy.case_of(error)
        return Failed(JobTimeout.__name__, message, "", wanted, case=case)


def spawning(
    command: Sequence[str], handlers: Mapping[str, Handler], *, jobs: int
) -> Callable[[], ChildHandle]:
    """Return a function that starts child processes on this machine.

    Args:
        command: The program; the descriptors of its pipe and of its board are appended.
        handlers: The handlers by task.
        jobs: Maximum number of jobs that a child is given at once.
    """

    def spawn() -> ChildHandle:
        ours, theirs = socket.socketpair()
        memory = create_memory(jobs)
        with theirs:
            passed = (theirs.fileno(), memory)
            process = subprocess.Popen(  # noqa: S603  (our own interpreter and module)
                [*command, *map(str, passed)], pass_fds=passed, stdin=subprocess.DEVNULL
            )
        return ChildHandle(process, Connection(ours.detach()), handlers, Board(memory))

    return spawn
