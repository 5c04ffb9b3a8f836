"""The pipeline: tables of what a queue did, and their audit."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute

from dueline.core.engine import Engine
from dueline.core.errors import BadInput, NotFound
from dueline.core.pagination import rows_in
from dueline.core.queue_settings import tells_all
from dueline.core.store import Store
from dueline.jobs.history import HISTORY_SUFFIX
from dueline.jobs.history_batch import size_of, unbundled
from dueline.spark.pipeline.archive import Archive, Archived, Check, Period, asked_of
from dueline.spark.pipeline.audit import ALL, Auditor, Judged
from dueline.spark.pipeline.audit_rules import NO_PROMISES, RUN, Promises
from dueline.spark.pipeline.dead_jobs import Death, Wanted
from dueline.spark.pipeline.engine import STEPS, Say, Settings, Step, TableEngine
from dueline.spark.pipeline.history_bounds import NO_END, EnqueuePeriod, bound
from dueline.spark.pipeline.past import STATES, count_at
from dueline.spark.pipeline.queries import Derived, Duck, Files, View, text_of
from dueline.spark.pipeline.replay import Chosen, Found, Order
from dueline.spark.pipeline.schemas import BRONZE_SHAPE, SHAPES, SILVER_SHAPE
from dueline.spark.pipeline.table_store import BRONZE, GOLD, SILVER, WHOLE, Folder, Manifest
from dueline.spark.reading import shards as stream_shards
from dueline.spark.runtime.options import existing_engine, open_existing
from dueline.spark.writing.enqueue import Written

_LAST: Final = b"\xff" * 16


class Pipeline:
    """Tables in a folder, made from a store's history by an engine."""

    def __init__(
        self, folder: Folder, settings: Settings, engine: Callable[[], TableEngine]
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._start = engine
        self._started: TableEngine | None = None

    def _engine(self) -> TableEngine:
        if self._started is None:
            self._started = self._start()
        return self._started

    def run(
        self,
        steps: Sequence[str],
        say: Say,
        *,
        since_us: int | None = None,
        until_us: int | None = None,
    ) -> list[Step]:
        """Run steps in order; all steps by default.

        Args:
            steps: Names of steps.
            say: Shows progress.
            since_us: Start of the history in new tables.
            until_us: End of the history in new tables.

        Raises:
            BadInput: There is no such step.
            Conflict: The tables hold another period.
        """
        for name in steps:
            if name not in STEPS:
                raise BadInput(f"There is no step {name!r}.", hint=f"Use {', '.join(STEPS)}.")
        with self._folder.writing():
            chosen = [name for name in STEPS if not steps or name in steps]
            if BRONZE in chosen or since_us is not None or until_us is not None:
                self._bound(since_us, until_us)
            return [getattr(self._engine(), name)(say) for name in chosen]

    def status(self) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
        """Return the size of each table, and the rows of each shard that are not copied yet."""
        tables: list[Mapping[str, Any]] = []
        for table in (BRONZE, SILVER, *GOLD, *WHOLE):
            manifest = self._folder.manifest(table)
            last = [one["last_us"] for one in manifest.facts.values() if "last_us" in one]
            tables.append(
                {
                    "table": table, "engine": manifest.engine, "rows": manifest.rows,
                    "parts": len(manifest.parts), "done": manifest.done,
                    "last_us": max(last, default=None),
                }
            )  # fmt: skip
        ends = self._ends()
        bounds = self._folder.manifest(BRONZE)
        with existing_engine(self._settings.store) as engine:
            copied: list[Mapping[str, Any]] = [
                {"queue": queue, "shard": shard, "copied_us": ends.get((queue, shard)),
                 "behind": _count(engine.store, queue, shard, ends.get((queue, shard)), bounds)}
                for queue in self._names(engine)
                for shard in stream_shards.history_shards(engine, queue)
            ]  # fmt: skip
        return tables, copied

    def _bound(self, since_us: int | None = None, until_us: int | None = None) -> Manifest:
        """Start bronze with a period, or check that it is the same."""
        with existing_engine(self._settings.store) as engine:
            return bound(self._folder, engine, self._names(engine), since_us, until_us)

    def _names(self, engine: Engine) -> list[str]:
        if not self._settings.queues:
            return engine.catalog.names()
        return [name for one in self._settings.queues for name in engine.catalog.chosen(one)]

    def _histories(self, engine: Engine) -> dict[str, str]:
        """Return how much each queue's history holds."""
        return {name: engine.catalog.settings(name).history for name in self._names(engine)}

    def _ends(self) -> dict[tuple[str, int], int]:
        """Return up to where each shard was copied."""
        if not self._folder.manifest(BRONZE).parts:
            return {}
        table = self._folder.read(BRONZE, columns=("queue", "shard", "at"))
        if table is None:
            return {}
        ends = table.group_by(["queue", "shard"]).aggregate([("at", "max")])
        instants = ends.column("at_max").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        keys = zip(ends.column("queue").to_pylist(), ends.column("shard").to_pylist(), strict=True)
        return dict(zip(keys, instants.to_pylist(), strict=True))

    def past(self, instant_us: int) -> list[Mapping[str, Any]]:
        """Count the jobs of each queue at a time, by state, from the copied history.

        Returns:
            queue, history, verdict, and a count for each state. The verdict is `complete`,
            `not audited`, or `partial` if the tables do not hold all of the history before.
        """
        with existing_engine(self._settings.store) as engine:
            history = self._histories(engine)
        bounds = self._folder.manifest(BRONZE)
        files = Files([str(file) for file in self._folder.files(BRONZE)], BRONZE_SHAPE)
        counts = count_at(Duck(), files, instant_us)
        return [
            {
                "queue": name,
                "history": kept,
                "verdict": _completeness(kept, is_whole=not bounds.begins.get(name, 0)),
                **{state: counts[name, state] if tells_all(kept) else 0 for state in STATES},
            }
            for name, kept in history.items()
        ]

    def report(
        self, title: str, *, since_us: int | None = None, until_us: int | None = None
    ) -> str:
        """Return a page about the tables, or about a period, in whole minutes.

        Raises:
            NotFound: Nothing was copied.
        """
        if not self._folder.manifest(BRONZE).parts:
            raise NotFound(
                f"{self._folder.root} holds no tables.", hint="Fill it with `dueline pipeline run`."
            )
        from dueline.spark.pipeline.report import About, Report, Span  # noqa: PLC0415  (a browser's engine)

        views: dict[str, View] = {
            name: Files([str(file) for file in self._folder.files(name)], shape)
            for name, shape in SHAPES.items()
            if self._folder.manifest(name).parts
        }
        if self._folder.manifest(SILVER).parts:
            silver = [str(file) for file in self._folder.files(SILVER)]
            views |= {
                "silver": Files(silver, SILVER_SHAPE),
                "failures": Derived(text_of("failures")),
            }
        span = Span.of(since_us, until_us)
        now_us, command = time.time_ns() // 1000, f"--out {self._folder.root}"
        return Report(views, About(title, span, now_us, command, self._settings.objective)).page()

    def archive(
        self, to: Path, say: Say, *, since_us: int | None = None, until_us: int | None = None
    ) -> Archived:
        """Copy new rows, and write the rows of a period to a folder of their own.

        A complete archive of the same period and queues is left as it is.

        Args:
            to: Folder of the archive.
            say: Shows progress.
            since_us: Start of the period.
            until_us: Time before which it ends; None for all rows that are final now.

        Raises:
            BadInput: The period may still get rows.
            Conflict: The folder holds another archive, or something else.
        """
        asked = asked_of(self._settings.queues, since_us, until_us)
        archive = Archive(to)
        held = archive.held(asked)
        if held is not None:
            return held
        with self._folder.writing():
            bounds = self._bound()
        if since_us is not None and since_us < bounds.since_us:
            raise BadInput(
                "The tables begin after the start of that period.",
                hint="Use a later --since, or other tables with --out.",
            )
        settled_us = self._settled_us()
        if bounds.until_us:
            settled_us = min(settled_us, bounds.until_us)
        if until_us is not None and until_us > settled_us:
            raise BadInput(
                "That period has not ended: it may still get rows.",
                hint="Use an earlier --until, or omit it for all final rows.",
            )
        end_us = settled_us if until_us is None else until_us
        period = Period(self._settings.queues, since_us or bounds.since_us, end_us)
        with self._folder.writing():
            place = archive.clear()
            self._engine().bronze(say)
            self._engine().archive(place, period)
            say("archive: rows are written")
            return archive.publish(asked, period)

    def deaths(self, wanted: Wanted) -> list[Death]:
        """Return the dead jobs in silver that match, in the chosen queues.

        Raises:
            NotFound: There is no such queue, or silver does not exist.
        """
        self._folder.need(SILVER)
        with existing_engine(self._settings.store) as engine:
            names = self._names(engine) if self._settings.queues else ()
        return self._engine().deaths(wanted._replace(queues=names))

    def replayable(self, chosen: Chosen, archives: Sequence[Path] = ()) -> Found:
        """Return the chosen jobs that can be replayed.

        Args:
            chosen: The filter.
            archives: Archives to read instead of bronze.

        Raises:
            NotFound: There is no such archive, or bronze does not exist.
        """
        files = self._rows(archives)
        if not files:
            return Found((), ())
        return self._engine().replayable(files, self._in_queues(chosen))

    def replay(
        self, chosen: Chosen, order: Order, say: Say, archives: Sequence[Path] = ()
    ) -> Written:
        """Enqueue the chosen jobs again; return how many matched, and how many are new."""
        files = self._rows(archives)
        if not files:
            return Written()
        return self._engine().replay(files, self._in_queues(chosen), order, say)

    def _rows(self, archives: Sequence[Path]) -> list[Path]:
        if archives:
            return [file for one in archives for file in Archive(one).rows()]
        self._folder.need(BRONZE)
        return self._folder.files(BRONZE)

    def _in_queues(self, chosen: Chosen) -> Chosen:
        return chosen._replace(queues=self._settings.queues)

    def _settled_us(self) -> int:
        """Raise the watermarks to the present; return the time before which rows are final."""
        with existing_engine(self._settings.store) as engine:
            store = engine.store
            some = [
                stream_shards.Shard(name, name + HISTORY_SUFFIX, shard)
                for name in self._names(engine)
                for shard in stream_shards.history_shards(engine, name)
            ]
            marks = stream_shards.close(store, some).values()
            return min((stream_shards.now_us(store), *marks)) + 1

    def verify(self) -> list[Check]:
        """Compare the store with bronze, bronze with silver, and silver with gold."""
        bronze = self._folder.read(BRONZE, columns=("id", *RUN, "attempt", "worker"))
        if bronze is None:
            return [Check("bronze", is_good=True, finding="no rows yet")]
        known = set(bronze.column("id").to_pylist())
        ends = self._ends()
        since_us = self._folder.manifest(BRONZE).since_us
        with closing(open_existing(self._settings.store)) as store:
            missing = [
                row_id
                for (queue, shard), end_us in ends.items()
                for row_id in _ids(store, queue, shard, since_us, end_us)
                if row_id not in known
            ]
        attempts = bronze.filter(compute.not_equal(bronze.column("worker"), ""))
        claims = attempts.group_by([*RUN, "attempt"]).aggregate([]).num_rows
        checks = [
            Check(
                "bronze holds the store's history",
                is_good=not missing,
                finding=f"{len(known):,} rows, {len(missing):,} of the store's are missing",
            ),
            self._check_silver(claims),
        ]
        silver = self._folder.manifest(SILVER).rows
        spans = self._folder.read(SILVER, columns=("started",))
        started = 0 if spans is None else spans.num_rows - spans.column("started").null_count
        for table, wanted in zip(GOLD, (silver, started, started), strict=True):
            counted = self._sum(table)
            words = f"{counted:,} attempts, {wanted:,} in silver"
            checks.append(Check(f"{table} counts silver", counted == wanted, words))
        return checks

    def _check_silver(self, claims: int) -> Check:
        done = self._folder.manifest(BRONZE).done - self._folder.current(SILVER).done
        if done:
            words = f"{done} part(s) of bronze are missing in it: run it again"
            return Check("silver has each attempt once", is_good=False, finding=words)
        silver = self._folder.read(SILVER, columns=(*RUN, "attempt"))
        rows = 0 if silver is None else silver.num_rows
        single = 0
        if silver is not None:
            single = silver.group_by([*RUN, "attempt"]).aggregate([]).num_rows
        words = f"{rows:,} rows, {single:,} attempts; {claims:,} in bronze"
        return Check("silver has each attempt once", rows == single == claims, words)

    def _sum(self, table: str) -> int:
        found = self._folder.read(table, columns=("attempts",))
        return 0 if found is None else int(compute.sum(found.column("attempts")).as_py())

    def audit(
        self,
        say: Say,
        *,
        expected: Collection[str] | None = None,
        enqueued: EnqueuePeriod = ALL,
        promises: Promises = NO_PROMISES,
        with_results: bool = False,
    ) -> Judged:
        """Copy new rows, and audit the history; the queues may be in use.

        Args:
            say: Shows progress.
            expected: Ids of all acknowledged jobs, if known, or their `job_id` in the data.
            enqueued: Which jobs to judge, by enqueue time.
            promises: Further rules.
            with_results: Whether to compare stored results with the history.

        Raises:
            BadInput: `expected` needs a history of `all` or `arguments`, and a queue has less.
        """
        with existing_engine(self._settings.store) as engine, self._folder.writing():
            history = self._histories(engine)
            bounds = bound(self._folder, engine, list(history), None, None)
            auditor = Auditor(self._folder, engine, history, bounds, enqueued)
            return auditor.judge(self._engine(), say, expected, promises, with_results=with_results)


def _completeness(history: str, *, is_whole: bool) -> str:
    if not tells_all(history):
        return "not audited"
    return "complete" if is_whole else "partial"


def _count(store: Store, queue: str, shard: int, end_us: int | None, bounds: Manifest) -> int:
    """Count the rows of a history after a time, within the period of the tables."""
    after = (bounds.since_us, b"") if end_us is None else (end_us, _LAST)
    rows = rows_in(store, queue + HISTORY_SUFFIX, shard, after=after)
    inside = takewhile(lambda row: row.at_us < (bounds.until_us or NO_END), rows)
    return sum(map(size_of, inside))


def _ids(store: Store, queue: str, shard: int, since_us: int, end_us: int) -> Iterator[str]:
    """Yield the ids of rows of a history between two times, both included."""
    rows = rows_in(store, queue + HISTORY_SUFFIX, shard, after=(since_us, b""))
    inside = takewhile(lambda row: row.at_us <= end_us, rows)
    return (one.id.hex() for row in inside for one in unbundled(row))


def pipeline(
    out: Path,
    settings: Settings,
    *,
    engine: str,
    master: str = "local[*]",
    conf: Mapping[str, str] | None = None,
) -> Pipeline:
    """Create a pipeline whose engine starts when it is needed.

    Args:
        out: Folder of the tables.
        settings: Store, queues and targets.
        engine: spark or arrow.
        master: Master of Spark.
        conf: Further settings of Spark.
    """
    folder = Folder(out)

    def start() -> TableEngine:
        if engine == "arrow":
            from dueline.spark.pipeline.arrow_engine import ArrowEngine  # noqa: PLC0415  (one of two)

            return ArrowEngine(folder, settings)
        from dueline.spark.pipeline.spark_engine import SparkEngine  # noqa: PLC0415  (needs Spark)
        from dueline.spark.runtime.session import session  # noqa: PLC0415

        quiet = {"spark.log.level": "ERROR"} | dict(conf or {})
        return SparkEngine(session("dueline pipeline", master=master, conf=quiet), folder, settings)

    return Pipeline(folder, settings, start)
