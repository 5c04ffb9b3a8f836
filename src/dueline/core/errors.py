"""Every error that dueline raises."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dueline.core.job import Job
    from dueline.core.store import Row


class DuelineError(Exception):
    """Something went wrong in dueline.

    message: what happened, to what; the first line of the class's docstring by default.
    hint: what to do about it; empty where there is nothing.
    """

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        self.message = message or (self.__doc__ or "").partition("\n")[0]
        self.hint = hint
        super().__init__(f"{self.message} {hint}".strip())

    def __reduce__(self) -> tuple[object, ...]:
        """Survive a pipe: as it is, whatever the arguments were that it was made with."""
        return (_rebuild, (type(self), self.args), self.__dict__)


def _rebuild(kind: type[DuelineError], args: tuple[object, ...]) -> DuelineError:
    error = kind.__new__(kind)
    error.args = args
    return error


class BadInput(DuelineError, ValueError):
    """The call was wrong; nothing was written."""


class ConfigError(BadInput):
    """No app or store could be found, or its settings cannot be read."""


class NotFound(DuelineError, LookupError):
    """Nothing goes by that name or id."""


class Conflict(DuelineError):
    """The state of the job or queue does not allow this; nothing was written."""


class LeaseLost(Conflict):
    """The claim ended and somebody else may hold the job now; this result was thrown away."""


class Duplicate(Conflict):
    """Another job has the unique key; nothing was written.

    job_id: that job's, as text. unsent: of many calls, how many at the end were not sent, the
    one that was refused included.
    """

    job_id: str = ""
    unsent: int = 0


class QuotaExceeded(Conflict):
    """A queue, or a tenant in it, may have no more jobs now; nothing was written.

    retry_after: in how many seconds there may be room; None: so many at once never fit. unsent:
    as of Duplicate.
    """

    retry_after: float | None = None
    unsent: int = 0


class StoreUnavailable(DuelineError):
    """The store could not be reached or did not answer in time; nothing was written.

    unsent: of many calls, how many at the end are not stored; those before are.
    """

    unsent: int = 0


class StoreReplaced(StoreUnavailable):
    """The queue file was removed or replaced while it was open; the call is not stored in it.

    Every later call raises it too, until the store is closed and opened again.
    """


class Unknown(StoreUnavailable):
    """The store did not say whether the write happened; it may or may not have."""


class EnqueueUnknown(Unknown):
    """Some jobs may or may not be stored; enqueueing `jobs` again neither loses nor doubles them.

    jobs: the rows whose fate is unknown, with the keys that were chosen for them. unsent: of many
    calls, how many at the end, behind those, were not sent at all. start: of a workflow, what
    `app.start_again` takes; its jobs are not enqueued again one by one.
    """

    jobs: Sequence["Job"] = ()
    start: object = None

    @classmethod
    def about(cls, jobs: Sequence["Job"]) -> "EnqueueUnknown":
        """Make the error about these rows, at least one."""
        error = cls(
            f"The store did not say whether {len(jobs)} job(s) were stored, the first of them "
            f"{jobs[0].id.hex()}.",
            hint="Enqueue the error's `jobs` again: that neither loses nor doubles them.",
        )
        error.jobs = jobs
        return error


class AppendUnknown(Unknown):
    """Some events may or may not be stored; `append_again` with `rows` makes sure of them.

    rows: those whose fate is unknown, with the ids that were chosen for them. One that is
    appended again may be read twice, with the same id.
    """

    rows: Sequence["Row"] = ()


class CommitUnknown(Unknown):
    """The transaction may or may not have been committed; its rows and jobs share one fate."""


class StoreCorrupt(DuelineError):
    """The store's data is damaged."""


class SchemaMismatch(StoreCorrupt):
    """The store's schema is not one that this version reads."""


class JobFailed(DuelineError):
    """The job ended without a result: it is dead, cancelled, expired or lost."""


class JobTimeout(DuelineError):
    """A handler ran longer than its task's `timeout`."""
