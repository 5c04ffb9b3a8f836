"""Bytes from values, values from bytes."""

import math
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, repeat
from operator import contains
from typing import Any, Final, NamedTuple, Self, TypeVar, cast

import msgspec

from dueline.core.errors import BadInput, StoreCorrupt
from dueline.core.user_code import text_of

T = TypeVar("T")

JSON: Final = 0
"""The codec of a body: a JSON array of positional arguments, or an object with the two members
`args` (array) and `kwargs` (object). Documented, so that others can write jobs too."""

PAYLOAD_BYTES_MAX: Final = 256 * 1024
RESULT_BYTES_MAX: Final = 1024 * 1024
DEPTH_MAX: Final = 64
"""Bodies and results hold no more arrays and objects inside each other."""

DAMAGE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What reading raises where the bytes are damaged."""

_BINARY: Final = (bytes, bytearray, memoryview)

_FLAT_BYTES: Final = 2 * DEPTH_MAX  # what is shorter is not too deep: levels open and close

_encoder = msgspec.json.Encoder()
_decoders: Final[dict[Any, Callable[[bytes], Any]]] = {}
_learning: Final = threading.RLock()
os.register_at_fork(  # no child is left with a lock, or a class that is half known
    before=_learning.acquire, after_in_parent=_learning.release, after_in_child=_learning.release
)


def learned(make: Callable[[], T]) -> T:
    """Make what reads a type, for one thread after the other.

    msgspec notes what it knows of a class on the class before it knows all of it; where another
    thread reads that class then, the process crashes (0.22: a worker in 1,600 starts).
    """
    with _learning:
        return make()


class Cells(msgspec.Struct, frozen=True, gc=False):
    """A value of ours that is made, written or read for every job; as JSON, an object.

    C code makes it 7 times as fast as a frozen dataclass, and reads it 8 times as fast (November
    2026). Nothing that could be part of a circle belongs in it.
    """

    def changed(self, **cells: object) -> Self:
        """Copy it, with other values for some cells."""
        return msgspec.structs.replace(self, **cells)


def encode(value: object) -> bytes:
    """Write a value of ours as JSON; dataclasses become objects."""
    return _encoder.encode(value)


def decode(data: bytes, kind: type[T]) -> T:
    """Read a value of ours; what does not fit its type is damage."""
    try:
        return cast("T", (_decoders.get(kind) or _decoder_of(kind))(data))
    except DAMAGE as error:
        raise StoreCorrupt(
            f"The store holds a {kind.__name__} that cannot be read: {error}.",
            hint="Was it written by another program, or a newer dueline?",
        ) from error


def _decoder_of(kind: type[T]) -> Callable[[bytes], T]:
    """Make what reads a type of ours, once: it takes longer than reading a value."""
    decoder = _decoders[kind] = AS_JSON.decoder(kind)
    return decoder


def pack(value: object) -> bytes:
    """Write a message between processes of one worker: tuples, bytes, text, numbers."""
    return msgspec.msgpack.encode(value)


def unpack(data: bytes) -> Any:  # noqa: ANN401  (the receiver knows what was sent)
    """Read a message between processes of one worker; tuples come back as lists."""
    return msgspec.msgpack.decode(data)


def encode_result(value: object, task: str) -> bytes:
    """Write what a handler returned.

    Raises: BadInput: it cannot be written as JSON, or is larger than 1 MiB.
    """
    try:
        data = _strictly(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadInput(
            f"The result of {task} cannot be written as JSON: {text_of(error)}.",
            hint="Return plain values, or keep no results: app.queue(..., keep=0).",
        ) from error
    if len(data) > RESULT_BYTES_MAX:
        raise BadInput(
            f"The result of {task} has {len(data)} bytes; {RESULT_BYTES_MAX} are allowed.",
            hint="Store it elsewhere and return where.",
        )
    return data


def decode_result(data: str, kind: Any) -> Any:  # noqa: ANN401  (any type annotation will do)
    """Read a result as the handler's annotated type, or as plain JSON where that fails.

    Raises: StoreCorrupt: it is no JSON.
    """
    try:
        return AS_JSON.decoder(kind)(data.encode())
    except (*DAMAGE, UnicodeEncodeError):
        pass  # of another type than it has by now, or damaged
    try:
        return msgspec.json.decode(data)
    except (*DAMAGE, UnicodeEncodeError) as error:
        raise StoreCorrupt(f"The store holds a result that cannot be read: {error}.") from error


class Content(msgspec.Struct, omit_defaults=True, gc=False):
    """What a stream's row holds: an object with the members `value` and, maybe, `key`."""

    value: Any
    key: str | None = None


_event_decoder = msgspec.json.Decoder(Content)


def encode_events(events: Sequence[tuple[Any, str | None]]) -> list[bytes]:
    """Write events, each a value and an ordering key or None.

    Raises: BadInput: one cannot be written as JSON, or is larger than 256 KiB.
    """
    try:
        bodies = [_encoder.encode(Content(value, key)) for value, key in events]
        if _are_suspect(bodies):
            bodies = [_strictly(Content(value, key)) for value, key in events]
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadInput(
            f"An event cannot be written as JSON: {text_of(error)}.",
            hint="Append plain values (numbers, text, lists, dicts, dataclasses), keys as text.",
        ) from error
    if max(map(len, bodies), default=0) > PAYLOAD_BYTES_MAX:
        raise BadInput(
            f"An event is larger than {PAYLOAD_BYTES_MAX} bytes.",
            hint="Store the data elsewhere and append where it is.",
        )
    return bodies


def decode_event(body: bytes) -> Content:
    """Read an event."""
    try:
        return _event_decoder.decode(body)
    except DAMAGE as error:
        raise StoreCorrupt(f"The store holds an event that cannot be read: {error}.") from error


def _strictly(value: object) -> bytes:
    """Write a value that JSON can carry and any reader can read.

    Raises: ValueError, TypeError, OverflowError, RecursionError: it is none.
    """
    data = _encoder.encode(value)
    # The encoder writes null for what is no number; the suspicion costs far less than the proof.
    if b"null" in data and any(map(is_no_number, members(msgspec.to_builtins(value)))):
        raise ValueError("NaN and infinity have no form in JSON")
    if _may_be_deep(data) and depth_of(msgspec.json.decode(data)) > DEPTH_MAX:
        raise ValueError(f"it is nested more than {DEPTH_MAX} levels deep")
    return data


def is_no_number(value: object) -> bool:
    """Tell whether this is NaN or infinity."""
    return isinstance(value, float) and not math.isfinite(value)


def _may_be_deep(data: bytes) -> bool:
    return len(data) > _FLAT_BYTES and data.count(b"[") + data.count(b"{") > DEPTH_MAX


def _are_suspect(bodies: Sequence[bytes]) -> bool:
    """Tell whether one of the bodies needs a closer look before it is stored."""
    longest = max(map(len, bodies), default=0)
    return (
        longest > PAYLOAD_BYTES_MAX
        or any(map(contains, bodies, repeat(b"null")))
        or (longest > _FLAT_BYTES and any(map(_may_be_deep, bodies)))
    )


def plain_bodies(values: Sequence[object]) -> list[bytes] | None:
    """Write values as JSON; None where one of them may not be stored, and needs a closer look.

    Raises: as `Form.write`.
    """
    bodies = [_encoder.encode(value) for value in values]
    return None if _are_suspect(bodies) else bodies


def holds_binary(value: object) -> bool:
    """Return whether a byte string is anywhere in a value that can be written."""
    try:
        plain = msgspec.to_builtins(value, builtin_types=_BINARY)
    except TypeError:  # a key is one
        return True
    return bool(plain != msgspec.to_builtins(value))


def binary_in(value: object) -> Counter[bytes]:
    """Count the byte strings in a value that can be written, by their content."""
    try:
        plain = msgspec.to_builtins(value, builtin_types=_BINARY)
    except TypeError:  # a key is one
        plain = msgspec.msgpack.decode(msgspec.msgpack.encode(value))
    keys = (key for one in members(plain) if isinstance(one, dict) for key in one)
    return Counter(bytes(one) for one in chain(members(plain), keys) if isinstance(one, _BINARY))


def depth_of(value: object) -> int:
    """Tell how many arrays and objects lie inside each other in a plain value."""
    level = [value]
    depth = 0
    while level := [one for one in level if isinstance(one, list | dict)]:
        depth += 1
        level = [child for one in level for child in _children(one)]
    return depth


def members(value: object) -> Iterator[object]:
    """List a plain value and all that is in it."""
    level = [value]
    while level:
        yield from level
        level = [child for one in level for child in _children(one)]


def _children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


class Form(NamedTuple):
    """A way to write arguments.

    name: for messages. write: raises ValueError, TypeError, OverflowError or RecursionError for
    what has no place in it. decoder: makes what reads values of a type. arrays: how the body of
    an array begins.
    """

    name: str
    write: Callable[[object], bytes]
    decoder: Callable[[Any], Callable[[bytes], Any]]
    arrays: tuple[bytes, ...]


AS_JSON: Final = Form(
    "JSON", _strictly, lambda kind: learned(lambda: msgspec.json.Decoder(kind)).decode, (b"[",)
)
