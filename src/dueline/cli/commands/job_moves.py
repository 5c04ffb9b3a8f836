"""`dueline jobs move`: move jobs to another queue."""

from typing import Annotated

import typer

from dueline.admin.filters import parse_filter
from dueline.cli.bulk_actions import move_matching, with_options
from dueline.cli.job_ids import each
from dueline.cli.option_groups import with_option_groups
from dueline.cli.options import MaybeIdsArgument, MoveOptions, option
from dueline.core.clock import SystemClock
from dueline.core.errors import BadInput
from dueline.core.job import JobId
from dueline.jobs.queue import Queues
from dueline.jobs.queue_moves import QueueMoves


@with_option_groups
def move(
    context: typer.Context,
    job: MaybeIdsArgument = None,
    *,
    to: Annotated[str, option("NAME", "Queue to move the jobs to.", "--to")],
    options: MoveOptions,
) -> int:
    """Move waiting jobs to another queue.

    Their ids, times, priorities, tenants and attempts stay. Jobs that run, have an order key, or
    whose unique key is held in the new queue are left, and the reasons are printed.

    Pass ids, or --from-queue with filters: then the command prints the number of jobs and asks for
    confirmation. If it is interrupted, run it again within 24 hours, as `jobs cancel`.

    Example: dueline jobs move --from-queue mail --to mail-slow --task shop.report --dry-run
    """
    if bool(job) == (options.from_queue is not None):
        raise BadInput(
            "Pass either ids, or --from-queue with optional filters.",
            hint=f"Use `{context.command_path} --from-queue NAME --to NAME`.",
        )
    if options.from_queue is None:

        def change(queues: Queues, job_id: JobId) -> str:
            QueueMoves(queues, to).move(job_id)
            return "moved"

        return each(context, job or (), change)
    now_us = SystemClock().wall_us()
    like = parse_filter(options.words or "", now_us)
    asked = {
        "queue": options.from_queue, "state": options.state, "task": options.task,
        "tenant": options.tenant, "tag": options.tag,
    }  # fmt: skip
    return move_matching(context, with_options(like, asked), to, options)
