"""Circuit breakers: a task that fails too often is paused, and resumes by itself.

A circuit is closed while its task runs. It opens when k of the last n attempts failed, or k jobs
crashed in the same way, which pauses the task (`pauses.py`). From then on one job at a time probes
it, at most once in each period; the first probe that succeeds closes the circuit, and the task
resumes (rule P16).
Each change is a conditional write of the record, before the pause is changed. A process that dies
between both leaves that to the next one that looks, see `restore`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dueline.core.engine import Engine
from dueline.core.job import Job, JobId
from dueline.core.store import Delete
from dueline.jobs import circuit_records as records
from dueline.jobs import pauses
from dueline.jobs.circuit_records import Circuit, Crash
from dueline.jobs.paused_tasks import PAGE, is_deferred, put_back
from dueline.tasks.failure_limits import Failures

_ROUNDS_MAX: Final = 5


def count(
    engine: Engine,
    queue: str,
    task: str,
    outcomes: str,
    *,
    crashes: Sequence[Crash],
    terms: Failures,
) -> None:
    """Count attempts of a task, and open its circuit if too many of the last ones failed.

    Args:
        engine: The engine.
        queue: The queue.
        task: The task.
        outcomes: How attempts ended, the last one last: 1 failed, 0 succeeded.
        crashes: The jobs that processes died on.
        terms: When it opens.
    """
    for _ in range(_ROUNDS_MAX):
        known, version = records.read(engine.store, queue, task)
        if known.opened_us:
            return
        circuit = known.after(outcomes, crashes, of=terms.of)
        circuit = _opened(circuit, terms, engine.time.latest_us()) or circuit
        if records.write(engine, queue, task, circuit, version) is not None:
            if circuit.opened_us:
                restore(engine, queue, task)
            return


def _opened(circuit: Circuit, terms: Failures, now_us: int) -> Circuit | None:
    """Return the open circuit if it is to open, else None."""
    failed, of, signature = circuit.recent.count("1"), len(circuit.recent), ""
    alike = Counter(crash.signature for crash in circuit.crashes).most_common(1)
    if terms.crashes and alike and alike[0][1] >= terms.crashes:
        signature, failed = alike[0]
        of = failed
    elif failed < terms.count:
        return None
    every_us = terms.probe_every_us
    return Circuit(
        opened_us=now_us, failed=failed, of=of, every_us=every_us, probe_us=now_us + every_us,
        signature=signature,
    )  # fmt: skip


def restore(engine: Engine, queue: str, task: str) -> tuple[Circuit, bytes] | None:
    """Pause or resume a task as its circuit says; return the circuit and its version if open."""
    circuit, version = records.read(engine.store, queue, task)
    is_tripped = task in engine.catalog.settings(queue).tripped_tasks
    if circuit.is_open and (is_tripped or pauses.hold(engine, queue, task)):
        return circuit, version
    if circuit.is_closing or (is_tripped and not circuit.is_open):
        pauses.release(engine, queue, task)
    if circuit.opened_us:  # it closes, or an operator has paused the task
        engine.store.commit(records.partition_of(queue), (Delete(task, expect=version),))
    return None


def begin_probe(engine: Engine, queue: str, task: str) -> Circuit | None:
    """Choose a job that probes an open circuit if it is time, and make it due.

    Returns:
        The circuit; None if it is closed.
    """
    known = restore(engine, queue, task)
    if known is None:
        return None
    circuit, version = known
    if engine.time.earliest_us() < circuit.probe_us or _is_probed(engine, circuit):
        return circuit
    now_us = engine.time.latest_us()
    job = _first_waiting(engine, queue, task, now_us)
    if job is None:
        return circuit
    probing = replace(circuit, probe=job.id.hex(), probe_us=now_us + circuit.every_us)
    if records.write(engine, queue, task, probing, version) is None:
        return circuit
    put_back(engine, [job])
    return probing


def _is_probed(engine: Engine, circuit: Circuit) -> bool:
    """Return whether the claim of a probe that has started lasts."""
    job_id, _, fence = circuit.probe.partition("/")
    row = engine.store.find([JobId(bytes.fromhex(job_id))])[0] if fence else None
    if row is None or not row.is_claimed() or row.outcome:
        return False
    return row.fence == int(fence) and row.at_us > engine.time.earliest_us()


def _first_waiting(engine: Engine, queue: str, task: str, now_us: int) -> Job | None:
    """Return a job of a paused task that is due, or would be without the pause."""
    for lane in engine.lanes_of(queue):
        page = engine.store.scan(lane, after=None, until_us=None, limit=PAGE)
        for row in page.jobs:
            is_free = row.task == task and not row.is_claimed() and not row.outcome
            if is_free and (row.at_us <= now_us or is_deferred(row)):
                return row
    return None


def start_probe(engine: Engine, queue: str, task: str, job: Job) -> bool:
    """Return whether a claimed job probes an open circuit now: it may do so once.

    If its worker dies, the job waits as others do, and the next probe comes after a period.
    """
    circuit, version = records.read(engine.store, queue, task)
    if not circuit.is_open or circuit.probe != job.id.hex():
        return False
    probe_us = engine.time.latest_us() + circuit.every_us
    started = replace(circuit, probe=_with_fence(job), probe_us=probe_us)
    return records.write(engine, queue, task, started, version) is not None


def end_probe(engine: Engine, queue: str, task: str, job: Job, *, is_success: bool) -> None:
    """Close an open circuit if its probe succeeded, and resume the task; await the next otherwise.

    Args:
        engine: The engine.
        queue: The queue.
        task: The task.
        job: The job as it was claimed; nothing changes if this claim is not the probe.
        is_success: Whether its attempt succeeded.
    """
    circuit, version = records.read(engine.store, queue, task)
    if not circuit.is_open or circuit.probe != _with_fence(job):
        return
    after = replace(circuit, probe="", is_closing=is_success)
    is_written = records.write(engine, queue, task, after, version) is not None
    if is_written and is_success:
        restore(engine, queue, task)


def _with_fence(job: Job) -> str:
    return f"{job.id.hex()}/{job.fence}"
