"""Results of many jobs, read together."""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final

from dueline.api.connection import Connection
from dueline.api.handle import R_co
from dueline.api.job_handle import Job, decoded
from dueline.core.clock import SECOND_US, pauses
from dueline.core.errors import BadInput, JobFailed, NotFound
from dueline.core.job import JobId
from dueline.core.pagination import parts_of
from dueline.core.store_capabilities import answer_of
from dueline.jobs import results
from dueline.jobs.queue import Found, Queues

_FOUND_AT_ONCE: Final = 500

_SHARE: Final = 5
"""Waiting spends up to 1/_SHARE of the time on reading."""


class Gathering(Connection):
    """The methods of an application that read results of many jobs."""

    def gather(
        self,
        jobs: Iterable[Job[R_co]],
        timeout: timedelta | float | None = None,
        *,
        return_exceptions: bool = False,
    ) -> list[R_co]:
        """Wait for jobs, and return their results, in as few reads as possible.

        Example: `app.gather(resize.enqueue_many([("a.png",), ("b.png",)]))`.

        Args:
            jobs: Handles on jobs of this application.
            timeout: Maximum wait, a timedelta or seconds; None for no limit, 0 for a single check.
            return_exceptions: Return errors of jobs in the places of their results.

        Returns:
            The results, in the order of the handles.

        Raises:
            JobFailed: A job has no result; the message says why.
            TimeoutError: Some jobs have not ended in time.
            NotFound: A job does not exist, or its result has expired or is not kept.
            BadInput: One of `jobs` is no handle on a job of this application.
        """
        handles = _checked(jobs, self.queues)
        by_id: dict[JobId, Found | None] = {}
        for ended in self._ended(handles, timeout):
            by_id |= ended
        return _results(handles, by_id, self.queues, return_exceptions=return_exceptions)

    def as_completed(
        self, jobs: Iterable[Job[R_co]], timeout: timedelta | float | None = None
    ) -> Iterator[Job[R_co]]:
        """Yield jobs, each with its result, about in the order of their ends.

        Args:
            jobs: Handles on jobs of this application.
            timeout: Maximum wait, a timedelta or seconds; None for no limit.

        Raises:
            TimeoutError: Some jobs have not ended in time.
            BadInput: One of `jobs` is no handle on a job of this application.
        """
        handles = _checked(jobs, self.queues)
        by_id = {job._id: job for job in handles}  # noqa: SLF001
        for ended in self._ended(handles, timeout):
            yield from map(by_id.__getitem__, ended)

    async def agather(
        self,
        jobs: Iterable[Job[R_co]],
        timeout: timedelta | float | None = None,  # noqa: ASYNC109  (as `gather`)
        *,
        return_exceptions: bool = False,
    ) -> list[R_co]:
        """Wait for jobs like `gather`, without blocking the event loop.

        Args:
            jobs: Handles on jobs of this application.
            timeout: Maximum wait.
            return_exceptions: Return errors of jobs in the places of their results.

        Raises:
            JobFailed: As in `gather`; so are TimeoutError, NotFound and BadInput.
        """
        from asyncio import to_thread  # noqa: PLC0415  (slow to load)

        return await to_thread(self.gather, jobs, timeout, return_exceptions=return_exceptions)

    async def aas_completed(
        self,
        jobs: Iterable[Job[R_co]],
        timeout: timedelta | float | None = None,  # noqa: ASYNC109  (as `as_completed`)
    ) -> AsyncIterator[Job[R_co]]:
        """Yield jobs like `as_completed`, without blocking the event loop.

        Args:
            jobs: Handles on jobs of this application.
            timeout: Maximum wait.

        Raises:
            TimeoutError: As in `as_completed`; so is BadInput.
        """
        from asyncio import to_thread  # noqa: PLC0415  (slow to load)

        ended = self.as_completed(jobs, timeout)
        while (job := await to_thread(next, ended, None)) is not None:
            yield job

    def _ended(
        self, handles: Sequence[Job[R_co]], timeout: timedelta | float | None
    ) -> Iterator[dict[JobId, Found | None]]:
        """Yield jobs that have ended, with how, after each read; None if it is not known."""
        engine = self.queues.engine
        left = dict.fromkeys(job._id for job in handles)  # noqa: SLF001
        took_s = 0.0
        with engine.endings.waiting(*left) as event:
            for pause_s in pauses(self._clock, timeout):
                if pause_s:
                    engine.endings.wait(event, self._clock, max(pause_s, _SHARE * took_s))
                began_us = self._clock.monotonic_us()
                ended = answer_of(engine.store, partial(_ends_of, self.queues, list(left)))
                took_s = (self._clock.monotonic_us() - began_us) / SECOND_US
                if ended:
                    yield ended
                    left = dict.fromkeys(job_id for job_id in left if job_id not in ended)
                if not left:
                    return
        raise TimeoutError(f"{len(left)} of {len(handles)} jobs have not ended.")


def _ends_of(queues: Queues, ids: Sequence[JobId]) -> dict[JobId, Found | None]:
    """Return the jobs that have ended, in their order, and how."""
    store = queues.engine.store
    kept = results.read_many(store, ids)
    ended: dict[JobId, Found | None] = {
        job_id: Found(kept[job_id].state, None, kept[job_id]) for job_id in ids if job_id in kept
    }
    for part in parts_of((job_id for job_id in ids if job_id not in kept), _FOUND_AT_ONCE):
        for job_id, row in zip(part, store.find(part), strict=True):
            if row is None:
                ended[job_id] = _found(queues, job_id)  # it has ended since, or is unknown
            elif (job := queues.found_in(row)).outcome or job.status in ("dead", "expired"):
                ended[job_id] = job
    return ended


def _found(queues: Queues, job_id: JobId) -> Found | None:
    try:
        return queues.find(job_id)
    except NotFound:
        return None


def _results(
    handles: Sequence[Job[Any]],
    ended: Mapping[JobId, Found | None],
    queues: Queues,
    *,
    return_exceptions: bool,
) -> list[Any]:
    """Return the results of jobs, in the order of their handles.

    Raises: JobFailed, NotFound: As `Job.result`, unless errors are returned.
    """
    if len({job._kind for job in handles}) == 1:  # noqa: SLF001  (as after `enqueue_many`)
        jobs = [ended[job._id] for job in handles]  # noqa: SLF001
        values = [
            each.outcome.value for each in jobs if each and each.status == "done" and each.outcome
        ]
        if len(values) == len(handles):
            return list(decoded(queues, values, handles[0]._kind))  # noqa: SLF001
    answers: list[Any] = []
    for job in handles:
        try:
            answers.append(_value(job, ended[job._id]))  # noqa: SLF001
        except (JobFailed, NotFound) as error:
            if not return_exceptions:
                raise
            answers.append(error)
    return answers


def _value(job: Job[R_co], ended: Found | None) -> R_co:
    if ended is None:
        raise NotFound(
            f"No job {job.id} is known.",
            hint="Was its result kept long enough? Is this the right store?",
        )
    return job._value(ended)  # noqa: SLF001  (of the same package)


def _checked(jobs: object, queues: Queues) -> list[Job[Any]]:
    """Return handles; each is on a job of the application.

    Raises: BadInput: One is not.
    """
    if not isinstance(jobs, Iterable) or isinstance(jobs, str | bytes):
        raise BadInput(
            f"`jobs` must be handles on jobs (got {jobs!r:.80}).", hint="Use a list of them."
        )
    handles = list(jobs)
    for place, job in enumerate(handles):
        if not isinstance(job, Job):
            raise BadInput(
                f"jobs[{place}] is a {type(job).__name__} and not a job.",
                hint="Use app.job(id) for an id; workflows and batches have results of their own.",
            )
        if job._queues is not queues:  # noqa: SLF001
            raise BadInput(f"jobs[{place}] is a job of another application.")
    return handles
