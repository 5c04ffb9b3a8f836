"""`dueline jobs chunks`: print what handlers emit."""

from typing import Annotated

import typer

from dueline.api.chunks import Chunks
from dueline.cli import job_rows
from dueline.cli.errors import Exit
from dueline.cli.job_ids import read_id
from dueline.cli.options import IdArgument, option
from dueline.cli.output import Output
from dueline.cli.session import session_of
from dueline.core.clock import SystemClock


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
