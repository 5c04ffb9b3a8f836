"""The signals of Celery that have a hook; the others say what to write."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from dueline.contrib.celery.calls import CallWords, apps
from dueline.contrib.celery.words import SIGNALS, names_elsewhere, refuse
from dueline.core.errors import BadInput, JobFailed

Receiver = Callable[..., object]
Given = Callable[[CallWords, Any], Iterable[Mapping[str, Any]]]

_ENDINGS: Final = {"Done": "SUCCESS", "Failed": "FAILURE", "Snoozed": "RETRY"}


class Signal:
    """A signal; its receivers are called by a hook of dueline.

    Args:
        name: Its name.
        hook: Name of the hook.
        names: Names of the arguments that it gives.
        given: Returns the arguments of each call for an event of the hook.
    """

    def __init__(self, name: str, hook: str, names: Iterable[str], given: Given) -> None:
        self.name, self.hook, self.names, self._given = name, hook, tuple(names), given

    def connect(self, *receiver: Receiver, sender: object = None, **options: object) -> Any:
        """Call a function when this happens: `@signal.connect`, or `signal.connect(function)`.

        Args:
            *receiver: The function.
            sender: Only for this task, or the task of this name.
            **options: `weak` and `dispatch_uid`, which change nothing.

        Returns:
            The function, or a decorator.

        Raises:
            BadInput: The function has an argument that dueline does not give.
        """
        refuse((name for name in options if name not in ("weak", "dispatch_uid")), {}, "`connect`")
        if not receiver:
            return lambda function: self.connect(function, sender=sender)
        (function,) = receiver
        self._check(function)
        _receivers.append((self, function, getattr(sender, "name", sender)))
        for app in apps:
            self.listen(app, function, _receivers[-1][2])
        return function

    def _check(self, function: Receiver) -> None:
        kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind not in kinds and parameter.name not in self.names:
                raise BadInput(
                    f"The signal {self.name} has no argument `{parameter.name}` in dueline.",
                    hint=f"It has {', '.join(self.names)}; see @app.on({self.hook!r}).",
                )

    def listen(self, app: CallWords, function: Receiver, sender: object) -> None:
        """Register the hook of an application that calls a function."""
        takes_all = any(
            parameter.kind is inspect.Parameter.VAR_KEYWORD
            for parameter in inspect.signature(function).parameters.values()
        )
        taken = self.names if takes_all else tuple(inspect.signature(function).parameters)

        def happened(event: Any) -> None:
            if sender in (None, event.task):
                for arguments in self._given(app, event):
                    function(**{name: arguments[name] for name in taken if name in arguments})

        hook: Any = self.hook
        app.on(hook)(happened)


def listen_in(app: CallWords) -> None:
    """Register the receivers that were connected before an application was created."""
    for signal, function, sender in _receivers:
        signal.listen(app, function, sender)


def _of_job(app: CallWords, event: Any, **more: object) -> list[Mapping[str, Any]]:
    task = app.named(event.task)
    return [{"sender": task, "task_id": event.job_id, "task": task, **more}]


def _failure(app: CallWords, event: Any) -> list[Mapping[str, Any]]:
    return _of_job(app, event, exception=JobFailed(event.error))


def _published(_: CallWords, event: Any) -> list[Mapping[str, Any]]:
    ids = event.job_ids or [""] * event.count
    return [
        {
            "sender": event.task,
            "headers": {"id": job_id, "task": event.task},
            "routing_key": event.queue,
        }
        for job_id in ids
    ]


_JOB: Final = ("sender", "task_id", "task")
_PUBLISHED: Final = ("sender", "headers", "routing_key")
_receivers: list[tuple[Signal, Receiver, object]] = []

before_task_publish = Signal("before_task_publish", "before_enqueue", _PUBLISHED, _published)
after_task_publish = Signal("after_task_publish", "after_enqueue", _PUBLISHED, _published)
task_prerun = Signal("task_prerun", "before_run", _JOB, _of_job)
task_postrun = Signal(
    "task_postrun",
    "after_run",
    (*_JOB, "state"),
    lambda app, event: _of_job(app, event, state=_ENDINGS.get(event.ending, "IGNORED")),
)
task_success = Signal("task_success", "done", _JOB, _of_job)
task_failure = Signal("task_failure", "dead", (*_JOB, "exception"), _failure)
task_retry = Signal(
    "task_retry",
    "retry",
    (*_JOB, "reason"),
    lambda app, event: _of_job(app, event, reason=event.error),
)
task_revoked = Signal("task_revoked", "cancelled", _JOB, _of_job)

__getattr__ = names_elsewhere(SIGNALS, __name__)
