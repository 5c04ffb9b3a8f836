"""Few large files in place of many small ones.

Each run of a pipeline adds a part to bronze, so one that runs often leaves many. Here parts that
lie beside each other become one; what they hold stays as it is. The large part is on the disk
before the manifest names it, in one rename; what it replaces goes with the step after that, so a
reader that has just read the older manifest still finds its files.

The newest part stays by itself: Spark may write its last batch again. So do parts that silver has
not seen, since silver knows by their numbers what is new.
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
    """What became of the files of bronze. rows: those that were written anew."""

    files_before: int
    files: int
    rows: int


def compact(folder: Folder, most: int, say: Callable[[str], None]) -> Compacted:
    """Make one part of several small ones, again and again; none grows above `most` rows.

    Where nothing is to be done, what was replaced before is removed.

    Raises:
      NotFound: bronze was never made. Conflict: another process writes to the tables.
      StoreCorrupt: a part does not hold the rows that its manifest tells of; nothing is changed.
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
            told = _sum([facts[part] for part in group])
            _merge(folder.files(BRONZE, group), folder.path(BRONZE, place), told["rows"])
            for part in group:
                del parts[part], facts[part]
            parts[last], facts[last] = place, told
            rows += told["rows"]
            say(f"compact: {rows:,} rows")
        if rows:
            folder.publish(BRONZE, replace(manifest, parts=parts, facts=facts))
        else:
            folder.sweep(BRONZE)
        return Compacted(before, len(folder.files(BRONZE)), rows)


def _groups(folder: Folder, manifest: Manifest, most: int) -> Iterator[list[str]]:
    """Tell which parts become one, those beside each other."""
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
    """Write the rows of some files to one, some at a time; it outlasts a loss of power."""
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
            f" and the manifest tells of {rows:,}.",
            hint="See `dueline pipeline verify`; make the tables anew, in another folder.",
        )
    for path in (target, place, place.parent):
        flush(path)
