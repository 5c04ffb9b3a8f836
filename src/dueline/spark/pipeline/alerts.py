"""Alerts on the stream: `foresight.alert_engine`, fed with attempts as they end.

A structured streaming query counts the attempts on Spark's executors; without Spark this process
reads the history itself. What waits comes from the store's lanes. Alerts go to the log, to a Delta
table, and to the webhook of the application, as a job.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from dueline.api.connect import existing_engine
from dueline.core.clock import to_datetime, to_us
from dueline.core.codec import decode, encode
from dueline.core.errors import BadInput, DuelineError
from dueline.core.logging import log
from dueline.foresight.alert_engine import Note, judge, view_of
from dueline.foresight.alert_monitor import enqueue_webhook, report_of
from dueline.foresight.alert_settings import AlertSettings, read_settings
from dueline.foresight.alerts import Alert, Condition
from dueline.foresight.rates import Counted, QueueRates, after_counting, counted, plus
from dueline.foresight.target import target_of
from dueline.jobs.history import Follower
from dueline.jobs.queue import Queues
from dueline.spark.pipeline.delta import Design, Place, Table
from dueline.spark.runtime.options import option_texts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVERY_S: Final = 10.0
"""Interval in seconds in which queues are judged."""

RAISED: Final = "raised"
ALERTS: Final = Design(
    "alerts",
    pa.schema(
        [
            ("day", pa.date32()),
            *((name, pa.string()) for name in ("id", "status", "kind", "queue", "subject",
                                                "evidence", "command", "facts")),
            *((name, pa.timestamp("us", "UTC")) for name in ("at", "since", "ended")),
        ]
    ),
    order=("at", "queue"),
    ranged=("queue", "at"),
    instant="at",
)  # fmt: skip
"""Alerts that were raised or ended, a row each time."""


class Watch:
    """Judges queues by what is counted, and reports alerts that are raised or ended.

    Args:
        queues: The queues of the store.
        names: Names of the watched queues; empty for all.
        targets: Targets of queues, in place of those of the application.
        table: Place of the table `alerts`; None for no table.

    Raises:
        BadInput: A target is invalid, or a queue keeps no history.
        NotFound: There is no such queue.

    Attributes:
        engine: The engine on the store.
        chosen: The names; empty for all queues, also those that are created later.
        alerts: What is raised now, by queue.
    """

    def __init__(
        self,
        queues: Queues,
        names: Sequence[str] = (),
        targets: Mapping[str, str] | None = None,
        table: Place | None = None,
    ) -> None:
        self.engine = queues.engine
        self._queues = queues
        self.chosen = names
        catalog = queues.engine.catalog
        for name in names:
            catalog.chosen(name)
            if catalog.settings(name).history == "off":
                raise BadInput(
                    f"The queue {name} keeps no history.",
                    hint=f"Use `dueline queues set {name} --history attempts`.",
                )
        self._targets = {name: target_of(text) for name, text in (targets or {}).items()}
        self._notes: dict[str, Note] = {}
        self._table = None if table is None else Table(table.below(ALERTS.name), ALERTS)
        if self._table is not None:
            self._table.create()
            raised = _raised_in(self._table, self.engine.time.latest_us())
            for name in names or {alert.condition.queue for alert in raised}:
                own = [alert for alert in raised if alert.condition.queue == name]
                self._notes |= {name: Note(own)} if own else {}
        self._changed: list[Alert] = []
        self._unsent: list[Alert] = []
        self._unwritten: list[Alert] = []
        self._lock = threading.Lock()
        self._rates: dict[str, QueueRates] = {}

    @property
    def alerts(self) -> Mapping[str, Sequence[Alert]]:
        """What is raised now, by queue; any thread may read this."""
        return {name: note.alerts for name, note in self._notes.copy().items()}

    def names(self) -> Sequence[str]:
        """Return the watched queues."""
        return self.chosen or self.engine.catalog.names()

    def count(self, counted: Mapping[str, Counted]) -> None:
        """Take what was counted since the last call; any thread may call this."""
        now_us = self.engine.time.latest_us()
        with self._lock:
            for queue, more in counted.items():
                self._rates[queue] = after_counting(self._rates.get(queue), more, now_us)

    def judge(self) -> Sequence[Alert]:
        """Judge all queues; return the alerts that were raised or ended.

        What an error keeps from being reported is reported by the next call.
        """
        engine = self.engine
        settings = read_settings(engine.store)
        view = view_of(engine)
        names = self.names()
        for name in {*self._notes} - {*names}:  # the queue was removed
            alerts = self._notes.pop(name).alerts
            self._changed += [replace(alert, ended_us=view.now_us) for alert in alerts]
        for name in names:
            target = self._targets.get(name, self._targets.get("*", settings.target(name)))
            with self._lock:
                rates = self._rates.get(name)
            before = self._notes.get(name, Note())
            self._notes[name], news = judge(view, name, target, before, rates)
            self._changed += news
        changed, self._changed = self._changed, []
        self._report(changed, settings, view.now_us)
        return changed

    def _report(self, changed: Sequence[Alert], settings: AlertSettings, now_us: int) -> None:
        for alert in changed:
            (log.info if alert.ended_us else log.warning)("%s", alert.text())
        self._unsent += changed
        self._unwritten += changed
        if not settings.webhook_queue:
            self._unsent = []
        elif self._unsent:
            enqueue_webhook(self._queues, settings.webhook_queue, self._unsent)
            self._unsent = []
        if self._table is None:
            self._unwritten = []
        elif self._unwritten:
            rows = [row_of(alert, now_us) for alert in self._unwritten]
            self._table.commit(self._table.writer.write(pa.Table.from_pylist(rows, ALERTS.shape)))
            self._unwritten = []


def _raised_in(table: Table, now_us: int) -> list[Alert]:
    """Return the alerts of a table that have not ended: those of a process that was stopped."""
    rows = {}
    for row in table.view().dataset().to_table().sort_by("at").to_pylist():
        rows[row["id"]] = row
    return [
        Alert(
            Condition(
                row["kind"], row["queue"], row["subject"], row["evidence"], row["command"],
                decode(row["facts"].encode(), dict[str, int | float | str]),
            ),
            to_us(row["since"]),
            now_us,
        )
        for row in rows.values() if row["status"] == RAISED
    ]  # fmt: skip


def row_of(alert: Alert, now_us: int) -> Mapping[str, object]:
    """Return an alert as a row of the table: the report of the webhook, with times as such."""
    at = to_datetime(now_us)
    return {
        **report_of(alert),
        "day": at.date(),
        "at": at,
        "since": to_datetime(alert.since_us),
        "ended": to_datetime(alert.ended_us) if alert.ended_us else None,
        "facts": encode(dict(alert.condition.facts)).decode(),
    }


# Counting


_COUNTS: Final = """
SELECT queue, step, task, shard, tenant, is_failed,
       GROUPING_ID() AS kind, COUNT(*) AS number
FROM (
  SELECT queue, task, CAST(shard AS STRING) AS shard, tenant,
         outcome IN ('retried', 'dead', 'crashed') AS is_failed,
         CASE WHEN attempt <> 1 THEN -1
              WHEN shift <= 0 THEN late
              ELSE shift * 4 + shiftright(late, CAST(shift AS INT)) END AS step
  FROM (
    SELECT *, length(bin(late)) - 3 AS shift
    FROM (
      SELECT *, greatest(0, unix_micros(started) - unix_micros(due)) AS late
      FROM {attempts} WHERE started IS NOT NULL
    )
  )
)
GROUP BY GROUPING SETS ((queue, step), (queue, task, is_failed), (queue, shard), (queue, tenant))
"""
"""Counts of the attempts of a batch; `step` is that of `step_of`."""

_STEPS, _TASKS, _SHARDS, _TENANTS = 0b001111, 0b010011, 0b011101, 0b011110
"""Of queue, step, task, is_failed, shard and tenant, those that are not grouped."""


def counted_on_spark(attempts: "DataFrame") -> dict[str, Counted]:
    """Count attempts by queue, on Spark."""
    counts: dict[str, Counted] = {}
    rows = attempts.sparkSession.sql(_COUNTS, attempts=attempts).collect()
    for queue, step, task, shard, tenant, is_failed, kind, number in rows:
        into = counts.setdefault(queue, Counted())
        if kind == _STEPS and step >= 0:
            plus(into.latencies, step, number)
        elif kind == _TASKS:
            plus(into.ended, task, number)
            if is_failed:
                plus(into.failed, task, number)
        elif kind == _SHARDS:
            plus(into.shards, shard, number)
        elif kind == _TENANTS:
            plus(into.tenants, tenant, number)
    return counts


@contextmanager
def counting_here(watch: Watch) -> Iterator[Callable[[], None]]:
    """Yield a function that reads what ended since the last call, in this process."""
    engine = watch.engine
    follower = Follower(engine.store, since_us=engine.time.latest_us())

    def count() -> None:
        shards = {name: engine.catalog.settings(name).shards_read for name in watch.names()}
        watch.count(counted(follower.read(shards), shards))

    yield count


@contextmanager
def counting_on_spark(
    watch: Watch, spark: "SparkSession", store: str, every_s: float
) -> Iterator[Callable[[], None]]:
    """Count with a streaming query; yield a function that raises if the query has failed."""
    options = {
        "store": store,
        "table": "attempts",
        "queue": ",".join(watch.chosen),
        "startingTimestamp": to_datetime(watch.engine.time.latest_us()).isoformat(),
    }
    stream = spark.readStream.format("dueline").options(**option_texts(options)).load()
    query = (
        stream.writeStream.foreachBatch(lambda batch, _: watch.count(counted_on_spark(batch)))
        .trigger(processingTime=f"{max(1, round(every_s / 2))} seconds")
        .start()
    )

    def check() -> None:
        if (failure := query.exception()) is not None:
            raise failure

    try:
        yield check
    finally:
        query.stop()


@contextmanager
def alerts(
    spark: "SparkSession",
    store: str,
    *,
    queues: Sequence[str] = (),
    targets: Mapping[str, str] | None = None,
    table: Place | None = None,
    every_s: float = EVERY_S,
) -> Iterator[Watch]:
    """Raise alerts while a block runs: a streaming query counts what a store's workers do.

    Args:
        spark: The session.
        store: URL of the store.
        queues: Names of the queues; by default all that exist.
        targets: Targets of queues, such as {"mail": "p99<2s"}; by default the application's.
        table: Place in which the Delta table `alerts` is; None for no table.
        every_s: Interval in which queues are judged, in seconds.

    Yields:
        The watch; its `alerts` are those that are raised.

    Raises:
        BadInput: A target is invalid, or a queue keeps no history.
        NotFound: There is no such queue.
        StreamingQueryException: The query has failed; raised at the end of the block, and logged
            when it happens.
    """
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415  (may not be installed)

    over = threading.Event()
    with existing_engine(store) as engine:
        watch = Watch(Queues(engine), queues, targets, table)

        def judge(check: Callable[[], None]) -> None:
            while not over.wait(every_s):
                try:
                    check()
                    watch.judge()
                except DuelineError as error:
                    log.warning("alerts have to wait: %s", error)
                except StreamingQueryException as error:
                    log.error("alerts have ended, since their query has failed: %s", error)
                    return

        with counting_on_spark(watch, spark, store, every_s) as check:
            judging = threading.Thread(
                target=judge, args=(check,), name="dueline-alerts", daemon=True
            )
            judging.start()
            try:
                yield watch
            finally:
                over.set()
                judging.join()
            check()
