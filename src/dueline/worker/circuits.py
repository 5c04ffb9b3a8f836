"""A worker's part in circuit breakers: it counts attempts, opens, probes and closes circuits."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from dueline.core.attempt import Crashed, Done, Ended, Failed, Settled, Uncertain
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.errors import StoreUnavailable
from dueline.core.job import Claim, Job
from dueline.jobs import circuit_records, circuits
from dueline.tasks.failure_limits import Failures

CHECK_US: Final = SECOND_US
"""How often the circuits of paused tasks are read."""

RESTORE_US: Final = 15 * SECOND_US
"""How often those of others are read: a process may have died before it changed a pause."""

Place = tuple[str, str]
"""A queue and a task."""


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
        self._running: set[Claim] = set()
        self._checked_us = self._restored_us = 0
        self.probes: Collection[str] = ()

    def ended(self, ended: Sequence[Ended]) -> None:
        """Count attempts whose ends are stored."""
        if not self.terms:
            return
        found: dict[Place, str] = {}
        for job, ending, *_ in ended:
            if job.task not in self.terms:
                continue
            place = job.lane.queue, job.task
            is_failure = isinstance(ending, Failed | Crashed | Uncertain)
            is_probe = job.claim() in self._running
            self._running.discard(job.claim())
            is_success = isinstance(ending, Done | Settled)
            if is_probe:
                with suppress(StoreUnavailable):  # the next probe closes it
                    circuits.end_probe(self._engine, *place, job, is_success=is_success)
            elif is_failure or is_success:
                found[place] = found.get(place, "") + "01"[is_failure]
        self._count(found)

    def died(self, jobs: Iterable[Job]) -> None:
        """Count attempts whose workers died."""
        found: dict[Place, str] = {}
        for job in jobs:
            if job.task in self.terms:
                place = job.lane.queue, job.task
                found[place] = found.get(place, "") + "1"
        self._count(found)

    def _count(self, found: Mapping[Place, str]) -> None:
        for (queue, task), outcomes in found.items():
            terms = self.terms[task]
            recent = (self._uncounted.get((queue, task), "") + outcomes)[-terms.of :]
            if "1" not in recent:
                self._uncounted[queue, task] = recent
                continue
            self._uncounted[queue, task] = ""
            with suppress(StoreUnavailable):  # they are not counted: more will fail
                circuits.count(self._engine, queue, task, recent, terms)

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
            paused = self._engine.catalog.settings(queue).paused_tasks
            if not (is_restoring or self.terms.keys() & set(paused)):
                continue
            for task in circuit_records.open_in(self._engine.store, queue).keys() & self.terms:
                circuit = circuits.begin_probe(self._engine, queue, task)
                if circuit is not None and circuit.probe:
                    probes.add(circuit.probe)
        self.probes = probes

    def lets_probe(self, job: Job) -> bool:
        """Return whether a claimed job of a paused task probes whether it may resume."""
        if job.task not in self.terms:
            return False
        circuit, _ = circuit_records.read(self._engine.store, job.lane.queue, job.task)
        if not circuit.opened_us or circuit.probe != job.id.hex():
            return False
        self._running.add(job.claim())
        return True
