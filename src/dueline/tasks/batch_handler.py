"""Handlers that take several jobs at once."""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Generic, Protocol, TypeVar, get_args, get_origin, get_type_hints

from dueline.core.call_options import fields_of
from dueline.core.errors import BadInput
from dueline.core.job import Job
from dueline.core.user_code import Raised, contain
from dueline.tasks.arguments import Arguments
from dueline.tasks.batch_options import BatchOptions
from dueline.tasks.handler import Context, Handler
from dueline.tasks.progress import Control, NoControl, Progress
from dueline.tasks.raised import Cancel, Snooze

T = TypeVar("T")

ARGUMENT: Final = "value"
"""The name of the only argument of a call."""

_HINT: Final = "Write def index(calls: list[Call[Doc]]) -> list[int], or -> None."


class Call(Context, Generic[T]):
    """One job of a batch: the value that it was enqueued with, and all that a Context has.

    Its outcome, set with `done`, `fail`, `retry`, `snooze` or `cancel`, does not depend on the
    other jobs; the last call counts.
    """

    __slots__ = ("is_ended", "raised", "result", "value")

    def __init__(
        self,
        value: T,
        job: Job,
        control: Control,
        handler: Handler,
        last_progress: Progress | None = None,
        *,
        started_us: int = 0,
    ) -> None:
        super().__init__(job, control, handler, last_progress, started_us=started_us)
        self.value = value
        self.is_ended = False
        self.raised: BaseException | None = None
        self.result: object = None

    def __repr__(self) -> str:
        return f"<Call {self.value!r:.80}>"

    def done(self, result: object = None) -> None:
        """Mark this job as done, with its result."""
        self.is_ended, self.raised, self.result = True, None, result

    def fail(self, error: BaseException) -> None:
        """Mark this job as failed, as if its handler had raised this error."""
        if not isinstance(error, BaseException):
            raise BadInput(f"fail is given {error!r:.80}.", hint='Write fail(ValueError("..")).')
        self.is_ended, self.raised = True, error

    def retry(  # type: ignore[override]  # the other jobs of the batch go on
        self, *, after: timedelta | float | None = None, attempts: int | None = None
    ) -> None:
        """Mark this attempt as failed, and retry the job after this wait or as its policy says.

        Args: after, attempts: as of `Context.retry`.
        """
        self.fail(self._retry_request(after, attempts))

    def snooze(self, after: timedelta | float) -> None:
        """Run this job again after a timedelta or a number of seconds; no attempt is spent."""
        seconds = after.total_seconds() if isinstance(after, timedelta) else after
        self.fail(Snooze(seconds))

    def cancel(self, reason: str) -> None:
        """Cancel this job, without a result."""
        self.fail(Cancel(reason))

    def answer(self, returned: Sequence[Any] | None) -> Any:  # noqa: ANN401
        """Return the result of this call, if it was the only one and the function returned."""
        if self.raised is not None:
            raise self.raised
        return self.result if self.is_ended or returned is None else returned[0]

    def finish(self, tx: object, value: Any = None) -> Any:  # noqa: ANN401
        """Finish this job in your transaction: see `Context.finish`."""
        return super().finish(tx, value)


class Given(Protocol):
    """A job to run. given: the first arguments of a workflow step."""

    @property
    def job(self) -> Job: ...  # noqa: D102
    @property
    def given(self) -> bytes: ...  # noqa: D102


class BatchHandler(Handler):
    """A function that takes a list of calls, each with one argument of its own.

    Raises:
        BadInput: It does not take a list of calls, or `batch` does not fit them.
    """

    __slots__ = ("batch",)

    batch: BatchOptions

    def __init__(self, function: Callable[..., Any], *, batch: BatchOptions, **terms: Any) -> None:  # noqa: ANN401
        if not isinstance(batch, BatchOptions):
            raise BadInput(
                f"`batch` must be BatchOptions (got {batch!r:.80}).",
                hint="Write batch=BatchOptions(size=100).",
            )
        self.batch = batch
        super().__init__(function, **terms)
        self.result_kind = _member_of(self.result_kind)
        batch.check(self.arguments.names, self.name)

    def _arguments(self, function: Callable[..., Any]) -> Arguments:
        return _OneValue(_value_kind(function, self.name), self.name)

    def value_of(self, codec: int, body: bytes, given: bytes = b"") -> Any:  # noqa: ANN401
        """Read the value of one call. Args: given: as of `read`.

        Raises: BadInput: it does not fit the function, or is damaged.
        """
        args, kwargs = self.read(codec, body, given)
        return args[0] if args else kwargs[ARGUMENT]

    def call_here(self, row: Job, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Do as `Handler.call_here`, with one call."""
        value = self.arguments.named(args, kwargs)[ARGUMENT]
        call: Call[Any] = Call(value, row, NoControl(), self)
        returned = self.function([call])
        return _awaited(returned, call) if self.is_async else call.answer(returned)

    def key_of(self, member: Given) -> str | None:
        """Return the key by which jobs are gathered; None if it cannot be computed."""
        if not self.batch.by:
            return ""
        key = contain(self._key_of, member)  # the run of the job reports what is wrong
        return None if isinstance(key, Raised) else key

    def _key_of(self, member: Given) -> str:
        value = self.value_of(member.job.codec, member.job.body, member.given)
        named = self.arguments.named((value,), {})
        names = fields_of(self.batch.by, "batch key")
        return self.batch.by.format(**{name: named[name] for name in names})


async def _awaited(returned: Awaitable[Any], call: Call[Any]) -> Any:  # noqa: ANN401
    return call.answer(await returned)


class _OneValue(Arguments):
    """The only argument of a call; the fields of a record can also be used by name."""

    def __init__(self, kind: Any, task: str) -> None:  # noqa: ANN401
        def call(value: object) -> None: ...

        call.__annotations__ = {ARGUMENT: kind, "return": None}
        super().__init__(call, task, skip=0)
        self._fields = _field_names(kind)

    @property
    def names(self) -> Sequence[str]:
        return [*super().names, *self._fields]

    def named(self, args: Sequence[object], kwargs: Mapping[str, object]) -> Mapping[str, Any]:
        named = super().named(args, kwargs)
        value = named[ARGUMENT]
        fields = value if isinstance(value, Mapping) else _Attributes(value)
        return {**{name: fields.get(name) for name in self._fields}, **named}


class _Attributes:
    """The attributes of an object, with the `get` of a mapping."""

    def __init__(self, owner: object) -> None:
        self._owner = owner

    def get(self, name: str) -> object:
        return getattr(self._owner, name, None)


def _field_names(kind: object) -> list[str]:
    """Return the field names of a dataclass, a TypedDict, a NamedTuple or the like."""
    try:
        return [name for name in get_type_hints(kind) if not name.startswith("_")]
    except (TypeError, NameError):  # not a class, or its annotations cannot be resolved
        return []


def _value_kind(function: Callable[..., Any], task: str) -> Any:  # noqa: ANN401
    """Return the T of a function's `list[Call[T]]`."""
    parameters = list(inspect.signature(function).parameters)
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise BadInput(f"An annotation of {task} cannot be used: {error}.", hint=_HINT) from error
    if len(parameters) == 1:
        kind = hints.get(parameters[0])
        calls = get_args(kind)
        if get_origin(kind) in (list, Sequence) and (get_origin(calls[0]) or calls[0]) is Call:
            return (*get_args(calls[0]), Any)[0]
    raise BadInput(
        f"The task {task} has `batch`, but its function does not take a list of calls.", hint=_HINT
    )


def _member_of(kind: Any) -> Any:  # noqa: ANN401
    """Return the type of one result of a function that returns a list of results, or None."""
    if get_origin(kind) in (list, Sequence):
        return get_args(kind)[0]
    return kind if kind is type(None) else Any
