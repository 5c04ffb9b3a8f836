"""Every error that dueline raises."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dueline.core.job import Job
    from dueline.core.store import Row


class DuelineError(Exception):
    """Base class of all errors of dueline.

    Attributes:
        message: What happened; by default the first line of the class's docstring.
        hint: What to do about it; empty if there is nothing to do.
    """

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        self.message = message or (self.__doc__ or "").partition("\n")[0]
        self.hint = hint
        super().__init__(f"{self.message} {hint}".strip())

    def __reduce__(self) -> tuple[object, ...]:
        """Support pickling with all attributes."""
        return (_rebuild, (type(self), self.args), self.__dict__)


def _rebuild(kind: type[DuelineError], args: tuple[object, ...]) -> DuelineError:
    error = kind.__new__(kind)
    error.args = args
    return error


class BadInput(DuelineError, ValueError):
    """An argument is invalid; nothing was written."""


class ConfigError(BadInput):
    """No application or store is configured, or the configuration is invalid."""


class LakeUnavailable(ConfigError):
    """The folder or object store of the pipeline's tables cannot be read or written."""


class BlobLost(BadInput):
    """A blob that a job or result names is gone, or its bytes are others than were written.

    A job whose arguments it has is dead with this reason.
    """


class NotFound(DuelineError, LookupError):
    """There is nothing with this name or id."""


class Conflict(DuelineError):
    """The state of the job or queue does not allow this; nothing was written."""


class LeaseLost(Conflict):
    """The claim or lease expired, so another process may hold it; nothing was written."""


class Duplicate(Conflict):
    """Another job holds the unique key; nothing was written.

    Attributes:
        job_id: Id of that job, as a string.
        unsent: After `enqueue_many`: number of calls at the end that were not stored, including
            the rejected one.
    """

    job_id: str = ""
    unsent: int = 0

    def name_call(self, index: int) -> None:
        """Put the index of the rejected call before the message."""
        self.message = f"calls[{index}]: {self.message}"
        self.args = (f"{self.message} {self.hint}".strip(),)


class QuotaExceeded(Conflict):
    """A quota of the queue or tenant is exhausted; nothing was written.

    Attributes:
        retry_after: Seconds until there is probably room, at the rate at which jobs have left; None
            if the batch is larger than the quota. If none leaves, it grows from 1 to 60 seconds.
        counts_after: Seconds until waiting jobs are counted again; None if a rate is used up.
        unsent: As in `Duplicate`.
    """

    retry_after: float | None = None
    counts_after: float | None = None
    unsent: int = 0


class StoreUnavailable(DuelineError):
    """The store could not be reached or did not answer in time; nothing was written.

    Attributes:
        unsent: After `enqueue_many`: number of calls at the end that are not stored; the calls
            before them are.
    """

    unsent: int = 0


class StoreReplaced(StoreUnavailable):
    """The SQLite file or the data in Redis was removed or replaced; nothing was written.

    Every later call raises this error too, until the store is closed and opened again.
    """


class StoreMoved(StoreUnavailable):
    """The store's jobs were moved to another store; nothing was written.

    Attributes:
        address: The new address, without its password.
    """

    address: str = ""

    @classmethod
    def to(cls, address: str) -> "StoreMoved":
        """Return the error that names the new address."""
        error = cls(
            f"This store has moved to {address}.", hint="Start this process with that address."
        )
        error.address = address
        return error


class Unknown(StoreUnavailable):
    """The store did not say whether the write happened; it may or may not have."""


class EnqueueUnknown(Unknown):
    """Jobs may or may not be stored; enqueueing `jobs` again neither loses nor doubles them.

    Attributes:
        jobs: The rows in doubt, with their keys.
        unsent: After `enqueue_many`: number of calls after these that were not sent at all.
        start: The start of a workflow, for `app.start_again`; its jobs must not be enqueued again
            one by one.
    """

    jobs: Sequence["Job"] = ()
    start: object = None

    @classmethod
    def about(cls, jobs: Sequence["Job"]) -> "EnqueueUnknown":
        """Return the error about these rows, at least one."""
        error = cls(
            f"The store did not say whether {len(jobs)} job(s) were stored, the first of them "
            f"{jobs[0].id.hex()}.",
            hint="Enqueue the error's `jobs` again; this neither loses nor doubles them.",
        )
        error.jobs = jobs
        return error


class AppendUnknown(Unknown):
    """Events may or may not be stored; call `append_again` with `rows` to store them.

    Attributes:
        rows: The events in doubt, with their ids. An event that is appended again may be read
            twice, with the same id.
    """

    rows: Sequence["Row"] = ()


class CommitUnknown(Unknown):
    """The transaction may or may not be committed, with all of its rows and jobs."""


class StoreCorrupt(DuelineError):
    """The store's data is damaged."""


class LakeCorrupt(StoreCorrupt):
    """A table of the pipeline is damaged, of a newer version, or of another program."""


class HistoryExpired(StoreCorrupt):
    """History expired before the pipeline copied it."""


class SchemaMismatch(StoreCorrupt):
    """This version does not support the store's schema or features."""

    @classmethod
    def too_old(cls, what: str) -> "SchemaMismatch":
        """Return the error about a store that no released version made.

        Args:
            what: The store and what is old about it, such as "The file a.db has schema 1".
        """
        return cls(
            f"{what}: a development version before 1.0 made it.",
            hint="Make a new store; let workers of the old version run the jobs of this one, which"
            " was left as it is. `dueline move` cannot read it either.",
        )


class JobFailed(DuelineError):
    """The job ended without a result: it is dead, cancelled, expired or lost."""


class JobTimeout(DuelineError):
    """A handler ran longer than the `timeout` of its call or task."""


OF_ONE_CALL: Final = (BadInput, OverflowError, TypeError, ValueError)
"""Errors caused by one of several calls that share a write; any other error fails all of them."""
