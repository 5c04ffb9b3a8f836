"""The jobs that a configuration of `rq cron` registers."""

import logging
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from dueline.contrib.schedule_sources.found import FoundSchedule, local_zone, valid_name
from dueline.core.errors import BadInput


def find(place: str) -> Iterator[FoundSchedule]:
    """Yield the jobs of the file or module that `rq cron PLACE` takes. No Redis is needed.

    Raises: BadInput: it cannot be loaded.
    """
    from redis import Redis  # noqa: PLC0415  (of RQ, which is not a dependency)
    from rq.cron import CronScheduler  # noqa: PLC0415

    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    scheduler = CronScheduler(connection=Redis(), logging_level=logging.CRITICAL)  # not connected
    try:
        scheduler.load_config_from_file(place)
    except Exception as error:
        raise BadInput(f"{place} cannot be loaded: {error}") from error
    for job in scheduler.get_jobs():
        ttl = job.job_options.get("ttl")
        yield FoundSchedule(
            name=valid_name(getattr(job, "name", job.func_name)),
            task=job.func_name,
            args=list(job.args),
            kwargs=dict(job.kwargs),
            cron=job.cron,
            every=timedelta(seconds=job.interval) if job.interval else None,
            tz=local_zone(),
            options={"queue": job.queue_name, **({"expires": ttl} if ttl else {})},
            note="" if "job_timeout" not in job.job_options else "@app.task(timeout=) of the task",
        )
