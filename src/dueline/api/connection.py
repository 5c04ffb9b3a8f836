"""The store of an application, opened at the first use in each process."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from dueline.api.config import find_config
from dueline.api.connect import mask, open_queues, open_store
from dueline.blobs.address import open_place
from dueline.core.blobs import ABOVE, Blobs, LargeAbove
from dueline.core.clock import Clock, SystemClock
from dueline.core.codec import PAYLOAD_BYTES_MAX
from dueline.core.constraints import check_value
from dueline.core.engine import Engine
from dueline.core.errors import BadInput, ConfigError, StoreUnavailable
from dueline.core.job import Job
from dueline.core.limit_names import semaphore_of
from dueline.core.logging import log
from dueline.core.queue_settings import DEFAULT_QUEUE, check_queue_name
from dueline.core.store import Store
from dueline.core.store_capabilities import silence_of
from dueline.jobs.decisions import Decision, decide_each
from dueline.jobs.queue import EnqueueRequest, Queues
from dueline.jobs.transaction import Transaction, joined
from dueline.limits.usage import declared_limits
from dueline.tasks.handler import Handler, Middleware
from dueline.tasks.hooks import (
    ClaimEvent,
    ClaimName,
    EnqueueEvent,
    EnqueueName,
    HookDecorator,
    Hooks,
    RanEvent,
    RanName,
    RunEvent,
    RunName,
    SettleEvent,
    SettleName,
)
from dueline.tasks.middleware import read_middleware
from dueline.tasks.payload_codecs import Payloads

if TYPE_CHECKING:
    from dueline.core.shared_calls import SharedCalls

M = TypeVar("M", bound=Middleware)


UNDECLARED_LIMIT: Final = (
    "The limit %s is not declared, so one job runs at a time: is the name right?"
)


class Connection:
    """The store, engine, tasks and hooks of an application.

    Args:
        url: URL of the store; None for DUELINE_STORE or dueline.toml.
        clock: The machine's clock; by default the system's.

    Raises:
        ConfigError: The URL is not a string.
    """

    def __init__(self, url: str | None = None, *, clock: Clock | None = None) -> None:
        if not isinstance(url, str | None):
            raise ConfigError(
                f"`url` must be a string (got {url!r:.80}).", hint='Use "sqlite:///jobs.db".'
            )
        self._url = url
        self._place: str | None = None
        self._clock = clock or SystemClock()
        self._tasks: dict[str, Handler] = {}
        self._payloads = Payloads()
        self._hooks = Hooks()
        self._is_closed = False
        self._noticed = {DEFAULT_QUEUE}  # queues that are declared, or that calls have named
        self._noticed_limits: set[str] = set()  # limits of tasks, or that calls have named

    def __repr__(self) -> str:
        return f"<Dueline {mask(self._url) if self._url else 'without a URL'}>"

    @cached_property
    def url(self) -> str:
        """The URL of the store.

        Raises:
            ConfigError: No URL is given, in the environment or in dueline.toml either.
        """
        url = self._url or find_config().store
        if url is None:
            hint = 'Use Dueline("sqlite:///jobs.db"), or set DUELINE_STORE.'
            raise ConfigError("No store is configured.", hint=hint)
        return url

    @property
    def place(self) -> str | None:
        """Where child processes import it; None: from a global of a module."""
        return self._place

    @place.setter
    def place(self, place: str) -> None:
        self._place = place

    def _delivering(self, *, at_once: bool) -> AbstractContextManager[None]:
        """Return what moves events of topics to tasks while a worker runs."""
        del at_once
        return nullcontext()

    @property
    def clock(self) -> Clock:
        """The machine's clock."""
        return self._clock

    @cached_property
    def store(self) -> Store:
        """The store; it connects at its first call."""
        return open_store(self.url, clock=self._clock)

    @cached_property
    def queues(self) -> Queues:
        """The queues of the store; their first use stores the declarations."""
        blobs = self._payloads.blobs
        queues = open_queues(self.url, self.store, clock=self._clock, blobs=blobs)
        self.declare(queues)
        return queues

    @cached_property
    def shared_enqueues(self) -> "SharedCalls[EnqueueRequest, Job]":
        """Enqueues the calls of coroutines."""
        from dueline.core.shared_calls import SharedCalls  # noqa: PLC0415  (loads asyncio)

        return SharedCalls(self._enqueue_each)

    def _enqueue_each(self, requests: Sequence[EnqueueRequest]) -> Sequence[Job | BaseException]:
        return self.queues.enqueue_each(requests)  # which opens the store, in a thread

    @cached_property
    def shared_decisions(self) -> "SharedCalls[Decision, bool]":
        """Writes what durable coroutine functions record."""
        from dueline.core.shared_calls import SharedCalls  # noqa: PLC0415  (loads asyncio)

        return SharedCalls(lambda made: decide_each(self.queues.engine.recording_store, made))

    def _keep_blobs(self, place: str | None, most: int | None) -> None:
        """Keep large arguments and results in a folder.

        Args:
            place: Its address; None to refuse them.
            most: Size in bytes above which they are kept there, for tasks that name none; None for
                64 KiB.

        Raises:
            ConfigError: It is no address of a folder.
            BadInput: The size is out of range.
        """
        general = ABOVE if most is None else most
        check_value(general, LargeAbove, "blobs_above")
        if place is None:
            return
        tasks, payloads = self._tasks, self._payloads

        def above(task: str) -> int:
            handler = tasks.get(task)
            if handler is None:  # of another application, or of a raw queue
                return PAYLOAD_BYTES_MAX
            return general if handler.large is None else handler.large

        payloads.keep(
            Blobs(
                open_place(place), above=above, opened=payloads.opened, connect=lambda: self.queues
            )
        )

    def _notice(self, queue: str, limits: Iterable[str] = ()) -> None:
        """Log a queue and limits that only a call names, and that nothing declares."""
        if type(queue) is not str or queue not in self._noticed:
            self._noticed.add(check_queue_name(queue))
            if self.engine.catalog.entry(queue) is None:
                log.warning("The queue %s is new: is the name right?", queue)
        if limits and (names := {semaphore_of(limit) for limit in limits} - self._noticed_limits):
            self._noticed_limits |= names
            for name in sorted(names - declared_limits(self.engine.store)):
                log.warning(UNDECLARED_LIMIT, name)

    def declare(self, queues: Queues) -> None:
        """Store what the application declared before the first use."""

    @property
    def engine(self) -> Engine:
        """The store, clock, ids, catalog and wake-ups below the queues."""
        return self.queues.engine

    def join(self, tx: object, *queues: str) -> Transaction:
        """Return the transaction that a caller passed as `tx=`.

        Args:
            tx: A transaction of this application, or a connection of the caller.
            queues: Names of queues that it will use.

        Raises:
            BadInput: It is neither.
        """
        return joined(self, self.queues, self._tasks, tx, queues)

    @property
    def is_open(self) -> bool:
        """Whether the store was used before."""
        return "queues" in self.__dict__

    def use_store(self, url: str) -> None:
        """Set the URL of the store, before the first use or after `close`.

        Args:
            url: URL of the store.

        Raises:
            ConfigError: The store is in use.
        """
        if "store" in self.__dict__ and not self._is_closed:
            raise ConfigError(
                "The store is in use already.",
                hint="Call use_store before the first other call, or after close().",
            )
        self._forget()
        self._url, self._is_closed = url, False

    @contextmanager
    def switched(self, url: str, *, clock: Clock) -> Iterator[None]:
        """Use another store and clock while the block runs, as tests do.

        Args:
            url: URL of the other store.
            clock: The other clock.
        """
        own, opened = (self._url, self._clock), self._forget()
        self._url, self._clock = url, clock
        try:
            yield
        finally:
            self.close()
            self._forget()
            self._url, self._clock = own
            self.__dict__.update(opened)

    def _forget(self) -> dict[str, Any]:
        """Remove and return what the first use created."""
        names = [name for name in ("url", "store", "queues") if name in self.__dict__]
        return {name: self.__dict__.pop(name) for name in names}

    def read_webhook(self, address: object) -> str:
        """Return the address of a webhook; an application that delivers none refuses it."""
        del address
        raise BadInput("A connection without an application delivers no webhooks.")

    @property
    def hooks(self) -> Hooks:
        """The functions that `on` registered."""
        return self._hooks

    @overload
    def on(self, name: EnqueueName, /) -> HookDecorator[EnqueueEvent]: ...
    @overload
    def on(self, name: ClaimName, /) -> HookDecorator[ClaimEvent]: ...
    @overload
    def on(self, name: RunName, /) -> HookDecorator[RunEvent]: ...
    @overload
    def on(self, name: RanName, /) -> HookDecorator[RanEvent]: ...
    @overload
    def on(self, name: SettleName, /) -> HookDecorator[SettleEvent]: ...
    def on(self, name: Any, /) -> HookDecorator[Any]:
        """Register a hook: `@app.on("dead")`, or `app.on("dead")(function)`.

        Hooks only see what this process does. To see every event, read the history.

        Args:
            name: The event, such as "before_enqueue", "after_run", "done" or "dead".

        Returns:
            A decorator that registers a function and returns it unchanged.

        Raises:
            BadInput: There is no such event.
        """
        return self._hooks.on(name)

    def middleware(self, wrap: M, /) -> M:
        """Wrap all handlers: `@app.middleware` above a context manager.

        Workers call it with the Context of each job and enter what it returns around the handler.
        What was added first is outermost, and the middleware of a task is inside.

        Args:
            wrap: A function of a Context that returns a context manager. Around coroutine
                functions, the manager may be asynchronous.

        Returns:
            The function, unchanged.

        Raises:
            BadInput: It cannot be called.
        """
        self._hooks.middleware += read_middleware((wrap,), is_async=True)
        return wrap

    @property
    def payloads(self) -> Payloads:
        """The codecs that write and read arguments."""
        return self._payloads

    @property
    def tasks(self) -> Mapping[str, Handler]:
        """The handlers of the registered tasks, by name."""
        return self._tasks

    def close(self) -> None:
        """Close the store if it is open."""
        if "store" in self.__dict__:
            self.store.close()
            self._is_closed = True


def silence_in(app: Connection) -> StoreUnavailable | None:
    """Return the error of a disk that does not answer a call of this process, or None."""
    return silence_of(app.store) if "store" in app.__dict__ else None
