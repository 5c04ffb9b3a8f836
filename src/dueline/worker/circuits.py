"""A worker's part in circuit breakers: it counts attempts, opens, probes and closes circuits."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from dueline.core.attempt import Crashed, Done, Ended, Failed, Settled, Uncertain
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.errors import Conflict, StoreUnavailable
from dueline.core.job import Job, State
from dueline.core.retry import WORKER_DIED
from dueline.jobs import circuit_records, circuits
from dueline.jobs.circuit_records import Crash
from dueline.tasks.failure_limits import Failures
from dueline.worker.claimer import ClaimedJob

CHECK_US: Final = SECOND_US
"""How often the circuits of paused tasks are read."""

RESTORE_US: Final = 15 * SECOND_US
"""How often those of others are read: a process may have died before it changed a pause."""

_PASSING: Final = (StoreUnavailable, Conflict)

Place = tuple[str, str]
"""A queue and a task."""


@dataclass(slots=True)
class Counted:
    """Attempts that ended: how, the last one last, 1 failed, 0 succeeded; those that crashed."""

    outcomes: str = ""
    crashes: list[Crash] = field(default_factory=list)


class Circuits:
    """The circuits of the tasks that one worker runs; used by its loop.

    Successes are counted in memory, and stored with the next failure: a task that does not fail
    costs nothing.

    Args:
      engine: The engine.
      terms: When tasks pause themselves, by task; of those that do.
      queues: The queues that the worker serves.

    Attributes:
      terms: As given.
      probes: Ids of the jobs that probe open circuits, in hexadecimal.
    """

    def __init__(
        self, engine: Engine, terms: Mapping[str, Failures], queues: Iterable[str]
    ) -> None:
        self._engine = engine
        self.terms = terms
        self._queues = tuple(queues) if terms else ()
        self._uncounted: dict[Place, str] = {}
        self._checked_us = self._restored_us = 0
        self.probes: Collection[str] = ()

    def ended(self, ended: Sequence[Ended]) -> None:
        """Count attempts whose ends are stored."""
        if not self.terms:
            return
        counts: dict[Place, Counted] = defaultdict(Counted)
        for job, ending, *_ in ended:
            if job.task not in self.terms:
                continue
            place = job.lane.queue, job.task
            is_success = isinstance(ending, Done | Settled)
            if job.task in self._engine.catalog.settings(job.lane.queue).paused_tasks:
                with suppress(*_PASSING):  # the next probe closes it
                    circuits.end_probe(self._engine, *place, job, is_success=is_success)
            elif isinstance(ending, Crashed):
                self._crashed(counts[place], job, ending.detail)
            elif is_success or isinstance(ending, Failed | Uncertain):
                counts[place].outcomes += "01"[not is_success]
        self._count(counts)

    def died(self, claimed: Iterable[ClaimedJob]) -> None:
        """Count attempts whose workers died, which their next claims show."""
        counts: dict[Place, Counted] = defaultdict(Counted)
        for job, before in claimed:
            if job.task in self.terms and before is not None and before.state == State.STARTED:
                self._crashed(counts[job.lane.queue, job.task], before, WORKER_DIED)
        self._count(counts)

    def _crashed(self, counted: "Counted", job: Job, signature: str) -> None:
        """Count the death of a process, unless another job that it ran may be the cause.

        A job whose process died runs alone the next time, and counts if another one dies.
        """
        is_once = self._engine.catalog.settings(job.lane.queue).is_once  # it does not run again
        if job.alone or is_once:
            counted.outcomes += "1"
            counted.crashes.append(Crash(signature, job.id.hex(), self._engine.time.latest_us()))

    def _count(self, counts: Mapping[Place, "Counted"]) -> None:
        for (queue, task), counted in counts.items():
            terms = self.terms[task]
            before = self._uncounted.get((queue, task), "")
            recent = (before + counted.outcomes)[-terms.of :]
            if "1" not in recent:
                self._uncounted[queue, task] = recent
                continue
            self._uncounted[queue, task] = ""
            with suppress(*_PASSING):  # they are not counted: more will fail
                circuits.count(
                    self._engine, queue, task, recent, crashes=counted.crashes, terms=terms
                )

    def check(self) -> None:
        """Probe open circuits whose time has come, now and then."""
        if not self._queues:
            return
        now_us = self._engine.time.latest_us()
        if now_us - self._checked_us < CHECK_US:
            return
        self._checked_us = now_us
        is_restoring = now_us - self._restored_us >= RESTORE_US
        if is_restoring:
            self._restored_us = now_us
        probes: set[str] = set()
        for queue in self._queues:
            settings = self._engine.catalog.settings(queue)
            if not (is_restoring or self.terms.keys() & set(settings.tripped_tasks)):
                continue
            tasks = {*settings.tripped_tasks, *circuit_records.open_in(self._engine.store, queue)}
            for task in tasks & self.terms.keys():
                with suppress(Conflict):  # others change the settings; the next check repeats it
                    circuit = circuits.begin_probe(self._engine, queue, task)
                    if circuit is not None and circuit.probe:
                        probes.add(circuit.probe)
        self.probes = probes

    def lets_probe(self, job: Job) -> bool:
        """Return whether a claimed job of a paused task probes whether it may resume."""
        if job.task not in self.terms:
            return False
        with suppress(*_PASSING):  # it waits for the next probe
            return circuits.start_probe(self._engine, job.lane.queue, job.task, job)
        return False
