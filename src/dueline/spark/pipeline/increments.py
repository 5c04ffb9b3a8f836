"""Tables above bronze, from the rows that are new.

Each table is a function of bronze up to its position. Its increment needs the rows of later
batches, and the earlier rows of the same runs of jobs; files are chosen by their statistics. What
changes in silver is added to the sums, and the table is committed with its new position, so that
no increment counts twice. Tables at the same position share one pass.
"""

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa
from pyarrow import compute

from dueline.core.clock import DAY_US
from dueline.core.errors import Conflict, LakeCorrupt
from dueline.spark.pipeline.delta import (
    DAY,
    INSTANT_TYPE,
    SLACK_US,
    File,
    Place,
    Table,
    Writer,
    days_of,
    shaped,
)  # fmt: skip
from dueline.spark.pipeline.engine import Say
from dueline.spark.pipeline.history_bounds import NO_END
from dueline.spark.pipeline.queries import Duck, Files, text_of
from dueline.spark.pipeline.tables import (
    BATCH,
    BRONZE,
    INSTANT,
    OPERATORS,
    SILVER,
    SUMS,
    Sums,
    open_table,
)  # fmt: skip
from dueline.spark.pipeline.thresholds import (
    CRASHES_MIN,
    OBJECTIVE,
    SHARDS_MIN,
    SLOW_FACTOR,
    SLOW_STEP_MIN,
    STARTS_MIN,
    TARGET_US,
)  # fmt: skip

PORTION: Final = 200_000
"""Number of new rows of an increment in this process; about 500 bytes each in memory."""

SMALL: Final = 100_000
"""Number of new rows up to which this process is faster than Spark: a job of Spark costs about as
much as DuckDB needs for them."""

MERGED_ROWS: Final = 50_000
"""Number of rows up to which the last file of a day of sums gets new rows."""

RUN: Final = ("job_id", "enqueued")
"""The key of one run of a job, from its enqueueing to its end: data may enqueue an id again."""

TARGET: Final = "target_us"
"""Position of `gold_start`: the objective of start latency by which it counts."""

OBJECTIVE_PPB: Final = "objective_ppb"
"""Position of `slo`: the objective, in parts per billion."""

_EPOCH: Final = date(1970, 1, 1).toordinal()
_PPB: Final = 1_000_000_000
NEEDED: Final = tuple(
    name
    for name in BRONZE.shape.names
    if name not in (DAY, "codec", "payload_bytes", "payload", "digest")
)
_THRESHOLDS: Final = {
    "shards_min": SHARDS_MIN, "starts_min": STARTS_MIN, "crashes_min": CRASHES_MIN,
    "slow_step_min": SLOW_STEP_MIN, "slow_factor": SLOW_FACTOR,
}  # fmt: skip


class Goal(NamedTuple):
    """What tables count: the objective of start latency, and the share of starts within it."""

    target_us: int = TARGET_US
    objective: float = OBJECTIVE


class Written(NamedTuple):
    """Numbers of rows and files that were written, by table."""

    rows: Counter[str]
    files: Counter[str]

    def add(self, name: str, files: Sequence[File]) -> None:
        """Count files of a table."""
        self.rows[name] += sum(file.rows for file in files)
        self.files[name] += len(files)


class Portion(NamedTuple):
    """Rows of bronze: those of batches after `low` up to `high`, and the files that hold them."""

    low: int
    high: int
    files: Sequence[File]
    rows: int


class Changes(Protocol):
    """What one portion changes, computed by an engine."""

    def silver(self, writer: Writer) -> tuple[list[File], pa.Table]:
        """Write the new rows of silver to files; return these, and the rows to remove."""
        ...

    def sums(self, sums: Sums, values: Mapping[str, Any]) -> pa.Table:
        """Return what to add to a table of sums."""
        ...

    def close(self) -> None:
        """Release what is kept."""
        ...


class Engine(Protocol):
    """Computes what a portion changes."""

    portion: int | None
    """Maximum number of rows of a portion; None for no limit."""

    def changes(self, bronze: Table, portion: Portion) -> Changes:
        """Compute what a portion changes."""
        ...


class Increments:
    """Updates tables from bronze.

    Args:
        lake: Where the tables are.
        small: Engine for up to SMALL new rows, and for small tables.
        large: Starts the engine for more.
    """

    def __init__(
        self, lake: Place, small: "DuckEngine", large: Callable[[], Engine], goal: Goal,
        small_max: int = SMALL,
    ) -> None:  # fmt: skip
        self._lake = lake
        self._small = small
        self._large = large
        self._goal = goal
        self._small_max = small_max
        self._bronze = open_table(lake, BRONZE.name)
        self._opened: dict[str, Table] = {}

    def run(self, names: Sequence[str], say: Say) -> Written:
        """Bring tables up to bronze."""
        last = self._bronze.position(BATCH) or 0
        written = Written(Counter(), Counter())
        at = {name: self._table(name).position(BATCH) or 0 for name in names}
        days: set[str] | None = set()
        if at.get("gold_minute") != at.get("fairness"):
            days = None
        sums = {name: position for name, position in at.items() if name not in OPERATORS}
        for low in sorted(set(sums.values())):
            if low < last:
                behind = [name for name, position in sums.items() if position == low]
                self._advance(behind, low, say, written, days)
        if "gold_start" in names:
            self._retarget(last, written)
        for name in names:
            if name in OPERATORS:
                self._operators(name, last, days, written)
        return written

    def _table(self, name: str) -> Table:
        if name not in self._opened:
            self._opened[name] = open_table(self._lake, name)
        return self._opened[name]

    def _advance(
        self, names: Sequence[str], low: int, say: Say, written: Written, days: set[str] | None
    ) -> None:
        """Bring tables from one batch to the last."""
        last = self._bronze.position(BATCH) or 0
        files = self._bronze.newer(low)
        left = sum(file.rows for file in files)
        engine: Engine = self._small if left <= self._small_max else self._large()
        begun = time.monotonic()
        for portion in portions(files, low, last, engine.portion):
            changes = engine.changes(self._bronze, portion)
            positions = {BATCH: portion.high}
            if portion.high == last:
                positions[INSTANT] = self._bronze.position(INSTANT) or 0
            try:
                for name in names:
                    added, removed = self._change(name, changes, portion, positions)
                    written.add(name, added)
                    if name == "gold_minute" and days is not None:
                        days.update(str(file.day) for file in (*added, *removed))
            finally:
                changes.close()
            left -= portion.rows
            rate = portion.rows / max(time.monotonic() - begun, 1e-3)
            begun = time.monotonic()
            say(f"tables: {portion.rows:,} rows are included, {rate:,.0f}/s, {max(left, 0):,} left")

    def _change(
        self, name: str, changes: Changes, portion: Portion, positions: Mapping[str, int]
    ) -> tuple[Sequence[File], Sequence[File]]:  # fmt: skip
        """Commit a portion to a table; return the files that it adds and replaces."""
        table = self._table(name)
        table.create()
        if (table.position(BATCH) or 0) != portion.low:
            raise Conflict(
                f"Another process writes to the tables in {self._lake.root}.",
                hint="Run it again: it goes on where the other ended.",
            )
        if name == SILVER.name:
            fresh, gone = changes.silver(table.writer)
            added, removed = without(table, gone)
            added = [*fresh, *added]
        else:
            target_us = self._target(table)
            rows = changes.sums(SUMS[name], {TARGET: target_us})
            added, removed = merged(table, SUMS[name], rows)
            if name == "gold_start":
                positions = {**positions, TARGET: target_us}
        table.commit(added, removed, positions)
        return added, removed

    def _target(self, table: Table) -> int:
        """Return the objective by which a table counts; a new one takes that of this run."""
        before = table.position(TARGET)
        return self._goal.target_us if before is None else before

    def _retarget(self, last: int, written: Written) -> None:
        """Count starts anew, from silver, if the objective of start latency is another."""
        table, silver = self._table("gold_start"), self._table(SILVER.name)
        if not table.exists() or self._target(table) == self._goal.target_us:
            return
        if (silver.position(BATCH) or 0) != last:
            return  # the next run of all steps does it
        values = {TARGET: self._goal.target_us}
        rows = self._small.counted(SUMS["gold_start"], silver.view(), values)
        files = table.files()
        added = table.writer.write(rows)
        table.commit(added, files, {BATCH: last, TARGET: self._goal.target_us})
        written.add("gold_start", added)

    def failures(self) -> list[Table]:
        """Return the tables that name errors, in the order in which they are computed."""
        return [self._table(name) for name in ("gold_failure", "poison")]

    def recount(self, table: Table) -> None:
        """Compute a table that names errors anew, from silver, whose errors were removed."""
        silver, name = open_table(self._lake, SILVER.name), table.design.name
        if name in SUMS:
            rows = self._small.counted(SUMS[name], silver.view(), {})
        else:
            sums = self._table(OPERATORS[name][1]).view()
            rows = self._small.queries.run(text_of(name), {"sums": sums}).table(table.design.inside)
        positions = {key: silver.position(key) or 0 for key in (BATCH, INSTANT)}
        table.refresh()
        table.commit(table.writer.write(rows), table.files(), positions)

    def _operators(self, name: str, last: int, days: set[str] | None, written: Written) -> None:
        """Compute a small table from its sums; `fairness` only for the days that changed."""
        table, (design, source) = self._table(name), OPERATORS[name]
        sums = self._table(source)
        positions = {BATCH: last, INSTANT: self._bronze.position(INSTANT) or 0}
        if name == "slo":
            positions[OBJECTIVE_PPB] = round(self._goal.objective * _PPB)
            positions[TARGET] = self._target(sums)
        if not sums.exists() or all(table.position(key) == at for key, at in positions.items()):
            return
        table.create()
        where = None
        if design.instant and days is not None:
            where = of_days(date.fromisoformat(day) for day in days)
        view = sums.view(sums.files(where))
        values = {"objective": self._goal.objective, **_THRESHOLDS}
        rows = self._small.queries.run(text_of(name), {"sums": view}, values)
        removed = table.files(where)
        added = table.writer.write(rows.table(design.inside))
        table.commit(added, removed, positions)
        written.add(name, added)


def portions(files: Sequence[File], low: int, last: int, rows_max: int | None) -> Iterator[Portion]:
    """Divide batches into portions of up to a number of rows; a batch is not divided."""
    ordered = sorted(files, key=lambda file: file.highs.get(BATCH) or last)
    portion: list[File] = []
    rows, high = 0, low
    for place, file in enumerate(ordered):
        batch = file.highs.get(BATCH) or last
        is_new = batch != high and portion
        if is_new and rows_max is not None and rows + file.rows > rows_max:
            yield Portion(low, high, _holding(files, low, high), rows)
            portion, rows, low = [], 0, high
        portion.append(file)
        rows += file.rows
        high = batch
        if place == len(ordered) - 1:
            yield Portion(low, last, _holding(files, low, last), rows)


def _holding(files: Sequence[File], low: int, high: int) -> list[File]:
    """Return the files that may hold rows of batches after `low` up to `high`."""
    return [
        file
        for file in files
        if (file.highs.get(BATCH) or high) > low and (file.lows.get(BATCH) or high) <= high
    ]


def earlier(bronze: Table, low: int, enqueued_us: Sequence[int]) -> list[File]:
    """Return the files with rows up to batch `low` that may be of runs enqueued at given times.

    Args:
        bronze: The table.
        low: The batch.
        enqueued_us: Times, sorted.
    """
    if not low or not enqueued_us:
        return []
    least = compute.field(f"min.{BATCH}")
    days = {at_us // DAY_US for at_us in enqueued_us}
    is_of = of_days(date.fromordinal(_EPOCH + day) for day in days)
    return _hit(bronze.files(is_of & (least.is_null() | (least <= low))), "enqueued", enqueued_us)


def overlapping(bronze: Table, portion: Portion) -> list[File]:
    """Return the files with earlier rows that may be of the runs in a portion."""
    least = compute.field(f"min.{BATCH}")
    days = {date.fromisoformat(str(file.day)) for file in portion.files}
    before = bronze.files(of_days(days) & (least.is_null() | (least <= portion.low)))
    ranges: dict[str | None, list[File]] = {}
    for file in portion.files:
        ranges.setdefault(file.day, []).append(file)
    return [
        file
        for file in before
        if any(
            file.may_hold(
                "enqueued", new.lows.get("enqueued", 0), new.highs.get("enqueued", NO_END)
            )
            for new in ranges[file.day]
        )
    ]


def of_days(days: Iterable[date]) -> compute.Expression:
    """Return the condition that a file is of one of some days."""
    return compute.is_in(compute.field(f"partition.{DAY}"), pa.array(list(days), pa.date32()))


def _hit(files: Sequence[File], name: str, instants: Sequence[int]) -> list[File]:
    """Return the files whose range of a column may include one of some times, sorted."""

    def is_hit(file: File) -> bool:
        low, high = file.lows.get(name), file.highs.get(name)
        if low is None or high is None:
            return True
        place = bisect_left(instants, low - SLACK_US)
        return place < len(instants) and instants[place] <= high + SLACK_US

    return [file for file in files if is_hit(file)]


def _instants(column: pa.ChunkedArray) -> list[int]:
    """Return the distinct times of a column, sorted."""
    return sorted(compute.unique(column.cast(INSTANT_TYPE).cast(pa.int64())).to_pylist())


def merged(table: Table, sums: Sums, rows: pa.Table) -> tuple[list[File], list[File]]:
    """Add rows to a table of sums; return the new files, and those that they replace.

    Only files with the same minutes are replaced, and the last of a day while it is small.
    """
    if not rows.num_rows:
        return [], []
    names = [*sums.keys, *sums.counts]
    if sums.design.instant:
        days = set(compute.unique(days_of(rows.column("minute"))).to_pylist())
        of_same = table.files(of_days(days))
        files = _hit(of_same, "minute", _instants(rows.column("minute")))
        for day in set(map(str, days)) - {file.day for file in files}:
            of_day = [file for file in of_same if file.day == day]
            last = max(of_day, key=lambda file: file.highs.get("minute") or 0, default=None)
            if last is not None and last.rows <= MERGED_ROWS:
                files.append(last)
    else:
        files = table.files()
    before = table.view(files).dataset().to_table(columns=names) if files else rows.slice(0, 0)
    both = pa.concat_tables([shaped(before, rows.schema), rows])
    total = both.group_by(list(sums.keys), use_threads=False).aggregate(
        [(name, "sum") for name in sums.counts]
    )
    total = total.rename_columns([*sums.keys, *sums.counts]).select(names)
    is_kept = compute.not_equal(total.column(sums.counts[0]), 0)
    for name in sums.counts[1:]:
        is_kept = compute.or_(is_kept, compute.not_equal(total.column(name), 0))
    return table.writer.write(total.filter(is_kept)), files


def without(table: Table, gone: pa.Table) -> tuple[list[File], list[File]]:
    """Rewrite the files of silver that hold rows to remove; return new files and replaced ones.

    Raises:
        LakeCorrupt: Silver does not hold one of the rows.
    """
    if not gone.num_rows:
        return [], []
    keys = [*RUN, "attempt"]
    added: list[File] = []
    removed: list[File] = []
    count = 0
    for file in _hit(table.files(), "ended", _instants(gone.column("ended"))):
        rows = table.view([file]).dataset().to_table()
        kept = rows.join(gone.select(keys), keys, join_type="left anti")
        if kept.num_rows < rows.num_rows:
            count += rows.num_rows - kept.num_rows
            removed.append(file)
            added += table.writer.write(kept)
    if count != gone.num_rows:
        raise LakeCorrupt(
            f"{table.place.root} lacks rows that were in it.",
            hint="Delete the folder of silver; the next run makes it again from bronze.",
        )
    return added, removed


class DuckEngine:
    """Computes changes with DuckDB, in this process."""

    portion: int | None = PORTION

    def __init__(self, queries: Duck) -> None:
        self.queries = queries

    def changes(self, bronze: Table, portion: Portion) -> "DuckChanges":
        """Compute what a portion changes."""
        batch = compute.field(BATCH)
        is_new = (batch > portion.low) & (batch <= portion.high)
        view = bronze.view(portion.files).dataset()
        new = view.to_table(columns=list(NEEDED), filter=is_new)
        old = self._earlier(bronze, portion.low, new)
        rows = signed(new, 1)
        if old.num_rows:
            rows = pa.concat_tables([rows, signed(old, 1), signed(old, -1)])
        return DuckChanges(self.queries, rows, has_old=bool(old.num_rows))

    def _earlier(self, bronze: Table, low: int, new: pa.Table) -> pa.Table:
        """Return the rows of the same runs in batches up to `low`."""
        none = new.slice(0, 0)
        if not low:
            return none
        runs = new.select(list(RUN)).group_by(list(RUN), use_threads=False).aggregate([])
        enqueued = _instants(runs.column("enqueued"))
        files = earlier(bronze, low, enqueued)
        if not files:
            return none
        first, last = (pa.scalar(enqueued[place], pa.timestamp("us", "UTC")) for place in (0, -1))
        at = compute.field("enqueued")
        where = (compute.field(BATCH) <= low) & (at >= first) & (at <= last)
        if runs.num_rows <= _LISTED_MAX:
            where &= compute.is_in(compute.field("job_id"), runs.column("job_id").combine_chunks())
        rows = bronze.view(files).dataset().to_table(columns=list(NEEDED), filter=where)
        return rows.join(runs, list(RUN), join_type="left semi") if rows.num_rows else none

    def counted(self, sums: Sums, silver: Files, values: Mapping[str, Any]) -> pa.Table:
        """Return a table of sums over all rows of silver."""
        sql = "SELECT *, 1 AS sign FROM silver"
        changes = self.queries.run(sql, {"silver": silver}).batches()
        return self.queries.run(text_of(sums.design.name), {"changes": changes}, values).table(
            sums.design.inside
        )


_LISTED_MAX: Final = 10_000
"""Number of runs up to which files are filtered by their ids while they are read."""


class DuckChanges:
    """What a portion changes, in this process."""

    def __init__(self, queries: Duck, rows: pa.Table, *, has_old: bool) -> None:
        self._queries = queries
        self._rows = rows
        self._has_old = has_old
        self._views: dict[str, pa.Table] = {}

    def _view(self, name: str) -> pa.Table:
        if name not in self._views:
            if name == "runs":
                self._views[name] = self._run("runs", {"rows": self._rows})
            else:
                state = self._run("silver", {"rows": self._rows})
                self._views[name] = (
                    self._run("changes", {"state": state}) if self._has_old else state
                )
        return self._views[name]

    def _run(self, name: str, views: Mapping[str, Any]) -> pa.Table:
        return self._queries.run(text_of(name), views).table()

    def silver(self, writer: Writer) -> tuple[list[File], pa.Table]:
        """Write the new rows of silver to files; return these, and the rows to remove."""
        changes = self._view("changes")
        sign = changes.column("sign")
        fresh = changes.filter(compute.greater(sign, 0)) if self._has_old else changes
        gone = changes.filter(compute.less(sign, 0)) if self._has_old else changes.slice(0, 0)
        return writer.write(fresh), gone

    def sums(self, sums: Sums, values: Mapping[str, Any]) -> pa.Table:
        """Return what to add to a table of sums."""
        rows = self._queries.run(
            text_of(sums.design.name), {sums.source: self._view(sums.source)}, values
        )
        return rows.table(sums.design.inside)

    def close(self) -> None:
        """Release what is kept."""
        self._views.clear()


def signed(rows: pa.Table, sign: int) -> pa.Table:
    """Return rows with a column `sign`."""
    return rows.append_column("sign", pa.repeat(pa.scalar(sign, pa.int64()), rows.num_rows))
