"""The maintenance leader: one elected worker that runs the maintenance tasks.

It is elected through a lease and fenced by its epoch, and has no authority (rules M1, M2): any
worker could make each of its changes, under a condition. So two leaders cost load, not correctness,
and no job waits for maintenance. Without a leader nothing is deleted when its retention ends.
"""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Final

from dueline.coordination import worker_registry
from dueline.coordination.leases import BEATS_A_TTL, ELECTIONS, MONITOR, Leases, set_free
from dueline.coordination.worker_registry import Registration
from dueline.core.clock import SECOND_US, Clock
from dueline.core.engine import Engine
from dueline.core.errors import StoreUnavailable, Unknown
from dueline.core.logging import log
from dueline.core.maintenance import MaintenanceTask, StepResult
from dueline.core.process_identity import own
from dueline.monitor import interval, run_log
from dueline.monitor.run_log import RunLog, TaskRun

TTL_US: Final = 20 * SECOND_US
"""How long leadership lasts without a heartbeat: another worker takes over after that."""

ELECTION_EVERY_US: Final = 10 * SECOND_US
"""How often each of a few workers tries to become the leader."""

ELECTION_PER_WORKER_US: Final = 2 * SECOND_US
"""Minimum time between tries of all workers together: idle workers share the cost of the reads."""

LEADER_CHECK_US: Final = SECOND_US // 2
"""How often a worker checks whether the leader's process has ended, where it can see that."""

NOTED_EVERY_US: Final = 60 * SECOND_US
"""How often the runs of tasks are written that changed nothing; each other run is, with these."""


class Monitor:
    """A candidate for maintenance leader; runs the tasks in steps while it is the leader.

    epoch: of its leadership; None: another worker is the leader, as far as is known.

    Args:
        holder: Name of the candidate, unique to the process and the try.
        chance: Returns a number in [0, 1), so that candidates spread out.
        load_tasks: Returns the tasks; called when this becomes the leader, since most workers
            never do.
        warn: Called with each line that a task wants logged, while this is the leader.
    """

    def __init__(
        self,
        engine: Engine,
        holder: str,
        *,
        clock: Clock,
        chance: Callable[[], float],
        load_tasks: Callable[[], Sequence[MaintenanceTask]],
        warn: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.epoch: int | None = None
        self._engine = engine
        self._load_tasks = load_tasks
        self._tasks: Sequence[MaintenanceTask] = ()
        self._chance = chance
        self._warn = warn
        self._run_log: RunLog | None = None
        self._interval_us = 0  # as read at the last heartbeat
        self._noted_us = 0  # when the run log was written last
        self._failed: set[str] = set()  # names of tasks whose last step the store failed
        self._clock = clock
        self._here = own()
        self._leader: Registration | None = None
        self._rests_until_us = 0
        self._leases = Leases(
            engine.store, ELECTIONS, holder,
            ttl_us=TTL_US, time=engine.time, clock=clock, ids=engine.ids,
        )  # fmt: skip

    def step(self) -> int:
        """Renew or seek the leadership, then run a step of the task that is most overdue.

        Returns: after how many microseconds to call this again.
        """
        left_us = self._rests_until_us - self._clock.monotonic_us()
        if left_us > 0 and not self._has_leader_ended():
            return min(left_us, LEADER_CHECK_US)
        self._rests_until_us = 0
        beat_us = TTL_US // BEATS_A_TTL
        if self._leases.sure_us(MONITOR) < TTL_US - TTL_US // 10 - beat_us:
            self._elect()
        if self._run_log is None:
            per_worker_us = ELECTION_PER_WORKER_US * worker_registry.count(self._engine.store)
            rest_us = round(max(ELECTION_EVERY_US, per_worker_us) * (1 - self._chance() / 4))
            if not self._sees_leader():
                return rest_us
            self._rests_until_us = self._clock.monotonic_us() + rest_us
            return min(rest_us, LEADER_CHECK_US)
        runs = self._run_log.runs
        now_us = self._engine.time.earliest_us()
        waits = [(self._wait_us(task, runs.get(task.name), now_us), task) for task in self._tasks]
        waits.sort(key=itemgetter(0))
        due = [task for wait_us, task in waits if wait_us <= 0]
        if not due:
            return min(waits[0][0], beat_us)
        self._run(self._first_of(due), self._run_log)
        return 0

    def _first_of(self, due: Sequence[MaintenanceTask]) -> MaintenanceTask:
        """Return the task to run: one that the store failed comes after the others."""
        others = [task for task in due if task.name not in self._failed]
        if not others:
            self._failed.clear()
        return (others or due)[0]

    def _sees_leader(self) -> bool:
        """Return whether this process can see when the process of the leader ends."""
        grant = self._leases.seen(MONITOR)
        if grant is None or not self._here.space:
            return False
        if self._leader is None or self._leader.worker != grant.holder:
            known = (worker for worker, _ in worker_registry.registrations(self._engine.store))
            self._leader = next((worker for worker in known if worker.worker == grant.holder), None)
        return self._leader is not None and self._leader.space == self._here.space

    def _has_leader_ended(self) -> bool:
        """Return whether the leader's process has certainly ended; then its lease is released."""
        leader = self._leader
        if leader is None or not leader.has_ended(self._here):
            return False
        version = self._engine.ids.token()
        set_free(self._engine.store, ELECTIONS, MONITOR, version=version, holder=leader.worker)
        self._leader = None
        return True

    def _elect(self) -> None:
        epoch = self._leases.hold_or_take(MONITOR)
        if epoch is None or epoch != self.epoch:
            self._run_log = None
        if epoch is not None and self._run_log is None:
            self._tasks = self._tasks or self._load_tasks()
            version = self._engine.ids.token()
            self._run_log = run_log.open_run_log(self._engine.store, epoch=epoch, version=version)
        self.epoch = None if self._run_log is None else epoch
        if self.epoch is not None:
            every_us = interval.interval_us(self._engine.store)
            if every_us != self._interval_us:
                self._interval_us = every_us
                log.info("maintenance: %s", interval.interval_text(every_us))

    def _run(self, task: MaintenanceTask, log: RunLog) -> None:
        run = log.runs.get(task.name, TaskRun(0))
        try:
            result = task.step(self._engine, run.after)
        except (StoreUnavailable, Unknown):
            self._failed.add(task.name)
            raise
        except Exception:
            self._note(log, task, run, StepResult())  # so that the other tasks run too
            raise
        self._failed.discard(task.name)
        self._note(log, task, run, result)

    def _note(self, log: RunLog, task: MaintenanceTask, run: TaskRun, result: StepResult) -> None:
        now_us = self._engine.time.earliest_us()
        next_us = now_us + (self._every_us(task) if result.after is None else result.rest_us)
        written = TaskRun(next_us, result.after, run.acts + result.acts)
        is_new = run.after is not None or any(result)
        if not is_new and now_us - self._noted_us < NOTED_EVERY_US:
            log.remember(task.name, written)
            return
        version = self._engine.ids.token()
        if not log.write(task.name, written, result.puts, version=version):
            self._run_log = self.epoch = None  # another worker is the leader
            return
        self._noted_us = now_us
        for line in result.warnings:
            self._warn(line)

    def resign(self) -> None:
        """Release the lease, so that the next leader need not wait until it expires."""
        self._run_log = self.epoch = None
        self._leases.release([MONITOR])

    def _every_us(self, task: MaintenanceTask) -> int:
        return max(task.every_us, self._interval_us)

    def _wait_us(self, task: MaintenanceTask, run: TaskRun | None, now_us: int) -> int:
        """Return how long until a task continues.

        A round that would begin much later than its interval begins now: the interval was made
        shorter, or the clock jumped.
        """
        if run is None:
            return 0
        every_us, left_us = self._every_us(task), run.next_us - now_us
        return 0 if run.after is None and left_us > 2 * every_us else min(left_us, every_us)
