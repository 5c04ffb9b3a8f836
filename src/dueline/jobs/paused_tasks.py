"""Defers jobs of paused tasks, out of the way of other jobs in their lanes.

A lane is claimed from its front, so a due job of a paused task is deferred: `at` moves ASIDE_US
ahead, and the options keep where it came from. The end of the pause requeues it there. Correctness
does not depend on that: if the process dies first, the job becomes due by itself, and is deferred
again while the pause lasts. No attempt is used, and no history row is written (rule P9).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from dueline.core.call_options import read_options
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.errors import StoreCorrupt
from dueline.core.job import Job, JobId
from dueline.core.lane import Lane, bucket_of, needs_text
from dueline.core.limit_costs import opts_with_costs
from dueline.core.store import Move
from dueline.core.wakeup import place_of
from dueline.core.worker_needs import pairs_of

ASIDE_US: Final = 600 * SECOND_US
"""How long after the end of a pause a job runs that was not requeued."""

PAGE: Final = 500


def is_deferred(row: Job) -> bool:
    """Return whether a row is still where it was deferred to: every other move undoes that."""
    return place_before(row) is not None


def place_before(row: Job) -> int | None:
    """Return where a deferred row belongs; None if it is not deferred."""
    if row.opts and not row.is_claimed() and not row.outcome:
        with suppress(StoreCorrupt):  # reported when the job runs
            aside = read_options(row.opts).aside
            if aside is not None and aside[1] == row.at_us:
                return aside[0]
    return None


def defer(engine: Engine, claimed: Iterable[Job]) -> int:
    """Defer claimed jobs; return how many."""
    return _settle(engine, [_aside(engine, job, _place_before_claim(job)) for job in claimed])


def move_to_lanes(
    engine: Engine, jobs: Iterable[tuple[Job, str]], limits: Mapping[JobId, Sequence[str]] = {}
) -> int:
    """Move claimed or waiting jobs to lanes with needs, limits or a task; return how many.

    Their places stay, no attempt is used, and no history row is written (rule P10).

    Args:
        engine: The engine.
        jobs: The jobs, each with the `tenant` of its lane.
        limits: The limits of those that get some, with their numbers of units.
    """
    moves = []
    for job, tenant in jobs:
        at_us = _place_before_claim(job) if job.is_claimed() else job.at_us
        lane = job.lane._replace(tenant=tenant)
        opts = opts_with_costs(job.opts, limits.get(job.id, ()))
        if needs_text(lane) != needs_text(job.lane):
            opts = read_options(opts).changed(needs=pairs_of(needs_text(lane))).to_bytes()
        move = _move(engine, job, at_us, opts if opts != job.opts else None)
        moves.append(move._replace(to=lane._replace(bucket=move.listing)))
    count = _settle(engine, moves)
    engine.wake(map(place_of, moves))
    return count


def requeue_claimed(engine: Engine, jobs: Iterable[Job]) -> int:
    """Return claimed jobs to their places; return how many. No attempt is used (rule N9)."""
    moves = [_move(engine, job, _place_before_claim(job), None) for job in jobs]
    return _settle(engine, moves)


def _place_before_claim(job: Job) -> int:
    """Return where a job was before it was claimed, as `retry` does for a released one.

    A job that was brought forward, such as a step of a workflow, has a position after its claim.
    """
    return job.claimed_us if job.errors or job.crashes else min(job.pos_us, job.claimed_us)


def clear(engine: Engine, lane: Lane, tasks: Collection[str], but: Collection[str] = ()) -> int:
    """Defer jobs of paused tasks at the front of a lane; return how many.

    Args:
        engine: The engine.
        lane: The lane.
        tasks: The tasks.
        but: Jobs that stay, by their ids in hexadecimal: they probe a circuit (rule P16).
    """
    due = [row for row in waiting_in(engine, lane) if row.task in tasks and row.id.hex() not in but]
    return _settle(engine, [_aside(engine, row, row.at_us) for row in due])


def waiting_in(engine: Engine, lane: Lane) -> list[Job]:
    """Return due jobs at the front of a lane that no worker has claimed."""
    page = engine.store.scan(lane, after=None, until_us=engine.time.earliest_us(), limit=PAGE)
    return [row for row in page.jobs if _waits(row)]


def _waits(row: Job) -> bool:
    if row.is_claimed() or row.outcome:
        return False
    with suppress(StoreCorrupt):
        read_options(row.opts)
        return True
    return False


def _aside(engine: Engine, job: Job, from_us: int) -> Move:
    now_us = engine.time.latest_us()
    until_us = now_us + ASIDE_US
    options = read_options(job.opts)
    first_us = from_us if options.aside is None else options.aside[0]  # and it is due again
    opts = options.changed(aside=(min(first_us, now_us), until_us)).to_bytes()
    return _move(engine, job, until_us, opts)


def requeue(engine: Engine, lanes: Iterable[Lane], tasks: Collection[str], since_us: int) -> int:
    """Requeue deferred jobs of tasks that are no longer paused; return how many.

    Args:
        engine: The engine.
        lanes: The lanes.
        tasks: The tasks.
        since_us: Only jobs that were deferred from then on.
    """
    count = 0
    for lane in lanes:
        after: tuple[int, JobId] | None = (since_us + ASIDE_US - 1, JobId(b""))
        while after is not None:
            page = engine.store.scan(lane, after=after, until_us=None, limit=PAGE)
            backs = (_back(engine, row) for row in page.jobs if row.task in tasks)
            moves = [move for move in backs if move is not None]
            count += _settle(engine, moves)
            engine.wake(map(place_of, moves))
            after = page.after
    return count


def put_back(engine: Engine, rows: Iterable[Job]) -> int:
    """Return deferred jobs to their places; return how many."""
    moves = [move for row in rows if (move := _back(engine, row)) is not None]
    count = _settle(engine, moves)
    engine.wake(map(place_of, moves))
    return count


def _back(engine: Engine, row: Job) -> Move | None:
    at_us = place_before(row)
    if at_us is None:
        return None
    return _move(engine, row, at_us, read_options(row.opts).changed(aside=None).to_bytes())


def _move(engine: Engine, job: Job, at_us: int, opts: bytes | None) -> Move:
    bucket = bucket_of(at_us, engine.catalog.settings(job.lane.queue).width_us)
    return Move(job, at_us, engine.ids.token(), bucket, job.errors, job.crashes, job.alone,
                error=job.error, opts=opts)  # fmt: skip


def _settle(engine: Engine, moves: list[Move]) -> int:
    return sum(engine.recording_store.settle(moves)) if moves else 0
