"""An audit of what is new: the rows since the last audit, and the runs that had not ended then.

The table `audit` keeps what an audit leaves to the next one. A run of a job that has ended and has
no new row is judged as before, so its findings are kept. All other runs are judged again, with all
their rows, which are looked up by the day and time at which the job was enqueued. The result is
that of a full audit.

Rows of the table, by `kind`:

- finding: A broken rule; its outcome is `judged` if the tables hold the job from its beginning.
- open: A run that has to be judged again.
- first: The first enqueue time in a queue's history, by outcome.
"""

import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyarrow import compute

from dueline.jobs.audit_rules import RULES, Known, Promises
from dueline.spark.pipeline.audit_queries import INSTANT, violations
from dueline.spark.pipeline.delta import File, Table
from dueline.spark.pipeline.increments import NEEDED, RUN, earlier
from dueline.spark.pipeline.queries import Derived, Duck, Queries, View, lines_of, text_of
from dueline.spark.pipeline.tables import AUDIT, BATCH

FINDING, OPEN, FIRST = "finding", "open", "first"
JUDGED: Final = "judged"
TERMS: Final = "terms"
"""Position of the table: a checksum of what the rules were applied with."""

PORTION: Final = 200_000
"""Number of rows that DuckDB judges at once; about 1.5 KB each in memory."""

LISTED_MAX: Final = 10_000
"""Number of runs up to which rows are filtered by their ids while files are read."""

FINDINGS: Final = "SELECT * FROM audit WHERE kind = 'finding' AND outcome = 'judged'"
"""What the last audit found, as a view of the table `audit`."""

_OF_TIME: Final = frozenset({"in the future"})
"""Rules whose findings depend on the time of the audit."""

_OF_RUNS: Final = """
    SELECT b.* FROM bronze AS b
    LEFT SEMI JOIN touched AS r ON r.job_id = b.job_id AND r.enqueued = b.enqueued"""


_PART: Final = """
    SELECT * FROM bronze
    WHERE (ascii(substring(job_id, length(job_id), 1))
        + 5 * ascii(substring(job_id, length(job_id) - 1, 1))) % :parts = :part"""
"""A part of the runs: by the end of their ids, which are random."""


class Sight(NamedTuple):
    """What an audit found, and what it read.

    Attributes:
        found: The violations, by rule; see `audit_queries.violations`.
        opened: The runs to judge again: queue, job_id, enqueued.
        firsts: The first enqueue times: queue, outcome, enqueued.
        rows: Number of rows of bronze in the files that were read; for words.
        is_full: Whether all runs were judged.
    """

    found: Sequence[Mapping[str, Any]]
    opened: Sequence[Mapping[str, Any]]
    firsts: Sequence[Mapping[str, Any]]
    rows: int
    is_full: bool


class AuditState:
    """What audits of a lake leave to each other."""

    def __init__(self, table: Table, bronze: Table, known: Known, promises: Promises) -> None:
        self._table = table
        self._bronze = bronze
        self._known = known
        self._promises = promises
        whole = None if known.whole is None else sorted(known.whole)
        words = repr((whole, known.is_exact, sorted(promises.attempts.items()), sorted(RULES)))
        self._terms = zlib.crc32(words.encode())
        self._last = bronze.position(BATCH) or 0

    def look(
        self,
        small: Queries,
        large: Callable[[], Queries],
        living: View | None,
        *,
        is_full: bool,
        rows_max: int,
    ) -> Sight:
        """Judge what is new, or all runs.

        All runs are judged if there was no audit, or one with other settings.

        Args:
            small: Engine for up to `rows_max` rows.
            large: Starts the engine for more.
            living: The jobs that have a row; None to apply no rule on lost jobs.
            is_full: Whether to judge all runs.
            rows_max: Number of rows.
        """
        low = self._table.position(BATCH) or 0
        if is_full or self._table.position(TERMS) != self._terms or low > self._last:
            low = 0
        before = self._kept() if low else AUDIT.inside.empty_table()
        files = self._bronze.newer(low)
        new: View = self._bronze.view(files)
        rows: View = new
        runs = None
        if low:
            is_new = compute.field(BATCH) > low
            new = new.dataset().to_table(["queue", "outcome", *RUN], filter=is_new)
            runs = _runs_of(new, before)
            times = sorted(compute.unique(runs.column("enqueued").cast(pa.int64())).to_pylist())
            files = earlier(self._bronze, self._last, times)
            rows = self._rows_of(runs, self._bronze.view(files))
        size = sum(file.rows for file in files)
        is_small = isinstance(rows, pa.Table) or size <= rows_max
        queries = small if is_small else large()
        findings: list[dict[str, Any]] = []
        opened: list[dict[str, Any]] = []
        for portion, parts in (
            _portions(files) if not low and isinstance(queries, Duck) else [(files, 1)]
        ):
            views = {"rows": rows if parts == 1 and low else Derived(_PART),
                     "bronze": self._bronze.view(portion), "touched": runs}  # fmt: skip
            for part in range(parts):
                values = {"parts": parts, "part": part}
                findings += violations(
                    queries, views["rows"], living=living, known=self._known, others=views,
                    promises=Promises(attempts=self._promises.attempts), more=values,
                )  # fmt: skip
                opened += lines_of(queries.run(text_of("audit_open"), views, values))
        firsts = lines_of(
            (small if low else queries).run(text_of("audit_first"), {"rows": new, "state": before})
        )
        if runs is not None:
            judged = {(line["job_id"], line["enqueued"]) for line in _lines(runs)}
            findings += [
                line for line in _lines(before)
                if line["kind"] == FINDING and (line["job_id"], line["enqueued"]) not in judged
            ]  # fmt: skip
        return Sight(findings, opened, firsts, size, is_full=not low)

    def keep(self, sight: Sight, findings: Collection[Mapping[str, Any]]) -> None:
        """Leave the result to the next audit.

        Args:
            sight: The result.
            findings: Its violations that are confirmed, with `is_judged`.
        """
        ends = {finding["rule"] for finding in findings} & _OF_TIME
        rows = [
            {**finding, "kind": FINDING, "outcome": JUDGED if finding["is_judged"] else ""}
            for finding in findings
        ]
        rows += [{**entry, "kind": OPEN} for entry in sight.opened]
        if ends:
            rows += [{**finding, "kind": OPEN} for finding in findings if finding["rule"] in ends]
        rows += [{**first, "kind": FIRST} for first in sight.firsts]
        for row in rows:
            row.pop("is_judged", None)
        self._table.create()
        names = AUDIT.inside.names
        table = pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows],
                                     AUDIT.inside)  # fmt: skip
        positions = {BATCH: self._last, TERMS: self._terms}
        self._table.commit(self._table.writer.write(table), self._table.files(), positions)

    def _kept(self) -> pa.Table:
        return self._table.view().dataset().to_table(AUDIT.inside.names)

    def _rows_of(self, runs: pa.Table, files: View) -> View:
        """Return all rows of some runs."""
        if runs.num_rows > LISTED_MAX:
            return Derived(_OF_RUNS)
        is_of = compute.is_in(compute.field("job_id"), runs.column("job_id").combine_chunks())
        rows = files.dataset().to_table([*NEEDED, "digest"], filter=is_of)
        return rows.join(runs, list(RUN), join_type="left semi")


def _portions(files: Sequence[File]) -> Iterator[tuple[list[File], int]]:
    """Divide files into days, and in how many parts to read these; a run is of one day."""
    portion: list[File] = []
    for _, group in groupby(sorted(files, key=lambda file: str(file.day)), lambda file: file.day):
        day = list(group)
        if portion and sum(file.rows for file in (*portion, *day)) > PORTION:
            yield portion, 1
            portion = []
        rows = sum(file.rows for file in day)
        if rows > PORTION:
            yield day, -(-rows // PORTION)
        else:
            portion += day
    if portion:
        yield portion, 1


def _runs_of(new: pa.Table, before: pa.Table) -> pa.Table:
    """Return the runs that new rows are of, and those that were open."""
    opened = before.filter(compute.equal(before.column("kind"), OPEN))
    both = pa.concat_tables([table.select(list(RUN)) for table in (new, opened)])
    return both.group_by(list(RUN), use_threads=False).aggregate([])


def _lines(table: pa.Table) -> list[dict[str, Any]]:
    place = table.schema.get_field_index("enqueued")
    instants = table.column(place).cast(INSTANT).cast(pa.int64())
    rows: list[dict[str, Any]] = table.set_column(place, "enqueued", instants).to_pylist()
    return rows
