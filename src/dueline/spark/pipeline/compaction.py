"""Compaction: few large files instead of many small ones.

Each run of a pipeline adds a part to bronze, so frequent runs leave many parts. Compaction merges
adjacent parts without changing their rows. The merged part is on disk before the manifest names
it, in one rename. The next step deletes the replaced parts, so a reader of the previous manifest
still finds its files.

The newest part is not merged, since Spark may write its last batch again. Neither are parts that
silver has not read, since silver recognizes new parts by their numbers.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import Final, NamedTuple

from pyarrow import parquet

from dueline.core.errors import StoreCorrupt
from dueline.spark.pipeline.schemas import BRONZE_SHAPE, shaped
from dueline.spark.pipeline.table_store import BRONZE, SILVER, Folder, Manifest, flush

_BATCH: Final = 50_000


class Compacted(NamedTuple):
    """The result of a compaction; `rows` is the number of rows that were rewritten."""

    files_before: int
    files: int
    rows: int


def compact(folder: Folder, most: int, say: Callable[[str], None]) -> Compacted:
    """Merge small parts repeatedly, up to `most` rows each.

    If there is nothing to merge, the parts that were replaced before are deleted.

    Raises:
        NotFound: Bronze does not exist.
        Conflict: Another process writes to the tables.
        StoreCorrupt: A part does not hold the rows in its manifest. Nothing was changed.
    """
    folder.need(BRONZE)
    with folder.writing():
        manifest = folder.manifest(BRONZE)
        before = len(folder.files(BRONZE))
        parts, facts, rows = dict(manifest.parts), dict(manifest.facts), 0
        groups = [one for one in _groups(folder, manifest, most) if _is_cut(folder, one)]
        for group in groups:
            last = group[-1]
            place = f"{last}-{token_hex(4)}"
            merged = _sum([facts[part] for part in group])
            _merge(folder.files(BRONZE, group), folder.path(BRONZE, place), merged["rows"])
            for part in group:
                del parts[part], facts[part]
            parts[last], facts[last] = place, merged
            rows += merged["rows"]
            say(f"compact: {rows:,} rows")
        if rows:
            folder.publish(BRONZE, replace(manifest, parts=parts, facts=facts))
        else:
            folder.sweep(BRONZE)
        return Compacted(before, len(folder.files(BRONZE)), rows)


def _groups(folder: Folder, manifest: Manifest, most: int) -> Iterator[list[str]]:
    """Yield groups of adjacent parts to merge."""
    seen = min(folder.manifest(SILVER).done, manifest.done - 1)
    group: list[str] = []
    size = 0
    for part in [one for one in sorted(manifest.parts) if int(one) <= seen]:
        rows = manifest.facts[part]["rows"]
        if group and size + rows > most:
            yield group
            group, size = [], 0
        group.append(part)
        size += rows
    if group:
        yield group


def _is_cut(folder: Folder, group: Sequence[str]) -> bool:
    return len(folder.files(BRONZE, group)) > 1


def _sum(facts: Sequence[Mapping[str, int]]) -> Mapping[str, int]:
    return {
        "rows": sum(one["rows"] for one in facts),
        "first_us": min(one["first_us"] for one in facts),
        "last_us": max(one["last_us"] for one in facts),
    }


def _merge(files: Sequence[Path], place: Path, rows: int) -> None:
    """Write the rows of some files to one, in batches, and flush it to disk."""
    place.mkdir(parents=True)
    target = place / "part-0.parquet"
    written = 0
    with parquet.ParquetWriter(target, BRONZE_SHAPE) as writer:
        for file in files:
            for batch in parquet.ParquetFile(file).iter_batches(_BATCH, columns=BRONZE_SHAPE.names):
                writer.write_batch(shaped(batch, BRONZE_SHAPE))
                written += batch.num_rows
    if written != rows:
        raise StoreCorrupt(
            f"{files[0].parent} and the next {len(files) - 1} file(s) hold {written:,} rows,"
            f" but the manifest says {rows:,}.",
            hint="See `dueline pipeline verify`; make the tables again in another folder.",
        )
    for path in (target, place, place.parent):
        flush(path)
