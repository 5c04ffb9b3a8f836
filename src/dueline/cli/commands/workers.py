"""`dueline workers`: list live workers, steer them, and say how many are wanted."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from statistics import median_low
from typing import Annotated, Final

import typer

from dueline.admin.operations import Operations
from dueline.admin.scaling import scale_of
from dueline.api.worker_plan import CONCURRENCY
from dueline.cli.commands.queues import worker_entry
from dueline.cli.confirm import is_agreed
from dueline.cli.errors import Exit, say_failure
from dueline.cli.options import YesOption, argument, option
from dueline.cli.output import Entry, Instant, Output, note
from dueline.cli.session import operator, session_of
from dueline.coordination import worker_requests
from dueline.coordination.worker_registry import Presence, live_workers
from dueline.coordination.worker_requests import EFFECTIVE_US, RequestKind, WorkerAnswer
from dueline.core.clock import SECOND_US
from dueline.core.durations import parse_span
from dueline.core.engine import Engine
from dueline.core.errors import BadInput
from dueline.foresight.target import target_of

COLUMNS: Final = ("worker", "queues", "held", "running", "slots", "lost", "state", "version",
                  "clock_offset", "beat")  # fmt: skip
ANSWER_COLUMNS: Final = ("worker", "answer", "running", "memory_mib", "started", "jobs")
WAIT_S: Final = EFFECTIVE_US / SECOND_US + 1
REMIND_EVERY_S: Final = 1.0
MIB: Final = 1024 * 1024

MaybeWorkerArgument = Annotated[
    str | None, argument("WORKER", "Id of a live worker, or its first letters.")
]
AllOption = Annotated[bool, typer.Option("--all", help="All live workers.")]

workers = typer.Typer(help="Show and steer workers.")


@workers.command("list")
def list_workers(context: typer.Context) -> None:
    """List live workers.

    Shows the queues they serve, the jobs they hold and run, the slots they have lost to handlers
    that outlive their time limits, their clock offset, and what they have for jobs with needs.

    Example: dueline workers list
    """
    with session_of(context).engine() as engine:
        shown = [worker_entry(worker) for worker in live_workers(engine)]
        columns = (*COLUMNS, "has", "free") if any(entry["has"] for entry in shown) else COLUMNS
        Output.of(context, engine).entries(shown, columns, count=len(shown))
    if not shown:
        note("No live workers.")


@workers.command()
def ping(
    context: typer.Context, worker: MaybeWorkerArgument = None, *, every: AllOption = False
) -> int:
    """Ask workers what they run.

    Each answers within five seconds, with the jobs that it runs, its memory and its start. Exits
    124 if one does not.

    Example: dueline workers ping --all
    """
    return _ask(context, "ping", worker, every=every, yes=True)


@workers.command()
def quiet(
    context: typer.Context,
    worker: MaybeWorkerArgument = None,
    *,
    every: AllOption = False,
    yes: YesOption = False,
) -> int:
    """Let workers take no new jobs.

    Jobs that they have claimed run to their end, and the processes stay. Workers that start later
    are not quiet. Exits 124 if a worker does not answer within five seconds.

    Example: dueline workers quiet web-3:812
    """
    return _ask(context, "quiet", worker, every=every, yes=yes)


@workers.command()
def resume(
    context: typer.Context, worker: MaybeWorkerArgument = None, *, every: AllOption = False
) -> int:
    """Let quiet workers take jobs again.

    Example: dueline workers resume --all
    """
    return _ask(context, "resume", worker, every=every, yes=True)


@workers.command()
def stop(
    context: typer.Context,
    worker: MaybeWorkerArgument = None,
    *,
    every: AllOption = False,
    now: Annotated[
        bool, typer.Option("--now", help="Release running jobs at once, as a second SIGTERM does.")
    ] = False,
    yes: YesOption = False,
) -> int:
    """Stop workers as SIGTERM does.

    They claim nothing more, running jobs may finish within `--drain` of the worker, and the
    processes exit with 143. A process manager may start them again. Exits 124 if a worker does not
    answer within five seconds.

    Example: dueline workers stop web-3:812 --yes
    """
    return _ask(context, "stop-now" if now else "stop", worker, every=every, yes=yes)


def _ask(
    context: typer.Context, kind: RequestKind, worker: str | None, *, every: bool, yes: bool
) -> int:
    if (worker is None) is not every:
        raise BadInput(
            "Name one worker, or pass --all.", hint=f"Use `dueline workers {kind} --all`."
        )
    with session_of(context).queues() as queues:
        engine = queues.engine
        asked = worker_requests.chosen(live_workers(engine), worker)
        if not asked:
            note("No live workers.")
            return Exit.DONE
        if not is_agreed(f"{kind.capitalize()} {len(asked)} of the workers?", yes=yes):
            return say_failure(
                "refused; nothing was changed",
                why=f"The change was not confirmed. Workers: {len(asked)}.",
                attempt="Add --yes.",
                code=Exit.REFUSED,
            )
        request, asked = Operations(queues, operator()).ask_workers(kind, worker)
        answers = _answers_to(engine, request, asked)
        Output.of(context, engine).entries(
            [_entry(worker.worker, answers.get(worker.worker)) for worker in asked],
            ANSWER_COLUMNS,
            count=len(asked),
        )
    if len(answers) < len(asked):
        return say_failure(
            "no answer",
            why=f"Workers that did not answer: {len(asked) - len(answers)}.",
            attempt="A worker that is alive does what it was asked to once it can: "
            "see `dueline workers list`.",
            code=Exit.TIMEOUT,
        )
    return Exit.DONE


def _answers_to(engine: Engine, request: str, asked: Sequence[Presence]) -> dict[str, WorkerAnswer]:
    """Return the answers of workers, after all have answered or the time is over."""
    now_s = time.monotonic()
    until_s, remind_s = now_s + WAIT_S, now_s + REMIND_EVERY_S
    while True:
        answers = {
            name: answer
            for name, answer in worker_requests.answers(engine.store).items()
            if answer.request == request
        }
        now_s = time.monotonic()
        if len(answers) >= len(asked) or now_s >= until_s:
            return answers
        if now_s >= remind_s:  # a notification may be lost, and idle workers poll rarely
            worker_requests.notify(
                [worker for worker in asked if worker.worker not in answers], engine.wakeups
            )
            remind_s = now_s + REMIND_EVERY_S
        time.sleep(0.05)


def _entry(worker: str, answer: WorkerAnswer | None) -> Entry:
    if answer is None:
        return {"worker": worker, "answer": "none"}
    state = "stopping" if answer.is_draining else "quiet" if answer.is_quiet else "claiming"
    return {
        "worker": worker,
        "answer": state,
        "running": answer.running,
        "memory_mib": round(answer.memory_bytes / MIB),
        "started": Instant(answer.started_us),
        "jobs": [f"{task} {job[:12]}" for job, task, _ in answer.jobs],
    }


@workers.command()
def wanted(
    context: typer.Context,
    *,
    queue: Annotated[list[str], option("NAME", "Queue to serve; repeatable.", "-q", "--queue")],
    target: Annotated[
        str, option("TARGET", 'Start latency to keep, such as "p99<2s".')
    ] = "p99<30s",
    ahead: Annotated[
        str, option("DURATION", "Count jobs that are due within this time as due.")
    ] = "10s",
    slots: Annotated[
        int | None, option("NUMBER", "Slots of one worker; by default as live workers have.", min=1)
    ] = None,
) -> None:
    """Print how many workers keep a target of start latencies.

    They start what is due within the time of the target, and keep the target at the present rate of
    jobs. The number falls only after fewer have been enough for five minutes, and never below what
    running jobs need. Workers answer the same at `/scale`.

    Example: dueline workers wanted -q mail --target "p99<2s"
    """
    asked, ahead_us = target_of(target), parse_span(ahead)
    with session_of(context).engine() as engine:
        for name in queue:
            engine.catalog.chosen(name)
        if slots is None:
            serving = [
                worker.slots for worker in live_workers(engine) if set(queue) & set(worker.queues)
            ]
            slots = median_low(serving) if serving else CONCURRENCY
        scale = scale_of(engine, queue, slots=slots, target=asked, ahead_us=ahead_us)
        Output.of(context, engine).text(str(scale.desired_workers), asdict(scale))
