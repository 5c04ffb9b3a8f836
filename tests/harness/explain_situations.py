"""Brings about the situations of `explain_oracle`, and makes the changes that `explain` names."""

import shlex
from collections.abc import Sequence
from dataclasses import replace

from dueline.coordination.worker_registry import Presence, announce
from dueline.core.attempt import Outcome
from dueline.core.call_options import CallOptions
from dueline.core.clock import SECOND_US
from dueline.core.codec import JSON, encode
from dueline.core.deadlines import priority_of
from dueline.core.job import JobId
from dueline.core.lane import bucket_of
from dueline.core.queue_settings import QueueSettings, Quota, with_quota
from dueline.core.store import Move
from dueline.jobs import pauses, workflow_control
from dueline.jobs.explain import explain
from dueline.jobs.explanation import Condition, Explanation
from dueline.jobs.group_cancellation import advance
from dueline.jobs.queue import EnqueueRequest
from dueline.limits import rate, semaphore
from dueline.limits.rate import Rate
from dueline.limits.semaphore import Hold
from dueline.limits.suspension import suspend
from dueline.workflows import records, workflow
from dueline.workflows.graph import lay_out
from dueline.workflows.parts import Part, Step, StepCall, group, pipeline, wait_for
from dueline.workflows.records import Layouts
from dueline.workflows.release import wake_steps
from dueline.workflows.workflow import WorkflowView
from tests.harness.explain_oracle import Situation
from tests.harness.worker_bench import Bench
from tests.harness.world import World

TASK = "tests.task"
NUMBER = 7
"""The argument of the job that is explained."""

WAITS_MAX = 25
"""A worker that waited this often, for limits or for work, will not start the job."""

SOON_S, LATER_S, LONG_S = 900, 1800, 3600
WORKERS = ("w", "w2", "holder", "busy", "elsewhere")


class Scene:
    """One situation in a world that others share: its queue, tenant and limit have its name."""

    def __init__(self, world: World, situation: Situation, name: str) -> None:
        self.world = world
        self.name = name
        self.of = situation
        self.engine = world.queues.engine
        self.worker = situation.worker
        self.flow: JobId | None = None
        self.job_id = JobId(bytes(16))
        self._make()

    # What is there

    def _make(self) -> None:
        of, world, name = self.of, self.world, self.name
        deliver = "at_most_once" if of.once else "at_least_once"
        self.engine.catalog.configure(name, deliver=deliver)
        if of.worker == "silent" or of.claim == "silent":
            if of.worker == "silent":
                self._announce("w")
            if of.claim == "silent":
                self._announce("holder")
                self._claimed()
            world.clock.advance(15)
        if of.claim not in ("none", "silent"):
            self._announce("holder", is_draining=of.claim == "stopping")
            self._claimed()
        elif of.claim == "none":
            self._waiting()
        self._workers()
        self._others()
        self._limits()
        self._pauses()

    def _put(self, number: int, *, priority: int = 0, task: str = TASK, opts: bytes = b"",
             after_s: float = 0, limits: Sequence[str] = ()) -> JobId:  # fmt: skip
        due_us = self.world.now_us + round(after_s * SECOND_US)
        call = EnqueueRequest(
            self.name, task, JSON, [b"[%d]" % number], due_us, priority, self.name, opts,
            limits=[limits] if limits else (),
        )  # fmt: skip
        return self.world.queues.enqueue(call)[0].id

    def _own_limits(self) -> tuple[str, ...]:
        return () if self.of.limit in ("none", "quota") else (self.name,)

    def _claimed(self) -> None:
        world, of = self.world, self.of
        self.job_id = self._put(NUMBER)
        for _ in range(2 if of.claim == "gone thrice" else 0):
            world.claim(self.job_id, worker="holder", start=True)
            world.clock.advance(31)
        self._announce("holder", is_draining=of.claim == "stopping")
        world.claim(self.job_id, worker="holder", start=of.claim != "waiting")
        if of.claim in ("gone", "gone thrice", "lapsed"):
            world.leave("holder")
        if of.claim == "lapsed":
            world.clock.advance(31)

    def _waiting(self) -> None:
        of, world = self.of, self.world
        if of.flow != "none":
            self._step()
            return
        after_s, opts, priority = 0.0, b"", 0
        if of.time == "later":
            after_s = LATER_S
        elif of.time == "deadline":
            priority = priority_of(world.now_us - 60 * SECOND_US)
        elif of.time == "expires":
            opts = CallOptions(expires_us=world.now_us + SOON_S * SECOND_US).to_bytes()
        elif of.time == "snoozed too long":
            opts = CallOptions(expires_us=world.now_us + 60 * SECOND_US).to_bytes()
        self.job_id = self._put(
            NUMBER, after_s=after_s, opts=opts, priority=priority, limits=self._own_limits()
        )
        if of.time in ("retry", "snoozed", "snoozed too long"):
            self._put_back()

    def _put_back(self) -> None:
        """End an attempt, as a worker does: the job is due later, at its expiry at the latest."""
        is_long = self.of.time == "snoozed too long"
        job = self.world.claim(self.job_id, worker="before")
        at_us = self.world.now_us + (60 if is_long else LATER_S) * SECOND_US
        has_failed = self.of.time == "retry"
        options = CallOptions(
            expires_us=at_us if is_long else None,
            put_back=None if has_failed else ("snoozed", at_us),
        )
        move = Move(
            job, at_us, self.engine.ids.token(), bucket_of(at_us, QueueSettings().width_us),
            int(has_failed), 0, error="ValueError: no", opts=options.to_bytes(),
        )  # fmt: skip
        assert self.world.store.settle([move]) == [True]

    def _step(self) -> None:
        target, other = self._part(NUMBER, TASK, self._own_limits()), self._part(8, "tests.other")
        parts: dict[str, tuple[Part, int]] = {
            "waits": (pipeline(other, target), 1),
            "held": (pipeline(other, target), 1),
            "signal": (pipeline(wait_for("go"), self._part(9, "tests.other")), 0),
            "sent": (pipeline(wait_for("go"), target), 1),
            "cancelled": (group(other, target, failures="cancel"), 1),
            "compensation": (pipeline(other.undone_by(target), self._part(9, "tests.other")), 2),
        }
        part, step = parts[self.of.flow]
        start = workflow.begin(self.engine, lay_out(part, "flow"), lambda *_: None)
        workflow.send(self.engine, start)
        self.flow, self.job_id = start.flow, records.job_of(start.flow, step)
        if self.of.flow in ("held", "cancelled"):
            self._fail(0)
        if self.of.flow == "sent":
            self._end(0, Outcome("done", self.world.now_us, value="1"))
            wake_steps(self.engine, start.flow, [1])

    def _part(self, number: int, task: str, limits: tuple[str, ...] = ()) -> Step:
        def call(_given: int) -> StepCall:
            body, tenant = encode([number]), self.name if task == TASK else ""
            return StepCall(task, self.name, JSON, body, tenant=tenant, limits=limits)

        return Step(task, call)

    def _fail(self, step: int) -> None:
        self._end(step, Outcome("dead", self.world.now_us, error="ValueError: no"))

    def _end(self, step: int, outcome: Outcome) -> None:
        assert self.flow is not None
        self._failed = self.world.claim(records.job_of(self.flow, step), worker="before")
        self.world.end(self._failed, outcome)

    # Who is there

    def _announce(
        self,
        worker: str,
        *,
        queue: str = "",
        tasks: Sequence[str] = (TASK, "tests.other"),
        is_quiet: bool = False,
        is_draining: bool = False,
    ) -> None:
        now_us, serving = self.world.now_us, (queue or self.name,)
        presence = Presence(
            worker, serving, tuple(tasks), 1, 0, now_us, now_us, 0, "",
            is_quiet=is_quiet, is_draining=is_draining,
        )  # fmt: skip
        version = self.engine.ids.token()
        announce(self.world.store, presence, version=version, beat_every_us=10 * SECOND_US)

    def _workers(self) -> None:
        if self.of.claim in ("running", "waiting", "stopping"):
            self._announce("holder", is_draining=self.of.claim == "stopping")
        if self.of.worker == "live":
            self._announce("w")
        elif self.of.worker in ("quiet", "stopping"):
            self._announce(
                "w", is_quiet=self.of.worker == "quiet", is_draining=self.of.worker == "stopping"
            )
        elif self.of.worker in ("unknown", "knower"):
            self._announce("w2", tasks=["tests.else"])
            if self.of.worker == "knower":
                self._announce("w", is_quiet=True)
        elif self.of.worker == "elsewhere":
            self._announce("elsewhere", queue="elsewhere")

    def _others(self) -> None:
        if self.of.others == "urgent":
            self._put(8, priority=9)
        elif self.of.others == "same limit":
            self._put(8, priority=9, limits=self._own_limits())
        elif self.of.others == "slots":
            self.world.claim(self._put(8, priority=9), worker="w", start=True)

    def _limits(self) -> None:
        name, store, now_us = self.name, self.world.store, self.world.now_us
        if self.of.limit in ("full", "stale"):
            self.world.hold(name, "busy", lasts_s=LONG_S if self.of.limit == "full" else 300)
            if self.of.limit == "full":
                self._announce("busy", queue="elsewhere")
        elif self.of.limit == "zero":
            semaphore.define(store, name, 0, ids=self.engine.ids)
        elif self.of.limit == "rate":
            limit = Rate(1, LONG_S * SECOND_US)
            rate.define(store, name, limit, ids=self.engine.ids)
            meter, version = rate.read(store, name)
            taken = rate.after_taking(meter, limit, 1, now_us)
            assert rate.write(store, name, taken, limit, expect=version, ids=self.engine.ids)
        elif self.of.limit == "closed":
            suspend(self.engine, [name], now_us + LONG_S * SECOND_US)
        elif self.of.limit == "quota":
            quota = Quota(depth=1)
            self.engine.catalog.change(name, lambda old: _with_quota(old, quota))

    def _pauses(self) -> None:
        tenants = [self.name] if self.of.pause == "tenant" else []
        tasks = [TASK] if self.of.pause == "task" else []
        if self.of.pause != "none":
            pauses.pause(self.engine, self.name, tenants=tenants, tasks=tasks)

    def explain(self) -> Explanation:
        return explain(self.world.queues, self.job_id)

    def close(self) -> None:
        for worker in WORKERS:
            self.world.leave(worker)

    # What is changed

    def change(self, condition: Condition) -> None:
        """Change a condition as its explanation says: by its command, or by what it waits for."""
        words = shlex.split(condition.command)
        if condition.change == "time":
            self.world.clock.advance(us=max(0, condition.at_us - self.world.now_us))
        elif condition.change == "operator":
            self._run(words[1:], condition)
        elif condition.kind == "limit":
            read, version = semaphore.read(self.world.store, self.name)
            freed = semaphore.with_hold(read, "busy", Hold(0, 0), self.world.now_us)
            assert semaphore.write(
                self.world.store, self.name, freed, expect=version, ids=self.engine.ids
            )

    def _run(self, words: Sequence[str], condition: Condition) -> None:
        """Do what a command does."""
        queues = self.world.queues
        match words:
            case ["queues", "resume", queue]:
                pauses.resume(self.engine, queue)
            case ["queues", "resume", queue, "--task", task]:
                pauses.resume(self.engine, queue, tasks=[task])
            case ["queues", "resume", queue, "--tenant", tenant]:
                pauses.resume(self.engine, queue, tenants=[tenant])
            case ["limits", "set", name, capacity]:
                semaphore.define(self.world.store, name, int(capacity), ids=self.engine.ids)
            case ["worker", "-q", self.name] | ["workers", "resume", "w"]:
                self.worker = "live"
            case ["flows", "retry", flow]:
                view = WorkflowView(self.engine, JobId(bytes.fromhex(flow)))
                workflow_control.retry(queues, view)
            case ["flows", "signal", flow, name]:
                view = WorkflowView(self.engine, JobId(bytes.fromhex(flow)))
                workflow.signal(self.engine, view, name, b"1")
            case ["jobs", "retry", job_id]:
                queues.retry(JobId(bytes.fromhex(job_id)))
            case _:
                raise AssertionError(condition)

    def is_settled_without_a_run(self) -> bool:
        """Let a worker work for a while, with nothing paused; return whether the job never ran."""
        pauses.resume(self.engine, self.name)
        pauses.resume(self.engine, self.name, tenants=[self.name], tasks=[TASK])
        if self.of.flow == "cancelled":  # the process that ended the failed part goes on
            advance(self.engine, Layouts(), [self._failed])
        self.world.clock.advance(90)
        self.worker = "live"
        return not self.ran()

    def ended_as(self) -> str:
        """Return the state of the job."""
        return self.world.queues.find(self.job_id).status

    def ran(self) -> bool:
        """Work, as a worker of the present kind; return whether the job was started."""
        if self.worker in ("none", "silent", "stopping"):
            return False
        serving = "elsewhere" if self.worker == "elsewhere" else self.name
        tasks = ("tests.else",) if self.worker in ("unknown", "knower") else (TASK, "tests.other")
        bench = Bench(self.world.other(), self.world.clock, serving={serving: None}, tasks=tasks)
        if self.worker == "quiet":
            bench.worker._claimer.set_quiet(is_quiet=True)

        def work() -> None:
            bench.run_all()
            if len(bench.wakeup.waits_s) > WAITS_MAX:
                bench.worker.stop()

        bench.wakeup.meanwhile = work
        began = bench.run()
        ended = self.of.flow == "signal" and self.world.store.find([self.job_id])[0] is None
        return NUMBER in began or ended


def _with_quota(settings: QueueSettings, quota: Quota) -> QueueSettings:
    return replace(settings, quotas=with_quota(settings.quotas, quota))
