"""Start and inspect workflows."""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from dueline.core.call_options import CallOptions, Rule, StepPlace
from dueline.core.engine import Engine
from dueline.core.errors import Conflict, EnqueueUnknown, NotFound, StoreUnavailable, Unknown
from dueline.core.job import Job, JobId, State
from dueline.core.lane import Lane, bucket_of, lane_tenant
from dueline.core.limit_costs import options_with_costs
from dueline.core.pagination import parts_of
from dueline.core.queue_settings import shard_of
from dueline.core.store import Commit, Drop, Group
from dueline.core.validation import check_call, check_delivery, check_options
from dueline.workflows import records
from dueline.workflows.graph import BLOCK, LaidOut, Layout, steps_in, with_key
from dueline.workflows.parts import StepCall
from dueline.workflows.readiness import End, Failure, Held, evaluate, follows, judge, reason
from dueline.workflows.release import PARK_US, wake_steps

_PAGE: Final = 500


class Start(NamedTuple):
    """A workflow to start: all that is stored of it, with its ids.

    ends: the outcomes of steps that have ended before, in a workflow that was forked (rule W10).
    """

    flow: JobId
    layout: Layout
    jobs: Sequence[Job]
    ends: Sequence[Commit] = ()


Admit = Callable[[str, str, int], object]
"""Takes a queue, a tenant and a number of jobs; raises if its quotas leave no room."""


@dataclass(frozen=True, slots=True)
class FlowProgress:
    """The progress of a workflow, in steps. ended: by state; the others wait or run."""

    total: int
    ended: Mapping[str, int] = field(default_factory=dict)

    @property
    def done(self) -> int:
        """Number of steps that are done."""
        return self.ended.get("done", 0)

    @property
    def left(self) -> int:
        """Number of steps that have not ended."""
        return self.total - sum(self.ended.values())


def begin(
    engine: Engine,
    laid_out: LaidOut,
    admit: Admit,
    unique: Rule | None = None,
    ended: Container[int] = (),
) -> Start:
    """Assign the ids of a workflow and its steps, and return their rows (rule W1).

    Args:
      unique: The key that its last step holds, if any.
      admit: See `Admit`.
      ended: Steps that have ended before; they have no rows.

    Raises:
      BadInput: an option of a step is out of range.
      QuotaExceeded: a queue has no room for the steps.
    """
    layout, calls = laid_out if unique is None else with_key(laid_out, unique.key)
    now_us = engine.time.earliest_us()
    flow, *ids = engine.ids.many(len(calls) + 1, now_us)
    layout = replace(layout, started_us=now_us)
    home = next((call for call in calls if call is not None), StepCall("", "default", 0, b""))
    waiting = StepCall(
        "", home.queue, 0, b"[]", home.priority, home.tenant, limits=home.limits, tags=home.tags
    )
    each = [call or waiting for call in calls]
    for place in {(call.queue, call.due_us, call.priority, call.tenant) for call in each}:
        check_call(*place, now_us=now_us)
    jobs = [
        _job(engine, layout, number, job_id, call, ended=ended)
        for number, (job_id, call) in enumerate(zip(ids, each, strict=True))
        if number not in ended
    ]
    if unique is not None:
        opts = CallOptions(unique=unique, step=StepPlace(len(jobs) - 1, 1)).to_bytes()
        # At the place of the step before it, which is derived from it (`unique_records.inserted`).
        jobs[-1] = jobs[-2]._replace(id=jobs[-1].id, opts=opts)
    new = (call for number, call in enumerate(each) if number not in ended)
    for (queue, tenant), count in Counter((call.queue, call.tenant) for call in new).items():
        if engine.catalog.settings(queue).quotas:
            admit(queue, tenant, count)
    return Start(flow, layout, jobs if engine.blobs is None else engine.blobs.placed(jobs))


def _job(
    engine: Engine,
    layout: Layout,
    number: int,
    job_id: JobId,
    call: StepCall,
    *,
    ended: Container[int],
) -> Job:
    now_us = layout.started_us
    settings = engine.catalog.settings(call.queue)
    due_us = now_us if call.due_us is None else call.due_us
    pos_us = max(due_us, now_us)
    node, parked_us = layout.nodes[number], 0
    if any(need not in ended for need in node.needs()):
        pos_us = parked_us = max(pos_us, now_us + PARK_US)
    elif node.given or node.after or node.unless is not None or not node.task:
        parked_us = 1  # the step waits for nothing, and still has to read its arguments
    place = StepPlace(number, parked_us)
    options = CallOptions(call.expires_us, step=place, **call.carried())
    options = options_with_costs(options, call.limits)
    check_delivery(options, settings, call.task, call.queue)
    if call.expires_us is not None:
        check_options(options, max(due_us, now_us), 0)
    bucket = bucket_of(pos_us, settings.width_us)
    shard = shard_of(job_id, settings.shards) if settings.shards > 1 else 0
    tenant = lane_tenant(engine.catalog.needy_tenant(call.tenant, call.needs), call.limits)
    lane = Lane(call.queue, shard, bucket, call.priority, tenant)
    return Job(
        lane, pos_us, job_id, 0, due_us, now_us, call.task, call.codec, call.body,
        options.to_bytes(), pos_us,
    )  # fmt: skip


def send(engine: Engine, start: Start, *, again: bool = False) -> None:
    """Store a workflow: the layout first, then its last steps before its first ones.

    Args: again: it may be stored already, and some steps may have ended.

    Raises:
      EnqueueUnknown: it may or may not be stored; send it again.
      StoreUnavailable: nothing was written.
    """
    flow, layout, jobs, ends = start
    for queue in {job.lane.queue for job in jobs}:
        engine.catalog.expect_here(queue)
    store = engine.recording_store
    commits = records.put_layout(flow, layout, version=flow)
    try:
        if store.transactional:
            if not again or records.read(store, flow) is None:
                store.together([Group(commits=[*commits, *ends], jobs=jobs)])
        else:
            for commit in (*commits, *ends):
                store.commit(commit.partition, commit.writes)
            for part in parts_of(reversed(jobs), _PAGE):
                if not all(store.add(part)):
                    raise EnqueueUnknown.about(jobs)
    except Unknown as error:
        raise EnqueueUnknown.about(jobs) from error
    except StoreUnavailable as error:
        if store.transactional:
            raise
        raise EnqueueUnknown.about(jobs) from error  # a part of it may be stored
    engine.announce(jobs)


def withdraw(engine: Engine, start: Start) -> None:
    """Delete a workflow that was stored, and did not get its unique key: it never starts."""
    with suppress(StoreUnavailable):  # its steps end by themselves, after LOST_US
        for part in parts_of(start.jobs, _PAGE):
            rows = engine.store.find([job.id for job in part])
            engine.store.settle([Drop(row) for row in rows if row is not None])
        for _ in records.forget(engine.store, start.flow, start.layout):
            pass


class WorkflowView:
    """A view of one workflow that can be read repeatedly; final outcomes are read once.

    Raises:
        NotFound: The workflow does not exist, or has expired.
    """

    def __init__(self, engine: Engine, flow: JobId) -> None:
        layout = records.read(engine.store, flow)
        if layout is None:
            raise NotFound(
                f"There is no workflow {flow.hex()}.",
                hint="Check the store address. Workflows expire some time after their end.",
            )
        self.flow = flow
        self.layout = layout
        self._engine = engine
        self._over: dict[int, dict[int, End]] = {}

    def ends(self) -> Mapping[int, End]:
        """Return the outcomes of ended steps, without their values."""
        outcomes: dict[int, End] = {}
        for block in self.layout.blocks():
            ends = self._over.get(block)
            if ends is None:
                ends = records.ends(self._engine.store, self.flow, [block], with_values=False)
                size = min(BLOCK, len(self.layout.nodes) - block * BLOCK)
                if len(ends) == size and all(end.is_final for end in ends.values()):
                    self._over[block] = ends
            outcomes |= ends
        return outcomes

    def progress(self) -> FlowProgress:
        """Return the progress of the workflow."""
        ends = self.ends()
        states = Counter(end.state for step, end in ends.items() if step < self.layout.size)
        return FlowProgress(self.layout.size, dict(sorted(states.items())))

    def stuck(self, ends: Mapping[int, End]) -> Failure | None:
        """Return a dead step that others wait for, or None."""
        dead = [step for step, end in ends.items() if not end.is_final]
        for step in dead:
            for behind in self.layout.needed_by.get(step, ()):
                if behind not in ends:
                    word = judge(self.layout, behind, ends)
                    if isinstance(word, Held):
                        return word.failure
        return None

    def outcome(self) -> str | Failure | None:
        """Return the result of the workflow, as JSON, or its failure; None: it is running."""
        ends = self.ends()
        needs = set(steps_in((self.layout.result,)))
        result: str | Failure | None = self.stuck(ends)
        if needs <= ends.keys():
            blocks = {step // BLOCK for step in needs}
            read = records.ends(self._engine.store, self.flow, blocks)
            result = evaluate(self.layout, self.layout.result, read)
        return None if isinstance(result, Failure) and self._is_retried(result) else result

    def _is_retried(self, failure: Failure) -> bool:
        """Return whether a dead step is being retried."""
        if failure.end.is_final:
            return False
        rows = list(self.rows([failure.step]))
        return bool(rows) and rows[0].state != State.DEAD

    def status(self) -> str:
        """Return the state: running, done, failed, cancelled."""
        outcome = self.outcome()
        if isinstance(outcome, Failure):
            is_own = outcome.end.state == "cancelled" and not follows(outcome)
            return "cancelled" if is_own else "failed"
        return "running" if outcome is None or self.progress().left else "done"

    def why(self, failure: Failure) -> str:
        """Describe why there is no result."""
        return f"{reason(self.layout, failure).rstrip('.')}."

    def rows(self, steps: Iterable[int]) -> Iterator[Job]:
        """Yield the rows of steps that have one."""
        for part in parts_of(steps, _PAGE):
            rows = self._engine.store.find([records.job_of(self.flow, step) for step in part])
            yield from (row for row in rows if row is not None)

    def branch(self, step: int | None) -> list[int]:
        """Return a step and all steps that depend on it; None: all steps. Not those of a key."""
        if step is None:
            return list(range(self.layout.size))
        if not 0 <= step < self.layout.size:
            raise NotFound(f"The workflow {self.flow.hex()} has no step {step}.")
        branch, left = {step}, [step]
        while left:
            for behind in self.layout.needed_by.get(left.pop(), ()):
                if behind not in branch and behind < self.layout.size:
                    branch.add(behind)
                    left.append(behind)
        return sorted(branch)


def signal(engine: Engine, view: WorkflowView, name: str, value: bytes) -> None:
    """Send a signal to the steps that wait for it.

    Raises:
      NotFound: no step waits for it. Conflict: it was sent before; nothing was changed.
    """
    steps = [number for number, node in enumerate(view.layout.nodes) if node.signal == name]
    if not steps:
        names = sorted({node.signal for node in view.layout.nodes if node.signal})
        raise NotFound(
            f"No step of the workflow {view.flow.hex()} waits for {name!r:.80}.",
            hint=f"Its signals: {', '.join(names)}." if names else "No step waits for a signal.",
        )
    engine.catalog.features.check()
    engine.catalog.features.expect_here()
    commit = records.signal(view.flow, name, value, version=engine.ids.token())
    is_first = engine.store.commit(commit.partition, commit.writes)
    wake_steps(engine, view.flow, steps)  # in any case: the first sender may have been killed
    if not is_first:
        raise Conflict(
            f"The signal {name} was already sent to the workflow {view.flow.hex()}.",
            hint="The first value counts.",
        )
