"""Runs jobs in child processes."""

import signal
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from dueline.core.attempt import Cancelled, Ended
from dueline.core.claim_buffer import learn_run_us
from dueline.core.clock import SECOND_US, Clock
from dueline.core.errors import ConfigError
from dueline.core.job import Claim, Job
from dueline.tasks.progress import ProgressReport
from dueline.worker.assignment import Assignment, overtaking
from dueline.worker.child_handle import ChildHandle
from dueline.worker.child_protocol import (
    CancelAsked,
    Emission,
    Extended,
    Finished,
    Lost,
    Progressed,
    Ready,
    Returned,
    Started,
    Written,
    load,
)
from dueline.worker.chunk_inbox import ChunkInbox
from dueline.worker.context_controls import CANCELLED, RecentClaims
from dueline.worker.recycling import NO_RECYCLING, RecycleAfter
from dueline.worker.runner import LostSlot

AHEAD_US = 5_000
AHEAD_MAX = 100
"""Limits of the work, and of the jobs, that a child is sent beyond what its threads run."""

STUCK_US = 4 * AHEAD_US
"""A child whose threads have all run longer than this gets no jobs in advance."""

FAILED_STARTS_MAX = 3

WEIGH_EVERY_US = SECOND_US
"""Interval at which the memory of children is checked."""


def threads_each(threads: int, processes: int) -> int:
    """Return the number of threads of each child."""
    return -(-threads // processes)


def jobs_each(threads: int) -> int:
    """Return the maximum number of jobs that a child with this number of threads is given."""
    return threads + AHEAD_MAX


_KILLED = getattr(signal, "SIGKILL", 9)


class ProcessRunner:
    """A fixed number of child processes that share the slots.

    The parent runs no handler. If a child dies, only the jobs that it ran have crashed; its
    unstarted jobs go to another child. A child that is due for recycling ends once its replacement
    is ready, and no job is lost.

    Args:
      spawn: Starts a child with its share of the threads; see `threads_each`.
      processes: Number of children.
      threads: Threads of all children together.
      clock: The machine's clock.
      now_us: Returns the store's time.
      wakeup: Set when there are endings to collect.
      wear: When a child is replaced.
    """

    isolates = True

    def __init__(
        self,
        spawn: Callable[[], ChildHandle],
        *,
        processes: int,
        threads: int,
        clock: Clock,
        now_us: Callable[[], int],
        wakeup: threading.Event,
        wear: RecycleAfter = NO_RECYCLING,
    ) -> None:
        self.threads = threads
        self.run_us = 0.0
        self._spawn = spawn
        self._each = threads_each(threads, processes)
        self._count = processes
        self._clock = clock
        self._now_us = now_us
        self._wakeup = wakeup
        self._wear = wear
        self._weighed_us = 0
        self._guard = threading.Lock()
        self._children: list[ChildHandle] = []
        self._ready: deque[Assignment] = deque()
        self._alone: deque[Assignment] = deque()
        self._ended: deque[Ended] = deque()
        self._cancelled = RecentClaims()
        self._lost = RecentClaims()
        self._reports: dict[Claim, ProgressReport] = {}
        self.chunks = ChunkInbox()
        self._until_us: Mapping[Claim, int] = {}
        self._failed_starts = 0
        self._is_closing = False

    def start(self) -> None:
        """Start the children."""
        with self._guard:
            self._fill_up()

    def submit(self, assignments: Sequence[Assignment]) -> None:
        """Take jobs to run, in order; more urgent ones go before those that wait."""
        with self._guard:
            self._alone.extend(assignment for assignment in assignments if assignment.alone)
            shared = [assignment for assignment in assignments if not assignment.alone]
            count = overtaking(shared, self._ready)
            self._ready.extendleft(reversed(shared[:count]))
            self._ready.extend(shared[count:])
        self.spread()

    def spread(self) -> None:
        """Send ready jobs to the children that have room.

        Raises:
          ConfigError: The children cannot load the application.
        """
        if self._failed_starts >= FAILED_STARTS_MAX:
            raise ConfigError(
                "The worker's child processes exit before they have loaded the application.",
                hint="Read their messages above. Can the application be imported by its name?",
            )
        now_us = self._now_us()
        offset_us = now_us - self._clock.monotonic_us()
        with self._guard:
            staying = [child for child in self._children if not child.is_leaving]
            children = sorted(staying, key=lambda child: len(child.given))
            if self._alone and children:
                # The child with the fewest jobs gets no more until it is idle, then this one.
                lone = children.pop(0)
                if lone.is_ready and not lone.given:
                    assignments = [self._alone.popleft()]
                    self._send_claim_changes(lone, assignments)
                    lone.give(offset_us, now_us, assignments)
            children = [child for child in children if child.is_ready and not child.has_lone()]
            for child, count in self._shares(children):
                assignments = [self._ready.popleft() for _ in range(count)]
                self._send_claim_changes(child, assignments)
                child.give(offset_us, now_us, assignments)
            self._free_stuck(children)

    def _send_claim_changes(self, child: ChildHandle, coming: Sequence[Assignment]) -> None:
        """Send a child what happened to claims while they waited here, before the jobs."""
        if self._until_us:
            each = [
                member.job.claim()
                for assignment in coming
                for member in assignment.chunk or (assignment,)
            ]
            known = self._until_us
            if extended := {claim: known[claim] for claim in each if claim in known}:
                child.send(Extended(extended))
        claims = [member.job.claim() for assignment in coming for member in assignment.chunk]
        if lost := [claim for claim in claims if claim in self._lost]:
            child.send(Lost(lost))
        if cancelled := [claim for claim in claims if claim in self._cancelled]:
            child.send(CancelAsked(cancelled))

    def _shares(self, children: Sequence[ChildHandle]) -> list[tuple[ChildHandle, int]]:
        """Share out ready jobs: first to free threads, then evenly in advance."""
        left = len(self._ready)
        if not left:
            return []
        shares = []
        for child in children:
            shares.append(min(left, max(0, self._each - len(child.given))))
            left -= shares[-1]
        ahead = min(AHEAD_MAX, int(AHEAD_US / self.run_us)) if self.run_us else 0
        for place, child in enumerate(children):
            if left and ahead and not self._is_stuck(child):
                room = max(0, self._each + ahead - len(child.given) - shares[place])
                more = min(room, -(-left // (len(children) - place)))
                shares[place] += more
                left -= more
        return [(child, share) for child, share in zip(children, shares, strict=True) if share]

    def _is_stuck(self, child: ChildHandle) -> bool:
        late_us = self._clock.monotonic_us() - STUCK_US
        return sum(began_us < late_us for began_us in child.started().values()) >= self._each

    def _free_stuck(self, children: Sequence[ChildHandle]) -> None:
        """Take back what waits behind long handlers of one child while another has room."""
        if not self._ready and any(len(child.given) < self._each for child in children):
            for child in children:
                if len(child.given) > self._each and self._is_stuck(child):
                    child.recall()

    def collect(self) -> list[Ended]:
        """Return the attempts that ended since the last call."""
        ended = []
        while self._ended:
            ended.append(self._ended.popleft())
        took_us = [attempt.ended_us - attempt.started_us for attempt in ended if attempt.started_us]
        if took_us:
            self.run_us = learn_run_us(self.run_us, took_us)
        return ended

    def running(self) -> list[Job]:
        """Return the jobs whose handlers run now."""
        with self._guard:
            return [child.given[claim].job for child in self._children for claim in child.started()]

    def take_back(self) -> list[Job]:
        """Take back the jobs that have not started.

        Children are asked for theirs, which a later call returns.
        """
        with self._guard:
            for child in self._children:
                child.recall()
            taken = [assignment.job for assignment in (*self._alone, *self._ready)]
            self._alone.clear()
            self._ready.clear()
        return taken

    @property
    def capacity(self) -> int:
        """Number of jobs that could run now if nothing else ran; some children may be loading."""
        with self._guard:
            ready = sum(child.is_ready and not child.is_leaving for child in self._children)
        return min(self.threads, ready * self._each)

    def waiting_since_us(self) -> int | None:
        """Return when the oldest job arrived that waits for a thread; None if none waits.

        A job that waits for a child of its own, or for one that is loading, waits for no other job.
        """
        with self._guard:
            if not all(child.is_ready for child in self._children):
                return None
            waiting = [assignment.since_us for assignment in self._ready]
            for child in self._children:
                waiting += child.unstarted_since_us()
        return min(waiting, default=None)

    def take_waiting(self) -> list[Job]:
        """Take back the jobs that wait for a thread; children are asked for theirs."""
        with self._guard:
            for child in self._children:
                if child.unstarted_since_us():
                    child.recall()
            taken = [assignment.job for assignment in self._ready]
            self._ready.clear()
        return taken

    def extend(self, until_us: Mapping[Claim, int]) -> None:
        """Set the ends of all extended claims, and send them to the children."""
        with self._guard:
            self._until_us = until_us
            for child in self._children:
                child.extend(until_us)

    def forget(self, lost: Sequence[Claim]) -> None:
        """Drop unstarted jobs whose claims were lost; notify the children with the others."""
        with self._guard:
            self._lost.add(lost)
            self._ready = self._put_back([*self._ready])
            self._alone = self._put_back([*self._alone])
            for child in self._children:
                child.forget(lost)

    def cancel(self, claims: Sequence[Claim]) -> None:
        """End jobs that no child has; notify the children with the others."""
        with self._guard:
            self._cancelled.add(claims)
            self._ready = self._put_back([*self._ready])
            self._alone = self._put_back([*self._alone])
            for child in self._children:
                theirs = child.having(claims)
                if theirs:
                    child.send(CancelAsked(theirs))
        self._wakeup.set()

    def stop_by_force(self, claims: Sequence[Claim]) -> None:
        """Kill the children that run these jobs; what runs next to them is released."""
        with self._guard:
            for child in self._children:
                child.forced.update(child.having(claims))

    def _put_back(self, assignments: Sequence[Assignment]) -> deque[Assignment]:
        """Return jobs to the line, except those that were cancelled or whose claims were lost."""
        waiting: deque[Assignment] = deque()
        for assignment in assignments:
            if assignment.job.claim() in self._lost:
                continue
            if assignment.job.claim() in self._cancelled:
                self._ended.append(Ended(assignment.job, Cancelled(CANCELLED), 0, self._now_us()))
            else:
                waiting.append(assignment)
        return waiting

    def reports(self) -> Mapping[Claim, ProgressReport]:
        """Return the progress that handlers reported since the last call."""
        with self._guard:
            taken, self._reports = self._reports, {}
        return taken

    def waiting(self) -> int:
        """Count the jobs that no child has yet."""
        with self._guard:
            return len(self._alone) + len(self._ready)

    def interrupt_overdue(self) -> None:
        """Kill children with a handler that runs longer than its task's `kill_after`.

        Each child enforces `timeout` itself. A child with a handler that outlives it is replaced,
        and killed when its other handlers have ended.
        """
        now_us = self._clock.monotonic_us()
        with self._guard:
            has_lost = False
            for child in self._children:
                child.kill_overdue(now_us)
                if lost := child.lost(now_us, 0):
                    has_lost = child.is_worn = True
                    child.kill_lost(lost)
            if has_lost or self._wear != NO_RECYCLING:
                self._renew(now_us)

    def lost(self) -> list[LostSlot]:
        """Return the slots whose handlers have outlived their limits."""
        now_us = self._clock.monotonic_us()
        offset_us = self._now_us() - now_us
        with self._guard:
            return [
                slot for child in self._children for slot in child.lost(now_us, offset_us).values()
            ]

    def stop_running(self) -> None:
        """Kill the children; nothing is collected of what they ran."""
        self.close()

    def close(self) -> None:
        """End the children and the handlers in them."""
        with self._guard:
            self._is_closing = True
            children = list(self._children)
        for child in children:
            child.process.kill()
        for child in children:
            child.process.wait()

    def _renew(self, monotonic_us: int) -> None:
        """Start replacements for children that are due; end those whose replacement is ready."""
        weigh = monotonic_us - self._weighed_us > WEIGH_EVERY_US
        if weigh:
            self._weighed_us = monotonic_us
        for child in self._children:
            child.recycle_if_due(self._wear, weigh=weigh)
        self._fill_up()
        spare = (
            sum(child.is_ready and not child.is_leaving for child in self._children) - self._count
        )
        for child in self._children:
            if child.is_worn and not child.is_leaving and spare > 0:
                child.is_leaving = True
                spare -= 1
            if child.is_leaving:
                child.ask_to_exit()

    def _fill_up(self) -> None:
        """Start missing children."""
        missing = self._wanted() - sum(not child.is_worn for child in self._children)
        if self._is_closing or self._failed_starts >= FAILED_STARTS_MAX:
            return
        for _ in range(missing):
            child = self._spawn()
            self._children.append(child)
            threading.Thread(
                target=self._listen, args=(child,), name=f"dueline-{child.pid}", daemon=True
            ).start()

    def _wanted(self) -> int:
        """Return the number of children that should run."""
        return self._count

    def _listen(self, child: ChildHandle) -> None:
        while True:
            try:
                message = load(child.pipe.recv_bytes())
            except (EOFError, OSError):
                break
            with self._guard:
                match message:
                    case Ready():
                        child.is_ready = True
                        self._failed_starts = 0
                    case Started(claim):
                        child.on_started(claim, self._clock.monotonic_us())
                    case Returned(claims):
                        child.is_recalled = False
                        waiting = self._put_back(child.on_returned(claims))
                        self._ready.extendleft(reversed(waiting))
                    case Progressed(claim, report):
                        self._reports[claim] = report
                    case Emission(chunks):
                        for emitted in chunks:
                            self.chunks.emit(emitted)
                    case Written(cells):
                        self._ended.extend(child.on_written(cells))
                    case Finished():
                        if (ended := child.on_finished(message)) is not None:
                            self._ended.append(ended)
            self._wakeup.set()
        self._on_exit(child)

    def _on_exit(self, child: ChildHandle) -> None:
        """Store what ended with a dead child, and start another in its place."""
        is_killed = child.process.wait() == -_KILLED  # then it did not fail to load
        with self._guard:
            self._children.remove(child)
            monotonic_us = self._clock.monotonic_us()
            offset_us = self._now_us() - monotonic_us
            waiting, ended = child.endings_of_dead(monotonic_us, offset_us)
            child.close()
            for given in reversed(self._put_back(waiting)):
                (self._alone if given.alone else self._ready).appendleft(given)
            self._ended.extend(ended)
            if not child.is_ready and not is_killed:
                self._failed_starts += 1
            self._fill_up()
        self._wakeup.set()
