"""Codecs of stored arguments.

The field `codec` of a job says how to decode its body:

  0         JSON, the default
  1         MessagePack
  2, 3      the same two, or zlib streams of them: those start with an `x`, which no body does
  4         the reference of a blob, which says how to decode that (`core.blobs`)
  64 - 127  custom codecs of an application: `decode` returns a byte, one of the numbers above, and
            the body to decode with that codec

Never pickle: bytes from the store choose no code to run.
"""

import re
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from dueline.core.blobs import BLOB_BYTES_MAX, BY_ADDRESS, RESULT_OF, Blobs, expected
from dueline.core.codec import (
    AS_JSON,
    DEPTH_MAX,
    JSON,
    OWN_MAX,
    OWN_MIN,
    PAYLOAD_BYTES_MAX,
    Form,
    depth_of,
    from_plain,
    is_no_number,
    learned,
    members,
    to_builtins,
    to_plain,
)
from dueline.core.errors import BadInput
from dueline.core.lane import CODEC_MAX
from dueline.core.user_code import Raised, contain, name_of, text_of

MSGPACK: Final = 1

_SQUEEZED: Final = 2  # added to a form's number
_ZLIB: Final = b"x"
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,30}")
_MAY_BE_NO_NUMBER: Final = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]|\xca[\x7f\xff][\x80-\xff]")


def _write_msgpack(value: object) -> bytes:
    """Encode a value as MessagePack, if JSON can represent it: arguments are shown as JSON.

    Raises: as `Form.write`.
    """
    data = msgspec.msgpack.encode(value, enc_hook=to_plain)
    if _MAY_BE_NO_NUMBER.search(data) and any(map(is_no_number, members(to_builtins(value)))):
        raise ValueError("JSON cannot represent NaN and infinity")
    if len(data) > DEPTH_MAX and depth_of(msgspec.msgpack.decode(data)) > DEPTH_MAX:
        raise ValueError(f"it is nested more than {DEPTH_MAX} levels deep")
    return data


AS_MSGPACK: Final = Form(
    "MessagePack",
    _write_msgpack,
    lambda kind: learned(lambda: msgspec.msgpack.Decoder(kind, dec_hook=from_plain)).decode,
    tuple(bytes([first]) for first in (*range(0x90, 0xA0), 0xDC, 0xDD)),
)

_FORMS: Final = {JSON: AS_JSON, MSGPACK: AS_MSGPACK}
_NUMBERS: Final = {"json": JSON, "msgpack": MSGPACK}


class CustomCodec(NamedTuple):
    """A custom codec of the application; see `Payloads.add`."""

    name: str
    number: int
    encode: Callable[..., bytes]
    decode: Callable[..., bytes]
    takes_task: bool = False


class PayloadFormat(NamedTuple):
    """How arguments are encoded.

    codec: the number in the job. inner: the number without the custom codec, if there is one.
    compress_above: bytes; None for never.
    """

    codec: int
    form: Form
    inner: int = JSON
    compress_above: int | None = None
    own: CustomCodec | None = None

    def closed(self, body: bytes, task: str, bytes_max: int = PAYLOAD_BYTES_MAX) -> bytes:
        """Return the bytes to store for a body, up to a number.

        Raises: BadInput: the custom codec failed, or returned something invalid.
        """
        if self.compress_above is not None and len(body) > self.compress_above:
            body = min(zlib.compress(body), body, key=len)
        if self.own is None:
            return body
        given = (bytes([self.inner]) + body, task)
        sealed: object = contain(self.own.encode, *given[: 1 + self.own.takes_task])
        if isinstance(sealed, Raised):
            raise BadInput(
                f"The codec {self.own.name} cannot write the arguments of {task}: "
                f"{name_of(sealed.error)}: {text_of(sealed.error)}."
            ) from sealed.error
        if not isinstance(sealed, bytes):
            raise BadInput(f"The codec {self.own.name} wrote {type(sealed).__name__}, not bytes.")
        if len(sealed) > bytes_max:
            raise BadInput(
                f"The values of {task} have {len(sealed)} bytes in the codec {self.own.name}; "
                f"{bytes_max} are allowed.",
                hint="Store the data elsewhere and pass where it is.",
            )
        return sealed


PLAIN: Final = PayloadFormat(JSON, AS_JSON)


class Payloads:
    """The codecs that an application knows, and the default for its calls.

    ways: see `way`. blobs: keeps large values; None if they are refused. bytes_max: maximum size of
    arguments.
    """

    def __init__(self) -> None:
        self._own: dict[int, CustomCodec] = {}
        self._name = "json"
        self._compress_above: int | None = None
        self.ways: dict[str | None, PayloadFormat] = {}
        self.blobs: Blobs | None = None
        self.bytes_max = PAYLOAD_BYTES_MAX

    def keep(self, blobs: Blobs) -> None:
        """Keep large values as blobs."""
        self.blobs, self.bytes_max = blobs, BLOB_BYTES_MAX

    def use(self, codec: str = "json", *, compress_above: int | None = None) -> None:
        """Set how arguments are encoded from now on; all codecs can still be decoded.

        Args:
          codec: "json", "msgpack", or one that was added; for tasks that name none.
          compress_above: compress larger arguments, in bytes. None: never.

        Raises: BadInput: the codec does not exist, or the size is out of range.
        """
        if compress_above is not None and not _is_number(compress_above, 0, PAYLOAD_BYTES_MAX):
            raise BadInput(
                f"compress_above is {compress_above!r}.",
                hint=f"Use 0 to {PAYLOAD_BYTES_MAX} bytes, or None for never.",
            )
        self.check(codec)
        self._name, self._compress_above = codec, compress_above
        self.ways.clear()

    def add(
        self,
        name: str,
        number: int,
        *,
        encode: Callable[..., bytes],
        decode: Callable[..., bytes],
        takes_task: bool = False,
    ) -> None:
        """Add a codec; arguments pass through it as bytes.

        `dueline.contrib.crypto.Cipher` is one that encrypts.

        Args:
          name: for `use` and tasks. number: 64 to 127; stored with each job, so never change it.
          encode, decode: a function and its inverse. They must be thread-safe.
          takes_task: they also take the name of the task, to bind the bytes to it.

        Raises: BadInput: the name or number is out of range, or taken.
        """
        if not _is_name(name):
            raise BadInput(f"{name!r:.80} cannot name a codec.", hint='Write "sealed".')
        if not _is_number(number, OWN_MIN, OWN_MAX):
            raise BadInput(
                f"The codec {name} has the number {number!r}.", hint=f"Use {OWN_MIN} to {OWN_MAX}."
            )
        if not all(map(callable, (encode, decode))):
            raise BadInput(f"The codec {name} takes two functions, encode and decode.")
        if name in self.names or number in self._own:
            raise BadInput(f"A codec {name}, or one with number {number}, is there already.")
        self._own[number] = CustomCodec(name, number, encode, decode, takes_task)

    @property
    def names(self) -> Sequence[str]:
        """The names of the codecs."""
        return [*_NUMBERS, *(own.name for own in self._own.values())]

    @property
    def numbers(self) -> Collection[int]:
        """The numbers of codecs that other applications may not know, now and later."""
        return self._own.keys() if self.blobs is None else _Numbers(self._own)

    def check(self, name: object) -> None:
        """Check that a codec exists.

        Raises: BadInput: it does not.
        """
        if name not in self.names:
            raise BadInput(
                f"There is no codec {name!r:.80}.",
                hint=f"There is {', '.join(self.names)}; app.payloads.add(...) comes first.",
            )

    def way(self, name: str | None) -> PayloadFormat:
        """Return how calls are encoded: with the named codec, or the default."""
        way = self.ways.get(name)
        if way is None:
            way = self.ways[name] = self._way(name or self._name)
        return way

    def _way(self, name: str) -> PayloadFormat:
        number = _NUMBERS.get(name, JSON)
        form, bound = _FORMS[number], self._compress_above
        if bound is not None:
            number += _SQUEEZED
        own = next((own for own in self._own.values() if own.name == name), None)
        if number == JSON and own is None:
            return PLAIN
        return PayloadFormat(own.number if own else number, form, number, bound, own)

    def knows(self, codec: int) -> bool:
        """Return whether bodies in this codec can be decoded."""
        return _is_ours(codec) or codec in self.numbers

    def opened(
        self, codec: int, body: bytes, task: str, bytes_max: int = PAYLOAD_BYTES_MAX
    ) -> tuple[Form, bytes]:
        """Undo custom codec and compression; return the form and the body.

        Raises: BadInput: codec or bytes are invalid. Exceptions of a custom codec propagate.
        """
        if codec == BY_ADDRESS:
            codec, body = expected(self.blobs, body).body(body)
            bytes_max = BLOB_BYTES_MAX
        own = self._own.get(codec)
        if own is not None:
            plain: object = own.decode(*(body, task)[: 1 + own.takes_task])
            if not isinstance(plain, bytes) or not plain:
                raise BadInput(f"The codec {own.name} read {type(plain).__name__}, not bytes.")
            codec, body = plain[0], plain[1:]
        return opened(codec, body, bytes_max)

    def sealed_result(self, data: bytes, task: str, name: str | None) -> tuple[int, bytes]:
        """Return the codec and the bytes of a result that is kept as a blob.

        Args:
          data: The result as JSON.
          task: The task.
          name: The codec of its arguments; a custom one encrypts the blob.

        Raises: BadInput: as `PayloadFormat.closed`.
        """
        way = self.way(name)
        if way.own is None:
            return JSON, data
        way = way._replace(inner=JSON, compress_above=None)
        return way.codec, way.closed(data, RESULT_OF + task, BLOB_BYTES_MAX)


class _Numbers(Collection[int]):
    """The numbers of custom codecs, and that of blobs."""

    def __init__(self, own: Collection[int]) -> None:
        self._own = own

    def __contains__(self, number: object) -> bool:
        return number == BY_ADDRESS or number in self._own

    def __iter__(self) -> Iterator[int]:
        yield BY_ADDRESS
        yield from self._own

    def __len__(self) -> int:
        return len(self._own) + 1


def opened(codec: int, body: bytes, bytes_max: int = PAYLOAD_BYTES_MAX) -> tuple[Form, bytes]:
    """Undo the compression of a body, if there is any; return the form and the body.

    Raises: BadInput: the codec is custom or unknown, or the bytes are invalid.
    """
    if not _is_ours(codec):
        is_own = OWN_MIN <= codec <= OWN_MAX
        reader = "only an application that adds it can read" if is_own else "is not known here"
        raise BadInput(
            f"The arguments are in the codec {codec}, which {reader}.",
            hint="Is it added where they were written (app.payloads.add), or by a newer dueline?",
        )
    if codec & _SQUEEZED and body.startswith(_ZLIB):
        body = _inflated(body, bytes_max)
    if len(body) > bytes_max:
        raise BadInput(f"The arguments have more than {bytes_max} bytes.")
    return _FORMS[codec & ~_SQUEEZED], body


def _is_name(name: object) -> bool:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def _is_number(number: object, least: int, most: int) -> bool:
    return type(number) is int and least <= number <= most


def _is_ours(codec: int) -> bool:
    return 0 <= codec <= CODEC_MAX


def _inflated(data: bytes, bytes_max: int) -> bytes:
    """Decompress a body, up to one byte more than the maximum size."""
    stream = zlib.decompressobj()
    try:
        body = stream.decompress(data, bytes_max + 1)
    except zlib.error as error:
        raise BadInput(f"The arguments cannot be decompressed: {error}.") from error
    if len(body) <= bytes_max and not stream.eof:
        raise BadInput("The arguments cannot be decompressed: their end is missing.")
    return body


def as_json(codec: int, body: bytes) -> str:
    """Format arguments for people, as JSON.

    Raises: BadInput: they are in a custom codec, or damaged.
    """
    if codec == BY_ADDRESS:
        return body.decode(errors="replace")
    form, body = opened(codec, body)
    if form is AS_JSON:
        return body.decode(errors="replace")
    try:
        value: Any = form.decoder(Any)(body)
        return msgspec.json.encode(value).decode()
    except (ValueError, TypeError, RecursionError) as error:
        raise BadInput(f"The arguments cannot be shown as JSON: {error}.") from error
