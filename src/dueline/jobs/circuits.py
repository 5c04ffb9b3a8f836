"""Circuit breakers: a task that fails too often is paused, and resumes by itself.

A circuit is closed while its task runs. It opens when k of the last n attempts failed, which pauses
the task (`pauses.py`). From then on one job at a time probes it, at most once in each period; the
first probe that succeeds closes the circuit, and the task resumes (rule P16).
Each change is a conditional write of the record, before the pause is changed. A process that dies
between both leaves that to the next one that looks, see `restore`.
"""

from dataclasses import replace
from typing import Final

from dueline.core.engine import Engine
from dueline.core.job import Job
from dueline.core.store import NO_VERSION, Delete
from dueline.jobs import circuit_records as records
from dueline.jobs import pauses
from dueline.jobs.circuit_records import Circuit
from dueline.jobs.paused_tasks import PAGE, is_deferred, put_back
from dueline.tasks.failure_limits import Failures

_ROUNDS_MAX: Final = 5


def count(engine: Engine, queue: str, task: str, outcomes: str, terms: Failures) -> None:
    """Count attempts of a task, and open its circuit if too many of the last ones failed.

    Args:
        engine: The engine.
        queue: The queue.
        task: The task.
        outcomes: How attempts ended, the last one last: 1 failed, 0 succeeded.
        terms: When it opens.
    """
    for _ in range(_ROUNDS_MAX):
        known, version = records.read(engine.store, queue, task)
        if known.opened_us or known.is_closing:
            return
        circuit = known.after(outcomes, of=terms.of)
        failed = circuit.recent.count("1")
        if failed >= terms.count:
            now_us = engine.time.latest_us()
            circuit = Circuit(
                opened_us=now_us, failed=failed, of=len(circuit.recent),
                every_us=terms.probe_every_us, probe_us=now_us + terms.probe_every_us,
            )  # fmt: skip
        if records.write(engine, queue, task, circuit, version) is not None:
            if circuit.opened_us:
                restore(engine, queue, task)
            return


def restore(engine: Engine, queue: str, task: str) -> Circuit | None:
    """Pause or resume a task as its circuit says; return the circuit if it is open."""
    circuit, version = records.read(engine.store, queue, task)
    is_paused = task in engine.catalog.settings(queue).paused_tasks
    if circuit.is_closing:
        pauses.release(engine, queue, task)
        engine.store.commit(records.partition_of(queue), (Delete(task, expect=version),))
    elif circuit.opened_us and not is_paused:
        pauses.hold(engine, queue, task)
        if records.read(engine.store, queue, task)[1] == NO_VERSION:  # an operator resumed it
            pauses.release(engine, queue, task)
            return None
    return circuit if circuit.opened_us and not circuit.is_closing else None


def begin_probe(engine: Engine, queue: str, task: str) -> Circuit | None:
    """Choose a job that probes an open circuit if it is time, and make it due.

    Returns:
        The circuit; None if it is closed.
    """
    circuit = restore(engine, queue, task)
    now_us = engine.time.latest_us()
    if circuit is None or now_us < circuit.probe_us:
        return circuit
    job = _first_waiting(engine, queue, task, now_us)
    if job is None:
        return circuit
    version = records.read(engine.store, queue, task)[1]
    probing = replace(circuit, probe=job.id.hex(), probe_us=now_us + circuit.every_us)
    if version == NO_VERSION or records.write(engine, queue, task, probing, version) is None:
        return circuit
    put_back(engine, [job])
    return probing


def _first_waiting(engine: Engine, queue: str, task: str, now_us: int) -> Job | None:
    """Return a job of a paused task that is due, or would be without the pause."""
    for lane in engine.lanes_of(queue):
        page = engine.store.scan(lane, after=None, until_us=None, limit=PAGE)
        for row in page.jobs:
            is_free = row.task == task and not row.is_claimed() and not row.outcome
            if is_free and (row.at_us <= now_us or is_deferred(row)):
                return row
    return None


def end_probe(engine: Engine, queue: str, task: str, job: Job, *, is_success: bool) -> None:
    """Close an open circuit if its probe succeeded, and resume the task; await the next otherwise.

    Args:
        engine: The engine.
        queue: The queue.
        task: The task.
        job: The job that was the probe; nothing changes if it is no longer.
        is_success: Whether its attempt succeeded.
    """
    circuit, version = records.read(engine.store, queue, task)
    if not circuit.opened_us or circuit.probe != job.id.hex():
        return
    after = replace(circuit, probe="", is_closing=is_success)
    is_written = records.write(engine, queue, task, after, version) is not None
    if is_written and is_success:
        restore(engine, queue, task)
