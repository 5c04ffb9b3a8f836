"""The files of an export: parts of compressed lines, and a manifest that is written last.

A folder without a manifest is no export: the process that wrote it was killed. Each part has its
size and digest in the manifest, so a part that was cut or changed is refused before it is read.
"""

import gzip
import os
from collections.abc import Iterator, Mapping
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Final

from dueline.admin.exports.lines import FORMAT, Digest, Line, decode_line, encode_line
from dueline.core.codec import Cells, decode, encode
from dueline.core.errors import BadInput, Conflict, StoreCorrupt
from dueline.core.version import VERSION

MANIFEST: Final = "manifest.json"
LINES_A_PART: Final = 10_000
BYTES_A_PART: Final = 32 * 1024 * 1024
"""Maximum size of a part's lines before another part begins, in bytes."""

_LEVEL: Final = 3  # of compression: higher ones cost far more time than they save space
_PART: Final = "part-{:06d}.jsonl.gz"
_PARTS: Final = "part-*.jsonl.gz*"


class Part(Cells, frozen=True, gc=False):
    """A file of lines. sha256: of the file, compressed, in hexadecimal digits."""

    file: str
    lines: int
    bytes: int
    sha256: str


class Manifest(Cells, frozen=True, gc=False):
    """What an export holds.

    Attributes:
      format: Version of the format.
      version: The version of dueline that wrote it.
      features: Features of the store that the lines use.
      store: The kind of the store.
      at_us: When the store was frozen, in microseconds UTC.
      counts: The number of jobs, events and results, and of records of each other kind.
      digest: Over all lines, independent of their order and of the store.
      parts: The files.
    """

    format: int
    version: str
    features: list[str]
    store: str
    at_us: int
    counts: dict[str, int]
    digest: str
    parts: list[Part]


class Writer:
    """Writes an export into a folder. Memory: one part.

    Args:
      folder: A folder that does not exist, is empty, or has an export without a manifest.

    Raises:
      Conflict: The folder has an export, or other files.
      BadInput: It cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._digest = Digest()
        self._parts: list[Part] = []
        self._begin()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if (folder / MANIFEST).exists():
                raise Conflict(f"{folder} holds an export.", hint="Name another folder.")
            left = set(folder.glob(_PARTS))
            if other := sorted(set(folder.iterdir()) - left):
                raise Conflict(
                    f"{folder} holds other files, such as {other[0].name}.",
                    hint="Name an empty folder, or one that does not exist.",
                )
            for path in left:  # of an export that was interrupted
                path.unlink()
        except OSError as error:
            raise _unwritable(folder, error) from error

    def add(self, line: Line) -> None:
        """Write a line."""
        self._digest.add(line)
        content = encode_line(line)
        self._file.write(content)
        self._file.write(b"\n")
        self._lines += 1
        self._bytes += len(content)
        if self._lines >= LINES_A_PART or self._bytes >= BYTES_A_PART:
            self._end_part()

    def end(self, *, features: list[str], store: str, at_us: int) -> Manifest:
        """Write the manifest, which makes the folder an export."""
        if self._lines:
            self._end_part()
        manifest = Manifest(
            FORMAT, VERSION, features, store, at_us, dict(sorted(self._digest.counts.items())),
            self._digest.hex(), self._parts,
        )  # fmt: skip
        self._write(MANIFEST, encode(manifest))
        return manifest

    def _begin(self) -> None:
        self._lines = self._bytes = 0
        self._content = BytesIO()
        self._file = gzip.GzipFile(fileobj=self._content, mode="wb", compresslevel=_LEVEL, mtime=0)

    def _end_part(self) -> None:
        self._file.close()
        content, name = self._content.getvalue(), _PART.format(len(self._parts) + 1)
        self._write(name, content)
        self._parts.append(Part(name, self._lines, len(content), sha256(content).hexdigest()))
        self._begin()

    def _write(self, name: str, content: bytes) -> None:
        """Write a file durably; it has its name only once it is complete."""
        path = self._folder / name
        other = path.with_name(f"{name}.new" if name != MANIFEST else _PART.format(0) + ".new")
        try:
            with other.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            other.replace(path)
            folder = os.open(self._folder, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> BadInput:
    return BadInput(
        f"{path} cannot be written: {error.strerror}.",
        hint="Nothing changed in the store. Run the command again, or name another folder.",
    )


class Reader:
    """Reads an export.

    Args: folder: Its folder.

    Raises: BadInput: it holds no export, one of a later format, or one whose files are damaged.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.manifest = _manifest_in(folder)

    def parts(self) -> Iterator[tuple[int, list[Line]]]:
        """Yield the parts that were not changed since they were written, with their numbers.

        Raises: BadInput: one is missing, was changed, or has lines that cannot be read.
        """
        for number, part in enumerate(self.manifest.parts):
            yield number, self._read(part)

    def check(self) -> None:
        """Read all files; raise BadInput if they differ from the manifest."""
        digest = Digest()
        for _, lines in self.parts():
            for line in lines:
                digest.add(line)
        manifest = self.manifest
        if (dict(digest.counts), digest.hex()) != (manifest.counts, manifest.digest):
            raise BadInput(
                f"The lines in {self._folder} are not those of its manifest: "
                f"{differences(manifest.counts, digest.counts)}.",
                hint="Copy the export again.",
            )

    def _read(self, part: Part) -> list[Line]:
        path = self._folder / part.file
        try:
            content = path.read_bytes()
        except OSError as error:
            raise BadInput(
                f"{path} cannot be read: {error.strerror}.", hint="Copy the export again."
            ) from error
        if sha256(content).hexdigest() != part.sha256:
            raise BadInput(
                f"{path} was cut or changed: it has {len(content)} bytes of {part.bytes}, and "
                "another digest than in the manifest.",
                hint="Copy the export again.",
            )
        lines = gzip.decompress(content).splitlines()
        return [
            decode_line(line, f"Line {number} of {path}") for number, line in enumerate(lines, 1)
        ]


def differences(wanted: Mapping[str, int], counted: Mapping[str, int]) -> str:
    """Return how numbers of lines differ, in words."""
    words = [
        f"{counted.get(kind, 0)} of {wanted.get(kind, 0)} lines of the kind {kind}"
        for kind in sorted(wanted.keys() | counted.keys())
        if wanted.get(kind, 0) != counted.get(kind, 0)
    ]
    return ", ".join(words) or "as many lines, with other content"


def _manifest_in(folder: Path) -> Manifest:
    path = folder / MANIFEST
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise BadInput(
            f"{folder} holds no complete export: it has no {MANIFEST}.",
            hint="Name the folder of an export; an interrupted one must be exported again.",
        ) from error
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}.") from error
    try:
        kind = decode(content, _Format)
        if kind.format <= FORMAT:
            manifest = decode(content, Manifest)
    except StoreCorrupt as error:
        raise BadInput(f"{path} is not a manifest of an export.") from error
    if kind.format > FORMAT:
        raise BadInput(
            f"{folder} has format {kind.format}, and dueline {VERSION} reads up to {FORMAT}.",
            hint=f"Use dueline {kind.version}, which wrote it.",
        )
    if any(Path(part.file).name != part.file for part in manifest.parts):
        raise BadInput(f"{path} names files outside of its folder.")
    return manifest


class _Format(Cells, frozen=True, gc=False):
    format: int
    version: str
