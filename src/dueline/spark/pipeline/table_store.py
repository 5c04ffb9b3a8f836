"""The folder of a pipeline's tables, and their manifests.

A table is Parquet files and a manifest that names its current parts. A step writes new files, then
replaces the manifest in one rename. Readers see a step completely or not at all, and a step that
died is repeated.
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
"""Tables with one part for each day."""

WHOLE: Final = ("flow", "slo", "fairness", "suspicious", "poison")
"""Tables that each run rebuilds."""

VERSION: Final = 3
READ: Final = (2, VERSION)
"""Versions of manifests that can be read. Silver and gold of version 2 merged all runs of a job id;
a run rebuilds them from bronze, which is the same in both."""

_MANIFEST: Final = "manifest.json"
_LOCK: Final = ".lock"
_ROWS: Final = 50_000


@dataclass(frozen=True, slots=True)
class Manifest:
    """The current parts of a table.

    Attributes:
        parts: Folders below the table's, by name: a day (silver, gold), or a batch (bronze).
        done: Number of the last batch of bronze that the table includes.
        offsets: Positions up to which the store was read (bronze of the Arrow engine).
        facts: Rows, first and last timestamp of each part.
        since_us: Start of the copied period (bronze); 0 for the beginning.
        until_us: End of the copied period (bronze); 0 for no end.
        begins: Start of the complete history in the tables, by queue.
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
        """Return the number of rows."""
        return sum(one["rows"] for one in self.facts.values())


class Folder:
    """A folder of tables."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    def path(self, table: str, part: str = "") -> Path:
        """Return the path of a table, or of one of its parts."""
        return self.root / table / part

    def manifest(self, table: str) -> Manifest:
        """Return the manifest of a table; an empty one if there is no table.

        Raises:
            StoreCorrupt: It has another version.
        """
        try:
            read = json.loads((self.path(table) / _MANIFEST).read_bytes())
        except FileNotFoundError:
            return Manifest()
        if read.get("version") not in READ:
            raise StoreCorrupt(
                f"{self.path(table)} was made by another version ({read.get('version')}).",
                hint="Make the tables again in another folder.",
            )
        return Manifest(**read)

    def current(self, table: str) -> Manifest:
        """Return the manifest of a table; an empty one if its rows have the keys of version 2."""
        found = self.manifest(table)
        return found if found.version == VERSION else Manifest()

    def publish(self, table: str, manifest: Manifest) -> None:
        """Replace the manifest, and delete parts that neither it nor the previous one names."""
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

    def publish_whole(self, table: str, silver: Manifest, part: str, rows: int) -> None:
        """Replace a table that each run rebuilds from silver."""
        facts = {"all": {"rows": rows}}
        parts = {"all": part}
        self.publish(
            table, Manifest(engine=silver.engine, done=silver.done, parts=parts, facts=facts)
        )

    def stale_days(self, table: str) -> list[str]:
        """Return the days of silver that a table does not include yet."""
        parts = self.current(table).parts
        silver = self.current(SILVER).parts
        return [day for day, part in silver.items() if parts.get(day) != part]

    def sweep(self, table: str) -> None:
        """Delete all parts that the manifest does not name."""
        self._drop(table, self.manifest(table).parts.values())

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Lock the folder against other writing processes for the duration of a block.

        Raises:
            Conflict: Another process writes to it.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / _LOCK).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # released when the process ends
            except BlockingIOError as error:
                raise Conflict(
                    f"Another process writes to the tables in {self.root}.",
                    hint="Wait until it has ended, or use another folder with --out.",
                ) from error
            yield

    def _drop(self, table: str, kept: Collection[str]) -> None:
        """Delete the folders of other parts; Spark's days share one folder for each step."""
        tops = {part.partition("/")[0] for part in kept}
        for top in self.path(table).iterdir():
            if top.is_dir() and top.name not in tops:
                shutil.rmtree(top)

    def other(self, table: str) -> str:
        """Return the part name for a table that is rebuilt: not the current one."""
        return "b" if self.manifest(table).parts.get("all") == "a" else "a"

    def files(self, table: str, parts: Collection[str] | None = None) -> list[Path]:
        """Return the files of a table's parts; of all parts by default."""
        named = self.manifest(table).parts
        return [
            file
            for name, part in sorted(named.items())
            if parts is None or name in parts
            for file in sorted(self.path(table, part).glob("*.parquet"))
        ]

    def touched(self, since_us: int, until_us: int) -> list[str]:
        """Return the parts of bronze that may hold rows of a period."""
        return [
            part
            for part, facts in sorted(self.manifest(BRONZE).facts.items())
            if facts["first_us"] < until_us and facts["last_us"] >= since_us
        ]

    def need(self, table: str) -> None:
        """Check that a table exists.

        Raises:
            NotFound: It does not.
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
        """Read a table, or some parts of it; return None if it has no rows.

        Raises:
            NotFound: The table does not exist.
        """
        self.need(table)
        names = None if columns is None else list(columns)
        found = [parquet.ParquetFile(file).read(columns=names) for file in self.files(table, parts)]
        found = [one for one in found if one.num_rows]
        return pa.concat_tables(found, promote_options="permissive") if found else None

    def batches(self, table: str, parts: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield a table's rows in batches."""
        for file in self.files(table, parts):
            yield from parquet.ParquetFile(file).iter_batches(_ROWS)

    def extent(self, table: str, part: str) -> tuple[int, int, int]:
        """Return the number of rows of a part, and their first and last `at`."""
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
        """Check that the folder belongs to an engine.

        Raises:
            BadInput: The other engine made the tables; its offsets have another format.
        """
        before = self.manifest(BRONZE).engine
        if before and before != engine:
            raise BadInput(
                f"The tables in {self.root} are made by the engine {before}.",
                hint=f"Use --engine {before}, or another folder.",
            )


def name_of(done: int) -> str:
    """Return the part name of a step, by the last part of bronze; unlike those of version 2."""
    return f"{done:06}-v{VERSION}"


def flush(path: Path) -> None:
    """Flush a file, or the names in a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
