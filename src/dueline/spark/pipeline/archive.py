"""A history that is kept elsewhere.

A folder of Parquet files and a manifest, which says of each file how many rows it has, its digest,
and between which positions they lie. The manifest is written last, in one rename: a folder without
one is of an archive that was cut off, and is made anew.
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
"""In which order the rows of a file lie."""

ROWS_MAX: Final = 1_000_000
"""Of one file: they are sorted in memory, some 300 bytes a row."""

_PAGE: Final = 50_000
_UNFINISHED: Final = ".unfinished"
_MANIFEST: Final = "manifest.json"
_FRESH: Final = "manifest.new"
_COLUMNS: Final = {field.name: str(field.type) for field in BRONZE_SHAPE}
_LATER: Final = {"codec", "payload_bytes", "payload", "digest"}
"""Archives that were made before have none of these."""


class Period(NamedTuple):
    """Which rows of a history: of some queues, all where there is none; `until_us` is no more."""

    queues: Sequence[str]
    since_us: int
    until_us: int


class Archived(NamedTuple):
    """What an archive holds. is_new: it was written just now."""

    files: int
    rows: int
    since_us: int
    until_us: int
    is_new: bool


class Check(NamedTuple):
    """What a look at tables or files says. is_good: they hold what they should."""

    name: str
    is_good: bool
    finding: str


class Archive:
    """A folder that holds one archive, or is to hold one."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    def manifest(self) -> Mapping[str, Any] | None:
        """Read what the archive holds; None where it is not whole, or not there.

        Raises: StoreCorrupt: another version wrote it, or it is no manifest of an archive.
        """
        try:
            read = json.loads((self.root / _MANIFEST).read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError:
            read = None
        if not isinstance(read, dict) or read.get("archive") != VERSION:
            raise StoreCorrupt(
                f"{self.root / _MANIFEST} is no manifest of an archive of version {VERSION}.",
                hint="Is this the folder of the archive, and not that of the tables?",
            )
        return read

    def held(self, asked: Mapping[str, Any]) -> Archived | None:
        """Tell what the archive holds, if it is whole and of what is asked for.

        Raises: Conflict: it is of something else.
        """
        manifest = self.manifest()
        if manifest is None:
            return None
        if manifest["asked"] != asked:
            raise Conflict(
                f"{self.root} holds another archive: {_words(manifest['asked'])}.",
                hint="Give another folder.",
            )
        return _archived(manifest, is_new=False)

    def clear(self) -> Path:
        """Make the place for rows, without what an archive that was cut off has left in it.

        Raises: Conflict: something else lies in the folder.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        others = {one.name for one in self.root.iterdir()} - {ROWS, _FRESH}
        if others:
            raise Conflict(
                f"{self.root} is no archive, and holds {min(others)}.",
                hint="Give a folder that is empty, or not there.",
            )
        place = self.root / ROWS
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        return place

    def publish(self, asked: Mapping[str, Any], period: Period) -> Archived:
        """Write the manifest of the files that lie there now, once they are on the disk."""
        for left in (self.root / ROWS).glob(f"*{_UNFINISHED}"):
            left.unlink()  # by a task that was killed, and has been repeated
        files = [_told(file) for file in _files(self.root)]
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
        """Name its files of rows.

        Raises: NotFound: there is no archive, or it is not whole.
        """
        manifest = self.manifest()
        if manifest is None:
            raise NotFound(
                f"{self.root} holds no whole archive.",
                hint="Make it with `dueline pipeline archive`; see `pipeline verify --archive`.",
            )
        return [self.root / ROWS / told["name"] for told in manifest["files"]]

    def verify(self, say: Callable[[str], None]) -> list[Check]:
        """Compare each file with what the manifest says of it.

        Raises: NotFound: there is no such folder.
        """
        if not self.root.is_dir():
            raise NotFound(f"There is no archive {self.root}.", hint="Give the folder of one.")
        manifest = self.manifest()
        if manifest is None:
            words = "there is no manifest: it was cut off, make it again"
            return [Check("archive is whole", is_good=False, finding=words)]
        checks = [_columns_check(manifest["columns"])]
        for number, told in enumerate(manifest["files"], 1):
            checks.append(_file_check(self.root / ROWS / told["name"], told))
            say(f"verify: {number} of {len(manifest['files'])} files")
        strangers = {one.name for one in _files(self.root)}
        strangers -= {told["name"] for told in manifest["files"]}
        words = f"{len(strangers)} file(s) that the manifest does not name: {sorted(strangers)[:3]}"
        if strangers:
            checks.append(Check("nothing else lies there", is_good=False, finding=words))
        rows = sum(told["rows"] for told in manifest["files"])
        words = f"{rows:,} rows in {len(manifest['files'])} file(s), {manifest['rows']:,} in all"
        checks.append(Check("archive is whole", rows == manifest["rows"], words))
        return checks


def asked_of(
    queues: Sequence[str], since_us: int | None, until_us: int | None
) -> Mapping[str, Any]:
    """Write down what an archive is asked to hold, as its manifest says it."""
    return {"queues": sorted(set(queues)), "since_us": since_us, "until_us": until_us}


def put(files: Sequence[Path], period: Period, place: Path, number: int) -> None:
    """Write those rows of some files that lie in a period, in their order; none where none do.

    A file that is written has about `ROWS_MAX` rows at most, and its name once it is whole; its
    bytes are the same each time, so that a task of Spark's may be repeated, or run twice at once.
    """
    for count, rows in enumerate(_tables(files, period)):
        table = rows.sort_by([(name, "ascending") for name in ORDER])
        unfinished = place / f"{token_hex(8)}{_UNFINISHED}"
        parquet.write_table(table, unfinished)
        unfinished.replace(place / f"part-{number:06}-{count:03}.parquet")


def _tables(files: Sequence[Path], period: Period) -> Iterator[pa.Table]:
    """Read the rows of a period, as many at a time as one file is to have."""
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
    """Tell which rows lie in a period."""
    at_us = batch.column("at").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    late = compute.greater_equal(at_us, period.since_us)
    found = compute.and_(late, compute.less(at_us, period.until_us))
    if not period.queues:
        return found
    names = pa.array(list(period.queues), pa.string())
    return compute.and_(found, compute.is_in(batch.column("queue"), names))


def _files(root: Path) -> list[Path]:
    return sorted((root / ROWS).glob("*.parquet"))


def _told(file: Path) -> Mapping[str, Any]:
    """Say of a file what the manifest has to; what is said of is on the disk."""
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


def _file_check(file: Path, told: Mapping[str, Any]) -> Check:
    name = f"{ROWS}/{file.name}"
    if not file.is_file():
        return Check(name, is_good=False, finding="it is missing")
    size = file.stat().st_size
    if size != told["bytes"]:
        words = f"it is damaged: {size:,} bytes, {told['bytes']:,} in the manifest"
        return Check(name, is_good=False, finding=words)
    if _digest(file) != told["sha256"]:
        return Check(name, is_good=False, finding="it is damaged: its digest is another")
    return Check(name, is_good=True, finding=f"{told['rows']:,} rows")


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
