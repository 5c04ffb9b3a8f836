"""Release the steps of a workflow whose needs have ended.

All jobs of a workflow are stored when it starts (rule W1). A step that needs others is parked: its
`at` is in the future. A worker that ends a step reads, after the outcome is stored, the steps that
need it, and moves those that need nothing more to now (rule W3). Correctness does not depend on it:
a parked step is claimed at its `at` anyway, checks its needs (rule W4), and is parked again or runs
(rule W7). A worker that parks a step checks once more, since its last need may have ended in
between (rule W5).
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from dueline.core.call_options import StepPlace, read_options
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.engine import Engine
from dueline.core.errors import StoreCorrupt
from dueline.core.job import Job, JobId, State
from dueline.core.lane import bucket_of
from dueline.core.store import Move
from dueline.core.wakeup import place_of
from dueline.workflows import records
from dueline.workflows.graph import BLOCK, Layout
from dueline.workflows.readiness import (
    Broken,
    End,
    Held,
    NotNeeded,
    Readiness,
    Waits,
    judge,
    reason,
)
from dueline.workflows.records import BLOCKS_READ, Layouts

PARK_US: Final = 60 * SECOND_US
"""A parked step checks its needs after this long, then after twice as long, and so on."""

PARK_US_MAX: Final = 3600 * SECOND_US

LOST_US: Final = 2 * DAY_US
"""A step that is not stored this long after the start of its workflow never will be."""

_PAGE: Final = 500
_LOOKS: Final = 2


class BrokenGroup(NamedTuple):
    """A group that must be cancelled (rule W8).

    Attributes:
      flow: The workflow.
      first, gathers: Its first step, and the one after the last, which gathers it.
      failed: The step whose end fails it.
    """

    flow: JobId
    first: int
    gathers: int
    failed: int


class Released(NamedTuple):
    """The number of released steps, and the groups that must be cancelled."""

    steps: int
    broken: Sequence[BrokenGroup]


def advance(
    engine: Engine, layouts: Layouts, ended: Iterable[Job], sure: Container[JobId] = ()
) -> Released:
    """Release the steps that waited for jobs that may have ended; other jobs are skipped.

    Args: sure: ids of jobs that have certainly succeeded; their outcomes are not read.
    """
    steps_of: dict[JobId, set[int]] = defaultdict(set)
    sure_of: dict[JobId, list[int]] = defaultdict(list)
    for job in ended:
        place = records.step_of(job)
        if place is not None:
            steps_of[place[0]].add(place[1])
            if job.id in sure:
                sure_of[place[0]].append(place[1])
    count = 0
    broken: list[BrokenGroup] = []
    for flow, steps in steps_of.items():
        with suppress(StoreCorrupt):  # the steps check for themselves, and report the damage
            layout = layouts.get(engine.store, flow)
            if layout is None:
                continue
            failed = _broken_by(engine, flow, layout, steps.difference(sure_of[flow]))
            known = layouts.ended(flow)
            for step in sure_of[flow]:
                known[step // BLOCK].add(step)
            complete = _complete(engine, flow, layout, steps, known)
            complete = list(dict.fromkeys([*(group.gathers for group in failed), *complete]))
            count += wake_steps(engine, flow, complete)
            broken += failed
    return Released(count, broken)


def _complete(
    engine: Engine, flow: JobId, layout: Layout, steps: set[int], known: dict[int, set[int]]
) -> list[int]:
    """Return the steps that need some of these steps, and whose needs have all ended.

    Args: known: steps that have ended, by block; reads are added.
    """
    needing = sorted({need for step in steps for need in layout.needed_by.get(step, ())})
    touched = {step // BLOCK for step in steps}
    read: set[int] = set()
    complete: list[int] = []
    for step in needing:
        needs = layout.needs_by_block(step)
        is_wide = len(needs) > BLOCKS_READ
        blocks = touched & needs.keys() if is_wide else needs.keys()
        for block in blocks - read:
            if not needs[block] <= known[block]:
                known[block] |= records.ended(engine.store, flow, block)
                read.add(block)
        full = {block for block in blocks if needs[block] <= known[block]}
        if is_wide and full:
            full = _noted(engine, flow, step, full)
        if len(full) == len(needs):
            complete.append(step)
    return complete


def _broken_by(
    engine: Engine, flow: JobId, layout: Layout, steps: set[int]
) -> Sequence[BrokenGroup]:
    """Return the groups that must be cancelled because of steps that may have failed.

    A failed step fails a group also through steps that need it, and end without being run.
    """
    groups = [span for span in layout.cancelled_spans if any(step in span for step in steps)]
    if not groups:
        return ()
    blocks = {step // BLOCK for step in steps if any(step in span for span in groups)}
    ends = records.ends(engine.store, flow, blocks, with_values=False)
    causes = {step: step for step in steps if step in ends and ends[step].state != "done"}
    reached = [(need, cause) for cause in causes for need in layout.needed_by.get(cause, ())]
    heapify(reached)
    broken: list[BrokenGroup] = []
    for _ in range(_PAGE):
        if not reached:
            break
        step, cause = heappop(reached)
        if step in causes or step in ends or not any(step <= span.stop for span in groups):
            continue
        missing = layout.needs_by_block(step).keys() - blocks
        if len(missing) <= BLOCKS_READ:
            ends = records.ends(engine.store, flow, missing, with_values=False) | ends
            blocks |= missing
        word = judge(layout, step, ends)
        if isinstance(word, Broken):
            broken.append(BrokenGroup(flow, layout.nodes[step].cancels_from, step, cause))
        elif not isinstance(word, NotNeeded):
            continue
        ends[step] = End("cancelled")
        for need in layout.needed_by.get(step, ()):
            heappush(reached, (need, cause))
    return broken


def _noted(engine: Engine, flow: JobId, step: int, full: set[int]) -> set[int]:
    """Record which blocks are full, then read which are: the last writer sees them all."""
    for block in full:
        commit = records.put_full(flow, step, block, version=engine.ids.token())
        engine.store.commit(commit.partition, commit.writes)
    return records.full(engine.store, flow, step)


def wake_steps(engine: Engine, flow: JobId, steps: Sequence[int]) -> int:
    """Move parked steps to now; return how many."""
    count, now_us = 0, engine.time.earliest_us()
    for start in range(0, len(steps), _PAGE):
        ids = [records.job_of(flow, step) for step in steps[start : start + _PAGE]]
        rows = [row for row in engine.store.find(ids) if row is not None and is_parked(row)]
        moves = [_moved(engine, row, max(row.due_us, now_us)) for row in rows]
        if moves:
            count += sum(engine.recording_store.settle(moves))
            engine.wake(map(place_of, moves))
    return count


def is_parked(row: Job) -> bool:
    """Return whether a row is still where it was parked."""
    if row.is_claimed() or row.outcome or row.state == State.DEAD:
        return False
    place = records.place_of(row)
    return place is not None and place.parked_us == row.at_us


def may_be_held(row: Job) -> bool:
    """Return whether the workflow of a step may hold it back.

    It was parked, and no handler has started it since: it is still parked, or due so that a worker
    checks its needs, or claimed by that worker.
    """
    if row.state not in (State.WAITING, State.CLAIMED) or row.outcome:
        return False
    place = records.place_of(row)
    return place is not None and place.parked_us > 0


def ask(engine: Engine, layouts: Layouts, job: Job) -> Readiness | None:
    """Return whether a claimed step may run (rule W4); None: its workflow is unknown."""
    place = records.step_of(job)
    assert place is not None
    flow, step = place
    layout = layouts.get(engine.store, flow)
    if layout is None or step >= len(layout.nodes):
        return None
    word = judge(layout, step, records.ends(engine.store, flow, layout.needs_by_block(step)))
    if isinstance(word, Held) and _has_gone(engine, flow, word.failure.step):
        return NotNeeded(f"{reason(layout, word.failure)}, and its deleted job cannot be retried")
    is_old = engine.time.latest_us() > job.enqueued_us + LOST_US
    if isinstance(word, Waits) and is_old and _has_gone(engine, flow, word.first):
        return NotNeeded(f"The step {word.first} was never stored")
    return word


def _has_gone(engine: Engine, flow: JobId, step: int) -> bool:
    """Return whether a step has neither a row nor an outcome; a second read finds moving rows.

    So it is for a dead job that was deleted, and for a step that a killed caller did not store.
    """
    for _ in range(_LOOKS):
        if engine.store.find([records.job_of(flow, step)])[0] is not None:
            return False
    end = records.ends(engine.store, flow, [step // BLOCK], with_values=False).get(step)
    return end is None or not end.is_final


def park(engine: Engine, until: Mapping[Job, int]) -> None:
    """Park claimed steps until they are released, or check again.

    Args: until: until when each waits for a signal; 0: it waits for steps, or for ever.
    """
    now_us = engine.time.latest_us()
    moves = [_parked(engine, job, until_us, now_us) for job, until_us in until.items()]
    if moves:
        engine.recording_store.settle(moves)


def _parked(engine: Engine, job: Job, until_us: int, now_us: int) -> Move:
    wait_us = min(max(now_us - job.enqueued_us, PARK_US), PARK_US_MAX)
    at_us = now_us + wait_us
    if until_us:
        at_us = min(at_us, max(until_us, now_us))
    options = read_options(job.opts)
    assert options.step is not None
    place = StepPlace(options.step.number, at_us, until_us)
    return _moved(engine, job, at_us, options.changed(step=place).to_bytes())


def _moved(engine: Engine, job: Job, at_us: int, opts: bytes | None = None) -> Move:
    bucket = bucket_of(at_us, engine.catalog.settings(job.lane.queue).width_us)
    return Move(job, at_us, engine.ids.token(), bucket, job.errors, job.crashes, job.alone,
                error=job.error, opts=opts)  # fmt: skip
