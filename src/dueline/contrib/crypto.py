"""Encrypted arguments and results: AES-GCM with keys that can be replaced.

Needs `pip install 'dueline[crypto]'`.
"""

import os
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final, TypeVar, overload

from dueline.api.application import Dueline
from dueline.core.codec import decode_result, encode_result
from dueline.core.errors import BadInput, DuelineError
from dueline.core.extras import extra

with extra("crypto"):
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

T = TypeVar("T")

_RESULT: Final = "a result "
"""No task has a name with a space, so a text is neither its arguments nor a result by mistake."""

_VERSION: Final = 1
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_KEY_BYTES: Final = (16, 24, 32)
_ID_CHARACTERS_MAX: Final = 64


class WrongKey(DuelineError):
    """Arguments cannot be decrypted with the keys of this process."""


class Cipher:
    """Encrypts arguments with AES-GCM: `Cipher({"2027-01": key}).install(app)`.

    The id of the key is stored with the arguments, so jobs of several keys can wait together. The
    name of the task is authenticated: arguments that someone moves to another task are refused.

    Args:
        keys: Keys of 16, 24 or 32 bytes by their ids; bytes, or a string of hexadecimal digits.
        write: Id of the key that encrypts; by default the last one.

    Raises:
        BadInput: A key or an id is invalid.
    """

    def __init__(self, keys: Mapping[str, bytes | str], *, write: str | None = None) -> None:
        if not isinstance(keys, Mapping):
            kind = type(keys).__name__  # the value is a secret
            raise BadInput(
                f"`keys` must be a dict of keys by their ids (got a {kind}).",
                hint='Use Cipher({"2027-01": key}).',
            )
        if not keys or (write is not None and write not in keys):
            raise BadInput(
                f"There is no key {write or 'to write with'!r:.80}.",
                hint='Use Cipher({"2027-01": key}).',
            )
        self._keys = {key_id: AESGCM(_read_key(key_id, key)) for key_id, key in keys.items()}
        self._write = write or list(keys)[-1]

    def install(
        self, app: Dueline, *, name: str = "sealed", number: int = 64, default: bool = True
    ) -> None:
        """Add the codec to an application.

        Args:
            app: The application.
            name: Name of the codec, for `@app.task(codec="sealed")`.
            number: 64 to 127; stored with each job, so never change it.
            default: Encrypt the arguments of all tasks that name no codec.

        Raises:
            BadInput: The application has another codec of this name or number.
        """
        app.payloads.add(name, number, encode=self.seal, decode=self.open, takes_task=True)
        if default:
            app.payloads.use(name)

    def encrypt(self, value: object, about: str = "") -> str:
        """Encrypt a value for the result of a job: `return cipher.encrypt(letter)`.

        Args:
            value: What JSON can carry.
            about: What the text belongs to, such as the id of a customer; authenticated.

        Returns:
            Text that `decrypt` reads, with the id of the key.

        Raises:
            BadInput: The value cannot be written as JSON, or is larger than 1 MiB.
        """
        body = encode_result(value, about or "an encrypted value")
        return b64encode(self.seal(body, _RESULT + about)).decode()

    @overload
    def decrypt(self, text: str, kind: type[T], *, about: str = "") -> T: ...
    @overload
    def decrypt(self, text: str, *, about: str = "") -> Any: ...  # noqa: ANN401
    def decrypt(self, text: str, kind: Any = Any, *, about: str = "") -> Any:
        """Decrypt a value: `cipher.decrypt(job.result(), Letter)`.

        Args:
            text: What `encrypt` returned.
            kind: Type of the value.
            about: As for `encrypt`.

        Raises:
            WrongKey: This process does not have the key, or the text belongs to something else.
            BadInput: `encrypt` did not return this text.
        """
        try:
            sealed = b64decode(text, validate=True)
        except (ValueError, TypeError) as error:
            raise BadInput("This text was not encrypted by a cipher.") from error
        return decode_result(self.open(sealed, _RESULT + about).decode(), kind)

    def seal(self, body: bytes, task: str) -> bytes:
        """Encrypt the arguments of a task."""
        key_id = self._write.encode()
        head = bytes([_VERSION, len(key_id)]) + key_id
        nonce = os.urandom(_NONCE_BYTES)
        return head + nonce + self._keys[self._write].encrypt(nonce, body, head + task.encode())

    def open(self, sealed: bytes, task: str) -> bytes:
        """Decrypt the arguments of a task.

        Raises:
            WrongKey: This process does not have the key, or has another one of its id.
            BadInput: These are not bytes that `seal` returned.
        """
        size = 2 + sealed[1] if sealed[:1] == bytes([_VERSION]) and sealed[1:] else 0
        if not size or len(sealed) < size + _NONCE_BYTES + _TAG_BYTES:
            raise BadInput(f"The arguments of {task} were not encrypted by this codec.")
        head, nonce = sealed[:size], sealed[size : size + _NONCE_BYTES]
        key_id = head[2:].decode(errors="replace")
        key = self._keys.get(key_id)
        if key is None:
            raise WrongKey(
                f"The arguments of {task} are encrypted with the key {key_id!r}, "
                f"which this process does not have (it has {', '.join(self._keys)}).",
                hint="Add the key in all workers before a process writes with it, and keep it "
                "until no job needs it.",
            )
        try:
            return key.decrypt(nonce, sealed[size + _NONCE_BYTES :], head + task.encode())
        except InvalidTag:
            raise WrongKey(
                f"The arguments of {task} do not fit the key {key_id!r} of this process.",
                hint="The key of this id is another one where they were written, the bytes were "
                "changed, or they belong to another task.",
            ) from None


def _read_key(key_id: object, key: object) -> bytes:
    if (
        not isinstance(key_id, str)
        or not key_id.isprintable()
        or not 0 < len(key_id.encode()) <= _ID_CHARACTERS_MAX
    ):
        raise BadInput(
            f"{key_id!r:.80} is not a valid id of a key.",
            hint=f"Use up to {_ID_CHARACTERS_MAX} printable characters, such as a date.",
        )
    try:
        read = bytes.fromhex(key) if isinstance(key, str) else key
    except ValueError:
        read = b""
    if not isinstance(read, bytes) or len(read) not in _KEY_BYTES:  # never shown
        raise BadInput(
            f"The key {key_id!r} is not a key of 16, 24 or 32 bytes.",
            hint="Create one: python -c 'import secrets; print(secrets.token_hex(32))'.",
        )
    return read
