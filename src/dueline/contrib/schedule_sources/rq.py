"""The jobs of `rq cron`, of its configuration or on a Redis."""

import logging
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from dueline.api.connect import mask
from dueline.contrib.schedule_sources.foreign_schedule import (
    ForeignSchedule,
    local_zone,
    valid_name,
)
from dueline.core.errors import BadInput

_REDIS: Final = ("redis://", "rediss://", "unix://")


def find(place: str) -> Iterator[ForeignSchedule]:
    """Yield the jobs of a file or module that `rq cron` takes.

    Of a Redis, yield those of the schedulers that run on it.

    Raises: BadInput: it cannot be loaded.
    """
    try:
        yield from _registered(place) if place.startswith(_REDIS) else _configured(place)
    except ModuleNotFoundError:
        raise
    except Exception as error:
        raise BadInput(f"{mask(place)} cannot be loaded: {error}") from error


def _registered(place: str) -> Iterator[ForeignSchedule]:
    from redis import Redis  # noqa: PLC0415  (of RQ, which is not a dependency)
    from rq.cron import CronScheduler  # noqa: PLC0415

    redis = Redis.from_url(place)
    seen: list[dict[str, Any]] = []  # several processes may run one configuration
    for scheduler in CronScheduler.all(redis, cleanup=False):
        for job in scheduler.get_jobs():
            own = {k: v for k, v in job.to_dict().items() if not k.endswith("_enqueue_time")}
            if own not in seen:
                seen.append(own)
                yield _found(job)


def _configured(place: str) -> Iterator[ForeignSchedule]:
    from redis import Redis  # noqa: PLC0415
    from rq.cron import CronScheduler  # noqa: PLC0415

    refused: list[ForeignSchedule] = []

    class Scheduler(CronScheduler):
        """Keeps what cannot be registered, which RQ only logs."""

        def register(self, func: Any, *args: Any, **options: Any) -> Any:  # noqa: ANN401
            try:
                return super().register(func, *args, **options)
            except (TypeError, ValueError) as error:
                name = f"{func.__module__}.{func.__name__}"
                refused.append(ForeignSchedule(valid_name(name), name, refused=f"{error}."))
                raise

    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    scheduler = Scheduler(connection=Redis(), logging_level=logging.CRITICAL)  # not connected
    logging.getLogger("rq.cron").setLevel(logging.CRITICAL + 1)  # failures are in `refused`
    scheduler.load_config_from_file(place)
    yield from map(_found, scheduler.get_jobs())
    yield from refused


def _found(job: Any) -> ForeignSchedule:  # noqa: ANN401  (a CronJob)
    own = {"name": valid_name(getattr(job, "name", job.func_name)), "task": job.func_name}
    if isinstance(job.args, str) or isinstance(job.kwargs, str):  # the words of RQ for that
        return ForeignSchedule(
            **own, refused="Its arguments are not in Redis. Use its configuration."
        )
    ttl = job.job_options.get("ttl")
    return ForeignSchedule(
        **own,
        args=list(job.args),
        kwargs=dict(job.kwargs),
        cron=job.cron,
        every=timedelta(seconds=job.interval) if job.interval else None,
        tz=local_zone(),
        options={"queue": job.queue_name, **({"expires": ttl} if ttl else {})},
        note="" if "job_timeout" not in job.job_options else "@app.task(timeout=) of the task",
    )
