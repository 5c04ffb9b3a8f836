"""Whether a worker is there that can run a job."""

import shlex
from collections.abc import Iterator, Sequence

from dueline.coordination.worker_registry import Presence, key_of
from dueline.core.job import Job
from dueline.core.lane import needs_text, read_key
from dueline.core.worker_needs import RESERVE_S, lacking, needed_by
from dueline.jobs.conditions.subject import Subject
from dueline.jobs.explanation import Condition, Facts, listed, when
from dueline.jobs.unknown_tasks import misfit_text, unknown_text, unmet_text


def workers_missing(subject: Subject) -> Iterator[Condition]:
    """Yield what is wrong with the workers of a job's queue, if none claims it."""
    if subject.able:
        return
    knowing = [worker for worker in subject.serving if worker.can_run(subject.job)]
    quiet = [worker for worker in knowing if worker.is_quiet and not worker.is_draining]
    heard = [worker for worker in quiet if not subject.silence_of(worker)]
    silent = [worker for worker in knowing if worker.is_claiming]
    lost = [worker for worker in silent if worker.has_lost_all and not subject.silence_of(worker)]
    if lost:
        yield _lost(subject, lost)
    elif heard:
        yield _quiet(subject, heard)
    elif silent:
        yield _silent(subject, silent)
    elif any(worker.is_claiming for worker in subject.serving) and not knowing:
        informed = [worker for worker in subject.serving if worker.knows(subject.job)]
        yield _unmet(subject, informed) if informed else _unknown(subject)
    else:
        yield _none(subject)


def resources_busy(subject: Subject) -> Iterator[Condition]:
    """Yield that all workers that could run a job use what it needs."""
    job, able = subject.job, subject.able
    if not able or not all(lacking(job.lane, worker.free) for worker in able):
        return
    names = needed_by(job.lane).units
    uses = (
        f"{worker.worker} uses {worker.used.get(name, 0)} of {worker.has[name]} {name}"
        for worker in able
        for name in names
    )
    yield Condition(
        "resources",
        needs_text(job.lane),
        f"it needs {_needs(job)}, and the workers that have it use it for other jobs: "
        f"{listed(uses)}; after {RESERVE_S} s they leave free for it what it needs",
        "work",
        unknown="when these jobs end",
        facts={**_facts(subject), "needs": needs_text(job.lane)},
    )


def _unmet(subject: Subject, informed: Sequence[Presence]) -> Condition:
    """Return that no worker has what a job needs."""
    job = subject.job
    has = [word for text in _needs(job).split(", ") for word in ("--has", text)]
    command = shlex.join(["dueline", "worker", "-q", subject.queue, *has])
    return Condition(
        "needs",
        needs_text(job.lane),
        f"it needs {_needs(job)}, and {unmet_text(job.lane, [worker.has for worker in informed])}; "
        f"live workers of the queue {subject.queue}: {len(subject.serving)}",
        "operator",
        command=command,
        facts={**_facts(subject), "needs": needs_text(job.lane)},
    )


def _needs(job: Job) -> str:
    return needs_text(job.lane).replace(",", ", ")


def _facts(subject: Subject) -> Facts:
    return {"queue": subject.queue, "task": subject.job.task, "workers": len(subject.serving)}


def _start(subject: Subject) -> str:
    return shlex.join(["dueline", "worker", "-q", subject.queue])


def _quiet(subject: Subject, quiet: Sequence[Presence]) -> Condition:
    names = [worker.worker for worker in quiet]
    command = shlex.join(["dueline", "workers", "resume", names[0]])
    who = f"the task {subject.job.task}" if subject.job.task else f"the queue {subject.queue}"
    does = "knows" if subject.job.task else "serves"
    if len(names) == 1:
        clause = f"the only live worker that {does} {who} is quiet ({names[0]}) and claims nothing"
    else:
        clause = f"all live workers that know {who} are quiet ({listed(names)}) and claim nothing"
    return Condition(
        "quiet", names[0], f"{clause} (`{command}`)", "operator",
        command=command, facts={**_facts(subject), "worker": names[0]},
    )  # fmt: skip


def _lost(subject: Subject, lost: Sequence[Presence]) -> Condition:
    """Return that handlers that have outlived their time limits take all slots."""
    names = [worker.worker for worker in lost]
    job, task, since_us = min(lost[0].lost, key=lambda slot: slot[2])
    command = shlex.join(["dueline", "workers", "stop", names[0]])
    return Condition(
        "slots lost",
        names[0],
        f"all slots of {'the worker ' if len(names) == 1 else ''}{listed(names)} are lost to "
        f"handlers that go on after their time limits, such as job {job} ({task}) since "
        f"{when(since_us, subject.now_us)}: restart the worker (`{command}`)",
        "operator",
        command=command,
        unknown="whether these handlers ever end",
        facts={**_facts(subject), "worker": names[0], "lost": len(lost[0].lost)},
    )


def _silent(subject: Subject, silent: Sequence[Presence]) -> Condition:
    """Return that the workers that could claim a job sent no heartbeat when it was due."""
    latest = max(silent, key=lambda worker: worker.beat_us)
    process = subject.stopped.get(latest.worker)
    return Condition(
        "worker silent",
        latest.worker,
        f"the live worker {latest.worker} of the queue {subject.queue} claims nothing as far as is "
        f"known: {subject.silence_of(latest)}",
        "operator",
        command=f"kill -CONT {process}" if process is not None else _start(subject),
        unknown=f"whether the worker {latest.worker} still lives",
        facts={**_facts(subject), "worker": latest.worker, "beat_us": latest.beat_us},
    )


def _unknown(subject: Subject) -> Condition:
    job, until_us = subject.job, read_key(key_of(subject.job)).until_us
    ends = f"; otherwise it is dead {when(until_us, subject.now_us)}" if until_us else ""
    return Condition(
        "task unknown",
        job.task,
        f"{unknown_text(key_of(job))}{misfit_text(job)}{ends}; "
        f"live workers of the queue {subject.queue}: {len(subject.serving)}",
        "operator",
        command=_start(subject),
        unknown="which application has the task",
        facts=_facts(subject),
    )


def _none(subject: Subject) -> Condition:
    queue, serving = subject.queue, subject.serving
    clause = f"no live worker serves the queue {queue}"
    if serving:
        names = listed(worker.worker for worker in serving)
        how = "quiet or stopping" if any(worker.is_quiet for worker in serving) else "stopping"
        clause += f" any more: those that did are {how}, and claim nothing ({names})"
        knows = any(worker.knows(subject.job) for worker in serving)
        if not knows:
            clause += f"; and {unknown_text(key_of(subject.job))}"
    command = _start(subject)
    return Condition(
        "no worker", queue, f"{clause} (`{command}`)", "operator",
        command=command, facts=_facts(subject),
    )  # fmt: skip
