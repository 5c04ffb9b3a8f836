"""Removes what is personal of some jobs from tables and archives.

Rows stay, so that counts and audits stay right: without arguments, digests of results and limits,
and with a word in place of errors. A table is committed at once, with the positions that other
writers move: a run that has read it before fails, and adds nothing that it had read.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
from pyarrow import compute

from dueline.core.errors import Conflict, NotFound
from dueline.spark.pipeline.archive import ARCHIVE, SINCE, UNTIL
from dueline.spark.pipeline.delta import File, Place, Table
from dueline.spark.pipeline.engine import Say
from dueline.spark.pipeline.increments import RUN, Increments
from dueline.spark.pipeline.queries import Duck, lines_of
from dueline.spark.pipeline.tables import BATCH, BRONZE, INSTANT, SILVER
from dueline.spark.writing.keys import job_id_of

FORGOTTEN: Final = "forgotten"
"""The word in place of an error; `audit.sql` names it, too."""

_REMOVED: Final = ("payload", "codec", "payload_bytes", "digest", "limits")
_OF_SILVER: Final = ", ".join(name for name in SILVER.inside.names if name != "is_first_failure")
_FIRST_FAILURES: Final = f"""
    SELECT {_OF_SILVER}, is_failure AND row_number() OVER (
        PARTITION BY job_id, enqueued, queue, task, error IS NULL, fingerprint, is_failure
        ORDER BY attempt
    ) = 1 AS is_first_failure
    FROM rows"""  # noqa: S608  (names of ours)
"""Rows of runs, after errors that differed became equal; as in `silver.sql`."""

_QUEUES: Final = "SELECT DISTINCT queue FROM rows"


class Subject(NamedTuple):
    """Whose data is removed: by exactly one of the three.

    Attributes:
        jobs: Ids of jobs, or the `job_id` that they had in the data.
        tenant: A tenant.
        key: The `dedupe_key` that a row of data had.
    """

    jobs: Sequence[str] = ()
    tenant: str = ""
    key: str = ""

    def __str__(self) -> str:
        """Return it in words."""
        if self.tenant:
            return f"the tenant {self.tenant!r}"
        return f"the key {self.key!r}" if self.key else ", ".join(self.jobs)


class Forgotten(NamedTuple):
    """What was done to a table.

    Attributes:
        table: Its name, or the address of an archive.
        rows: Number of rows of the subject; 0 for a table of counts.
        removed: Number of these that held something personal.
        files: Number of files that were deleted: of earlier versions, and of interrupted commits.
    """

    table: str
    rows: int
    removed: int
    files: int


class _Rows(NamedTuple):
    """The rows of a subject, in some queues or in all."""

    jobs: pa.Array
    tenant: str
    queues: Sequence[str]

    def mask(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return which rows they are."""
        mask = (
            compute.equal(rows["tenant"], self.tenant)
            if self.tenant
            else compute.is_in(rows["job_id"], self.jobs)
        )
        if self.queues:
            mask = compute.and_(mask, compute.is_in(rows["queue"], pa.array(self.queues)))
        return compute.fill_null(mask, fill_value=False)

    def personal(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return which rows are theirs, and hold something personal."""
        known = pa.array(["", FORGOTTEN])
        mask = compute.invert(compute.is_in(rows["error"], known, skip_nulls=False))
        mask = compute.and_(mask, compute.is_valid(rows["error"]))
        for name in _REMOVED:
            if name in rows.column_names:
                is_there = compute.is_valid(rows[name])
                if name == "limits":
                    is_there = compute.and_(is_there, compute.not_equal(rows[name], ""))
                mask = compute.or_(mask, compute.fill_null(is_there, fill_value=False))
        return compute.and_(mask, self.mask(rows))


def forget(
    subject: Subject,
    tables: Mapping[str, Table],
    archives: Sequence[Place],
    increments: Increments,
    say: Say,
    *,
    queues: Sequence[str] = (),
    dry_run: bool = False,
) -> list[Forgotten]:
    """Remove what is personal of a subject, and check that nothing of it is left.

    Args:
        subject: Whose data.
        tables: Bronze and silver, as far as they exist; both up to date.
        archives: Archives of the history.
        increments: Counts failures anew.
        say: Shows progress.
        queues: Only in these queues; all if empty.
        dry_run: Only count.

    Raises:
        NotFound: No row is of the subject, or there is no such archive.
        Conflict: Another process wrote to a table. Tables before it are done; repeat the command.
    """
    places = dict(tables) | {place.root: _archive(place) for place in archives}
    rows = _rows_of(subject, [table for name, table in places.items() if name != SILVER.name],
                    queues)  # fmt: skip
    done: list[Forgotten] = []
    for name, table in places.items():
        counted = Forgotten(name, *_counts(table, rows), 0)
        if not dry_run:
            change = _without_errors if name == SILVER.name else _without_content
            deleted = _replace(table, *change(table, rows))
            counted = counted._replace(files=deleted)
            say(f"forget: {name}, {counted.removed:,} of {counted.rows:,} rows were changed")
        done.append(counted)
        if name == SILVER.name and table.position(BATCH) != tables[BRONZE.name].position(BATCH):
            raise _changed(subject, name)
    if not any(counted.rows for counted in done):
        raise NotFound(
            f"No row of the tables is of {subject}.",
            hint="Check the spelling, --queue and --out.",
        )
    if dry_run:
        return done
    if SILVER.name in tables:
        for table in increments.failures():
            increments.recount(table)
            done.append(Forgotten(table.design.name, 0, 0, table.delete_unnamed()))
    for name, table in places.items():
        if _counts(table, rows)[1]:
            raise _changed(subject, name)
    return done


def _changed(subject: Subject, name: str) -> Conflict:
    return Conflict(
        f"New rows were added to {name} while those of {subject} were changed.",
        hint="Run it again, when no `dueline pipeline run` adds rows.",
    )


def _archive(place: Place) -> Table:
    table = Table(place, ARCHIVE)
    if table.position(UNTIL) is None:
        raise NotFound(
            f"{place.root} holds no complete archive.",
            hint="Make it with `dueline pipeline archive`.",
        )
    return table


def _rows_of(subject: Subject, tables: Sequence[Table], queues: Sequence[str]) -> _Rows:
    jobs = [job_id_of(text) for text in subject.jobs]
    if subject.key:
        names: Collection[str] = queues or {
            line["queue"]
            for table in tables
            for line in lines_of(Duck().run(_QUEUES, {"rows": table.view()}))
        }
        jobs = [job_id_of(subject.key, name) for name in names]
    return _Rows(pa.array(jobs, pa.string()), subject.tenant, queues)


def _counts(table: Table, rows: _Rows) -> tuple[int, int]:
    """Count the rows of a subject, and those that hold something personal."""
    table.refresh()
    counts = [0, 0]
    names = [name for name in ("job_id", "tenant", "queue", "error", *_REMOVED)
             if name in table.design.shape.names]  # fmt: skip
    for batch in table.view().dataset().to_batches(columns=names):
        part = pa.Table.from_batches([batch])
        for place, mask in enumerate((rows.mask(part), rows.personal(part))):
            counts[place] += compute.sum(mask).as_py() or 0
    return counts[0], counts[1]


def _without_content(table: Table, rows: _Rows) -> tuple[list[File], list[File]]:
    """Rewrite the files of a history; return new files and those that they replace."""
    added: list[File] = []
    removed: list[File] = []
    for file in table.files():
        data = table.view([file]).dataset()
        if not compute.any(rows.mask(data.to_table(["job_id", "tenant", "queue"]))).as_py():
            continue
        part = data.to_table()
        mask = rows.personal(part)
        if compute.any(mask).as_py():
            for name in _REMOVED:
                nothing = pa.scalar(None, part.schema.field(name).type)
                part = _with(part, name, compute.if_else(mask, nothing, part[name]))
            added += table.writer.write(_with_word(part, "error", mask))
            removed.append(file)
    return added, removed


def _without_errors(table: Table, rows: _Rows) -> tuple[list[File], list[File]]:
    """Rewrite the files of silver that hold runs with errors; as `_without_content`."""
    names = ["tenant", "queue", "error", *RUN]
    few = [table.view([file]).dataset().to_table(names) for file in table.files()]
    runs = pa.concat_tables([part.filter(rows.personal(part)).select(list(RUN)) for part in few])
    if not runs.num_rows:
        return [], []
    runs = runs.group_by(list(RUN), use_threads=False).aggregate([])
    added: list[File] = []
    removed: list[File] = []
    touched: list[pa.Table] = []
    for file in table.files():
        part = table.view([file]).dataset().to_table()
        kept = part.join(runs, list(RUN), join_type="left anti")
        if kept.num_rows < part.num_rows:
            touched.append(part.join(runs, list(RUN), join_type="left semi"))
            added += table.writer.write(kept)
            removed.append(file)
    whole = pa.concat_tables(touched)
    mask = rows.personal(whole)
    for name in ("error", "fingerprint"):
        whole = _with_word(whole, name, mask)
    made = Duck().run(_FIRST_FAILURES, {"rows": whole}).table(table.design.inside)
    return [*added, *table.writer.write(made)], removed


def _with_word(rows: pa.Table, name: str, mask: pa.ChunkedArray) -> pa.Table:
    is_there = compute.fill_null(compute.not_equal(rows[name], ""), fill_value=False)
    mask = compute.and_(mask, is_there)
    return _with(rows, name, compute.if_else(mask, FORGOTTEN, rows[name]))


def _with(rows: pa.Table, name: str, column: pa.ChunkedArray) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(name), name, column)


def _replace(table: Table, added: Sequence[File], removed: Sequence[File]) -> int:
    """Commit new files; return the number of files that were deleted afterwards."""
    kept = {name: table.position(name) for name in (BATCH, INSTANT, SINCE, UNTIL)}
    table.commit(added, removed, {name: at for name, at in kept.items() if at is not None})
    return table.delete_unnamed()
