"""Archives of a history.

An archive is a folder of Parquet files and a manifest with the number of rows, the digest and the
positions of each file. The manifest is written last, in one rename: a folder without a manifest is
an interrupted archive and is made again.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyarrow import compute, parquet

from dueline.core.errors import Conflict, NotFound, StoreCorrupt
from dueline.spark.pipeline.schemas import BRONZE_SHAPE, shaped
from dueline.spark.pipeline.table_store import flush

VERSION: Final = 1
ROWS: Final = "rows"
ORDER: Final = ("queue", "shard", "at", "id")
"""The order of rows in a file."""

ROWS_MAX: Final = 1_000_000
"""Maximum number of rows in one file; they are sorted in memory, about 300 bytes each."""

_PAGE: Final = 50_000
_UNFINISHED: Final = ".unfinished"
_MANIFEST: Final = "manifest.json"
_FRESH: Final = "manifest.new"
_COLUMNS: Final = {field.name: str(field.type) for field in BRONZE_SHAPE}
_LATER: Final = {"codec", "payload_bytes", "payload", "digest"}
"""Columns that older archives lack."""


class Period(NamedTuple):
    """The rows of some queues (all if empty) from `since_us` until before `until_us`."""

    queues: Sequence[str]
    since_us: int
    until_us: int


class Archived(NamedTuple):
    """The contents of an archive; `is_new` if it was written just now."""

    files: int
    rows: int
    since_us: int
    until_us: int
    is_new: bool


class Check(NamedTuple):
    """The result of a check of tables or files."""

    name: str
    is_good: bool
    finding: str


class Archive:
    """A folder that holds an archive, or will hold one."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    def manifest(self) -> Mapping[str, Any] | None:
        """Return the manifest; None if the archive is incomplete or absent.

        Raises:
            StoreCorrupt: Another version wrote it, or it is not the manifest of an archive.
        """
        try:
            read = json.loads((self.root / _MANIFEST).read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError:
            read = None
        if not isinstance(read, dict) or read.get("archive") != VERSION:
            raise StoreCorrupt(
                f"{self.root / _MANIFEST} is not the manifest of an archive of version {VERSION}.",
                hint="Pass the folder of the archive, not that of the tables.",
            )
        return read

    def held(self, asked: Mapping[str, Any]) -> Archived | None:
        """Return the contents of a complete archive with what is requested, or None.

        Raises:
            Conflict: The archive holds something else.
        """
        manifest = self.manifest()
        if manifest is None:
            return None
        if manifest["asked"] != asked:
            raise Conflict(
                f"{self.root} holds another archive: {_words(manifest['asked'])}.",
                hint="Use another folder.",
            )
        return _archived(manifest, is_new=False)

    def clear(self) -> Path:
        """Create the folder for rows; delete what an interrupted archive has left.

        Raises:
            Conflict: The folder holds something else.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        others = {one.name for one in self.root.iterdir()} - {ROWS, _FRESH}
        if others:
            raise Conflict(
                f"{self.root} is not an archive: it contains {min(others)}.",
                hint="Use a folder that is empty or does not exist.",
            )
        place = self.root / ROWS
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        return place

    def publish(self, asked: Mapping[str, Any], period: Period) -> Archived:
        """Flush the files to disk and write the manifest."""
        for left in (self.root / ROWS).glob(f"*{_UNFINISHED}"):
            left.unlink()  # of a task that was killed and repeated
        files = [_entry_of(file) for file in _files(self.root)]
        manifest = {
            "archive": VERSION,
            "asked": asked,
            "since_us": period.since_us,
            "until_us": period.until_us,
            "columns": _COLUMNS,
            "rows": sum(one["rows"] for one in files),
            "files": files,
        }
        flush(self.root / ROWS)
        with (self.root / _FRESH).open("w", encoding="utf-8") as file:
            json.dump(manifest, file, sort_keys=True, indent=1)
            file.flush()
            os.fsync(file.fileno())
        (self.root / _FRESH).replace(self.root / _MANIFEST)
        flush(self.root)
        return _archived(manifest, is_new=True)

    def rows(self) -> list[Path]:
        """Return its files of rows.

        Raises:
            NotFound: There is no archive, or it is incomplete.
        """
        manifest = self.manifest()
        if manifest is None:
            raise NotFound(
                f"{self.root} holds no complete archive.",
                hint="Make it with `dueline pipeline archive`; see `pipeline verify --archive`.",
            )
        return [self.root / ROWS / entry["name"] for entry in manifest["files"]]

    def verify(self, say: Callable[[str], None]) -> list[Check]:
        """Compare each file with the manifest.

        Raises:
            NotFound: There is no such folder.
        """
        if not self.root.is_dir():
            raise NotFound(
                f"There is no archive {self.root}.", hint="Pass the folder of an archive."
            )
        manifest = self.manifest()
        if manifest is None:
            words = "there is no manifest: the archive is incomplete, make it again"
            return [Check("archive is whole", is_good=False, finding=words)]
        checks = [_columns_check(manifest["columns"])]
        for number, entry in enumerate(manifest["files"], 1):
            checks.append(_file_check(self.root / ROWS / entry["name"], entry))
            say(f"verify: {number} of {len(manifest['files'])} files")
        strangers = {one.name for one in _files(self.root)}
        strangers -= {entry["name"] for entry in manifest["files"]}
        words = f"{len(strangers)} file(s) that are not in the manifest: {sorted(strangers)[:3]}"
        if strangers:
            checks.append(Check("no other files", is_good=False, finding=words))
        rows = sum(entry["rows"] for entry in manifest["files"])
        words = f"{rows:,} rows in {len(manifest['files'])} file(s), {manifest['rows']:,} in all"
        checks.append(Check("archive is whole", rows == manifest["rows"], words))
        return checks


def asked_of(
    queues: Sequence[str], since_us: int | None, until_us: int | None
) -> Mapping[str, Any]:
    """Return the request of an archive, as its manifest stores it."""
    return {"queues": sorted(set(queues)), "since_us": since_us, "until_us": until_us}


def put(files: Sequence[Path], period: Period, place: Path, number: int) -> None:
    """Write the rows of a period from some files, sorted; write nothing if there are none.

    A file has about `ROWS_MAX` rows at most, and gets its name when it is complete. Its bytes are
    the same each time, so Spark may repeat a task, or run it twice at once.
    """
    for count, rows in enumerate(_tables(files, period)):
        table = rows.sort_by([(name, "ascending") for name in ORDER])
        unfinished = place / f"{token_hex(8)}{_UNFINISHED}"
        parquet.write_table(table, unfinished)
        unfinished.replace(place / f"part-{number:06}-{count:03}.parquet")


def _tables(files: Sequence[Path], period: Period) -> Iterator[pa.Table]:
    """Yield the rows of a period, in tables of the size of one file."""
    some: list[pa.RecordBatch] = []
    count = 0
    for file in files:
        for batch in parquet.ParquetFile(file).iter_batches(_PAGE):
            inside = batch.filter(_in(batch, period))
            some.append(shaped(inside, BRONZE_SHAPE))
            count += inside.num_rows
            if count >= ROWS_MAX:
                yield pa.Table.from_batches(some)
                some, count = [], 0
    if count:
        yield pa.Table.from_batches(some)


def _in(batch: pa.RecordBatch, period: Period) -> pa.Array:
    """Return which rows are in a period."""
    at_us = batch.column("at").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    late = compute.greater_equal(at_us, period.since_us)
    found = compute.and_(late, compute.less(at_us, period.until_us))
    if not period.queues:
        return found
    names = pa.array(list(period.queues), pa.string())
    return compute.and_(found, compute.is_in(batch.column("queue"), names))


def _files(root: Path) -> list[Path]:
    return sorted((root / ROWS).glob("*.parquet"))


def _entry_of(file: Path) -> Mapping[str, Any]:
    """Return the manifest's entry of a file, after flushing it to disk."""
    flush(file)
    table = parquet.ParquetFile(file).read(columns=list(ORDER))
    table = table.set_column(ORDER.index("at"), "at", table.column("at").cast(pa.int64()))
    ends = table.group_by(["queue", "shard"], use_threads=False).aggregate(
        [("at", "first"), ("id", "first"), ("at", "last"), ("id", "last"), ("id", "count")]
    )
    ranges = [
        {
            "queue": one["queue"],
            "shard": one["shard"],
            "rows": one["id_count"],
            "first": [one["at_first"], one["id_first"]],
            "last": [one["at_last"], one["id_last"]],
        }
        for one in ends.to_pylist()
    ]
    return {
        "name": file.name,
        "rows": table.num_rows,
        "bytes": file.stat().st_size,
        "sha256": _digest(file),
        "ranges": ranges,
    }


def _columns_check(columns: Mapping[str, str]) -> Check:
    other = {name for name, kind in columns.items() if _COLUMNS.get(name) != kind}
    other |= {name for name in _COLUMNS if name not in columns} - _LATER
    words = f"other columns than here: {', '.join(sorted(other))}" if other else "those of bronze"
    return Check("columns are known", not other, words)


def _file_check(file: Path, entry: Mapping[str, Any]) -> Check:
    name = f"{ROWS}/{file.name}"
    if not file.is_file():
        return Check(name, is_good=False, finding="it is missing")
    size = file.stat().st_size
    if size != entry["bytes"]:
        words = f"it is damaged: {size:,} bytes, {entry['bytes']:,} in the manifest"
        return Check(name, is_good=False, finding=words)
    if _digest(file) != entry["sha256"]:
        return Check(name, is_good=False, finding="it is damaged: its digest differs")
    return Check(name, is_good=True, finding=f"{entry['rows']:,} rows")


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _archived(manifest: Mapping[str, Any], *, is_new: bool) -> Archived:
    return Archived(
        len(manifest["files"]), manifest["rows"], manifest["since_us"], manifest["until_us"], is_new
    )


def _words(asked: Mapping[str, Any]) -> str:
    queues = ", ".join(asked["queues"]) or "all queues"
    return f"{queues}, since {asked['since_us']}, until {asked['until_us']}"
