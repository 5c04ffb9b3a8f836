"""Tables in the Delta format, in a folder or an object store.

Files are written first, by any process; then the driver commits them in one transaction. Positions
(application transactions of Delta) are committed with the files that they describe. So a commit
that is repeated is refused, and of two processes that move one position only one succeeds.
"""

import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, NamedTuple

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import compute, fs, parquet

from dueline.core.clock import to_datetime
from dueline.core.errors import Conflict, DuelineError, LakeCorrupt, LakeUnavailable, NotFound
from dueline.spark.pipeline.queries import Files

VERSION: Final = 1
"""Version of the columns of our tables."""

ROWS_MAX: Final = 250_000
"""Maximum number of rows in a file that is written; about 300 bytes each in memory."""

DAY: Final = "day"
_VERSION: Final = "dueline.version"
_NAME: Final = "dueline.table"
_GROUP_ROWS: Final = 32_768
"""Rows in a row group, by whose statistics readers skip."""

_PROPERTIES: Final = {
    "delta.checkpointInterval": "10",
    "delta.logRetentionDuration": "interval 30 days",
    "delta.deletedFileRetentionDuration": "interval 7 days",
}
_PIECE: Final = 1 << 22
"""Number of bytes that are written to an object store at once."""

_IS_CHANGE: Final = True
_LOG: Final = "_delta_log"
_CARE: Final = "dueline.care"
"""Property that is set to make other writers fail which have opened the table before."""

SLACK_US: Final = 1000
"""Other writers round the timestamps of statistics to milliseconds."""

CAUSES: Final = 2
"""Number of causes that an error names: the last ones."""

_COLOUR: Final = re.compile("\x1b\\[[0-9;]*m")
_FRAMES: Final = re.compile(r"\n +\d+: .*", re.DOTALL)
"""The stack of a library of Rust, which follows some errors."""

_MESSAGE: Final = re.compile(r"<\?xml.*<Message>(.*?)</Message>.*", re.DOTALL)
"""The answer of an object store."""

_FILE: Final = re.compile(r"[^\s'\"]+\.parquet")

INSTANT_TYPE: Final = pa.timestamp("us", "UTC")


class Place(NamedTuple):
    """A folder of tables, or the address of one in an object store.

    Attributes:
        root: A path, or an address such as s3://bucket/lake.
        options: Storage options of the object store; they may hold secrets.
    """

    root: str
    options: Mapping[str, str] = {}

    def __repr__(self) -> str:
        """Return its address, without the options."""
        return f"Place({self.root!r})"

    @property
    def is_local(self) -> bool:
        """Return whether it is a folder."""
        return "://" not in self.root

    def below(self, name: str) -> "Place":
        """Return the place of a table."""
        return self._replace(root=f"{self.root.rstrip('/')}/{name}")

    def open(self) -> fs.FileSystem:
        """Return the file system of the place; paths are relative to it."""
        if self.is_local:
            return fs.SubTreeFileSystem(str(Path(self.root).absolute()), fs.LocalFileSystem())
        handler = DeltaStorageHandler(self.root, dict(self.options))
        return fs.PyFileSystem(handler)


def place_of(address: str, options: Mapping[str, str] | None = None) -> Place:
    """Return the place of an address; local paths become absolute."""
    root = address if "://" in address else str(Path(address).absolute())
    return Place(root, dict(options or {}))


class Design(NamedTuple):
    """What a table looks like.

    Attributes:
        name: Name of the table.
        shape: Its columns; `day`, if there is one, is the partition.
        order: The columns by which the rows of a file are sorted.
        ranged: The columns of which the log keeps the least and the greatest value in each file.
        instant: The column whose day, in UTC, is the partition.
    """

    name: str
    shape: pa.Schema
    order: Sequence[str]
    ranged: Sequence[str]
    instant: str = ""

    @property
    def partitions(self) -> list[str]:
        """Return the partition columns."""
        return [DAY] if self.instant else []

    @property
    def inside(self) -> pa.Schema:
        """Return the columns that a file holds."""
        return pa.schema([field for field in self.shape if field.name != DAY])


class File(NamedTuple):
    """A file of a table: its path, size, partition, and statistics in the format of the log."""

    path: str
    size: int
    day: str | None
    rows: int
    lows: Mapping[str, Any]
    highs: Mapping[str, Any]

    def may_hold(self, name: str, low: Any, high: Any) -> bool:  # noqa: ANN401  (of any kind)
        """Return whether a column may have values between two, both included."""
        least, most = self.lows.get(name), self.highs.get(name)
        if least is None or most is None:
            return True
        if isinstance(least, int):
            return bool(least - SLACK_US <= high and low <= most + SLACK_US)
        return bool(least <= high and low <= most)


class Writer(NamedTuple):
    """Writes files of a table, in any process; nothing is visible before they are committed."""

    place: Place
    design: Design

    def write(self, rows: pa.Table) -> list[File]:
        """Write rows to files: one or more for each day, sorted.

        Raises:
            LakeUnavailable: The place cannot be written to, for instance because the disk is full.
        """
        if not rows.num_rows:
            return []
        rows = shaped(rows, self.design.inside)
        with _errors(self.place, self.design.name):
            files = self.place.open()
            if not self.design.instant:
                return list(self._files(files, rows, None))
            days = days_of(rows.column(self.design.instant))
            names = compute.unique(days).to_pylist()
            if len(names) == 1:
                return list(self._files(files, rows, str(names[0])))
            return [
                file
                for name in sorted(names)
                for file in self._files(files, rows.filter(compute.equal(days, name)), str(name))
            ]

    def _files(self, files: fs.FileSystem, rows: pa.Table, day: str | None) -> Iterator[File]:
        rows = rows.sort_by([(name, "ascending") for name in self.design.order])
        folder = "" if day is None else f"{DAY}={day}/"
        if folder and self.place.is_local:
            files.create_dir(folder)
        for start in range(0, rows.num_rows, ROWS_MAX):
            part = rows.slice(start, ROWS_MAX)
            written = pa.BufferOutputStream()
            parquet.write_table(part, written, compression="zstd", row_group_size=_GROUP_ROWS)
            body = written.getvalue()
            path = f"{folder}part-{token_hex(8)}-{digest_of(body)}.parquet"
            if self.place.is_local:
                Path(self.place.root).mkdir(parents=True, exist_ok=True)
            with files.open_output_stream(path, buffer_size=2 * _PIECE) as out:
                for place in range(0, body.size, _PIECE):  # delta-rs takes no larger buffers
                    out.write(body.slice(place, min(_PIECE, body.size - place)))
            if self.place.is_local:
                _flush(Path(self.place.root, path))
            lows, highs = {}, {}
            for name in self.design.ranged:
                ends = compute.min_max(_plain(part.column(name))).as_py()
                if ends["min"] is not None:
                    lows[name], highs[name] = ends["min"], ends["max"]
            yield File(path, body.size, day, part.num_rows, lows, highs)


class Table:
    """A table of ours; it is read as of when it was opened or last committed to."""

    def __init__(self, place: Place, design: Design) -> None:
        self.place = place
        self.design = design
        self._opened: DeltaTable | None = None

    @property
    def writer(self) -> Writer:
        """Return what writes its files."""
        return Writer(self.place, self.design)

    def exists(self) -> bool:
        """Return whether the table exists.

        Raises:
            LakeCorrupt: It is another program's or a newer version's, or lacks a column.
        """
        try:
            self.delta()
        except NotFound:
            return False
        return True

    def delta(self) -> DeltaTable:
        """Return the opened table.

        Raises:
            NotFound: It does not exist.
            LakeCorrupt: It is another program's or a newer version's, or lacks a column.
            LakeUnavailable: The place cannot be read.
        """
        if self._opened is None:
            with _errors(self.place, self.design.name):
                opened = DeltaTable(self.place.root, storage_options=self._options())
            self._check(opened)
            self._opened = opened
        return self._opened

    def refresh(self) -> None:
        """Read the table anew when it is next used."""
        self._opened = None

    def create(self, properties: Mapping[str, str] | None = None) -> None:
        """Create the table, unless it exists.

        Args:
            properties: Further properties.
        """
        if self.exists():
            return
        ours = {_VERSION: str(VERSION), _NAME: self.design.name}
        names = ",".join([*self.design.partitions, *self.design.ranged])
        with _errors(self.place, self.design.name):
            if self.place.is_local:
                Path(self.place.root).mkdir(parents=True, exist_ok=True)
            DeltaTable.create(
                self.place.root,
                Schema.from_arrow(self.design.shape),
                mode="ignore",
                partition_by=self.design.partitions or None,
                name=self.design.name,
                configuration=_PROPERTIES
                | {"delta.dataSkippingStatsColumns": names}
                | ours
                | dict(properties or {}),
                storage_options=self._options(),
                raise_if_key_not_exists=False,
            )
        self.refresh()

    def property(self, name: str) -> str:
        """Return a property; empty if the table or the property does not exist."""
        if not self.exists():
            return ""
        return str(self.delta().metadata().configuration.get(name) or "")

    def position(self, name: str) -> int | None:
        """Return a position; None if it or the table does not exist."""
        if not self.exists():
            return None
        position: int | None = self.delta().transaction_version(name)
        return position

    def commit(
        self,
        added: Sequence[File] = (),
        removed: Sequence[File] = (),
        positions: Mapping[str, int] | None = None,
    ) -> None:
        """Add and remove files and move positions, all or nothing.

        Raises:
            Conflict: Another process has moved one of the positions, or removed one of the files,
                since the table was opened.
        """
        delta = self.delta()
        now_ms = time.time_ns() // 1_000_000
        actions: list[AddAction | RemoveAction] = [
            AddAction(file.path, file.size, _values(file), now_ms, _IS_CHANGE, self._stats(file))
            for file in added
        ]
        actions += [
            RemoveAction(file.path, _IS_CHANGE, now_ms, file.size, _values(file))
            for file in removed
        ]
        marks = [Transaction(name, at) for name, at in sorted((positions or {}).items())]
        with _errors(self.place, self.design.name):
            delta.create_write_transaction(
                actions,
                "append",
                delta.schema(),
                partition_by=self.design.partitions or None,
                commit_properties=CommitProperties(app_transactions=marks, max_commit_retries=3),
                post_commithook_properties=PostCommitHookProperties(),
            )
            delta.update_incremental()  # costs less than to open it again
        if self.place.is_local:
            log = Path(self.place.root, _LOG)
            _flush(log / f"{delta.version():020}.json")
            _flush(log)

    def files(self, where: compute.Expression | None = None) -> list[File]:
        """Return the current files.

        Args:
            where: A condition on columns such as `num_records`, `min.at` and `partition.day`.
        """
        if not self.exists():
            return []
        # Not by pa.table, which imports pandas.
        added = self.delta().get_add_actions(flatten=True)
        actions = pa.RecordBatchReader.from_stream(added).read_all()
        if where is not None:
            actions = actions.filter(where)
        columns = {name: _plain(actions.column(name)).to_pylist() for name in actions.column_names}
        none = [None] * actions.num_rows
        days = columns.get(f"partition.{DAY}", none)
        ranged = self.design.ranged
        lows = [columns.get(f"min.{name}", none) for name in ranged]
        highs = [columns.get(f"max.{name}", none) for name in ranged]
        return [
            File(
                path, size, None if day is None else str(day), rows,
                {name: low[row] for name, low in zip(ranged, lows, strict=True)},
                {name: high[row] for name, high in zip(ranged, highs, strict=True)},
            )
            for row, (path, size, day, rows) in enumerate(
                zip(columns["path"], columns["size_bytes"], days, columns["num_records"],
                    strict=True)
            )
        ]  # fmt: skip

    def newer(self, batch: int) -> list[File]:
        """Return the files that hold rows of later batches, and maybe of earlier ones, too."""
        latest = compute.field("max.batch")
        return self.files(latest.is_null() | (latest > batch))

    def view(self, files: Iterable[File] | None = None) -> Files:
        """Return files as a view for queries; all of the table's by default."""
        paths = [file.path for file in (self.files() if files is None else files)]
        if self.place.is_local:
            paths = [str(Path(self.place.root, path)) for path in paths]
            return Files(paths, self.design.shape, self.place.root)
        return Files(paths, self.design.shape, "", self.place)

    def rows(self) -> int:
        """Return the number of rows."""
        if not self.exists():
            return 0
        counts = pa.table(self.delta().get_add_actions(flatten=True)).column("num_records")
        return int(compute.sum(counts).as_py() or 0)

    def optimize(self) -> Mapping[str, int]:
        """Merge small files; no row changes."""
        with _errors(self.place, self.design.name):
            metrics = self.delta().optimize.compact()
        self.refresh()
        return {"files_before": metrics["numFilesRemoved"], "files": metrics["numFilesAdded"]}

    def vacuum(self, retention_hours: int, *, dry_run: bool = False) -> list[str]:
        """Delete files that the table does not name, older than a number of hours."""
        with _errors(self.place, self.design.name):
            paths = self.delta().vacuum(
                retention_hours, dry_run=dry_run, enforce_retention_duration=False, full=True
            )
        self.refresh()
        return list(paths)

    def delete_unnamed(self) -> int:
        """Delete all files that the table does not name now; return their number.

        Nobody can name them any more: who has opened the table before fails to commit to it.
        """
        chosen = fs.FileSelector("", recursive=True)
        with _errors(self.place, self.design.name):
            system = self.place.open()
            infos = system.get_file_info(chosen)
            mark = {_CARE: str(time.time_ns())}
            self.delta().alter.set_table_properties(mark, raise_if_not_exists=False)
            self.refresh()
            named = {file.path for file in self.files()}
            unnamed = [
                info.path for info in infos
                if info.type == fs.FileType.File and not info.path.lstrip("/").startswith(_LOG)
                and info.path.lstrip("/") not in named
            ]  # fmt: skip
            for path in unnamed:
                system.delete_file(path)
        return len(unnamed)

    def _options(self) -> dict[str, str] | None:
        return dict(self.place.options) or None

    def _stats(self, file: File) -> str:
        """Return statistics in the format of Delta's log."""

        def written(name: str, value: Any) -> Any:  # noqa: ANN401  (of any kind)
            if pa.types.is_timestamp(self.design.shape.field(name).type):
                moment = to_datetime(value).isoformat(timespec="microseconds")
                return moment.replace("+00:00", "Z")
            return value

        least = {name: written(name, value) for name, value in file.lows.items()}
        most = {name: written(name, value) for name, value in file.highs.items()}
        return json.dumps({"numRecords": file.rows, "minValues": least, "maxValues": most,
                           "nullCount": {}})  # fmt: skip

    def _check(self, opened: DeltaTable) -> None:
        """Check that a table is ours, and one that this version reads."""
        where = f"{self.place.root}"
        configuration = opened.metadata().configuration
        version = configuration.get(_VERSION)
        if version is None or configuration.get(_NAME) != self.design.name:
            raise LakeCorrupt(
                f"{where} is not dueline's table {self.design.name}: another program wrote it.",
                hint="Use another folder.",
            )
        if int(version) > VERSION:
            raise LakeCorrupt(
                f"{where} was made by a newer version of dueline ({version}).",
                hint="Upgrade dueline.",
            )
        kinds = {field.name: field.type for field in pa.schema(opened.schema().to_arrow())}
        for field in self.design.shape:
            kind = kinds.get(field.name)
            if kind is None:
                raise LakeCorrupt(
                    f"{where} has no column {field.name}.",
                    hint="Restore it, or make the table again in another folder.",
                )
            if kind != field.type:
                raise LakeCorrupt(
                    f"The column {field.name} of {where} is {kind}, not {field.type}.",
                    hint="Restore it, or make the table again in another folder.",
                )


def digest_of(body: Any) -> str:  # noqa: ANN401  (bytes of any kind)
    """Return the digest of a file, which is in its name."""
    return sha256(body).hexdigest()[:32]


def shaped(rows: pa.Table, shape: pa.Schema) -> pa.Table:
    """Return rows in a shape."""
    return rows.select(shape.names).cast(shape)


def days_of(instants: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the days of timestamps, in UTC."""
    return instants.cast(INSTANT_TYPE).cast(pa.timestamp("us")).cast(pa.date32(), safe=False)


@contextmanager
def _errors(place: Place, name: str) -> Iterator[None]:
    """Raise our errors instead of deltalake's, in one sentence, without storage options."""
    try:
        yield
    except DuelineError:
        raise
    except TableNotFoundError as error:
        raise NotFound(
            f"There is no table {name} in {place.root.removesuffix('/' + name)}.",
            hint=f"Make it with `dueline pipeline {'archive' if name == 'archive' else 'run'}`.",
        ) from error
    except CommitFailedError as error:
        raise Conflict(
            f"Another process wrote to {place.root} at the same time; nothing of this was written.",
            hint="Run it again: it goes on where the other ended.",
        ) from error
    except (DeltaError, OSError) as error:
        raise LakeUnavailable(
            f"{place.root} cannot be used: {_sentence(error, place)}",
            hint="Check the address, the rights, and --storage-options.",
        ) from error


def _sentence(error: Exception, place: Place) -> str:
    """Return the last causes in an error's text, without the values of options."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = _MESSAGE.sub(r"\1", _COLOUR.sub("", str(error)))
    lines = [line.strip() for line in _FRAMES.sub("", text).split("↳")]
    text = ": ".join(" ".join(line.split()) for line in lines[-CAUSES:] if line)
    for value in place.options.values():
        if len(value) > 3:  # noqa: PLR2004  (shorter ones are flags)
            text = text.replace(value, "***")
    return text[:500]


def _query_error() -> type[Exception]:
    """Return the class of DuckDB's errors, which only a run that queries has imported."""
    import duckdb  # noqa: PLC0415  (see above)

    error: type[Exception] = duckdb.Error
    return error


@contextmanager
def damage_named() -> Iterator[None]:
    """Raise `LakeCorrupt` where a file of a table is missing or damaged."""
    try:
        yield
    except (pa.ArrowInvalid, FileNotFoundError, _query_error()) as error:
        match = _FILE.search(str(error))
        if match is None:
            raise
        state = "missing" if isinstance(error, FileNotFoundError) else "damaged"
        raise LakeCorrupt(
            f"The file {match[0]} of a table is {state}.",
            hint="Restore it. Or, unless it is one of bronze or of an archive, delete the folder"
            " of the table: the next `dueline pipeline run` makes the table again.",
        ) from error


def _values(file: File) -> dict[str, str | None]:
    return {} if file.day is None else {DAY: file.day}


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return timestamps as numbers."""
    if pa.types.is_timestamp(column.type):
        return column.cast(INSTANT_TYPE).cast(pa.int64())
    return column


def _flush(path: Path) -> None:
    """Flush a file, or the names in a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
