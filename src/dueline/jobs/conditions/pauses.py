"""Pauses that keep a job from being claimed."""

import shlex
from collections.abc import Iterator

from dueline.core.lane import tenant_of
from dueline.jobs import circuit_records
from dueline.jobs.conditions.subject import Subject
from dueline.jobs.explanation import Condition, Facts, when


def pauses_of(subject: Subject) -> Iterator[Condition]:
    """Yield the pauses of a job's queue, of its task and of its tenant."""
    queue, settings = subject.queue, subject.settings
    task, tenant = subject.job.task, tenant_of(subject.job.lane)
    if settings.is_paused:
        yield _pause(queue, queue, f"the queue {queue} is paused", [], {})
    if task in settings.paused_tasks:
        circuit = circuit_records.open_in(subject.engine.store, queue).get(task)
        clause = f"in the queue {queue} the task {task} is paused"
        if circuit is not None:
            clause += f" by itself, since {circuit.why}; one job probes it "
            clause += "now, or the next " if circuit.is_probed else ""
            clause += f"at {when(circuit.probe_us, subject.now_us)}, and resumes it if it succeeds"
        yield _pause(queue, task, clause, ["--task", task], {"task": task})
    if tenant in settings.paused_tenants:
        who = f"the tenant {tenant} is" if tenant else "jobs without a tenant are"
        clause = f"in the queue {queue} {who} paused"
        yield _pause(queue, tenant, clause, ["--tenant", tenant], {"tenant": tenant})


def _pause(queue: str, subject: str, clause: str, words: list[str], facts: Facts) -> Condition:
    command = shlex.join(["dueline", "queues", "resume", queue, *words])
    return Condition(
        "paused", subject, f"{clause} (`{command}`)", "operator",
        command=command, facts={"queue": queue, **facts},
    )  # fmt: skip
