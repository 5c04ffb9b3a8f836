"""Encoding and decoding of values."""

import math
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, repeat
from operator import contains
from pathlib import PurePath
from typing import Any, Final, NamedTuple, Self, TypeVar, cast, get_args, get_origin

import msgspec

from dueline.core.errors import BadInput, StoreCorrupt
from dueline.core.library_values import (
    TAG_BYTES,
    from_plain_value,
    is_library_type,
    restored,
    to_plain_value,
)
from dueline.core.system import at_fork
from dueline.core.user_code import text_of

T = TypeVar("T")

JSON: Final = 0
"""The codec of a body: a JSON array of positional arguments, or an object with the two members
`args` (array) and `kwargs` (object). Documented, so that others can write jobs too."""

OWN_MIN: Final = 64
OWN_MAX: Final = 127
"""The numbers of the codecs that an application adds."""

PAYLOAD_BYTES_MAX: Final = 256 * 1024
RESULT_BYTES_MAX: Final = 1024 * 1024
DEPTH_MAX: Final = 64
"""Maximum nesting of arrays and objects in bodies and results."""

DAMAGE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions that decoding raises for damaged bytes."""

_BINARY: Final = (bytes, bytearray, memoryview)

_WITHOUT_VALUES: Final = frozenset({"typing", "collections.abc", "abc"})
"""Modules of annotations that say nothing about the class of a value."""

_FLAT_BYTES: Final = 2 * DEPTH_MAX  # shorter bodies cannot be too deep: each level has two brackets


def to_plain(value: object) -> object:
    """Return a value of a library's own type as plain values: msgspec's hook for encoding.

    Paths, pydantic models and what `library_values` knows are; nothing is imported for them.

    Raises: TypeError: the type is not known.
    """
    if isinstance(value, PurePath):
        return str(value)
    if is_model(type(value)):
        return value.model_dump(mode="json", by_alias=True, round_trip=True)  # type: ignore[attr-defined]
    return to_plain_value(value)


def from_plain(kind: Any, value: object) -> object:  # noqa: ANN401  (a type)
    """Return a plain value as a library's own type: msgspec's hook for decoding.

    Raises: TypeError, ValueError: the value does not fit, or the type is not known.
    """
    own: Any = get_origin(kind) or kind
    if isinstance(value, own):
        return value
    if is_library_type(own):
        return from_plain_value(own, value)
    if issubclass(own, PurePath) and isinstance(value, str):
        return own(value)
    if is_model(own):  # from JSON, a strict model takes a string for a date
        try:
            return kind.model_validate_json(msgspec.json.encode(value))
        except ValueError as error:
            raise ValueError(" ".join(text_of(error).split())) from error
    raise TypeError(f"Expected `{own.__name__}`, got `{type(value).__name__}`")


def is_model(kind: type) -> bool:
    """Return whether a class is a pydantic model."""
    pydantic = sys.modules.get("pydantic")
    base = getattr(pydantic, "BaseModel", None)
    return base is not None and issubclass(kind, base) and hasattr(kind, "model_validate_json")


def unknown_kind(kind: Any) -> type | None:  # noqa: ANN401  (a type)
    """Return a class in an annotation whose values cannot be encoded; None without one."""
    if (own := get_origin(kind)) is not None and isinstance(own, type) and is_library_type(own):
        return None
    if kinds := get_args(kind):
        return next(
            (unknown for argument in kinds if (unknown := unknown_kind(argument)) is not None), None
        )
    if not isinstance(kind, type) or kind.__module__ in _WITHOUT_VALUES:
        return None
    if kind is object or issubclass(kind, PurePath) or is_model(kind) or is_library_type(kind):
        return None
    try:
        described = learned(lambda: msgspec.inspect.type_info(kind))
    except (TypeError, NameError):  # an annotation may be completed later
        return None
    return kind if isinstance(described, msgspec.inspect.CustomType) else None


def to_builtins(value: object, builtin_types: Iterable[type] = ()) -> Any:  # noqa: ANN401
    """Return a value as plain values, as it is encoded."""
    return msgspec.to_builtins(value, builtin_types=builtin_types, enc_hook=to_plain)


_encoder = msgspec.json.Encoder(enc_hook=to_plain)
_decoders: Final[dict[Any, Callable[[bytes], Any]]] = {}
_learning: Final = threading.RLock()
at_fork(  # a child gets no locked lock and no half-inspected class
    before=_learning.acquire, after_in_parent=_learning.release, after_in_child=_learning.release
)


def learned(make: Callable[[], T]) -> T:
    """Call a function that makes msgspec inspect a type, one thread at a time.

    msgspec stores what it knows of a class on the class before it knows all of it. If another
    thread reads the class then, the process crashes (seen with msgspec 0.22).
    """
    with _learning:
        return make()


class Cells(msgspec.Struct, frozen=True, gc=False):
    """A value that is created, written or read for every job; as JSON, an object.

    It is several times as fast as a frozen dataclass. It must not be part of a reference cycle.
    """

    def changed(self, **cells: object) -> Self:
        """Return a copy with other values for some cells."""
        return msgspec.structs.replace(self, **cells)


encode: Final[Callable[[object], bytes]] = _encoder.encode
"""Returns an internal value as JSON; dataclasses become objects."""


def decode(data: bytes, kind: type[T]) -> T:
    """Return an internal value from JSON.

    Raises: StoreCorrupt: the data is not of this type.
    """
    try:
        return cast("T", (_decoders.get(kind) or _decoder_of(kind))(data))
    except DAMAGE as error:
        raise StoreCorrupt(
            f"The store holds a {kind.__name__} that cannot be read: {error}.",
            hint="Check whether another program or a newer dueline wrote it.",
        ) from error


def _decoder_of(kind: type[T]) -> Callable[[bytes], T]:
    """Return the cached decoder of an internal type."""
    decoder = _decoders[kind] = AS_JSON.decoder(kind)
    return decoder


def pack(value: object) -> bytes:
    """Encode a message between processes of one worker: tuples, bytes, strings, numbers."""
    return msgspec.msgpack.encode(value)


def unpack(data: bytes) -> Any:  # noqa: ANN401  (the receiver knows what was sent)
    """Decode a message between processes of one worker; tuples come back as lists."""
    return msgspec.msgpack.decode(data)


def encode_result(value: object, task: str, bytes_max: int = RESULT_BYTES_MAX) -> bytes:
    """Encode the result of a handler.

    Raises: BadInput: the result is not JSON, or too large.
    """
    try:
        data = _strictly(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadInput(
            f"The result of {task} cannot be written as JSON: {text_of(error)}.",
            hint="Return plain values, or name how the type is stored: dueline.register_type(...). "
            "The work is done: a retry repeats it. app.queue(..., keep=0) keeps no results.",
        ) from error
    if len(data) > bytes_max:
        raise BadInput(
            f"The result of {task} has {len(data)} bytes; {bytes_max} are allowed.",
            hint="Keep large results in a folder, Dueline(..., blobs=...), or store it elsewhere "
            "and return its location.",
        )
    if b'{"$blob":' in data:  # a reader would take it for a reference
        raise BadInput(
            f"The result of {task} has an object whose first member is `$blob`.",
            hint="Use another name: dueline uses this one.",
        )
    return data


def decode_result(data: str, kind: Any) -> Any:  # noqa: ANN401  (any type annotation will do)
    """Decode a result as the handler's annotated type, or as plain JSON if that fails.

    Raises: StoreCorrupt: the result is not JSON.
    """
    try:
        return with_frames(AS_JSON.decoder(kind)(body := data.encode()), body)
    except (*DAMAGE, UnicodeEncodeError):
        pass  # the annotation has changed since, or the data is damaged
    try:
        return with_frames(msgspec.json.decode(data), data.encode())
    except (*DAMAGE, UnicodeEncodeError) as error:
        raise StoreCorrupt(f"The store holds a result that cannot be read: {error}.") from error


def with_frames(value: Any, body: bytes) -> Any:  # noqa: ANN401  (of any type)
    """Return a value that was decoded from a body, with the arrays and frames that it has.

    Where an annotation names their type, they are there already.

    Raises: msgspec.ValidationError: one is damaged.
    """
    if TAG_BYTES not in body:
        return value
    try:
        return restored(value)
    except ValueError as error:
        raise msgspec.ValidationError(text_of(error)) from error


class Content(msgspec.Struct, omit_defaults=True, gc=False):
    """The content of a stream's row: an object with `value`, and `key` and others if it has them.

    topic: the name under which the event was published. headers: small strings by name.
    """

    value: Any
    key: str | None = None
    topic: str | None = None
    headers: dict[str, str] | None = None


_event_decoder = msgspec.json.Decoder(Content)


def encode_events(
    events: Sequence[tuple[Any, str | None]],
    topic: str | None = None,
    headers: dict[str, str] | None = None,
) -> list[bytes]:
    """Encode events, each a value and an ordering key or None.

    Args: topic, headers: of all of them; None for none.

    Raises: BadInput: an event is not JSON, or larger than 256 KiB.
    """
    try:
        bodies = [_encoder.encode(Content(value, key, topic, headers)) for value, key in events]
        if _are_suspect(bodies):
            bodies = [_strictly(Content(value, key, topic, headers)) for value, key in events]
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
    """Encode a value as JSON that any reader can read.

    Raises: ValueError, TypeError, OverflowError, RecursionError: the value is not JSON.
    """
    data = _encoder.encode(value)
    # The encoder writes null for NaN; looking for "null" first is far cheaper than the check.
    if b"null" in data and any(map(is_no_number, members(to_builtins(value)))):
        raise ValueError("NaN and infinity have no form in JSON")
    is_long = len(data) > _FLAT_BYTES
    if is_long and _may_be_deep(data) and depth_of(msgspec.json.decode(data)) > DEPTH_MAX:
        raise ValueError(f"it is nested more than {DEPTH_MAX} levels deep")
    return data


def is_no_number(value: object) -> bool:
    """Return whether a value is NaN or infinity."""
    return isinstance(value, float) and not math.isfinite(value)


def _may_be_deep(data: bytes) -> bool:
    return data.count(b"[") + data.count(b"{") > DEPTH_MAX


def _are_suspect(bodies: Sequence[bytes]) -> bool:
    """Return whether one of the bodies needs a full check before it is stored."""
    longest = max(map(len, bodies), default=0)
    return (
        longest > PAYLOAD_BYTES_MAX
        or any(map(contains, bodies, repeat(b"null")))
        or (longest > _FLAT_BYTES and any(map(_may_be_deep, bodies)))
    )


def plain_bodies(values: Sequence[object]) -> list[bytes] | None:
    """Encode values as JSON; return None if one of them needs a full check.

    Raises: as `Form.write`.
    """
    bodies = [_encoder.encode(value) for value in values]
    return None if _are_suspect(bodies) else bodies


def holds_binary(value: object) -> bool:
    """Return whether a byte string may be anywhere in a value that can be written."""
    try:
        plain = msgspec.to_builtins(value, builtin_types=_BINARY, enc_hook=_without_frames)
    except TypeError:  # a key is one, or a library's own type is in it
        return True
    return bool(plain != msgspec.to_builtins(value, enc_hook=_without_frames))


def _without_frames(value: object) -> object:
    """Return None for what a library stores as text; see `to_plain`."""
    if is_library_type(type(value)):
        return None
    raise TypeError


def binary_in(value: object) -> Counter[bytes]:
    """Count the byte strings in a value that can be written, by their content."""
    try:
        plain = to_builtins(value, _BINARY)
    except TypeError:  # a key is one
        plain = msgspec.msgpack.decode(msgspec.msgpack.encode(value, enc_hook=to_plain))
    keys = (key for member in members(plain) if isinstance(member, dict) for key in member)
    return Counter(
        bytes(member) for member in chain(members(plain), keys) if isinstance(member, _BINARY)
    )


def depth_of(value: object) -> int:
    """Return the nesting depth of arrays and objects in a plain value."""
    level = [value]
    depth = 0
    while level := [member for member in level if isinstance(member, list | dict)]:
        depth += 1
        level = [child for member in level for child in _children(member)]
    return depth


def members(value: object) -> Iterator[object]:
    """Yield a plain value and all values in it."""
    level = [value]
    while level:
        yield from level
        level = [child for member in level for child in _children(member)]


def _children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


class Form(NamedTuple):
    """An encoding of arguments.

    name: for messages. write: raises ValueError, TypeError, OverflowError or RecursionError for
    values that it cannot encode. decoder: returns the decoder of a type. arrays: first bytes of
    the body of an array.
    """

    name: str
    write: Callable[[object], bytes]
    decoder: Callable[[Any], Callable[[bytes], Any]]
    arrays: tuple[bytes, ...]


AS_JSON: Final = Form(
    "JSON",
    _strictly,
    lambda kind: learned(lambda: msgspec.json.Decoder(kind, dec_hook=from_plain)).decode,
    (b"[",),
)
