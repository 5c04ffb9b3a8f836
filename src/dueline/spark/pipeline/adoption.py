"""Tables and archives of older versions, taken over into Delta.

Until November 2026 a lake was a folder of Parquet files, with a manifest for each table. Bronze is
taken over row by row; silver and gold are computed from it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute, parquet

from dueline.core.engine import Engine
from dueline.core.errors import Conflict, LakeCorrupt, NotFound
from dueline.jobs.history import HISTORY_SUFFIX
from dueline.spark.pipeline import archive, bronze
from dueline.spark.pipeline.archive import Archived
from dueline.spark.pipeline.delta import ROWS_MAX, File, Place, Table, shaped
from dueline.spark.pipeline.engine import MANIFEST, Say
from dueline.spark.pipeline.tables import BATCH, BRONZE, INSTANT
from dueline.spark.reading.partitions import RowSlice, behind, rows_of

VERSIONS: Final = (2, 3)
_KEYS: Final = ("queue", "shard", "id", "job_id", "enqueued", "at")
_RESTORE: Final = "Copy the old folder again, whole; nothing was written to the new one."


def adopt_archive(old: Path, to: Place, say: Say) -> Archived:
    """Copy an archive of an older version, in one commit.

    Raises:
        Conflict: The place holds another archive, or something else.
        LakeCorrupt: The old folder is not an archive of version 1, or a file of it is missing or
            damaged.
    """
    manifest = _manifest(old, "asked", "files", "rows", "since_us", "until_us")
    if manifest.get("archive") != 1:
        raise LakeCorrupt(f"{old} is not an archive of version 1.")
    asked = archive.Asked(**manifest["asked"])
    held = archive.held(to, asked)
    if held is not None:
        return held
    files = [old / "rows" / one["name"] for one in manifest["files"]]
    _expect_rows(old, files, manifest["rows"])
    table = Table(to, archive.ARCHIVE)
    table.create({archive.ASKED: str(asked)})
    written: list[File] = []
    for rows in _tables(files):
        written += table.writer.write(rows)
        say(f"adopt: {sum(one.rows for one in written):,} rows")
    bounds = {archive.SINCE: manifest["since_us"], archive.UNTIL: manifest["until_us"]}
    table.commit(written, positions=bounds)
    found = archive.held(to, asked)
    assert found is not None, "it was just committed"
    return found


def adopt(old: Path, table: Table, engine: Engine, say: Say) -> int:
    """Copy bronze of an older version, with its positions, in one commit; return its rows.

    Args:
        old: Folder of the old tables.
        table: Bronze, which must not exist.
        engine: The store.
        say: Shows progress.

    Raises:
        Conflict: Bronze exists already.
        NotFound: There are no old tables.
        LakeCorrupt: Another version wrote them, or a file is missing or damaged.
    """
    if table.position(BATCH) is not None:
        raise Conflict(f"{table.place.root} has rows already.", hint="Use another folder.")
    manifest, files = _old(old)
    table.create({bronze.SINCE: str(manifest["since_us"]), bronze.UNTIL: str(manifest["until_us"])})
    written: list[File] = []
    ends: dict[tuple[str, int], int] = {}
    for rows in _tables(files):
        written += bronze.write_with(table.writer, 1, rows.to_batches())
        _extend(ends, rows)
        say(f"adopt: {sum(one.rows for one in written):,} rows")
    positions = {bronze.key_of(*shard): at_us for shard, at_us in ends.items()}
    for (queue, shard), at_us in ends.items():
        rest = _rest(table, engine, (queue, shard), at_us, written)
        written += bronze.write_with(table.writer, 1, rest)
    begins = {f"{bronze.BEGIN}{name}": at_us for name, at_us in manifest["begins"].items()}
    now = {INSTANT: min(ends.values(), default=0), BATCH: 1}
    table.commit(written, positions=positions | begins | now)
    return sum(one.rows for one in written)


def _old(root: Path) -> tuple[Mapping[str, Any], list[Path]]:
    """Return the manifest of old tables, and their files of bronze, in their order."""
    try:
        manifest = _manifest(root / BRONZE.name, "parts")
    except FileNotFoundError:
        raise NotFound(f"{root} holds no tables of an older version.") from None
    if manifest.get("version") not in VERSIONS:
        raise LakeCorrupt(f"{root} was made by another version ({manifest.get('version')}).")
    files: list[Path] = []
    for name, part in sorted(manifest["parts"].items()):
        folder = root / BRONZE.name / part
        some = sorted(folder.glob("*.parquet"))
        _expect_rows(folder, some, manifest.get("facts", {}).get(name, {}).get("rows"))
        files += some
    whole = {"since_us": 0, "until_us": 0, "begins": {}} | manifest
    return whole, files


def _manifest(folder: Path, *needed: str) -> dict[str, Any]:
    """Return the manifest of a folder, which has some keys.

    Raises:
        FileNotFoundError: The folder has no manifest.
        LakeCorrupt: It is damaged.
    """
    file = folder / MANIFEST
    try:
        found = json.loads(file.read_bytes())
    except ValueError:
        found = None
    if not isinstance(found, dict) or not found.keys() >= {*needed}:
        raise LakeCorrupt(f"The file {file} is damaged.", hint=_RESTORE)
    return found


def _expect_rows(folder: Path, files: Sequence[Path], rows: int | None) -> None:
    """Check that files are whole and hold a number of rows; None: not known, but some.

    Raises:
        LakeCorrupt: A file is missing or damaged, or rows are missing.
    """
    found = 0
    for file in files:
        try:
            about = parquet.read_metadata(file)
        except FileNotFoundError as error:
            raise LakeCorrupt(f"The file {file} is missing.", hint=_RESTORE) from error
        except (OSError, pa.ArrowInvalid) as error:
            raise LakeCorrupt(f"The file {file} is damaged.", hint=_RESTORE) from error
        if not {*_KEYS} <= {*about.schema.names}:
            raise LakeCorrupt(f"The file {file} is not one of a history.", hint=_RESTORE)
        found += about.num_rows
    if found != rows if rows is not None else not found:
        wanted = "any rows" if rows is None else f"{rows:,} rows"
        raise LakeCorrupt(
            f"{folder} does not hold {wanted}, as its manifest says, but {found:,}.", hint=_RESTORE
        )


def _tables(files: list[Path]) -> Iterator[pa.Table]:
    """Yield old rows, in tables of the size of one file."""
    some: list[pa.Table] = []
    count = 0
    for file in files:
        for batch in parquet.ParquetFile(file).iter_batches(ROWS_MAX // 4):
            some.append(shaped(pa.Table.from_batches([batch]), bronze.COLUMNS))
            count += batch.num_rows
            if count >= ROWS_MAX:
                yield pa.concat_tables(some)
                some, count = [], 0
    if some:
        yield pa.concat_tables(some)


def _extend(ends: dict[tuple[str, int], int], rows: pa.Table) -> None:
    """Note the last timestamp of each shard."""
    last = rows.group_by(["queue", "shard"]).aggregate([("at", "max")])
    for queue, shard, at_us in zip(
        last.column("queue").to_pylist(),
        last.column("shard").to_pylist(),
        last.column("at_max").cast(pa.int64()).to_pylist(),
        strict=True,
    ):
        ends[queue, shard] = max(at_us, ends.get((queue, shard), 0))


def _rest(
    table: Table, engine: Engine, shard: tuple[str, int], at_us: int, written: list[File]
) -> list[pa.RecordBatch]:
    """Return rows of the last timestamp of a shard that the old tables lack.

    They may end inside a timestamp, where ours never do.
    """
    stream = shard[0] + HISTORY_SUFFIX
    last = RowSlice(stream, shard[1], behind(at_us - 1), behind(at_us))
    pages = [bronze.batch_of(page) for page in rows_of(engine.store, last, page=bronze.PAGE)]
    if not pages:
        return []
    files = [one for one in written if one.may_hold("at", at_us, at_us)]
    where = compute.field("at") == pa.scalar(at_us, pa.timestamp("us", "UTC"))
    known = table.view(files).dataset().to_table(["id"], filter=where).column("id")
    kept = [page.filter(compute.invert(compute.is_in(page.column("id"), known.combine_chunks())))
            for page in pages]  # fmt: skip
    return [page for page in kept if page.num_rows]
