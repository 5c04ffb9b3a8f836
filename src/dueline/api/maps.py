"""The methods of a task that store batches."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar

from dueline.api.call_options import Options, check_mapped
from dueline.api.connection import Connection
from dueline.api.task_declaration import Call, as_call
from dueline.core.call_options import OrderPlace, Rule
from dueline.core.job import Job as Row
from dueline.core.limit_names import is_same_for_all, limits_of_call
from dueline.jobs.queue import EnqueueRequest
from dueline.tasks.handler import Handler

if TYPE_CHECKING:
    from dueline.api.batch import Batch

P = ParamSpec("P")
R = TypeVar("R")

Keys = tuple[Rule | None, OrderPlace | None]
"""The unique key and the order key of a call."""

NO_KEYS: Final[Keys] = (None, None)

Written = tuple[int, Sequence[bytes], Keys, Sequence[Sequence[str]]]
"""Encoded calls of a task: their codec, bodies and keys, and the limits of each."""


class Maps(Generic[P, R]):
    """The methods of a task that store batches."""

    __slots__ = ()

    _options: Options
    _host: Connection
    _handler: Handler

    @abstractmethod
    def _request(self, written: Written) -> EnqueueRequest:
        """Return what stores encoded calls."""

    @abstractmethod
    def _put(
        self,
        request: EnqueueRequest,
        store: Callable[[EnqueueRequest], Sequence[Row]] | None = None,
    ) -> Sequence[Row]:
        """Store calls. store: stores them otherwise than `Queues.enqueue` does."""

    def map(
        self,
        items: Iterable[Any],
        *,
        name: str | None = None,
        key: Callable[[Any], str | int | float | bytes] | None = None,
    ) -> "Batch[R]":
        """Enqueue one job for each item, as a batch that is stored durably.

        Items are read lazily, and stored while they are read. If the call is interrupted, even
        killed, call it again with the same name: it goes on, and each item is exactly one job.

        Example: `batch = resize.map(paths, name="photos-2026-11"); batch.wait()`.

        Args:
            items: The items, up to 10,000,000; each is the one argument of a call.
            name: Name of the batch; by default one of its own, so that no later call goes on with
                it. A batch of the same name goes on: items that are stored are not stored twice.
            key: Returns what an item is known by, so that a repeat may have other items, in
                another order; an item whose key is stored is skipped. By default items are known
                by their positions.

        Returns:
            A handle on the batch.

        Raises:
            BadInput: An item does not fit the task, named by its index; the items before it are
                stored. Or the first items are not those that are stored under the name, or fewer.
            Conflict: The batch of this name has another task.
            QuotaExceeded: A quota of the queue or tenant is exhausted.
            StoreUnavailable: The store did not answer. The items before are stored.
        """
        return self._map(items, name, key, lambda item: ((item,), {}))

    def starmap(
        self,
        calls: Iterable[Call],
        *,
        name: str | None = None,
        key: Callable[[Any], str | int | float | bytes] | None = None,
    ) -> "Batch[R]":
        """Enqueue a batch like `map`, for a task with several arguments.

        Args:
            calls: The calls; each a tuple or list of positional arguments, or a dict of named
                ones, such as `[("ann", 1), {"name": "ben"}]`.
            name: Name of the batch, as in `map`.
            key: Returns what a call is known by, as in `map`.

        Returns:
            A handle on the batch.

        Raises:
            BadInput: As in `map`; so are Conflict, QuotaExceeded and StoreUnavailable.
        """
        return self._map(calls, name, key, as_call)

    def _map(
        self,
        items: Iterable[Any],
        name: str | None,
        key: Callable[[Any], object] | None,
        call_of: Callable[[Any], tuple[Sequence[Any], Mapping[str, Any]]],
    ) -> "Batch[R]":
        from dueline.api.batch import Batch  # noqa: PLC0415  (few programs need it)
        from dueline.api.batch_map import Encoded, Storing, new_batch, opened  # noqa: PLC0415

        options, host, handler = self._options, self._host, self._handler
        check_mapped(options, items, key)
        engine = host.queues.engine
        wanted = new_batch(engine, name, handler.name, options.queue, has_keys=key is not None)
        limits = options.limits

        def encode(calls: Sequence[tuple[Sequence[Any], Mapping[str, Any]]]) -> Encoded:
            if any(kwargs for _, kwargs in calls):
                codec, bodies = handler.write_many(calls)
            else:
                codec, bodies = handler.write_positional([args for args, _ in calls])
            named = handler.arguments.named
            if not limits or is_same_for_all(limits):
                return Encoded(codec, bodies, [limits_of_call(limits, {})] * len(bodies))
            return Encoded(codec, bodies, [limits_of_call(limits, named(*call)) for call in calls])

        def put(encoded: Encoded, store: Callable[[EnqueueRequest], Sequence[Row]]) -> object:
            request = self._request((encoded.codec, encoded.bodies, NO_KEYS, encoded.limits))
            return self._put(request, store)

        batch = opened(engine, wanted)
        Storing(host.queues, batch, encode, put, key).store(items, call_of)
        return Batch(batch, host.queues, host._clock, handler.result_kind, host._tasks)  # noqa: SLF001

    async def amap(
        self,
        items: Iterable[Any],
        *,
        name: str | None = None,
        key: Callable[[Any], str | int | float | bytes] | None = None,
    ) -> "Batch[R]":
        """Enqueue a batch like `map`, without blocking the event loop.

        Args:
            items: The items; they are read in another thread.
            name: Name of the batch.
            key: Returns what an item is known by.

        Raises:
            BadInput: As in `map`.
        """
        from asyncio import to_thread  # noqa: PLC0415  (slow to load)

        return await to_thread(self.map, items, name=name, key=key)

    async def astarmap(
        self,
        calls: Iterable[Call],
        *,
        name: str | None = None,
        key: Callable[[Any], str | int | float | bytes] | None = None,
    ) -> "Batch[R]":
        """Enqueue a batch like `starmap`, without blocking the event loop.

        Args:
            calls: The calls; they are read in another thread.
            name: Name of the batch.
            key: Returns what a call is known by.

        Raises:
            BadInput: As in `map`.
        """
        from asyncio import to_thread  # noqa: PLC0415  (slow to load)

        return await to_thread(self.starmap, calls, name=name, key=key)
