"""The pipeline: tables of what a queue did, and their audit."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any

from dueline.api.connect import existing_engine, mask
from dueline.core.clock import SECOND_US, to_datetime
from dueline.core.engine import Engine
from dueline.core.errors import BadInput, NotFound
from dueline.core.queue_settings import tells_all
from dueline.foresight.scenario import Changes
from dueline.jobs.audit_rules import NO_PROMISES, Promises
from dueline.spark.pipeline import archive, bronze, dead_jobs, erasure, past, replay, what_if
from dueline.spark.pipeline.archive import Archived
from dueline.spark.pipeline.asking import QUESTIONS, answer_to
from dueline.spark.pipeline.audit import ALL, Auditor, Judged
from dueline.spark.pipeline.audit_state import FINDINGS
from dueline.spark.pipeline.dead_jobs import Death, Wanted
from dueline.spark.pipeline.delta import Place, Table, damage_named
from dueline.spark.pipeline.engine import STEPS, Check, Say, Settings, Step
from dueline.spark.pipeline.history_bounds import EnqueuePeriod
from dueline.spark.pipeline.increments import SMALL, DuckEngine, Goal, Increments, Written
from dueline.spark.pipeline.queries import Derived, Duck, Queries, View
from dueline.spark.pipeline.replay import KEEP_US, Chosen, Found, Order
from dueline.spark.pipeline.tables import (
    AUDIT,
    BATCH,
    BRONZE,
    DESIGNS,
    INSTANT,
    SILVER,
    open_table,
)  # fmt: skip
from dueline.spark.pipeline.verification import behind_of, verify
from dueline.spark.writing import enqueue
from dueline.spark.writing.rows_to_jobs import Form, chunks_of

if TYPE_CHECKING:
    from dueline.spark.pipeline.spark_engine import SparkEngine

TABLES: Mapping[str, Sequence[str]] = {
    "silver": (SILVER.name,),
    "gold": tuple(name for name in DESIGNS if name not in (BRONZE.name, SILVER.name)),
}
"""Tables of each step after bronze."""


class Pipeline:
    """Tables in a lake, made from a store's history.

    Args:
        lake: Where the tables are.
        settings: Store, queues and targets.
        start: Starts Spark; None to use DuckDB in this process alone.
        small_max: Number of new rows up to which this process is used with Spark, too.
    """

    def __init__(
        self,
        lake: Place,
        settings: Settings,
        start: "Callable[[], SparkEngine] | None" = None,
        small_max: int = SMALL,
    ) -> None:
        self._lake = lake
        self._settings = settings
        self._start = start
        self._small_max = small_max
        self._small = DuckEngine(Duck())
        self._started: SparkEngine | None = None

    def _large(self) -> "SparkEngine | DuckEngine":
        if self._start is None:
            return self._small
        if self._started is None:
            self._started = self._start()
        return self._started

    @property
    def _queries(self) -> Queries:
        return self._large().queries

    def _bronze(self) -> Table:
        return open_table(self._lake, BRONZE.name)

    def _audit(self) -> Table:
        return Table(self._lake.below(AUDIT.name), AUDIT)

    def _rows(self, table: str = BRONZE.name) -> View:
        """Return a table that has to exist.

        Raises:
            NotFound: It does not.
        """
        opened = open_table(self._lake, table)
        opened.delta()
        return opened.view()

    @damage_named()
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
            Conflict: The tables hold another period or the history of another store, or another
                process writes to them.
        """
        for name in steps:
            if name not in STEPS:
                raise BadInput(f"There is no step {name!r}.", hint=f"Use {', '.join(STEPS)}.")
        chosen = [name for name in STEPS if not steps or name in steps]
        done = []
        if BRONZE.name in chosen or since_us is not None or until_us is not None:
            done.append(self._copy(say, since_us, until_us, only_check=BRONZE.name not in chosen))
        names = [table for name in chosen for table in TABLES.get(name, ())]
        written = self._increments().run(names, say) if names else Written(Counter(), Counter())
        for name in chosen:
            if name in TABLES:
                rows, files = (
                    sum(counts.get(table, 0) for table in TABLES[name]) for counts in written
                )
                done.append(Step(name, rows, files))
        return [step for step in done if step.name in chosen]

    def _increments(self) -> Increments:
        goal = Goal(self._settings.target_us, self._settings.objective)
        return Increments(self._lake, self._small, self._large, goal, self._small_max)

    def _copy(
        self, say: Say, since_us: int | None = None, until_us: int | None = None, *,
        only_check: bool = False,
    ) -> Step:  # fmt: skip
        """Copy new rows of the history to bronze."""
        table, rows, commits = self._bronze(), 0, 0
        with existing_engine(self._settings.store) as engine:
            names = self._names(engine)
            period = bronze.prepare(table, engine, since_us, until_us)
            if only_check:
                return Step(BRONZE.name, 0, 0)
            made = bronze.plan(table, engine, names, period)
            begun = time.monotonic()
            for count in self._commits(engine, table, made):
                rows, commits = rows + count, commits + bool(count)
                rate = rows / max(time.monotonic() - begun, 1e-3)
                say(f"bronze: {rows:,} rows are copied, {rate:,.0f}/s; {_left(made)}")
            if made.held:
                since = to_datetime(min(made.held.values())).isoformat(timespec="seconds")
                say(
                    f"bronze: rows of {len(made.held)} shard(s) from {since} on wait for a"
                    " transaction that is open; a later run copies them"
                )
        return Step(BRONZE.name, rows, commits)

    def _copy_only(self, say: Say) -> None:
        """Copy new rows for a command that needs no other table; say if others lack them."""
        if self._copy(say).rows and open_table(self._lake, SILVER.name).exists():
            say("bronze: the other tables lack these rows until `dueline pipeline run`")

    def _commits(self, engine: Engine, table: Table, made: bronze.Plan) -> Iterator[int]:
        """Copy in this process; a large backlog on Spark, if it is used."""
        most = None if self._start is None else self._small_max
        if most != 0:
            yield from bronze.copy(table, engine.store, made, most)
        large = self._large() if made.slices else self._small
        if not isinstance(large, DuckEngine):
            yield from large.copy(table, self._settings.store, engine.store, made)

    def _names(self, engine: Engine) -> list[str]:
        if not self._settings.queues:
            return engine.catalog.names()
        return [name for queue in self._settings.queues for name in engine.catalog.chosen(queue)]

    def _histories(self, engine: Engine) -> dict[str, str]:
        """Return how much each queue's history holds."""
        return {name: engine.catalog.settings(name).history for name in self._names(engine)}

    def status(self) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
        """Return the size and lag of each table, and the rows of each shard not copied yet."""
        table = self._bronze()
        with existing_engine(self._settings.store) as engine:
            now_us = engine.store.clock_us()
            shards = behind_of(table, engine, self._names(engine))
        waiting = [shard["copied_us"] or 0 for shard in shards if shard["behind"]]
        last_us = min(waiting, default=now_us)
        tables: list[Mapping[str, Any]] = []
        for name in DESIGNS:
            opened = open_table(self._lake, name)
            until_us = last_us
            if opened.position(BATCH) != table.position(BATCH):
                until_us = min(last_us, opened.position(INSTANT) or 0)
            tables.append(
                {
                    "table": name,
                    "rows": opened.rows(),
                    "files": len(opened.files()),
                    "last_us": opened.position(INSTANT),
                    "seconds_behind": max(0, now_us - until_us) // SECOND_US
                    if opened.exists()
                    else None,
                }
            )
        return tables, shards

    @damage_named()
    def past(self, instant_us: int) -> list[Mapping[str, Any]]:
        """Count the jobs of each queue at a time, by state, from the copied history.

        Returns:
            queue, history, verdict, and a count for each state. The verdict is `complete`,
            `not audited` without counts, or `partial` if the tables do not hold all of the
            history before, for instance because no run has copied it yet.
        """
        table = self._bronze()
        with existing_engine(self._settings.store) as engine:
            history = self._histories(engine)
            ends = bronze.ends_of(table, engine, history)
        begins = bronze.begins_of(table, history)
        counts = past.count_at(self._queries, self._rows(), instant_us)
        return [
            {
                "queue": name,
                "history": kept,
                "verdict": _completeness(
                    kept, is_whole=not begins[name] and instant_us <= ends[name]
                ),
                **{
                    state: counts[name, state] if tells_all(kept) else None for state in past.STATES
                },
            }
            for name, kept in history.items()
        ]

    @damage_named()
    def report(
        self, title: str, *, since_us: int | None = None, until_us: int | None = None
    ) -> str:
        """Return a page about the tables, or about a period, in whole minutes.

        Raises:
            NotFound: Nothing was copied.
        """
        if not self._bronze().rows():
            raise NotFound(
                f"{self._lake.root} holds no tables.", hint="Fill it with `dueline pipeline run`."
            )
        from dueline.spark.pipeline.report import About, Report, Span  # noqa: PLC0415  (a browser's engine)

        tables = {name: open_table(self._lake, name) for name in DESIGNS}
        views: dict[str, View] = {
            name: table.view() for name, table in tables.items() if table.exists()
        }
        if "gold_failure" in views:
            views["failures"] = Derived("SELECT *, minute AS last FROM gold_failure")
        if self._audit().exists():
            views["findings"] = Derived(FINDINGS)
            views[AUDIT.name] = self._audit().view()
        span = Span.of(since_us, until_us)
        url = self._settings.store
        store = f"--store {quote(url)} " if url and mask(url) == url else ""
        now_us, command = time.time_ns() // 1000, f"{store}--out {self._lake.root}"
        return Report(views, About(title, span, now_us, command, self._settings.objective)).page()

    @damage_named()
    def ask(self, question: str, *, since_us: int, until_us: int) -> list[dict[str, Any]]:
        """Answer one of `QUESTIONS` about the attempts that ended in a period, the worst first.

        Raises:
            NotFound: Nothing was copied.
        """
        silver = self._rows(SILVER.name)
        return answer_to(
            QUESTIONS[question], self._queries, silver, since_us=since_us, until_us=until_us
        )

    @damage_named()
    def archive(
        self, to: Place, say: Say, *, since_us: int | None = None, until_us: int | None = None
    ) -> Archived:
        """Copy new rows, and write the rows of a period to a table of their own.

        A complete archive of the same period and queues is left as it is.

        Args:
            to: Place of the archive.
            say: Shows progress.
            since_us: Start of the period.
            until_us: Time before which it ends; None for all rows that are final now.

        Raises:
            BadInput: The period may still get rows.
            Conflict: The place holds another archive, or something else.
        """
        asked = archive.Asked(tuple(sorted(set(self._settings.queues))), since_us, until_us)
        held = archive.held(to, asked)
        if held is not None:
            return held
        with existing_engine(self._settings.store) as engine:
            made = bronze.plan(self._bronze(), engine, self._names(engine), bronze.Period())
        settled_us = made.instant_us + 1
        self._copy_only(say)
        table = self._bronze()
        kept = bronze.period_of(table)
        if since_us is not None and since_us < kept.since_us:
            raise BadInput(
                "The tables begin after the start of that period.",
                hint="Use a later --since, or other tables with --out.",
            )
        if kept.until_us:
            settled_us = min(settled_us, kept.until_us)
        if until_us is not None and until_us > settled_us:
            raise BadInput(
                "That period has not ended: it may still get rows.",
                hint="Use an earlier --until, or omit it for all final rows.",
            )
        end_us = settled_us if until_us is None else until_us
        period = archive.Period(self._settings.queues, since_us or kept.since_us, end_us)
        return archive.write(to, table, asked, period, say)

    @damage_named()
    def deaths(self, wanted: Wanted) -> list[Death]:
        """Return the dead jobs in silver that match, in the chosen queues.

        Raises:
            NotFound: There is no such queue, or silver does not exist.
        """
        rows = self._rows(SILVER.name)
        with existing_engine(self._settings.store) as engine:
            names = self._names(engine) if self._settings.queues else ()
        return dead_jobs.deaths(self._queries, rows, wanted._replace(queues=names))

    @damage_named()
    def replayable(self, chosen: Chosen, archives: Sequence[Place] = ()) -> Found:
        """Return the chosen jobs that can be replayed.

        Args:
            chosen: The filter.
            archives: Archives to read instead of bronze.

        Raises:
            NotFound: There is no such archive, or bronze does not exist.
        """
        return replay.found(self._queries, self._history(archives), self._in_queues(chosen))

    @damage_named()
    def replay(
        self, chosen: Chosen, order: Order, say: Say, archives: Sequence[Place] = ()
    ) -> enqueue.Written:
        """Enqueue the chosen jobs again; return how many matched, and how many are new."""
        rows = self._history(archives)
        calls = replay.calls(self._queries, rows, self._in_queues(chosen), order)
        say("replay: jobs are enqueued")
        large = self._large()
        if not isinstance(large, DuckEngine):
            return large.replay(calls, self._settings.store, order)
        batches = calls.batches()
        with existing_engine(self._settings.store) as engine:
            now_us = engine.time.earliest_us()
            chunks = chunks_of(batches, Form(), enqueue.CHUNK, now_us)
            return enqueue.put_all(engine, chunks, order.write, 0, keep_us=KEEP_US)

    def _history(self, archives: Sequence[Place]) -> View:
        return archive.view_of(archives) if archives else self._rows()

    def _in_queues(self, chosen: Chosen) -> Chosen:
        return chosen._replace(queues=self._settings.queues)

    @damage_named()
    def verify(self, say: Say = lambda _: None) -> list[Check]:
        """Compare the store with bronze, bronze with silver, and silver with gold."""
        with existing_engine(self._settings.store) as engine:
            names = self._names(engine)
            return verify(self._lake, engine, names, self._small.queries, say)

    @damage_named()
    def simulator(
        self, period: what_if.Period, settings: Sequence[Changes], say: Say
    ) -> what_if.Prepared:
        """Copy new rows, and prepare simulations of the attempts of a period.

        Args:
            period: The period. Queues that share workers with those are simulated, too.
            settings: The settings that will be simulated.
            say: Shows progress.

        Raises:
            NotFound: Nothing ran in the period.
            BadInput: A queue keeps no history, or a setting names what does not exist.
        """
        with existing_engine(self._settings.store) as engine:
            period = period._replace(queues=self._names(engine) if self._settings.queues else ())
            what_if.expect_history(engine, period.queues)
            rules = what_if.rules_of(engine, engine.catalog.names())
            settings_of = engine.catalog.settings
            shards = max((settings_of(name).shards for name in self._names(engine)), default=1)
        self._copy_only(say)
        rows = self._rows()
        used = what_if.used_in(self._small.queries, rows, period, rules)
        what_if.check(settings, used)
        with_hashes = any(setting.shards for setting in settings)
        capacities = what_if.capacities_of(used, rules)
        large = self._large()
        if not isinstance(large, DuckEngine):
            made = large.simulator(rows, period, used, rules, with_hashes=with_hashes)
            return what_if.Prepared(made, capacities, shards, rules.is_far, used.functions)
        attempts = what_if.rows_of(self._queries, rows, period, used).table()
        local = what_if.LocalSimulator(attempts, rules, say, with_hashes=with_hashes)
        return what_if.Prepared(local, capacities, shards, rules.is_far, used.functions)

    @damage_named()
    def forget(
        self,
        subject: erasure.Subject,
        say: Say,
        archives: Sequence[Place] = (),
        *,
        dry_run: bool = False,
    ) -> list[erasure.Forgotten]:
        """Remove what is personal of jobs from all tables and from archives.

        Args:
            subject: Whose data is removed.
            say: Shows progress.
            archives: Archives of the same history.
            dry_run: Whether only to count.

        Raises:
            NotFound: No row is of the subject, or there is neither bronze nor an archive.
            Conflict: Another process wrote to a table; repeat the command.
        """
        increments, tables = self._increments(), {}
        if self._bronze().exists() or not archives:
            self._rows()
            if not dry_run:
                increments.run([name for names in TABLES.values() for name in names], say)
            names = BRONZE.name, SILVER.name
            tables = {name: open_table(self._lake, name) for name in names}
        tables = {name: table for name, table in tables.items() if table.exists()}
        return erasure.forget(
            subject, tables, archives, increments, say, queues=self._settings.queues,
            dry_run=dry_run,
        )  # fmt: skip

    def optimize(self, say: Say) -> list[Mapping[str, Any]]:
        """Merge small files of each table; no row changes.

        Raises:
            NotFound: Bronze does not exist.
        """
        self._rows()
        merges: list[Mapping[str, Any]] = []
        for table in self._tables():
            if table.exists():
                merges.append({"table": table.design.name, **table.optimize()})
                say(f"optimize: {table.design.name}")
        return merges

    def _tables(self) -> list[Table]:
        """Return all tables, with that of the audit."""
        return [*(open_table(self._lake, name) for name in DESIGNS), self._audit()]

    def vacuum(self, hours: int, *, dry_run: bool = False) -> list[Mapping[str, Any]]:
        """Delete files that no table names, older than a number of hours.

        Raises:
            NotFound: Bronze does not exist.
        """
        self._rows()
        return [
            {"table": table.design.name, "files": len(table.vacuum(hours, dry_run=dry_run))}
            for table in self._tables()
            if table.exists()
        ]

    @damage_named()
    def audit(
        self,
        say: Say,
        *,
        expected: Collection[str] | None = None,
        enqueued: EnqueuePeriod = ALL,
        promises: Promises = NO_PROMISES,
        with_results: bool = False,
        is_full: bool = False,
    ) -> Judged:
        """Copy new rows, and audit the history; the queues may be in use.

        Args:
            say: Shows progress.
            expected: Ids of all acknowledged jobs, if known, or their `job_id` in the data.
            enqueued: Which jobs to judge, by enqueue time.
            promises: Further rules.
            with_results: Whether to compare stored results with the history.
            is_full: Whether to judge all jobs, and not only those with new rows and those that
                had not ended at the last audit.

        Raises:
            BadInput: `expected` needs a history of `all` or `arguments`, and a queue has less; or
                no row has the task of a promise.
        """
        with existing_engine(self._settings.store) as engine:
            auditor = Auditor(
                self._bronze(), self._audit(), engine, self._histories(engine), enqueued
            )
            living = auditor.living(say)
            self._copy_only(say)
            return auditor.judge(
                lambda: self._queries, living, expected, promises, with_results=with_results,
                is_full=is_full,
            )  # fmt: skip


def _left(made: bronze.Plan) -> str:
    shards = len(made.slices)
    return f"{shards} shard(s) are left" if shards else "all are copied"


def _completeness(history: str, *, is_whole: bool) -> str:
    if not tells_all(history):
        return "not audited"
    return "complete" if is_whole else "partial"


def pipeline(
    out: Place,
    settings: Settings,
    *,
    engine: str,
    master: str = "local[*]",
    conf: Mapping[str, str] | None = None,
) -> Pipeline:
    """Create a pipeline whose engine starts when it is needed.

    Args:
        out: Place of the tables.
        settings: Store, queues and targets.
        engine: spark or duckdb.
        master: Master of Spark.
        conf: Further settings of Spark.
    """

    def start() -> "SparkEngine":
        from dueline.spark.pipeline.spark_engine import SparkEngine  # noqa: PLC0415  (needs Spark)
        from dueline.spark.runtime.session import session  # noqa: PLC0415

        quiet = {"spark.log.level": "ERROR"} | dict(conf or {})
        return SparkEngine(session("dueline pipeline", master=master, conf=quiet))

    return Pipeline(out, settings, start if engine == "spark" else None)
