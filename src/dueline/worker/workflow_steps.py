"""A worker's part in workflows, and in jobs that wait for others."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from dueline.core.attempt import Done, Ended, Expired, FinalState, Outcome
from dueline.core.call_options import awaited_by, expires_by, waits_for_turn
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.errors import StoreCorrupt
from dueline.core.job import Job, JobId
from dueline.core.logging import log
from dueline.jobs import dependencies, orders
from dueline.jobs.group_cancellation import advance
from dueline.jobs.history import attempt_of
from dueline.jobs.queue import Queues
from dueline.jobs.workflow_control import cancel_group
from dueline.worker.claimer import ClaimedJob
from dueline.worker.settler import Settler
from dueline.worker.triage import EndedBeforeRun
from dueline.workflows import records
from dueline.workflows.graph import Layout
from dueline.workflows.readiness import Broken, NotNeeded, Runnable
from dueline.workflows.records import Layouts
from dueline.workflows.release import ask, park, wake_steps

_UNKNOWN = "The workflow of this step is unknown."


class SortedSteps(NamedTuple):
    """Claimed jobs, by whether they may run as steps.

    Attributes:
      fit: They may run.
      given: First arguments of some of these, JSON arrays.
      waiting: They are parked; those that wait for a signal until a time, 0 for ever.
      over: They end without running.
      broken: They gather groups that must be cancelled.
      awaiting: They wait for other jobs, or have not been released yet.
      in_order: They wait for their turn among the jobs of their order keys.
    """

    fit: list[ClaimedJob]
    given: dict[JobId, bytes]
    waiting: dict[Job, int]
    over: list[EndedBeforeRun]
    broken: list[Job]
    awaiting: list[Job]
    in_order: list[Job]


class WorkflowSteps:
    """Decides whether claimed steps may run, and releases the steps after those that ended.

    Attributes:
      has_moved: Steps were released since it was last cleared.
    """

    def __init__(self, engine: Engine, settler: Settler) -> None:
        self._engine = engine
        self._queues = Queues(engine)
        self._settler = settler
        self._layouts = Layouts()
        self._ended: list[Job] = []
        self._sure: set[JobId] = set()
        self._with_dependents: set[JobId] = set()
        self._to_wake: set[JobId] = set()
        self.has_moved = False

    def sort(self, taken: Sequence[ClaimedJob]) -> SortedSteps:
        """Sort claimed steps by whether they may run; changes nothing."""
        if not any(job.opts for job, _ in taken):  # none of a workflow
            return SortedSteps(list(taken), {}, {}, [], [], [], [])
        now_us = self._engine.time.latest_us()
        steps = SortedSteps([], {}, {}, [], [], [], [])
        waiting = [job for job, _ in taken if waits_for_turn(job)]
        turn = orders.may_run(self._engine, waiting) if waiting else set()
        for claimed in taken:
            if waiting and claimed.job.id not in turn and waits_for_turn(claimed.job):
                steps.in_order.append(claimed.job)
                continue
            if awaited_by(claimed.job) and not expires_by(claimed.job.opts, now_us):
                steps.awaiting.append(claimed.job)
                continue
            place = records.place_of(claimed.job)
            if place is None or (claimed.job.task and not place.parked_us):
                steps.fit.append(claimed)  # of no workflow, or one that needs nothing
                continue
            try:
                word = self._ask(claimed.job, now_us)
            except StoreCorrupt as error:  # checked again later; the others continue
                log.error("step %s is parked: %s", claimed.job.id.hex(), error)
                word = 0
            if isinstance(word, Broken):
                steps.broken.append(claimed.job)
            elif isinstance(word, Runnable):
                steps.given[claimed.job.id] = word.given
                steps.fit.append(claimed)
            elif isinstance(word, EndedBeforeRun):
                steps.over.append(word)
            else:
                steps.waiting[claimed.job] = word
        return steps

    def park_and_end(self, steps: SortedSteps) -> None:
        """Park the steps that wait, and end those that are over."""
        for job in steps.broken:
            flow, step, layout = self._known(job)
            cancel_group(self._queues, flow, layout, step)
        if steps.waiting or steps.broken:
            now_us = self._engine.time.latest_us()
            # A second later it is checked whether all steps of a cancelled group have ended.
            waiting = steps.waiting | dict.fromkeys(steps.broken, now_us + SECOND_US)
            park(self._engine, waiting)
            self._look_again(waiting, now_us)
        for job, word in dependencies.check(self._engine, steps.awaiting):
            now_us = self._engine.time.latest_us()
            steps.over.append(self._over(job, now_us, word.state, error=word.why))
        self._note(orders.postpone(self._engine, steps.in_order))
        self._note(len(steps.awaiting) + len(steps.in_order))
        if steps.over:
            self._settler.end(steps.over)
            self.ended(job for job, _, _ in steps.over)
        self.advance()

    def _known(self, job: Job) -> tuple[JobId, int, Layout]:
        """Return the workflow of a step that was just checked, its number, and the layout."""
        step = records.step_of(job)
        assert step is not None
        layout = self._layouts.get(self._engine.store, step[0])
        assert layout is not None
        return (*step, layout)

    def _ask(self, job: Job, now_us: int) -> Runnable | EndedBeforeRun | Broken | int:
        """Return what becomes of a step; a number: it is parked until then, or a signal."""
        word = ask(self._engine, self._layouts, job)
        if word is None:
            return self._over(job, now_us, "dead", error=_UNKNOWN)
        if isinstance(word, NotNeeded):
            return self._over(job, now_us, "cancelled", error=word.why)
        if isinstance(word, Broken):
            return word
        if not isinstance(word, Runnable):
            return 0
        return word if job.task else self._awaited(job, word, now_us)

    def _awaited(self, job: Job, fit: Runnable, now_us: int) -> EndedBeforeRun | int:
        """Return what becomes of a step without a task: it gathers, or waits for a signal."""
        place = records.place_of(job)
        assert place is not None
        flow, step, layout = self._known(job)
        node = layout.nodes[step]
        if not node.signal:
            return self._over(job, now_us, "done", value=fit.given[1:-1].decode())
        value = records.signalled(self._engine.store, flow, node.signal)
        if value is not None:
            return self._over(job, now_us, "done", value=value.decode())
        until_us = place.until_us or (now_us + node.timeout_us if node.timeout_us else 0)
        if until_us and until_us <= now_us:
            return self._over(
                job, now_us, "expired", error=f"The signal {node.signal} did not arrive in time."
            )
        return until_us

    def _over(
        self, job: Job, now_us: int, state: FinalState, *, value: str = "", error: str = ""
    ) -> EndedBeforeRun:
        ended = Ended(job, Expired(), 0, now_us)
        outcome = Outcome(state, now_us, value=value, error=error)
        return EndedBeforeRun(job, outcome, attempt_of(ended, outcome=state, error=error))

    def _look_again(self, parked: Iterable[Job], now_us: int) -> None:
        """Check steps that were just parked once more (rule W5)."""
        for job in parked:
            with suppress(StoreCorrupt):
                self._ask_again(job, now_us)

    def _ask_again(self, job: Job, now_us: int) -> None:
        if not isinstance(self._ask(job, now_us), int | Broken):
            step = records.step_of(job)
            assert step is not None
            self._note(wake_steps(self._engine, step[0], [step[1]]))

    def ended(self, jobs: Iterable[Job]) -> None:
        """Note jobs that may have ended."""
        self._ended += [job for job in jobs if job.opts]

    def settled(self, ended: Sequence[Ended], lost: Sequence[Job]) -> None:
        """Note attempts whose endings were stored, except those whose claims were lost.

        If the store writes the ending and the step's record in one transaction, the step is known
        to have ended.
        """
        if self._with_dependents:
            awaited = self._with_dependents.intersection(attempt.job.id for attempt in ended)
            self._to_wake |= awaited  # also after a failed attempt: the row can be marked then
            self._with_dependents -= awaited
        steps = [attempt for attempt in ended if attempt.job.opts]
        self._ended += [step.job for step in steps]
        if self._engine.store.transactional and not lost:
            self._sure.update(step.job.id for step in steps if isinstance(step.ending, Done))

    def note_awaited(self, jobs: Sequence[JobId]) -> None:
        """Note jobs for which others wait, and which may have ended (rule J3)."""
        self._with_dependents.update(jobs)
        self._to_wake.update(jobs)

    def advance(self) -> None:
        """Release what waited for jobs that ended (rules W3 and J3)."""
        if self._to_wake:
            self._note(dependencies.wake(self._engine, self._to_wake))
            self._to_wake.clear()
        if self._ended:
            released = advance(self._engine, self._layouts, self._ended, self._sure)
            self._note(released.steps)
            self._ended = []
            self._sure.clear()
            for flow, _, gathers, _ in released.broken:
                layout = self._layouts.get(self._engine.store, flow)
                assert layout is not None
                cancel_group(self._queues, flow, layout, gathers)

    def _note(self, moved: int) -> None:
        self.has_moved = self.has_moved or moved > 0
