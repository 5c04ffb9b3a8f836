"""Fork a workflow: a new one has the results of what came before a step, and runs the rest.

What is reused is copied, so the old workflow may expire. The new one is stored as every other one
is, with the outcomes of its reused steps before its first job (rules W1 and W10).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Final, NamedTuple

from msgspec import structs

from dueline.core.attempt import DurablePlace
from dueline.core.blobs import expected, is_reference
from dueline.core.call_options import CallOptions, StepPlace, read_options
from dueline.core.constraints import check_value, integer
from dueline.core.engine import Engine
from dueline.core.errors import Conflict
from dueline.core.job import Job, JobId
from dueline.core.lane import living_queue, tenant_of
from dueline.core.limit_costs import limits_with_costs
from dueline.core.store import Commit
from dueline.workflows import records
from dueline.workflows.graph import STEPS_MAX, LaidOut, Layout, without_key
from dueline.workflows.parts import StepCall
from dueline.workflows.readiness import End
from dueline.workflows.status import step_statuses
from dueline.workflows.workflow import Admit, Start, WorkflowView, begin

_Number: Final = Annotated[int, integer(0, STEPS_MAX)]
_LIVE: Final = ("running", "ready", "retrying", "scheduled")


Kept = Callable[[JobId, int, Job | None], StepCall | None]
"""Returns the call of a step by its job, its number and its row; None if it is not known."""


class Plan(NamedTuple):
    """What becomes of the steps of a workflow that is forked.

    reused: steps that have ended, and keep their outcomes. anew: the others, in order.
    """

    reused: frozenset[int]
    anew: Sequence[int]


def plan(layout: Layout, ends: Mapping[int, End], from_step: int) -> Plan:
    """Decide which steps run anew: this one, those without a result, and all that need them.

    A failure that the workflow has handled is reused, except in a group that is cancelled when a
    part fails, of which the step is a part.
    """
    group = next((span for span in layout.cancelled_spans if from_step in span), range(0))
    anew = {from_step}
    for step in range(layout.size):
        end = ends.get(step)
        has_result = end is not None and (end.state == "done" or layout.nodes[step].is_lenient)
        if not has_result or (step in group and end is not None and end.state != "done"):
            anew.add(step)
    left = list(anew)
    while left:
        for behind in layout.needed_by.get(left.pop(), ()):
            if behind < layout.size and behind not in anew:
                anew.add(behind)
                left.append(behind)
    return Plan(frozenset(range(layout.size)) - anew, sorted(anew))


def fork(engine: Engine, view: WorkflowView, from_step: int, kept: Kept, admit: Admit) -> Start:
    """Return the workflow to start; nothing is stored but copies of large values.

    Args:
      engine: The engine.
      view: The workflow to fork.
      from_step: The first step that runs anew.
      kept: See `Kept`.
      admit: See `Admit`.

    Raises:
      BadInput, NotFound: There is no such step.
      Conflict: The workflow runs, a call is not kept, or a step whose result is to be reused was
        undone by its compensation.
    """
    check_value(from_step, _Number, "from_step")
    view.branch(from_step)
    _expect_standstill(engine, view)
    layout = without_key(view.layout)
    ends = records.ends(engine.store, view.flow, layout.blocks())
    reused, anew = plan(layout, ends, from_step)
    _expect_not_undone(layout, ends, reused)
    rows = {place.number: row for row in view.rows(anew) if (place := records.place_of(row))}
    calls: list[StepCall | None] = [None] * layout.size
    for step in anew:
        if layout.nodes[step].task:
            call = kept(records.job_of(view.flow, step), step, rows.get(step))
            calls[step] = _from_now_on(call or _refuse(layout, step), engine.time.latest_us())
    start = begin(engine, LaidOut(layout, calls), admit, ended=reused)
    copied = {step: _copied(engine, start, step, ends[step]) for step in reused}
    return start._replace(ends=[*records.copies(start.flow, copied), *_full(start, reused)])


def _expect_standstill(engine: Engine, view: WorkflowView) -> None:
    """Refuse a workflow that goes on by itself: its steps would run in both."""
    for status in step_statuses(engine, view):
        if status.state in _LIVE or status.why.startswith("for the signal"):
            raise Conflict(
                f"The workflow {view.flow.hex()} runs: step {status.step} is {status.state}.",
                hint="Wait for its end, or cancel it first.",
            )


def _expect_not_undone(layout: Layout, ends: Mapping[int, End], reused: frozenset[int]) -> None:
    for step, node in enumerate(layout.nodes):
        end = ends.get(step)
        if node.undoes and node.undoes[0] in reused and end is not None and end.state == "done":
            undone = node.undoes[0]
            raise Conflict(
                f"Step {undone} ({layout.title(undone)}) was undone by step {step}.",
                hint=f"Use from_step={undone}, so that it runs again.",
            )


def _from_now_on(call: StepCall, now_us: int) -> StepCall:
    """Return a call without a due time and an expiry that are over."""
    times = {name: getattr(call, name) for name in ("due_us", "expires_us")}
    over = {name: None for name, at_us in times.items() if at_us is not None and at_us <= now_us}
    return structs.replace(call, **over) if over else call


def _refuse(layout: Layout, step: int) -> StepCall:
    raise Conflict(
        f"The arguments of step {step} ({layout.title(step)}) are not kept.",
        hint='Pass the same workflow: flow.fork(..., part=pipeline(...)). Queues with history="'
        'arguments" keep arguments up to 16 KiB.',
    )


def call_of(row: Job) -> StepCall | None:
    """Return the call of a step that waits or is dead; None: its arguments are not in its row."""
    options = read_options(row.opts)
    place = options.durable
    if place is not None and place.arguments is not None:
        return None
    carried = options.carried()
    if place is not None:
        carried["durable"] = DurablePlace(version=place.version)
    return StepCall(
        row.task, living_queue(row.lane.queue), row.codec, row.body, row.lane.priority,
        tenant_of(row.lane), row.due_us, options.expires_us, tuple(limits_with_costs(row)),
        **carried,
    )  # fmt: skip


def _copied(engine: Engine, start: Start, step: int, end: End) -> End:
    """Return an outcome with a blob of its own, if its value is one."""
    if not is_reference(end.value):
        return end
    like, value = start.jobs[0], end.value.encode()
    opts = CallOptions(step=StepPlace(step)).to_bytes()
    job = like._replace(id=records.job_of(start.flow, step), opts=opts)
    return end._replace(value=expected(engine.blobs, value).copied(value, job).decode())


def _full(start: Start, reused: frozenset[int]) -> Iterator[Commit]:
    """Yield the marks of blocks in which all needs of a step have ended (rule W3)."""
    for step in range(start.layout.size):
        needs = {} if step in reused else start.layout.needs_by_block(step)
        if len(needs) > records.BLOCKS_READ:
            for block, members in needs.items():
                if members <= reused:
                    yield records.put_full(start.flow, step, block, version=start.flow)


def replanned(old: Layout, laid_out: LaidOut) -> Sequence[StepCall | None]:
    """Return the calls of a workflow that is passed again, to fork one of the same steps.

    Raises: Conflict: its steps are others.
    """
    plain = without_key(old)
    if laid_out.layout.nodes != plain.nodes or laid_out.layout.result != plain.result:
        raise Conflict(
            "The workflow that was passed has other steps than the one to fork.",
            hint="Pass the parts as they were started, or start a new workflow.",
        )
    return laid_out.calls
