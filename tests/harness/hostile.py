"""An application whose code of every kind raises what it is told to."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NoReturn

from dueline import BatchOptions, Call, Cancel, Dueline, Retry
from dueline.tasks.hooks import RanEvent, RunEvent, SettleEvent

KINDS: Final[dict[str, type[BaseException]]] = {
    kind.__name__: kind
    for kind in (
        *(Exception, SystemExit, KeyboardInterrupt, GeneratorExit),
        *(asyncio.CancelledError, RecursionError, MemoryError),
    )
}

URL_VARIABLE: Final = "DUELINE_HOSTILE_URL"
TWO: Final = BatchOptions(size=2, within=0.01, by="{value}")
TWICE: Final = Retry(attempts=2, base=0, cap=0)


def fail(kind: str) -> None:
    """Raise an exception of a kind; none for the empty name."""
    if kind:
        raise KINDS[kind](f"{kind} on purpose")


class Asked(Exception):
    """Raises when it is asked for something."""

    def __init__(self, kind: str) -> None:
        """Take what to raise."""
        super().__init__()
        self.kind = kind


class NoText(Asked):
    def __str__(self) -> str:
        fail(self.kind)
        return "text"


class NoShape:
    """Raises when it is shown."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __repr__(self) -> str:
        fail(self.kind)
        return "shape"


class NoWait(Asked):
    @property
    def retry_after(self) -> float:
        fail(self.kind)
        return 0.0


class NoNotes(Asked):
    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]
        fail(self.kind)
        return []


class NoClass(Asked):
    @property  # type: ignore[misc]
    def __class__(self) -> type:
        fail(self.kind)
        return NoClass


class _Asking(type):
    def __instancecheck__(cls, error: object) -> bool:
        fail(getattr(error, "kind", ""))
        return True


class Condition(Exception, metaclass=_Asking):
    """Raises when it is compared with an error."""


class Key(StrEnum):
    """Raises when it becomes part of a key."""

    NONE = ""
    EXCEPTION = "Exception"
    SYSTEM_EXIT = "SystemExit"
    KEYBOARD_INTERRUPT = "KeyboardInterrupt"
    GENERATOR_EXIT = "GeneratorExit"
    CANCELLED_ERROR = "CancelledError"
    RECURSION_ERROR = "RecursionError"
    MEMORY_ERROR = "MemoryError"

    def __format__(self, spec: str) -> str:
        fail(self.value)
        return "key"


@dataclass
class Doc:
    """What some jobs of a batch are enqueued with."""

    key: Key


def encode(body: bytes) -> bytes:
    """Write arguments as they are; raise where they say so."""
    if b"encode" in body:
        fail(body.split(b'"')[1].decode())
    return body[::-1]


def decode(body: bytes) -> bytes:
    """Read arguments; raise what is in them."""
    plain = body[::-1]
    fail(plain.split(b'"')[1].decode())
    return plain


def _add_handlers(app: Dueline) -> None:
    @app.task(name="plain", retry=TWICE)
    def plain(kind: str) -> None:
        fail(kind)

    def asking(name: str, make: Callable[[str], BaseException]) -> None:
        @app.task(name=name, retry=TWICE)
        def asks(kind: str) -> None:
            if kind:
                raise make(kind)

    asking("text", NoText)
    asking("shape", lambda kind: ValueError(NoShape(kind)))
    asking("wait", NoWait)
    asking("notes", NoNotes)
    asking("class", NoClass)

    @app.task(name="condition", retry=Retry(attempts=2, base=0, cap=0, on=(Condition,)))
    def condition(kind: str) -> None:
        if kind:
            raise Asked(kind)

    @app.task(name="sealed", retry=TWICE, codec="sealed")
    def sealed(kind: str) -> None:
        """Do nothing: its arguments cannot be read."""

    @app.task(name="sealed_limit", retry=TWICE, codec="sealed", limits=["door:{kind}"])
    def sealed_limit(kind: str) -> None:
        """Do nothing, as above; and which limit it has cannot be told."""

    @app.task(name="limit", retry=TWICE, limits=["door:{key}"])
    def limit(key: Key) -> None:
        """Do nothing: which limit it has cannot be told."""

    @app.task(name="object", retry=TWICE)
    def object_(kind: str) -> Any:  # noqa: ANN401
        return object() if kind else None


def _add_others(app: Dueline) -> None:
    @app.task(name="coroutine", retry=TWICE)
    async def coroutine(kind: str) -> None:
        await asyncio.sleep(0)
        fail(kind)

    async def raise_soon(kind: str) -> None:
        await asyncio.sleep(0)
        fail(kind)

    @app.task(name="beside", retry=TWICE)
    async def beside(kind: str) -> None:
        await asyncio.create_task(raise_soon(kind))

    @app.task(name="callback", retry=TWICE)
    async def callback(kind: str) -> None:
        if kind in ("SystemExit", "KeyboardInterrupt"):  # of others the loop says so itself
            asyncio.get_running_loop().call_soon(fail, kind)
            await asyncio.sleep(0.01)

    @app.task(name="batch", retry=TWICE, batch=TWO)
    def batch(calls: list[Call[str]]) -> None:
        for call in calls:
            fail(call.value)

    @app.task(name="batch_shape", retry=TWICE, batch=TWO)
    def batch_shape(calls: list[Call[str]]) -> Any:  # noqa: ANN401
        return NoShape(kind) if (kind := calls[0].value) else None  # no list of results

    @app.task(name="abatch", retry=TWICE, batch=TWO)
    async def abatch(calls: list[Call[str]]) -> None:
        for call in calls:
            fail(call.value)

    @app.task(name="batch_sealed", retry=TWICE, codec="sealed", batch=TWO)
    def batch_sealed(calls: list[Call[str]]) -> None:
        """Do nothing: its arguments cannot be read."""

    @app.task(name="batch_key", retry=TWICE, batch=BatchOptions(size=2, within=0.01, by="{key}"))
    def batch_key(calls: list[Call[Doc]]) -> None:
        """Do nothing: which jobs go together cannot be told."""


class _Hook:
    """Raises what the name of the event's task says."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, event: RunEvent | RanEvent | SettleEvent) -> None:
        task, _, kind = event.task.partition("/")
        if task == f"on {self._name}":
            fail(kind)


def _add_hooks(app: Dueline) -> None:
    def good() -> None:
        """Do nothing."""

    def cancels() -> NoReturn:
        raise Cancel("on purpose")

    def bad() -> NoReturn:
        raise ValueError("on purpose")

    functions = {"cancelled": cancels, "retry": bad, "dead": bad}
    for name in HOOKS:
        app.on(name)(_Hook(name))
        for kind in KINDS:
            app.task(name=f"on {name}/{kind}", retry=TWICE)(functions.get(name, good))


HOOKS: Final = ("before_run", "after_run", "retry", "done", "dead", "cancelled", "expired")


def build(url: str, *, plain: bool = False, keep: float = 3600) -> Dueline:
    """Make the application. plain: with functions alone, no hooks of their runs."""
    app = Dueline(url)
    app.queue("default", keep=keep)
    app.payloads.add("sealed", 64, encode=encode, decode=decode)
    _add_handlers(app)
    if not plain:
        _add_others(app)
        _add_hooks(app)
    return app


if URL_VARIABLE in os.environ:
    app = build(os.environ[URL_VARIABLE])
