"""Jobs that are named by their ids."""

from collections.abc import Callable, Sequence

import typer

from dueline.admin.id_prefixes import find_id, is_prefix
from dueline.api.job_handle import parse_id
from dueline.cli.errors import Exit, show_error
from dueline.cli.output import Output
from dueline.cli.session import session_of
from dueline.core.engine import Engine
from dueline.core.errors import Conflict, NotFound, QuotaExceeded
from dueline.core.job import JobId
from dueline.jobs.queue import Queues


def read_id(engine: Engine, text: str) -> JobId:
    """Return the id of an argument, which may be its first digits.

    Raises: BadInput, NotFound: it is not the id of a job, or not of one only.
    """
    return find_id(engine, text) if is_prefix(text) else parse_id(text)


def each(context: typer.Context, ids: Sequence[str], change: Callable[[Queues, JobId], str]) -> int:
    """Change jobs one by one; print each rejection, the first of which is the exit code."""
    code: int = Exit.DONE
    with session_of(context).queues() as queues:
        job_ids = [read_id(queues.engine, text) for text in ids]
        done = []
        for job_id in job_ids:
            try:
                done.append((job_id, change(queues, job_id)))
            except (NotFound, Conflict, QuotaExceeded) as error:
                failed = show_error(error, about=context.command_path)
                code = code or failed
        session_of(context).note_result(f"{len(done)} of {len(job_ids)} jobs")
        shown = [{"id": job_id.hex(), "change": word} for job_id, word in done]
        Output.of(context, queues.engine).entries(shown, ("id", "change"), count=len(done))
    return code
