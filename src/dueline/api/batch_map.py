"""Stores the items of `task.map`, and goes on where an earlier call stopped."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import compress
from typing import Any, Final, NamedTuple
from zlib import crc32

from dueline.batches import records
from dueline.batches.ends import KEEP_US
from dueline.batches.records import KEY_BYTES, NO_CHECK, Batch, Head
from dueline.core.batch_ids import ITEMS_MAX, batch_id
from dueline.core.codec import JSON
from dueline.core.engine import Engine
from dueline.core.errors import BadInput, Conflict
from dueline.core.job import Job
from dueline.core.pagination import parts_of
from dueline.jobs.batch_slices import current_head, store_slice
from dueline.jobs.queue import EnqueueRequest, Queues

SLICE_ITEMS: Final = 2_000
"""Maximum number of items that one write stores."""

_SLICE_BYTES: Final = 512 * 1024
"""Size of the arguments from which fewer items are stored by one write."""

_KEYS_HINT: Final = "Return a string, a number or bytes from `key`."

Call = tuple[Sequence[Any], Mapping[str, Any]]


class Encoded(NamedTuple):
    """Calls as they are stored: their codec, bodies, and the limits of each."""

    codec: int
    bodies: Sequence[bytes]
    limits: Sequence[Sequence[str]]


Encode = Callable[[Sequence[Call]], Encoded]
"""Encodes calls. Raises BadInput for one that does not fit."""

Put = Callable[[Encoded, Callable[[EnqueueRequest], Sequence[Job]]], object]
"""Makes the request of calls, and has it stored by a function."""


def opened(engine: Engine, wanted: Batch) -> Batch:
    """Return the batch of a name; begin it if it does not exist.

    Raises:
        Conflict: The batch has another task, or its items have keys and these have none.
    """
    batch = records.named(engine.store, wanted.name)
    if batch is None:
        now_us = engine.time.latest_us()
        named = records.put_name(wanted, engine.ids.token(), now_us)
        begun = records.put_batch(wanted, engine.ids.token(), now_us, is_new=True)
        engine.store.commit(named.partition, named.writes)
        if engine.store.commit(begun.partition, begun.writes):
            return wanted
        batch = records.named(engine.store, wanted.name) or wanted  # of another process
    if batch.task != wanted.task:
        raise Conflict(
            f"The batch {batch.name} has jobs of the task {batch.task}, not of {wanted.task}.",
            hint="Use another name.",
        )
    if batch.has_keys != wanted.has_keys:
        has, lacks = ("keys", "has none") if batch.has_keys else ("no keys", "has one")
        raise Conflict(
            f"The items of the batch {batch.name} have {has}, and this call {lacks}.",
            hint="Call `map` with the same `key` as before, or use another name.",
        )
    return batch


def new_batch(engine: Engine, name: str | None, task: str, queue: str, *, has_keys: bool) -> Batch:
    """Return a batch that is not stored yet. name: None for a name of its own."""
    now_us = engine.time.latest_us()
    begin = batch_id(engine.ids.one(now_us))
    if name is None:
        name = f"{task[-records.NAME_MAX // 2 :]}-{begin.hex()}"
    return Batch(records.check_name(name), begin, task, queue, now_us, has_keys)


class Storing:
    """One call of `map`.

    Args:
        queues: The queues.
        batch: The batch.
        encode: Encodes calls.
        put: Stores calls.
        key: Returns the key of an item; None to know items by their positions.
    """

    def __init__(
        self,
        queues: Queues,
        batch: Batch,
        encode: Encode,
        put: Put,
        key: Callable[[Any], object] | None,
    ) -> None:
        self._queues, self._batch = queues, batch
        self._encode, self._put, self._key = encode, put, key
        self._head = current_head(queues.engine, batch)
        self._keys: _Keys | None = None if key is None else _Keys()
        self._read_keys()
        self._check = 0  # of the items before the present ones

    def store(self, items: Iterable[Any], call_of: Callable[[Any], Call]) -> None:
        """Store all items.

        Raises:
            BadInput: An item cannot be stored; those before it are. Or they are not the items
                that were stored before under the name, or fewer.
        """
        index = 0
        for part in parts_of(items, SLICE_ITEMS):
            try:
                calls, keys = [call_of(item) for item in part], self._keys_of(part)
                encoded = self._encode(calls)
            except BadInput:
                good, error = self._up_to_bad(part, call_of, index)
                self._store_part(index, self._encode([call_of(item) for item in good]),
                                 self._keys_of(good))  # fmt: skip
                raise error from None
            self._store_part(index, encoded, keys)
            index += len(part)
        if self._keys is None and index < self._head.items:  # which could not be compared
            raise self._other_items(f"The call has {index} items, and {self._head.items} are")
        self._list_for_longer()

    def _up_to_bad(
        self, part: Sequence[Any], call_of: Callable[[Any], Call], first: int
    ) -> tuple[Sequence[Any], BadInput]:
        """Return the items before the first that cannot be stored, and its error."""
        for place, item in enumerate(part):
            try:
                self._keys_of([item])
                self._encode([call_of(item)])
            except BadInput as error:
                text = f"items[{first + place}]: {error.message}"
                return part[:place], BadInput(text, hint=error.hint)
        raise AssertionError("one of the items cannot be encoded")

    def _store_part(self, index: int, encoded: Encoded, keys: Sequence[bytes]) -> None:
        for begin, end in _bounds(encoded.bodies):
            part = Encoded(encoded.codec, encoded.bodies[begin:end], encoded.limits[begin:end])
            if self._keys is None:
                self._store_by_position(index + begin, part)
            else:
                self._store_by_key(self._keys, part, keys[begin:end])

    def _store_by_position(self, index: int, encoded: Encoded) -> None:
        bodies = encoded.bodies
        check = NO_CHECK
        while True:
            known = min(max(self._head.items - index, 0), len(bodies))
            if encoded.codec == JSON:  # others may encrypt, and write other bytes each time
                check = crc32(b"".join(bodies[:known]), self._check)
                if known and index + known == self._head.items:
                    self._compare(check)
                check = crc32(b"".join(bodies[known:]), check)
            if known == len(bodies):
                break
            rest = Encoded(encoded.codec, bodies[known:], encoded.limits[known:])
            if self._is_stored(rest, check, b""):
                break
        self._check = check if check != NO_CHECK else 0

    def _store_by_key(self, stored: "_Keys", encoded: Encoded, keys: Sequence[bytes]) -> None:
        while True:
            is_new = stored.new_among(keys)
            fresh = b"".join(compress(keys, is_new))
            if not fresh:
                return
            limits = list(compress(encoded.limits, is_new))
            rest = Encoded(encoded.codec, list(compress(encoded.bodies, is_new)), limits)
            if self._is_stored(rest, NO_CHECK, fresh):
                stored.add(fresh)
                return

    def _is_stored(self, encoded: Encoded, check: int, keys: bytes) -> bool:
        """Store the next items; if another process may have, read what it has stored."""
        many = self._head.items + len(encoded.bodies)
        if many > ITEMS_MAX:
            raise BadInput(
                f"A batch has at most {ITEMS_MAX} items; {self._head.items} are stored.",
                hint="Use several names.",
            )
        answers: list[Head | None] = []

        def send(request: EnqueueRequest) -> Sequence[Job]:
            stored = store_slice(
                self._queues, self._batch, self._head, request, check=check, keys=keys
            )
            answers.append(None if stored is None else stored[0])
            return () if stored is None else stored[1]

        self._put(encoded, send)
        head = answers[-1]
        if head is None:
            self._head = current_head(self._queues.engine, self._batch)
            self._read_keys()
            return False
        self._head = head
        return True

    def _compare(self, check: int) -> None:
        if self._head.check not in (check, NO_CHECK):
            raise self._other_items(f"The first {self._head.items} items are not those that are")

    def _other_items(self, what: str) -> BadInput:
        return BadInput(
            f"{what} stored under the name {self._batch.name}, in their order. Nothing was stored.",
            hint="Use another name, or key= if the items or their order vary.",
        )

    def _keys_of(self, items: Sequence[Any]) -> Sequence[bytes]:
        return () if self._key is None else [_digest(self._key(item)) for item in items]

    def _read_keys(self) -> None:
        """Read the keys of the items that the head counts; later ones may have no rows yet."""
        if self._keys is not None:
            known = len(self._keys)
            for digests in records.keys_of(self._queues.engine.store, self._batch.id, known):
                if len(self._keys) >= self._head.items:
                    break
                self._keys.add(digests)

    def _list_for_longer(self) -> None:
        engine = self._queues.engine
        now_us = engine.time.latest_us()
        if now_us - self._batch.begun_us > KEEP_US // 10:
            token = engine.ids.token()
            for put in (
                records.put_name(self._batch, token, now_us),
                records.put_batch(self._batch, token, now_us, is_new=False),
            ):
                engine.store.commit(put.partition, put.writes)


class _Keys:
    """Digests of keys, in few bytes each: ten million are in memory at once."""

    _SLOTS: Final = 2**16
    _REST: Final = KEY_BYTES - 2

    def __init__(self) -> None:
        self._many = 0
        self._slots: dict[bytes, bytearray] = {}

    def __len__(self) -> int:
        return self._many

    def add(self, digests: bytes) -> None:
        """Add digests that follow each other; none is known."""
        for start in range(0, len(digests), KEY_BYTES):
            digest = digests[start : start + KEY_BYTES]
            self._slots.setdefault(digest[:2], bytearray()).extend(digest[2:])
        self._many += len(digests) // KEY_BYTES

    def new_among(self, digests: Sequence[bytes]) -> list[bool]:
        """Return for each digest whether it is not known, and none of those before it."""
        seen: set[bytes] = set()
        answers = []
        for digest in digests:
            answers.append(digest not in seen and not self._has(digest))
            seen.add(digest)
        return answers

    def _has(self, digest: bytes) -> bool:
        slot, rest = self._slots.get(digest[:2], b""), digest[2:]
        place = slot.find(rest)
        while place >= 0 and place % self._REST:
            place = slot.find(rest, place + 1)
        return place >= 0


def _digest(key: object) -> bytes:
    if isinstance(key, bool) or not isinstance(key, str | int | float | bytes):
        raise BadInput(
            f"The key of an item must be a string, a number or bytes (got {key!r:.80}).",
            hint=_KEYS_HINT,
        )
    data = key if isinstance(key, bytes) else f"{key}".encode()
    return blake2b(data, digest_size=KEY_BYTES).digest()


def _bounds(bodies: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Yield the first and last places of slices whose arguments are not too large together."""
    begin = size = 0
    for place, body in enumerate(bodies):
        if size and size + len(body) > _SLICE_BYTES:
            yield begin, place
            begin, size = place, 0
        size += len(body)
    if begin < len(bodies):
        yield begin, len(bodies)
