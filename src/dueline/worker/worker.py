"""The loop that claims, runs and settles."""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence

from dueline.coordination import worker_requests
from dueline.coordination.run_times import RunTimes
from dueline.core.attempt import Ended
from dueline.core.call_options import may_wait
from dueline.core.clock import SECOND_US, Clock
from dueline.core.engine import Engine
from dueline.core.errors import DuelineError
from dueline.core.job import Claim, Job, JobId
from dueline.core.logging import log
from dueline.core.store_capabilities import flush_claims
from dueline.core.wakeup import WakeupListener
from dueline.limits.permits import HeldPermits
from dueline.worker.assignment import Assignment
from dueline.worker.backoff import PollTimer, StoreBackoff
from dueline.worker.batch_gatherer import gathering
from dueline.worker.buffer import Buffer, RoundTrips
from dueline.worker.cancellations import Cancellations
from dueline.worker.claimer import ClaimedJob, Claimer
from dueline.worker.exit_thread import ExitThread
from dueline.worker.heartbeat import HeartbeatThread, Load, PresenceReporter, answer_of
from dueline.worker.held_jobs import HeldJobs
from dueline.worker.idle_turns import IdleTurns
from dueline.worker.paused_jobs import DeferredJobs
from dueline.worker.poller import LaneListPoller
from dueline.worker.prefetch import PrefetchedJobs, placed, times_of
from dueline.worker.progress_reports import ProgressReports
from dueline.worker.releases import after_stop, released
from dueline.worker.runner import Runner
from dueline.worker.settlements import Settlements
from dueline.worker.settler import Settler
from dueline.worker.slots import Slots
from dueline.worker.start_marks import MarkedStarts
from dueline.worker.triage import Triage, parted
from dueline.worker.worker_settings import WorkerSettings
from dueline.worker.workflow_steps import WorkflowSteps

WATCH_US = 50_000  # running handlers are checked this often
LIVE_WITHIN_US = 60 * SECOND_US
"""A worker whose loop has not turned for this time is not alive; outages delay turns by seconds."""

SOON_US = SECOND_US
"""How long an embedded worker waits for handlers that were asked to end, before it continues."""


class Worker:
    """Claims jobs of some queues, runs them, and settles them.

    Attributes:
      left_running: Number of handlers that have not ended within the drain.
    """

    def __init__(
        self,
        engine: Engine,
        runner: Runner,
        settler: Settler,
        settings: WorkerSettings,
        *,
        clock: Clock,
        wakeup: threading.Event,
        listener: WakeupListener,
        pace: PollTimer,
    ) -> None:
        """Create the worker's parts.

        Args:
          wakeup: Set by the runner, the listener and `stop`.
        """
        self.name = settings.worker
        self._engine = engine
        self._settler = settler
        self._settings = settings
        self._clock = clock
        self._wakeup = wakeup
        self._guarded = StoreBackoff(clock).do
        self._permits = HeldPermits(engine, settings.worker)
        self._claimer = Claimer.sharing(
            engine, settings.serving, settings.worker, self._permits,
            known=settings.known, is_alone=settings.burst,
        )  # fmt: skip
        self._cancellations = Cancellations(engine, settings.worker, clock, wakeup)
        self._arrived: list[ClaimedJob] = []
        self._crashed: list[ClaimedJob] = []
        self._releasing: list[Job] = []
        turns = IdleTurns(engine, settings.serving, settings.known)
        self._poller = LaneListPoller(engine, self._claimer, listener, pace, turns)
        self._held = HeldJobs(settings.serving, engine.catalog.settings)
        self._held.start_by_us = self._permits.start_by_us
        times = (clock, engine.time.latest_us)
        self._gatherer = gathering(runner, settler.batch_handlers, times, self._held.marked)
        self._runner = runner = self._gatherer or runner
        self._reports = ProgressReports(engine, runner.reports, runner.chunks)
        self._prefetched = PrefetchedJobs(self._start_early, engine.time, wakeup=wakeup)
        self._slots = Slots(runner, self._held, self._prefetched, self._gatherer)
        self._ended: list[Ended] = []  # the first ones are being settled, if any are
        self._settlements = Settlements(
            engine.store, settler, self._held, clock, wakeup, is_beside=settings.settles_beside
        )
        self._run_times = RunTimes(
            settings.worker, slots=runner.threads, now_us=engine.time.latest_us()
        )
        self._deferred = DeferredJobs(
            engine, settings.known, settler.limited, wakeup, settler.circuits(settings.serving)
        )
        self._steps = WorkflowSteps(engine, settler)
        self._marked_starts = MarkedStarts(runner, settler, self._held, clock)
        trips = RoundTrips(engine.store, lambda: self._reporter.lease_us)
        self._buffer = Buffer(runner, self._marked_starts, trips, claims_ahead=settings.prefetch)
        self._flushed_us = 0
        self._reporter = PresenceReporter(
            engine,
            settings.worker,
            serving=tuple(settings.serving),
            known=settings.known,
            batches={
                n: (handler.batch.size, handler.batch.within_us)
                for n, handler in settler.batch_handlers.items()
            },
            address=listener.address,
        )
        self._is_stopping = self._is_hurried = self._is_exiting = self._is_outlasting = False
        self.left_running, self.is_stopped_by_request = 0, False
        self._turned_us = clock.monotonic_us()
        self.is_claiming: bool | None = None  # whether the loop's last turn succeeded
        self._beat = HeartbeatThread(self._extend_all, self._attend, wakeup=wakeup)

    def stop(self, *, hurry: bool = False) -> None:
        """Stop claiming; return from `run` when running handlers have ended, or at once (rule A3).

        Callable from any thread.
        """
        self._is_stopping = True
        self._is_hurried = self._is_hurried or hurry
        self._wakeup.set()

    def exit(self) -> None:
        """Release all jobs at once, since this process ends; callable from any thread."""
        self._is_exiting = True
        self.stop(hurry=True)

    def turned_ago_us(self) -> int:
        """Return how long ago the loop began its last turn; callable from any thread."""
        return self._clock.monotonic_us() - self._turned_us

    def run(self) -> None:
        """Work until stopped, or in a burst until no job is due.

        If the process goes on, handlers may outlast this: a thread keeps their claims.
        """
        self._runner.start()
        self._beat.start()
        try:
            with self._engine.endings.serving():
                self._until(lambda: self._is_stopping or self._is_moved() or self._is_burst_over())
                self._drain()
            if self._is_outlasting and self._held:
                ExitThread(self._end_with_handlers, self.exit, name="dueline-outlast").start()
                return
        except BaseException:
            self._close()
            raise
        self._end()

    def _close(self) -> None:
        self._beat.stop()
        parts = (self._prefetched, self._runner, self._poller, self._claimer)
        for part in (*parts, self._reports, self._settlements, self._settler):
            part.close()

    def _end(self) -> None:
        self._close()
        StoreBackoff(self._clock).do_all([
            self._report, self._permits.close, lambda: self._write_run_times(is_last=True),
            self._reporter.end,
        ])  # fmt: skip
        if self._is_moved():
            self._engine.catalog.features.expect_here()

    def _until(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            self._wakeup.clear()
            was_busy = bool(self._held)
            is_done = self.is_claiming = self._guarded(self._step)
            # If a burst's last jobs have just ended, nothing would wake the worker.
            if is_done and not (self._settings.burst and was_busy and not self._held):
                self._wait()

    def _step(self) -> None:
        self._turned_us = now_us = self._clock.monotonic_us()
        self._beat.check()
        self._obey()
        self._cancel_jobs()
        if self._crashed:  # before later attempts of the same jobs are recorded
            self._record_crashes()
        self._steps.note_awaited(self._cancellations.take_awaited())
        self._settle(now_us)
        self._guarded(self._steps.advance)
        if self._is_stopping:
            self._give_back(self._runner.take_back())
        else:
            self._start_prefetched()
            self._release(now_us)
            self._claim()
            self._deferred.requeue()
            if self._gatherer and not self._marked_starts.needs_isolation():
                self._gatherer.submit_overdue()
            self._runner.spread()
        if self._permits.start_by_us:
            running = map(Job.claim, self._runner.running())
            self._permits.started(running, self._engine.time.latest_us())
        self._permits.spent(self._reports.take_spent())
        self._permits.settle(self._held.jobs)
        self._runner.interrupt_overdue()

    def _obey(self) -> None:
        """Do what operators ask for, and answer (rule O1)."""
        for request in self._cancellations.take_requests():
            log.info("an operator asks: %s", request.kind)
            if request.kind in ("quiet", "resume"):
                self._claimer.set_quiet(is_quiet=request.kind == "quiet")
                self._poller.notify()
            elif request.kind != "ping":
                self.is_stopped_by_request = True
                self.stop(hurry=request.kind == "stop-now")
            self._guarded(lambda key=request.key: self._answer(key))  # type: ignore[misc]

    def _answer(self, request: str) -> None:
        load, running, now_us = self.load(), self._runner.running(), self._engine.time.latest_us()
        answer = answer_of(self.name, request, load, running, (self._reporter.started_us, now_us))
        worker_requests.write_answer(self._engine, answer)

    # Cancel, settle

    def _cancel_jobs(self) -> None:
        """Stop the handlers of jobs that were cancelled, or never start them."""
        claims = self._cancellations.take()
        if not claims:
            return
        gone = set(claims)
        unstarted = [
            *self._marked_starts.take(gone),
            *(job for job, _ in self._prefetched.take(gone)),
        ]
        self._ended += map(self._cancellations.ended, unstarted)
        self._runner.cancel(claims)
        if forced := [claim for claim in claims if claim in self._cancellations.forced]:
            self._runner.stop_by_force(forced)

    def _settle(self, now_us: int) -> None:
        running: list[Job] = []
        if now_us - self._flushed_us > self._buffer.mark_every_us():
            running = self._runner.running()
        ended = self._runner.collect()
        if ended:
            if self._is_outlasting:
                settings = self._engine.catalog.settings
                ended = [after_stop(attempt, settings) for attempt in ended]
            if self._cancellations.forced:
                ended = self._cancellations.without_late(ended)
            self._buffer.ended()
            self._ended += ended
            if self._held.start_by_us:
                self._note_starts(ended)
            self._permits.answered(ended)
        if self._settlements.is_under_way():
            return
        self._take_settled()
        if self._ended and self._buffer.lingers(now_us):
            return
        over = {attempt.job.id for attempt in self._ended} if running else ()
        starts = self._held.unmarked(running, over)
        if not self._ended and not starts:
            return
        self._flushed_us = now_us
        tasks = self._settler.context_tasks
        if tasks and (claims := [end.job.claim() for end in self._ended if end.job.task in tasks]):
            self._report(claims)  # before callers see the end, or another worker runs them
        known = self._cancellations.known_before(self._ended)
        is_full = self._slots.taken() >= self._runner.threads
        self._settlements.begin(self._ended, starts, known, is_full=is_full)
        if not self._settlements.is_under_way():
            self._take_settled()

    def _take_settled(self) -> None:
        """Drop the jobs of the last settlement; if it failed, the next one repeats it."""
        done = self._settlements.take()
        if done is not None:
            self._buffer.round_trips.settled(done.took_us)
            if done.ended:
                self._run_times.ended(done.ended, is_full=done.is_full, now_us=done.began_us)
            self._steps.settled(done.ended, done.lost)
            del self._ended[: len(done.ended)]
            self._lose(done.lost)
            self._deferred.circuits.ended(done.ended)

    def _note_starts(self, ended: Sequence[Ended]) -> None:
        """Record when ended jobs with rates started."""
        for attempt in ended:
            if attempt.started_us:
                self._permits.started([attempt.job.claim()], attempt.started_us)

    def _report(self, only: Collection[Claim] | None = None) -> None:
        """Store what handlers reported, and drop jobs whose claims were lost."""
        lost = self._reports.write(only)
        if lost:
            self._lose([job for job in self._held.jobs() if job.claim() in lost])

    def _lose(self, lost: Sequence[Job]) -> None:
        mine = [job for job in lost if job in self._held]
        if mine:
            self._held.drop(mine)
            claims = [job.claim() for job in mine]
            self._prefetched.take(claims)
            self._reports.forget(claims)
            self._runner.forget(claims)

    # Claim

    def _release(self, now_us: int) -> None:
        """Release jobs that waited too long behind others; kept until the store accepts it."""
        self._releasing += self._claimer.returned(self._buffer.take_overdue(now_us))
        if self._releasing:
            self._give_back(self._releasing)
            self._releasing = [job for job in self._releasing if job in self._held]

    def _claim(self) -> None:
        if self._arrived:
            self._admit()
        self._start_marked()
        if self._marked_starts.needs_isolation():
            return
        limits = self._permits.begin(self._held.jobs, self._slots.limited())
        self._claimer.unblock(limits, self._slots.in_use)
        room = self._buffer.most() - self._slots.taken()
        if not self._buffer.is_worth_claiming(room):
            return
        polled = self._poller.poll_if_due_or_notified() if room > 0 else self._poller.poll_if_due()
        while room > 0:
            began_us = self._clock.monotonic_us()
            taken = self._claimer.claim(room + self._slots.more, self._slots.room())
            if taken:
                self._buffer.round_trips.claimed(self._clock.monotonic_us() - began_us)
                room -= len(taken) + self._slots.slotless
                self._poller.found()
                self._take(self._settler.sort(taken))
                room += self._slots.slotless
            elif polled or not (polled := self._poller.poll_if_notified()):
                break
        self._start_marked()
        if polled:
            self._cancellations.read_if_notified()
        if self._can_prefetch():
            self._prefetch()

    def _start_marked(self) -> None:
        if self._marked_starts.has_waiting():  # rarely
            self._lose(self._marked_starts.start(self._held_by_runner()))

    def _take(self, sorted_: Triage) -> None:
        self._guarded(lambda: self._settler.complete(sorted_.decided))
        is_recorded = True
        if sorted_.died:
            self._crashed += sorted_.died
            is_recorded = self._guarded(self._record_crashes)
        self._held.drop(sorted_.gone)  # first: if the next call fails, their leases expire
        if is_recorded:
            self._guarded(lambda: self._settler.end(sorted_.over))
        self._steps.ended(sorted_.gone)
        fit, waiting, failed = self._deferred.sort(sorted_.fit, sorted_.deaths)
        self._held.drop([deferred.job for deferred in waiting])
        self._guarded(lambda: self._deferred.defer(waiting))
        self._arrived += fit
        self._held.add([*(job for job, _ in fit), *(attempt.job for attempt in failed)])
        self._ended += failed
        self._admit()

    def _record_crashes(self) -> None:
        """Record attempts whose workers died in the history; kept until the store accepts it."""
        self._settler.record_crashes(self._crashed)
        self._crashed = []

    def _admit(self) -> None:
        """Start claimed jobs, unless they were cancelled or must wait; repeated if it fails."""
        taken = self._held.still(self._arrived)
        jobs = [job for job, _ in taken]
        refused = self._settler.with_refused(self._cancellations.refused(jobs), jobs)
        if refused:
            gone = {attempt.job.id for attempt in refused}
            taken = [claimed for claimed in taken if claimed.job.id not in gone]
        steps = self._steps.sort(taken)
        taken = self._held.keep(steps.fit, steps.given, of=taken)
        jobs = [job for job, _ in taken]
        self._prepare_context(jobs)
        plain, careful = parted(taken, self._engine.catalog.settings)
        self._slots.seen(jobs)
        assignments = self._held.assignments(plain, self._clock.monotonic_us())
        self._arrived = []
        self._ended += refused
        self._marked_starts.add(careful)  # rule A2
        if plain:
            self._runner.submit(assignments)
        self._guarded(lambda: self._steps.park_and_end(steps))

    def _prepare_context(self, jobs: Sequence[Job]) -> None:
        """Prepare what handlers are given: durable fences, and the progress of earlier attempts."""
        if self._settler.needs_fences(jobs):
            flush_claims(self._engine.store)
        context_tasks = self._settler.context_tasks
        last, lost = self._reports.last([job for job in jobs if job.task in context_tasks])
        self._held.last |= last
        self._lose(lost)

    def _held_by_runner(self) -> int:
        return self._slots.taken() - len(self._marked_starts)

    # Prefetch

    def _can_prefetch(self) -> bool:
        """Return whether there are enough free slots to claim jobs that will soon be due."""
        return not self._settings.burst and self._buffer.can_prefetch(self._slots.free())

    def _prefetch(self) -> None:
        """Claim jobs that will soon be due, so that they start at their time."""
        prefetched = self._claimer.prefetch(self._slots.free(), self._slots.room(with_early=True))
        if prefetched:
            self._held.add([job for job, _ in prefetched])
            self._prefetched.add(prefetched)
            self._prefetched.run_timer()
            self._guarded(lambda: self._prepare([ClaimedJob(job, None) for job, _ in prefetched]))

    def _prepare(self, taken: Sequence[ClaimedJob]) -> None:
        """Let the timer start prefetched jobs; the loop starts those that need more."""
        sorted_ = self._settler.sort(taken)
        plain, _ = parted(self._deferred.sort(sorted_.fit).fit, self._engine.catalog.settings)
        gone = {attempt.job.id for attempt in self._cancellations.refused(plain)}
        jobs = [job for job in plain if job.id not in gone and not may_wait(job)]
        self._prepare_context(jobs)
        self._prefetched.prepare(self._held.assignments(jobs))

    def _start_early(self, assignments: Sequence[Assignment]) -> Sequence[Assignment]:
        """Start jobs that have become due, from any thread; return those without a slot."""
        if self._is_stopping or self._marked_starts.needs_isolation():
            return assignments
        free = self._runner.threads - self._held_by_runner() + len(assignments)
        starting, left = placed(assignments, free, self._slots.room())
        now_us = self._clock.monotonic_us()
        mine = [early._replace(since_us=now_us) for early in starting if early.job in self._held]
        self._runner.submit(mine)
        return left

    def _start_prefetched(self) -> None:
        """Start prefetched jobs that have become due, or release them for other workers."""
        if not len(self._prefetched):
            return
        self._prefetched.start_due()
        unready, unplaced = self._prefetched.take_overdue()
        try:
            if unplaced:
                self._give_back([job for job, _ in unplaced], times_of(unplaced))
            taken = self._settler.sort(
                [ClaimedJob(job, None) for job, _ in unready if job in self._held]
            )
        except DuelineError:  # they are still held: the next pass retries
            late = [*unready, *unplaced]
            self._prefetched.add([ahead for ahead in late if ahead.job in self._held])
            raise
        self._prefetched.add([ahead for ahead in unplaced if ahead.job in self._held])
        self._take(taken)

    def _is_moved(self) -> bool:
        """Return whether the store has moved and no job is left here to end (rule X1)."""
        has_moved = self._engine.catalog.features.moved_to
        return bool(has_moved) and not self._held and not self._arrived

    def _is_burst_over(self) -> bool:
        if not self._settings.burst or self._held or self._arrived:
            return False
        self._steps.has_moved = False
        is_over = self._guarded(self._pass) and not (self._steps.has_moved or self._held)
        return is_over and not self._claimer.has_due()

    def _pass(self) -> None:
        self._poller.poll()
        self._claim()

    def _wait(self) -> None:
        is_starting = self._runner.waiting() or self._permits.start_by_us
        timeout_us = self._buffer.flush_us() if is_starting else WATCH_US
        taken = self._slots.taken()
        is_full = self._runner.waiting() or taken >= self._runner.capacity
        can_claim = not (is_full or self._is_stopping or self._marked_starts.needs_isolation())
        if can_claim:
            most_us = timeout_us if taken else None
            timeout_us = self._poller.wait_us(most_us, is_ahead=self._can_prefetch())
            timeout_us = self._prefetched.wait_us(timeout_us)
        if self._gatherer:
            timeout_us = self._gatherer.wait_us(timeout_us)
        if can_claim:
            self._poller.wait(timeout_us)
        else:  # wake-ups wait, too
            self._wakeup.wait(timeout_us / SECOND_US)

    def _drain(self) -> None:
        give_up_us = self._clock.monotonic_us() + self._settings.drain_us
        self._is_stopping = True
        log.info("worker %s stops; it holds %d jobs", self._settings.worker, len(self._held))
        waiting = [*(job for job, _ in self._arrived), *self._marked_starts.take()]
        early = self._prefetched.take()
        self._give_back([job for job, _ in early], times_of(early))
        self._give_back([*waiting, *self._releasing, *self._runner.take_back()])
        self._arrived.clear()
        self._until(
            lambda: not self._held or self._is_hurried or self._clock.monotonic_us() > give_up_us
        )
        self._settle_last()
        self._is_outlasting = self._settings.is_embedded and not self._runner.isolates
        if self._held and (self._is_outlasting or self._runner.isolates):
            self._runner.stop_running()  # children before their jobs are released
        if self._is_outlasting:
            give_up_us = self._clock.monotonic_us() + SOON_US
            self._until(lambda: not self._held or self._clock.monotonic_us() > give_up_us)
            self._settle_last()
        self.left_running = len(self._held)
        if not self._is_outlasting:
            self._release_held()

    def _release_held(self) -> None:
        if self._held:
            log.warning("stopped with %d handlers running; released their jobs", len(self._held))
            self._guarded(self._report)  # before another worker runs them
        self._give_back(self._held.jobs(), may_run=True)

    def _settle_last(self) -> None:
        self._settlements.wait()
        self._guarded(self._take_settled)

    def _end_with_handlers(self) -> None:
        """Keep the claims of handlers until they end, so that no other worker runs them beside."""
        log.warning("%d handlers outlast the worker; it keeps their claims", len(self._held))
        self._until(lambda: not self._held or self._is_exiting)
        self._settle_last()
        self._release_held()
        self._end()

    def _give_back(
        self, jobs: Sequence[Job], dues: Mapping[JobId, int] | None = None, *, may_run: bool = False
    ) -> None:
        """Release jobs; see `released`."""
        now_us, settings = self._engine.time.latest_us(), self._engine.catalog.settings
        dues = dues or {}
        back = [*released(jobs, self._held, settings, dues=dues, now_us=now_us, may_run=may_run)]
        known = self._cancellations.known_before
        if back and self._guarded(lambda: self._lose(self._settler.settle(back, [], known(back)))):
            self._held.drop([attempt.job for attempt in back])

    # The heartbeat, in its own thread

    def _attend(self) -> None:
        """Between heartbeats: report changes and progress, and read requests."""
        self._reporter.report_change(self.load())
        self._write_run_times()
        self._report()
        if self._held:
            self._cancellations.read()

    def _write_run_times(self, *, is_last: bool = False) -> None:
        self._run_times.write(self._engine, is_last=is_last)

    def _extend_all(self) -> int:
        self._lose(self._permits.keep(self._held.jobs()))
        held = self._held.jobs()
        running = {job.claim() for job in self._runner.running()}
        if held:
            extended = self._settler.extend(held, running, self._permits.ends_us(held))
            self._runner.extend(extended.ends_us)
            # What is being settled may just have ended: the settlement tells whether it was lost.
            lost = [job for job in extended.lost if self._held.is_unsettled(job)]
            self._settler.lost(lost)
            self._lose(lost)
        return self._reporter.report(self.load())

    def load(self) -> Load:
        """Return what the worker does now; callable from any thread."""
        return Load(
            slots=self._runner.threads,
            held=len(self._held),
            running=len(self._runner.running()),
            gathering=self._gatherer.gathered if self._gatherer else 0,
            is_draining=self._is_stopping,
            own=self._slots.own(),
            is_quiet=self._claimer.is_quiet,
            used=self._slots.used() if self._settings.known.has else {},
            lost=tuple((job.id.hex(), job.task, since) for job, since in self._runner.lost()),
        )
