"""The parent's side of a child process."""

import os
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Protocol

from dueline.core.attempt import Crashed, Ended, Failed, GivenBack
from dueline.core.clock import SECOND_US
from dueline.core.errors import JobTimeout
from dueline.core.job import Claim
from dueline.tasks.handler import Handler
from dueline.worker.assignment import Assignment
from dueline.worker.child_protocol import (
    Extended,
    Finished,
    Leave,
    Message,
    Recall,
    Run,
    Started,
    dump,
)
from dueline.worker.recycling import RecycleAfter


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

    Attributes:
      is_worn: Another child replaces it.
      is_leaving: Its replacement is ready, so it gets no more jobs.
    """

    def __init__(self, process: Process, pipe: Pipe, handlers: Mapping[str, Handler]) -> None:
        self.process = process
        self.pipe = pipe
        self.given: dict[Claim, Assignment] = {}
        self.started: dict[Claim, int] = {}
        self.ran = 0
        self.is_ready = False
        self.is_recalled = False
        self.is_worn = False
        self.is_leaving = False
        self._is_exit_asked = False
        self._handlers = handlers
        self._kill_us: dict[Claim, int] = {}
        self._overdue: set[Claim] = set()

    def has_lone(self) -> bool:
        """Return whether it runs a job that must run alone."""
        return any(one.alone for one in self.given.values())

    def having(self, claims: Sequence[Claim]) -> list[Claim]:
        """Return those claims whose jobs it was given, alone or in a batch."""
        members = {member.job.claim() for one in self.given.values() for member in one.chunk}
        return [claim for claim in claims if claim in self.given or claim in members]

    def unstarted_since_us(self) -> list[int]:
        """Return since when each of its unstarted jobs waits."""
        if len(self.given) <= len(self.started):
            return []
        return [
            one.since_us
            for claim, one in self.given.items()
            if claim not in self.started and not one.alone
        ]

    # Messages to the child

    def give(self, offset_us: int, now_us: int, assignments: Sequence[Assignment]) -> None:
        """Send it jobs to run. offset_us: the store's time minus the monotonic clock."""
        self.given.update((one.job.claim(), one) for one in assignments)
        self.send(Run(offset_us, now_us, assignments))

    def extend(self, until_us: Mapping[Claim, int]) -> None:
        """Send it the new ends of those of its claims that have not started."""
        unstarted = [one for claim, one in self.given.items() if claim not in self.started]
        members = [member for one in unstarted for member in one.chunk or (one,)]
        claims = [one.job.claim() for one in members]
        if some := {claim: until_us[claim] for claim in claims if claim in until_us}:
            self.send(Extended(some))

    def recall(self) -> None:
        """Ask it to return the jobs that it has not started."""
        if not self.is_recalled and len(self.given) > len(self.started):
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

    def on_started(self, started: Started, monotonic_us: int) -> None:
        """Note that it calls a handler, and when that handler must be killed."""
        self.started[started.claim] = started.started_us
        given = self.given.get(started.claim)
        handler = self._handlers.get(given.job.task) if given else None
        if handler is not None and handler.kill_after_us is not None:
            self._kill_us[started.claim] = monotonic_us + handler.kill_after_us

    def on_finished(self, finished: Finished) -> Assignment | None:
        """Note that a handler ended; return its assignment, None if its claim was lost."""
        self.ran += 1
        self.started.pop(finished.claim, None)
        self._kill_us.pop(finished.claim, None)
        return self.given.pop(finished.claim, None)

    # Limits

    def kill_overdue(self, monotonic_us: int) -> None:
        """Kill it if a handler runs longer than its task's `kill_after`."""
        if not self._kill_us:
            return
        overdue = {claim for claim, end_us in self._kill_us.items() if end_us <= monotonic_us}
        if overdue and not self._overdue:
            self._overdue = overdue
            self.process.kill()

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

    def endings_of_dead(self, now_us: int) -> tuple[list[Assignment], list[Ended]]:
        """Return what becomes of its jobs after it died.

        If it was killed because a handler ran too long, only that handler's job fails. The jobs
        that ran next to it are released, and no crash is counted.

        Returns:
            The assignments that it had not started, in order, and the attempts that ended with it.
        """
        detail = self.death()
        waiting: list[Assignment] = []
        ended: list[Ended] = []
        for claim, given in self.given.items():
            started_us = self.started.get(claim)
            if started_us is None:
                waiting.append(given)
            elif claim in self._overdue:
                ended.append(Ended(given.job, self._killed(given), started_us, now_us))
            elif self._overdue:
                ended.append(Ended(given.job, GivenBack(), started_us, now_us))
            else:
                ended.append(Ended(given.job, Crashed(detail), started_us, now_us))
        return waiting, ended

    def death(self) -> str:
        """Describe how the process ended."""
        code = self.process.wait()
        return f"The process died with signal {-code}." if code < 0 else f"It exited: {code}."

    def _killed(self, given: Assignment) -> Failed:
        handler = self._handlers[given.job.task]
        assert handler.kill_after_us is not None
        limit_s = handler.kill_after_us / SECOND_US
        message = f"killed: it ran longer than {limit_s:g} s (kill_after)"
        policy, error = handler.retry, JobTimeout()
        wanted, case = policy.wants(error), policy.case_of(error)
        return Failed(JobTimeout.__name__, message, "", wanted, case=case)


def spawning(command: Sequence[str], handlers: Mapping[str, Handler]) -> Callable[[], ChildHandle]:
    """Return a function that starts child processes on this machine.

    Args:
        command: The program; the descriptor of its pipe is appended.
        handlers: The handlers by task.
    """

    def spawn() -> ChildHandle:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(  # noqa: S603  (our own interpreter and module)
                [*command, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
            )
        return ChildHandle(process, Connection(ours.detach()), handlers)

    return spawn


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process; 0 if it cannot be read."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
