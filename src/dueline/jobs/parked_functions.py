"""Durable functions that wait, and what they receive: signals, and requests to end.

A request is a record in the inbox of the function, written first; then the row moves to now if it
is still where it was parked. A worker that parks a function moves the row first, and
then reads the inbox. So one of the two sees the other (rule D3). If both die in between, the check
of the wait finds the request.
"""

from typing import Final

from dueline.core.attempt import DurablePlace
from dueline.core.call_options import awaited_by, durable_place
from dueline.core.engine import Engine
from dueline.core.errors import Conflict
from dueline.core.job import Job, JobId, State, is_paused
from dueline.core.lane import bucket_of
from dueline.core.pagination import record_at
from dueline.core.store import NO_VERSION, Commit, Delete, Group, Move, Put
from dueline.core.wakeup import place_of as place_of_move
from dueline.jobs import function_list
from dueline.jobs.decisions import Decision, decide
from dueline.jobs.function_list import inbox_of, partition_of
from dueline.jobs.paused_rows import resumed

CANCEL: Final = "cancel"
"""Key of the request to cancel the function."""

RETRIED: Final = "retried"
"""Key of the request to run a dead function again: the number of the generation that failed."""

HURRIED: Final = "hurried"
"""Key of the request to repeat at once a step that waits for its next attempt: when it was made."""

END: Final = "end"
"""Key of the record in the log that says how the function ends, before its compensations."""


def may_have_begun(row: Job) -> bool:
    """Return whether a row is a durable function that was claimed: only a claim ends it.

    A claim that finds that the function still waits for other jobs does not begin it.
    """
    return row.fence > 0 and durable_place(row) is not None and awaited_by(row) is None


def is_parked(row: Job) -> bool:
    """Return whether a row is still where its function was parked."""
    if row.is_claimed() or row.outcome or row.state == State.DEAD:
        return False
    place = durable_place(row)
    return place is not None and 0 < place.parked_us == row.at_us


def tell(engine: Engine, job_id: JobId, key: str, value: bytes, *, word: str) -> bool:
    """Write a record for a function that has not ended, once; `wake` it if this has not.

    Args:
        engine: The engine.
        job_id: The function.
        key: The key of the record; a record that is there stays.
        value: The value of the record.
        word: What is done to the function, for the error.

    Returns:
        Whether this has moved the function to now, since it was parked.

    Raises:
        Conflict: The function has ended.
    """
    row = _row_of(engine, job_id)
    if row is None or has_ended(row):
        raise ended_error(job_id, word)
    engine.catalog.expect_here(row.lane.queue)  # the records of a job move with its row (rule X1)
    _expect_listed(engine, row)
    put = Put(key, engine.ids.token(), value, expect=NO_VERSION)
    write = Commit(inbox_of(job_id), (put,))
    if is_parked(row):
        move = _woken(engine, row)
        if decide(engine.recording_store, [Decision(write, Group(verdicts=(move,)))])[0]:
            engine.wake([place_of_move(move)])
            return True
    engine.store.commit(*write)
    return False


def _expect_listed(engine: Engine, row: Job) -> None:
    """List a function before its first record, as its first claim does."""
    place = durable_place(row) or DurablePlace()
    if place.length:
        return
    partitions = inbox_of(row.id), partition_of(row.id, place.generation)
    if not any(engine.store.read(partition, after=None, limit=1) for partition in partitions):
        function_list.add(engine, row)


def _row_of(engine: Engine, job_id: JobId) -> Job | None:
    """Return the row of a function; the first read may miss one that moves."""
    return engine.store.find([job_id])[0] or engine.store.find([job_id])[0]


def ended_error(job_id: JobId, word: str) -> Conflict:
    """Return the error of a function that has ended. word: what was to be done to it."""
    return Conflict(f"The function {job_id.hex()} has ended and cannot be {word}.")


def has_ended(row: Job | None) -> bool:
    """Return whether a function has ended."""
    return row is None or bool(row.outcome) or row.state == State.DEAD


def ask_to_end(engine: Engine, job_id: JobId) -> None:
    """Request the end of a function and wake it.

    Raises: Conflict: it has ended.
    """
    if not tell(engine, job_id, CANCEL, b"", word="cancelled"):
        wake(engine, job_id)
    row = _row_of(engine, job_id)
    if row is not None and is_paused(row):  # its claim ends it
        resumed(engine, row)


def ask_to_go_on(engine: Engine, row: Job) -> None:
    """Have the next claim of a dead function begin a generation (rule D13); other jobs are left.

    A request to end it is withdrawn. A step of a waiting function is repeated at once.

    Raises: Conflict: its compensations ran.
    """
    place = durable_place(row)
    if place is None or row.state != State.DEAD:
        if is_parked(row):
            hurried = Put(HURRIED, engine.ids.token(), engine.time.latest_us().to_bytes(8))
            engine.store.commit(inbox_of(row.id), (hurried,))
        return
    if record_at(engine.store, partition_of(row.id, place.generation), END) is not None:
        raise compensated_error(row.id, "retried")
    _expect_listed(engine, row)
    retried = Put(RETRIED, engine.ids.token(), str(place.generation).encode())
    engine.store.commit(inbox_of(row.id), (retried, Delete(CANCEL)))


def compensated_error(job_id: JobId, word: str) -> Conflict:
    """Return the error of a function that is undone. word: what was to be done to it."""
    return Conflict(
        f"The function {job_id.hex()} cannot be {word}: its compensations ran, or will run.",
        hint="Begin a new one from its records with reset(as_new=True).",
    )


def wake(engine: Engine, job_id: JobId) -> bool:
    """Move a function that is still parked to now; return whether it has not ended."""
    row = _row_of(engine, job_id)
    if row is not None and is_parked(row):
        move = _woken(engine, row)
        engine.recording_store.settle([move])
        engine.wake([place_of_move(move)])
    return not has_ended(row)


def _woken(engine: Engine, row: Job) -> Move:
    """Return the move of a woken function: before those that are due, so that functions end."""
    at_us = min(row.pos_us, engine.time.earliest_us())
    width_us = engine.catalog.settings(row.lane.queue).width_us
    return Move(row, at_us, engine.ids.token(), bucket_of(at_us, width_us), row.errors, row.crashes,
                error=row.error)  # fmt: skip
