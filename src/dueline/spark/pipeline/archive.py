"""Archives of a history: a Delta table with the rows of a period, committed at once.

An archive has the columns of bronze. Files that an interrupted archive has left are not in the
table; it is made again, and `vacuum` deletes them.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyarrow.compute import field

from dueline.core.clock import to_datetime
from dueline.core.errors import Conflict, NotFound
from dueline.spark.pipeline.delta import ROWS_MAX, File, Place, Table, digest_of
from dueline.spark.pipeline.engine import Check, Say
from dueline.spark.pipeline.queries import Files
from dueline.spark.pipeline.tables import BRONZE

ARCHIVE: Final = BRONZE._replace(name="archive")
ASKED: Final = "dueline.asked"
SINCE: Final = "since"
UNTIL: Final = "until"
_TIME: Final = re.compile(r"(?<=since |until )\d+")
_LARGE: Final = 50_000


class Asked(NamedTuple):
    """The request of an archive."""

    queues: Sequence[str]
    since_us: int | None
    until_us: int | None

    def __str__(self) -> str:
        """Return it in words, as the archive stores it."""
        queues = ", ".join(self.queues) or "all queues"
        return f"{queues}, since {self.since_us}, until {self.until_us}"


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


def held(to: Place, asked: Asked) -> Archived | None:
    """Return the contents of a complete archive with what is requested, or None.

    Raises:
        Conflict: The place holds something else.
    """
    table = Table(to, ARCHIVE)
    if not table.exists():
        return None
    if table.property(ASKED) != str(asked):
        there = _in_words(table.property(ASKED))
        raise Conflict(f"{to.root} holds another archive: {there}.", hint="Use another place.")
    return _archived(table, is_new=False) if table.position(UNTIL) is not None else None


def _in_words(asked: str) -> str:
    """Return a stored request for people."""
    words = asked.replace("since None, ", "").replace("until None", "until its end")
    return _TIME.sub(lambda match: to_datetime(int(match[0])).isoformat(), words)


def write(to: Place, bronze: Table, asked: Asked, period: Period, say: Say) -> Archived:
    """Write the rows of a period, and commit them.

    Raises:
        Conflict: The place holds something else, or another process writes the same archive.
    """
    table = Table(to, ARCHIVE)
    table.create({ASKED: str(asked)})
    files: list[File] = []
    for rows in _tables(bronze, period):
        files += table.writer.write(rows)
        say(f"archive: {sum(file.rows for file in files):,} rows are written")
    table.commit(files, positions={SINCE: period.since_us, UNTIL: period.until_us})
    return _archived(table, is_new=True)


def view_of(archives: Sequence[Place]) -> Files:
    """Return the rows of archives.

    Raises:
        NotFound: There is no archive, or it is incomplete.
    """
    views = []
    for place in archives:
        table = Table(place, ARCHIVE)
        if table.position(UNTIL) is None:
            raise NotFound(
                f"{place.root} holds no complete archive.",
                hint="Make it with `dueline pipeline archive`.",
            )
        views.append(table.view())
    paths = [path for view in views for path in view.paths]
    return views[0] if len(views) == 1 else Files(paths, BRONZE.inside, "", views[0].system)


def verify(place: Place, say: Say) -> list[Check]:
    """Read each file of an archive, and compare it with the log.

    Raises:
        NotFound: There is no archive.
    """
    table = Table(place, ARCHIVE)
    table.delta()
    if table.position(UNTIL) is None:
        words = "the archive is incomplete, make it again"
        return [Check("archive is whole", is_good=False, finding=words)]
    system, checks, files = place.open(), [], table.files()
    for number, file in enumerate(files, 1):
        checks.append(_file_check(system, file))
        say(f"verify: {number} of {len(files)} files")
    words = f"{sum(file.rows for file in files):,} rows in {len(files)} file(s)"
    good = all(check.is_good for check in checks)
    return [*checks, Check("archive is whole", good, words)]


def _file_check(system: Any, file: File) -> Check:  # noqa: ANN401  (a file system of Arrow)
    if system.get_file_info(file.path).size is None:
        return Check(file.path, is_good=False, finding="it is missing")
    with system.open_input_stream(file.path) as opened:
        body = opened.read()
    if len(body) != file.size:
        words = f"it is damaged: {len(body):,} bytes, {file.size:,} in the log"
        return Check(file.path, is_good=False, finding=words)
    if digest_of(body) not in file.path:
        return Check(file.path, is_good=False, finding="it is damaged: its digest differs")
    return Check(file.path, is_good=True, finding=f"{file.rows:,} rows")


def _tables(bronze: Table, period: Period) -> Iterator[pa.Table]:
    """Yield the rows of a period, in tables of the size of one file, a day after the other."""
    at = field("at").cast(pa.timestamp("us", "UTC"))
    where = (at >= _instant(period.since_us)) & (at < _instant(period.until_us))
    if period.queues:
        where &= field("queue").isin(list(period.queues))
    files = [
        file for file in bronze.files() if file.may_hold("at", period.since_us, period.until_us)
    ]
    batches: list[pa.RecordBatch] = []
    count = 0
    for part in sorted(files, key=lambda file: (str(file.day), file.path)):
        for batch in bronze.view([part]).dataset().to_batches(filter=where, batch_size=_LARGE):
            batches.append(batch)
            count += batch.num_rows
            if count >= ROWS_MAX:
                yield pa.Table.from_batches(batches)
                batches, count = [], 0
    if count:
        yield pa.Table.from_batches(batches)


def _instant(at_us: int) -> pa.Scalar:
    return pa.scalar(at_us, pa.timestamp("us", "UTC"))


def _archived(table: Table, *, is_new: bool) -> Archived:
    since_us, until_us = table.position(SINCE) or 0, table.position(UNTIL) or 0
    return Archived(len(table.files()), table.rows(), since_us, until_us, is_new)
