"""The folder of a pipeline, its manifests.

A table is Parquet files, and a manifest that names the parts which count. A step writes files
beside those that count, and then puts another manifest in place of the old one, in one rename:
whoever reads sees a step whole or not at all, and a step that died is done again.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute, parquet

from dueline.core.errors import BadInput, Conflict, NotFound, StoreCorrupt

BRONZE: Final = "bronze"
SILVER: Final = "silver"
GOLD: Final = ("gold_minute", "gold_lateness", "gold_run")
"""Tables in parts of a day."""

WHOLE: Final = ("flow", "slo", "fairness", "suspicious", "poison")
"""Tables that are made anew in each run."""

VERSION: Final = 3
READ: Final = (2, VERSION)
"""Versions of manifests that are read. In silver and gold of version 2 all runs of a job id were
one; a run of the pipeline makes them anew of bronze, which is the same in both."""

_MANIFEST: Final = "manifest.json"
_LOCK: Final = ".lock"
_ROWS: Final = 50_000


@dataclass(frozen=True, slots=True)
class Manifest:
    """What counts in a table.

    parts: folders below the table's, by name: a day (silver, gold), or a batch (bronze). done:
    the last bronze batch that is in it. offsets: how far the store was read (arrow's bronze).
    facts: of each part: rows, and the first and last instant. since_us, until_us: of bronze, the
    period that is copied; 0 for from the beginning, and for without an end. begins: from when on
    the history of each queue is whole in it.
    """

    version: int = VERSION
    engine: str = ""
    done: int = -1
    parts: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    offsets: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    since_us: int = 0
    until_us: int = 0
    begins: Mapping[str, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Count its rows."""
        return sum(one["rows"] for one in self.facts.values())


class Folder:
    """A folder of tables."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    def path(self, table: str, part: str = "") -> Path:
        """Tell where a table, or a part of it, lies."""
        return self.root / table / part

    def manifest(self, table: str) -> Manifest:
        """Read what counts in a table; nothing where there is none yet.

        Raises: StoreCorrupt: it is of another version.
        """
        try:
            read = json.loads((self.path(table) / _MANIFEST).read_bytes())
        except FileNotFoundError:
            return Manifest()
        if read.get("version") not in READ:
            raise StoreCorrupt(
                f"{self.path(table)} was made by another version ({read.get('version')}).",
                hint="Make the tables anew, in another folder.",
            )
        return Manifest(**read)

    def current(self, table: str) -> Manifest:
        """Return what counts in a table; nothing where its rows have the keys of version 2."""
        found = self.manifest(table)
        return found if found.version == VERSION else Manifest()

    def publish(self, table: str, manifest: Manifest) -> None:
        """Let other parts count, then let go of what neither this nor the last manifest names."""
        before = self.manifest(table)
        place = self.path(table) / _MANIFEST
        place.parent.mkdir(parents=True, exist_ok=True)
        fresh = place.with_suffix(".new")
        with fresh.open("w", encoding="utf-8") as file:
            json.dump(asdict(replace(manifest, version=VERSION)), file, sort_keys=True, indent=1)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(place)
        self._drop(table, {*before.parts.values(), *manifest.parts.values()})

    def sweep(self, table: str) -> None:
        """Let go of what does not count any more, also of what counted last."""
        self._drop(table, self.manifest(table).parts.values())

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only process that writes here, for as long as the block lasts.

        Raises: Conflict: another process does.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / _LOCK).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # goes with its process
            except BlockingIOError as error:
                raise Conflict(
                    f"Another process writes to the tables in {self.root}.",
                    hint="Wait until it has ended, or give another folder with --out.",
                ) from error
            yield

    def _drop(self, table: str, kept: Collection[str]) -> None:
        """Remove the folders of parts that do not count; Spark's days lie in one of their own."""
        tops = {part.partition("/")[0] for part in kept}
        for top in self.path(table).iterdir():
            if top.is_dir() and top.name not in tops:
                shutil.rmtree(top)

    def other(self, table: str) -> str:
        """Name a place for a table that is made anew: another than the one that counts."""
        return "b" if self.manifest(table).parts.get("all") == "a" else "a"

    def files(self, table: str, parts: Collection[str] | None = None) -> list[Path]:
        """Name the files of a table's parts; of all of them by default."""
        named = self.manifest(table).parts
        return [
            file
            for name, part in sorted(named.items())
            if parts is None or name in parts
            for file in sorted(self.path(table, part).glob("*.parquet"))
        ]

    def touched(self, since_us: int, until_us: int) -> list[str]:
        """Name the parts of bronze that may hold rows of a period."""
        return [
            part
            for part, facts in sorted(self.manifest(BRONZE).facts.items())
            if facts["first_us"] < until_us and facts["last_us"] >= since_us
        ]

    def need(self, table: str) -> None:
        """See that a table was made.

        Raises: NotFound: it never was.
        """
        if not (self.path(table) / _MANIFEST).is_file():
            raise NotFound(
                f"There is no table {table} in {self.root}.",
                hint="Make it with `dueline pipeline run`.",
            )

    def read(
        self,
        table: str,
        parts: Collection[str] | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table | None:
        """Read a table, or some parts of it; None where it has no rows.

        Raises: NotFound: it was never made.
        """
        self.need(table)
        names = None if columns is None else list(columns)
        found = [parquet.ParquetFile(file).read(columns=names) for file in self.files(table, parts)]
        found = [one for one in found if one.num_rows]
        return pa.concat_tables(found, promote_options="permissive") if found else None

    def batches(self, table: str, parts: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Read a table's rows some at a time."""
        for file in self.files(table, parts):
            yield from parquet.ParquetFile(file).iter_batches(_ROWS)

    def extent(self, table: str, part: str) -> tuple[int, int, int]:
        """Tell how many rows the files of a part hold, and their first and last `at`, if any."""
        rows, instants = 0, []
        for file in self.path(table, part).glob("*.parquet"):
            opened = parquet.ParquetFile(file)
            rows += opened.metadata.num_rows
            if opened.metadata.num_rows and "at" in opened.schema_arrow.names:
                column = opened.read(columns=["at"]).column("at")
                bounds = compute.min_max(column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()))
                instants += [bounds["min"].as_py(), bounds["max"].as_py()]
        return rows, min(instants, default=0), max(instants, default=0)

    def own(self, engine: str) -> None:
        """Let an engine go on here.

        Raises: BadInput: another engine has begun here, and counts offsets in another way.
        """
        before = self.manifest(BRONZE).engine
        if before and before != engine:
            raise BadInput(
                f"The tables in {self.root} are made by the engine {before}.",
                hint=f"Say --engine {before}, or another folder.",
            )


def name_of(done: int) -> str:
    """Name the parts of a step, by the last part of bronze in it, unlike those of version 2."""
    return f"{done:06}-v{VERSION}"


def flush(path: Path) -> None:
    """See that a file, or the names in a folder, outlast a loss of power."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
