"""Errors that functions get from their calls."""

from dueline.core.errors import DuelineError


class StepFailed(DuelineError):
    """A step failed, and is not retried again.

    Attributes:
        step: Name of the step.
        type: Name of the class of its last error.
        text: Text of its last error.
    """

    def __init__(self, step: str, kind: str, text: str) -> None:
        self.step, self.type, self.text = step, kind, text
        super().__init__(f"The step {step} failed: {kind}: {text}".rstrip(": "))


class StepLost(StepFailed):
    """A step that runs at most once was started, and it is not known how it ended."""


class CallFailed(DuelineError):
    """A called job did not end well. If it is retried later, the caller keeps this error.

    Attributes:
        task: Name of the task.
        job_id: Id of the job, 16 bytes.
        status: How it ended: "dead", "cancelled", "expired" or "lost".
        text: Text of its error.
    """

    def __init__(self, task: str, job_id: bytes, status: str, text: str) -> None:
        self.task, self.job_id, self.status, self.text = task, job_id, status, text
        super().__init__(f"The call of {task} is {status}: {text}".rstrip(": "))
