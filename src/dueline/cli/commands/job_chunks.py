"""`dueline jobs chunks`: print what handlers emit."""

from typing import Annotated

import typer

from dueline.admin.id_prefixes import find_id, is_prefix
from dueline.api.chunks import Chunks
from dueline.api.job_handle import parse_id
from dueline.cli import job_rows
from dueline.cli.errors import Exit
from dueline.cli.options import IdArgument, option
from dueline.cli.output import Output
from dueline.cli.session import session_of
from dueline.core.clock import SystemClock
from dueline.core.engine import Engine
from dueline.core.job import JobId


def read_id(engine: Engine, text: str) -> JobId:
    """Return the id of an argument, which may be its first digits.

    Raises: BadInput, NotFound: it is not the id of a job, or not of one only.
    """
    return find_id(engine, text) if is_prefix(text) else parse_id(text)


def chunks(
    context: typer.Context,
    job: IdArgument,
    *,
    after: Annotated[str | None, option("ID", "Only those after the chunk with this id.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for more until the job ends.")
    ] = False,
) -> int:
    """Print the partial results of a job.

    Those of the last attempt that emitted some are kept for a day.

    Example: dueline jobs chunks 0196f2... --follow
    """
    with session_of(context).queues() as queues:
        job_id = read_id(queues.engine, job)
        reader = Chunks(queues, SystemClock(), job_id, after, None if follow else 0)
        output = Output.of(context, queues.engine)
        try:
            for chunk in reader:
                output.line(job_rows.of_chunk(chunk), job_rows.CHUNK_COLUMNS, job_rows.CHUNK_WIDTHS)
        except TimeoutError:  # it goes on
            return Exit.DONE
        except KeyboardInterrupt:
            return Exit.INTERRUPTED
        finally:
            reader.close()
    return Exit.DONE
