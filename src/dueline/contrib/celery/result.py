"""Results of tasks and workflows."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NoReturn

from dueline.api.job_handle import Job
from dueline.api.workflows import Flow
from dueline.contrib.celery.calls import current_app
from dueline.contrib.celery.words import NAMES, OBJECT, names_elsewhere, refuse, refuse_attribute
from dueline.core.errors import Conflict, JobFailed, NotFound

_STATES: Final = {
    "scheduled": "PENDING", "paused": "PENDING", "ready": "PENDING", "running": "STARTED",
    "retrying": "RETRY",
    "done": "SUCCESS", "dead": "FAILURE", "failed": "FAILURE", "lost": "FAILURE",
    "cancelled": "REVOKED", "expired": "REVOKED",
}  # fmt: skip
STATE: Final = "celery_state"
"""Name of the note that keeps the state of `update_state`."""

_ENDED: Final = ("SUCCESS", "FAILURE", "REVOKED")


class AsyncResult:
    """The result of a task or workflow.

    Args:
        id: Id of the task or workflow.
        app: The application; by default the one that was created last.
        ignored: Whether no result is stored, so that `get` returns None at once.

    Raises:
        BadInput: `id` is not an id of dueline.
    """

    def __init__(
        self,
        id: str | Job[Any] | Flow,  # noqa: A002
        app: Any = None,
        *,
        ignored: bool = False,
    ) -> None:
        if isinstance(id, str):
            id = _found(app or current_app(), id)  # noqa: A001
        self.handle, self.ignored = id, ignored

    @property
    def id(self) -> str:
        """The id."""
        return self.handle.id

    task_id = id  # noqa: A003  (Celery's names)

    @property
    def status(self) -> str:
        """PENDING, STARTED or the state of `update_state`, RETRY, SUCCESS, FAILURE or REVOKED.

        PENDING if the job is unknown.
        """
        try:
            state = _STATES[self.handle.status]
        except NotFound:
            return "PENDING"
        return str(self._notes().get(STATE, state)) if state == "STARTED" else state

    state = status

    def get(
        self, timeout: float | None = None, *, propagate: bool = True, **unknown: object
    ) -> Any:
        """Wait for the result and return it.

        Args:
            timeout: Maximum wait in seconds.
            propagate: Raise the failure; else return it.
            **unknown: None; an error names the option that was meant.

        Raises:
            JobFailed: The task failed; the message says why.
            TimeoutError: It has not ended in time.
            NotFound: It does not exist, or its result has expired.
        """
        refuse(unknown, {}, "`get`")
        if self.ignored:
            return None
        try:
            return self.handle.result(timeout)
        except JobFailed as error:
            if propagate:
                raise
            return error

    wait = join = get

    @property
    def result(self) -> Any:
        """The result, or the failure; before the end, what `update_state` noted, or None."""
        if self.ready():
            return self.get(0, propagate=False)
        return {name: value for name, value in self._notes().items() if name != STATE} or None

    info = result

    def _notes(self) -> Mapping[str, Any]:
        if isinstance(self.handle, Flow):
            return {}
        with suppress(NotFound):
            return self.handle.meta
        return {}

    def ready(self) -> bool:
        """Return whether it has ended."""
        return self.status in _ENDED

    def successful(self) -> bool:
        """Return whether it has a result."""
        return self.status == "SUCCESS"

    def failed(self) -> bool:
        """Return whether it failed."""
        return self.status == "FAILURE"

    def revoke(self, *, terminate: bool = False, **unknown: object) -> None:
        """Cancel it; a running task is asked to stop.

        Args:
            terminate: Kill the child process that runs the task.
            **unknown: None; an error names the option that was meant.
        """
        refuse(unknown, {"signal": "terminate=True, which kills the process"}, "`revoke`")
        if isinstance(self.handle, Flow):
            refuse(["terminate"] * terminate, {}, "`revoke` of a workflow")
            self.handle.cancel()
            return
        with suppress(Conflict, NotFound):  # the job has ended, which Celery does not say either
            self.handle.cancel(force=terminate)

    def __getattr__(self, name: str) -> NoReturn:
        refuse_attribute(name, OBJECT, "The result")

    def __repr__(self) -> str:
        return f"<AsyncResult: {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncResult) and other.handle == self.handle

    def __hash__(self) -> int:
        return hash(self.handle)


def _found(app: Any, text: str) -> Job[Any] | Flow:
    """Return the handle of a workflow if there is one of this id, else that of a job."""
    flow: Flow = app.flow(text)
    try:
        _ = flow.name
    except NotFound:
        job: Job[Any] = app.job(text)
        return job
    return flow


__getattr__ = names_elsewhere(NAMES, __name__)
