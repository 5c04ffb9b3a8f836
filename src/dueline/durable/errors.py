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
