"""A child process, as its parent sees it."""

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
from dueline.core.retry import wants
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
    """What runs somewhere."""

    @property
    def pid(self) -> int: ...  # noqa: D102
    def kill(self) -> None: ...  # noqa: D102
    def wait(self) -> int: ...  # noqa: D102


class Pipe(Protocol):
    """What leads to it."""

    def send_bytes(self, data: bytes, /) -> None: ...  # noqa: D102
    def recv_bytes(self) -> bytes: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


class ChildHandle:
    """One process, its pipe, and what it was given.

    is_worn: another takes its place. is_leaving: it is there, so this one gets nothing more.
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
        self._is_told = False
        self._handlers = handlers
        self._kill_us: dict[Claim, int] = {}
        self._overdue: set[Claim] = set()

    def has_lone(self) -> bool:
        """Tell whether it runs a job that nothing may run beside."""
        return any(one.alone for one in self.given.values())

    def having(self, claims: Sequence[Claim]) -> list[Claim]:
        """List those of some claims whose jobs it was given, by themselves or in a chunk."""
        members = {member.job.claim() for one in self.given.values() for member in one.chunk}
        return [claim for claim in claims if claim in self.given or claim in members]

    def unstarted_since_us(self) -> list[int]:
        """List since when the jobs wait that it was given and has not started."""
        if len(self.given) <= len(self.started):
            return []
        return [
            one.since_us
            for claim, one in self.given.items()
            if claim not in self.started and not one.alone
        ]

    # What it is told

    def give(self, offset_us: int, now_us: int, assignments: Sequence[Assignment]) -> None:
        """Have it run jobs. offset_us: the store's time less the monotonic clock."""
        self.given.update((one.job.claim(), one) for one in assignments)
        self.send(Run(offset_us, now_us, assignments))

    def extend(self, until_us: Mapping[Claim, int]) -> None:
        """Tell it which of its claims last longer, as far as they matter to it."""
        unstarted = [one for claim, one in self.given.items() if claim not in self.started]
        members = [member for one in unstarted for member in one.chunk or (one,)]
        claims = [one.job.claim() for one in members]
        if some := {claim: until_us[claim] for claim in claims if claim in until_us}:
            self.send(Extended(some))

    def recall(self) -> None:
        """Ask for what it has not started."""
        if not self.is_recalled and len(self.given) > len(self.started):
            self.is_recalled = True
            self.send(Recall())

    def ask_to_exit(self) -> None:
        """Take back what it has not started; once it is idle, let it end."""
        if self.given:
            self.recall()
        elif not self._is_told:
            self._is_told = True
            self.send(Leave())

    def send(self, message: Message) -> None:
        """Send a message, unless it is dead: its reader puts back what it was given."""
        try:
            self.pipe.send_bytes(dump(message))
        except OSError:
            return

    # What it says

    def on_started(self, started: Started, monotonic_us: int) -> None:
        """Note that it calls a handler, and until when that may run."""
        self.started[started.claim] = started.started_us
        given = self.given.get(started.claim)
        handler = self._handlers.get(given.job.task) if given else None
        if handler is not None and handler.kill_after_us is not None:
            self._kill_us[started.claim] = monotonic_us + handler.kill_after_us

    def on_finished(self, finished: Finished) -> Assignment | None:
        """Note that a handler ended; answer what it was given, None if it was forgotten."""
        self.ran += 1
        self.started.pop(finished.claim, None)
        self._kill_us.pop(finished.claim, None)
        return self.given.pop(finished.claim, None)

    # Its limits

    def kill_overdue(self, monotonic_us: int) -> None:
        """Kill it if a handler runs longer than its task's `kill_after`."""
        if not self._kill_us:
            return
        overdue = {claim for claim, end_us in self._kill_us.items() if end_us <= monotonic_us}
        if overdue and not self._overdue:
            self._overdue = overdue
            self.process.kill()

    def recycle_if_due(self, wear: RecycleAfter, *, weigh: bool) -> None:
        """See whether it has worked enough. weigh: look at its memory, too."""
        if wear.jobs is not None and self.ran >= wear.jobs:
            self.is_worn = True
        if weigh and wear.memory_bytes is not None:
            self.is_worn = self.is_worn or resident_bytes(self.pid) >= wear.memory_bytes

    @property
    def pid(self) -> int:
        """The process's number."""
        return self.process.pid

    def endings_of_dead(self, now_us: int) -> tuple[list[Assignment], list[Ended]]:
        """Say what becomes of its jobs, now that it is dead.

        One that was killed for a handler that ran too long takes the blame from all others:
        those that ran beside it are given back, and no crash is counted.

        Returns: what it had not started, in order; the attempts that ended with it.
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
        """Say how the process ended."""
        code = self.process.wait()
        return f"The process died with signal {-code}." if code < 0 else f"It exited: {code}."

    def _killed(self, given: Assignment) -> Failed:
        handler = self._handlers[given.job.task]
        assert handler.kill_after_us is not None
        limit_s = handler.kill_after_us / SECOND_US
        message = f"killed: it ran longer than {limit_s:g} s (kill_after)"
        return Failed(JobTimeout.__name__, message, "", wants(handler.retry, JobTimeout()))


def spawning(command: Sequence[str], handlers: Mapping[str, Handler]) -> Callable[[], ChildHandle]:
    """Make what starts processes of this machine.

    Args: command: the program; the number of its pipe's descriptor is appended.
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
    """Read how much memory a process holds; 0 where that cannot be read, as once it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
