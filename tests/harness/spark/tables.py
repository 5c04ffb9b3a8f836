"""Histories, the tables that the pipeline makes of them, and how tests read those."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from time import sleep
from typing import Any

from dueline import Dueline, Retry
from dueline.api.task import Task

SECOND = 1_000_000
BORN = 1_795_000_020 * SECOND

Line = Mapping[str, Any]


def attempt(job: str, fence: int, outcome: str = "done", **changes: Any) -> Line:
    """Make an attempt that is as it should be: claimed a second after the one before ended."""
    claimed = BORN + fence * 10 * SECOND
    started = (changes.get("claimed") or claimed) + 1000
    if outcome in ("crashed", "expired"):
        started = None
    usual = {
        "queue": "mail", "shard": 0, "id": f"{job}-{fence}", "job_id": job, "attempt": fence,
        "task": "send", "tenant": "acme", "priority": 0, "enqueued": BORN, "due": BORN + SECOND,
        "claimed": claimed, "started": started, "ended": claimed + 9 * SECOND, "error": "",
        "outcome": outcome, "worker": "w1", "at": claimed + 9 * SECOND,
        "codec": None, "payload_bytes": None, "payload": None, "digest": None,
    }  # fmt: skip
    return usual | changes


CLEAN = [
    attempt("plain", 1),
    attempt("again", 1, "retried"),
    attempt("again", 2, "snoozed"),
    attempt("again", 3, "given_back"),
    attempt("again", 4),
    attempt("taken over", 1, "crashed"),
    attempt("taken over", 2, worker="w2"),
    attempt("redriven", 1, "dead"),
    attempt("redriven", 2),
    attempt("told twice", 1),
    attempt("told twice", 1, at=BORN + 90 * SECOND),
    attempt("told again", 1, "crashed", at=BORN + 95 * SECOND),
    attempt("told again", 1),
    attempt("over", 1, "expired"),
    attempt("waits", 1, "retried"),
    attempt("kept", 1, "dead", tenant="zeta", ended=BORN + 70 * SECOND),
]

LIVING = {"waits", "kept", "new"}

PLANTED: Mapping[str, tuple[list[Line], set[tuple[str, int]]]] = {
    "two ends": ([attempt("a", 1), attempt("a", 2)], {("finished twice", 2)}),
    "after its end": ([attempt("b", 1), attempt("b", 2, "retried")], {("illegitimate", 2)}),
    "before the lease ended": (
        [attempt("c", 1, "crashed", ended=BORN + 21 * SECOND), attempt("c", 2)],
        {("illegitimate", 2)},
    ),
    "late verdict": (
        [attempt("d", 1, "retried", ended=BORN + 25 * SECOND), attempt("d", 2)],
        {("stale", 2)},
    ),
    "early": ([attempt("e", 1, due=BORN + 11 * SECOND)], {("early", 1)}),
    "time went back": (
        [
            attempt("f", 1, "crashed", ended=BORN + 2 * SECOND),
            attempt("f", 2, claimed=BORN + 5 * SECOND),
        ],
        {("backwards", 2)},
    ),
    "one fence": (
        [attempt("g", 1), attempt("g", 1, claimed=BORN + 11 * SECOND, worker="w2")],
        {("backwards", 1)},
    ),
    "gone": ([attempt("h", 1, "retried")], {("lost", 1)}),
    "dead and gone": ([attempt("i", 1, "dead")], {("lost", 1)}),
    "no trace": ([], {("lost", 0)}),
    "nobody asked": ([attempt("k", 1)], {("unexpected", 1)}),
    "crowded": (
        [
            attempt("l", 1, task="narrow"),
            attempt("m", 1, task="narrow", started=BORN + 11 * SECOND),
        ],
        {("over capacity", 1)},
    ),
    "passed by": (
        [
            attempt("o", 1, priority=5, claimed=BORN + 16 * SECOND, shard=7),
            attempt("p", 1, priority=4, claimed=BORN + 11 * SECOND, shard=7),
            attempt("q", 1, priority=4, claimed=BORN + 12 * SECOND, shard=7),
            attempt("r", 1, priority=4, claimed=BORN + 16 * SECOND, shard=7),  # not before it
        ],
        {("order", 1)},
    ),
}


def all_lines() -> list[Line]:
    """Lay all that is planted among what is as it should be."""
    return [*CLEAN, *(line for lines, _ in PLANTED.values() for line in lines)]


def plain(frame: Any) -> Counter[tuple[Any, ...]]:
    """Read a frame as rows without names, instants as microseconds, columns by name."""
    import pyarrow as pa

    table = frame.toArrow()
    rows: Counter[tuple[Any, ...]] = Counter()
    for place, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            column = table.column(place).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
            table = table.set_column(place, field.name, column)
    for row in table.to_pylist():
        rows[tuple(sorted(row.items()))] += 1
    return rows


def bare(lines: Any) -> Counter[tuple[Any, ...]]:
    """The same of plain rows."""
    return Counter(tuple(sorted(line.items())) for line in lines)


def quiet(_: str) -> None:
    """Show nothing."""


@cache
def _past() -> tuple[TemporaryDirectory[str], Path]:
    """Make the file that `app_with_a_past` copies, once in each process."""
    folder = TemporaryDirectory(prefix="dueline-past-")
    file = Path(folder.name) / "jobs.db"
    app = _app_on(file)
    live_on(app, 300)
    instant_us(app)
    app.close()
    return folder, file


def _app_on(file: Path) -> Dueline:
    app = Dueline(f"sqlite:///{file}?synchronous=NORMAL")
    app.queue("mail", shards=3, history="arguments")
    return app


def app_with_a_past(folder: Path) -> Dueline:
    """Copy a store whose queue records all: jobs that were run, died, were cancelled, wait."""
    copyfile(_past()[1], folder / "jobs.db")
    app = _app_on(folder / "jobs.db")
    _counting(app, 300)
    return app


def _counting(app: Dueline, jobs: int) -> Task[[int], None]:
    @app.task(name=f"count to {jobs}", queue="mail", retry=Retry(attempts=2, base=0.001, cap=0.001))
    def count(number: int) -> None:
        if number % 50 == 0:
            raise ValueError(f"number {number} is one of fifty")

    return count


def live_on(app: Dueline, jobs: int) -> None:
    """Enqueue more jobs, and run them."""
    count = _counting(app, jobs)
    count.enqueue_many([(number,) for number in range(1, jobs)])
    count.using(tenant="acme").enqueue_many([(number,) for number in range(40)])
    app.run_worker(burst=True)
    count.using(after=3600).enqueue_many([(number,) for number in range(20)])
    count.using(after=3600).enqueue(7).cancel()


def instant_us(app: Dueline) -> int:
    """Return a time that is behind each event so far, and before each event to come.

    Events have the earliest or the latest possible time of the store: it waits until its clock is
    surely past all of them.
    """
    time = app.queues.engine.time
    instant_us = time.latest_us()
    while time.earliest_us() <= instant_us:
        sleep(0.001)
    return instant_us


def made(folder: Path, app: Dueline, engine: str = "duckdb", **settings: Any) -> Any:
    """Make a pipeline on a store."""
    from dueline.spark.pipeline.delta import place_of
    from dueline.spark.pipeline.engine import Settings
    from dueline.spark.pipeline.pipeline import Pipeline, pipeline

    made = pipeline(place_of(str(folder)), Settings(app.url, **settings), engine=engine)
    if engine == "duckdb":
        return made
    return Pipeline(made._lake, made._settings, made._start, small_max=0)  # all of it on Spark


def table_in(folder: Path, table: str) -> Any:
    """Open a table of a lake."""
    from dueline.spark.pipeline.delta import place_of
    from dueline.spark.pipeline.tables import open_table

    return open_table(place_of(str(folder)), table)


def rows_in(folder: Path, table: str) -> Counter[tuple[Any, ...]]:
    """Read a table that counts, each row as its values by name, without its batch and day."""
    return _counted(table_in(folder, table))


def _counted(table: Any) -> Counter[tuple[Any, ...]]:
    from dueline.spark.pipeline.queries import lines_in

    lines = lines_in(table.view().dataset().to_table()) if table.exists() else []
    for line in lines:
        line.pop("batch", None)
        line.pop("day", None)
    return Counter(tuple(sorted(line.items())) for line in lines)


def line_of(queue: str, row: Any) -> Line:
    """Decode a row of a history in plain Python, with the columns of bronze."""
    from dueline.core.attempt import EnqueuedEvent
    from dueline.core.codec import decode

    event = decode(row.body, EnqueuedEvent)
    return {
        "queue": queue, "shard": row.shard, "at": row.at_us, "id": row.id.hex(),
        "job_id": event.job, "attempt": event.fence, "task": event.task, "tenant": event.tenant,
        "priority": event.priority, "enqueued": event.enqueued_us, "due": event.due_us,
        "claimed": event.claimed_us or None, "started": event.started_us or None,
        "ended": event.ended_us, "outcome": event.outcome, "error": event.error,
        "worker": event.worker, "codec": event.codec, "payload_bytes": event.size,
        "payload": event.payload, "digest": event.digest or None, "limits": event.limits,
        "again": event.again_us or None,
    }  # fmt: skip


def history_of(app: Dueline, queue: str, shards: int) -> list[Line]:
    """Read the history of a queue in plain Python."""
    from dueline.jobs.history_batch import unbundled

    return [
        line_of(queue, event)
        for shard in range(shards)
        for row in app.store.tail(f"{queue}!history", shard, after=None, limit=10**6).rows
        for event in unbundled(row)
    ]


def spoil(app: Dueline, victims: Sequence[Any]) -> None:
    """Delete the rows of jobs, as nothing of dueline does."""
    from dueline.core.store import Drop

    app.queues.engine.store.settle([Drop(job) for job in victims])


def archive_rows(folder: Path) -> Counter[tuple[Any, ...]]:
    """Read an archive that counts, each row as its values by name."""
    from dueline.spark.pipeline.archive import ARCHIVE
    from dueline.spark.pipeline.delta import Table, place_of

    return _counted(Table(place_of(str(folder)), ARCHIVE))


def replays_agree(spark: Any, duck: Any, sparks: Any, folder: Path) -> None:
    """See that both find the same jobs, call them alike, and put none of the other's again."""
    from dueline.spark.pipeline import replay
    from dueline.spark.pipeline.archive import ARCHIVE
    from dueline.spark.pipeline.delta import Table, place_of
    from dueline.spark.pipeline.queries import Duck, Spark, lines_of
    from dueline.spark.pipeline.replay import Chosen, Order
    from tests.harness.spark import replay_oracle

    chosen = Chosen(outcomes=("done", "dead", "cancelled"))
    place = place_of(str(folder / "a"))  # without the first enqueue events
    files = Table(place, ARCHIVE).view()
    lines = lines_of(Duck().run("SELECT * FROM rows", {"rows": files}))
    wanted = replay_oracle.with_arguments(lines, replay_oracle.ends(lines, chosen))
    order = Order("again", BORN + 10**8 * SECOND, 1e6 / 3)
    calls = replay_oracle.calls(wanted, order)
    for queries in (Duck(), Spark(spark)):
        answer = replay.found(queries, files, chosen)
        assert answer == replay_oracle.found(wanted)
        assert {kind.outcome for kind in answer.kinds} == set(chosen.outcomes)
        assert answer.left_out
        assert bare(lines_of(replay.calls(queries, files, chosen, order))) == bare(calls)
    added = sparks.replay(chosen, order, quiet, [place])
    assert added[:2] == (len(calls), len(calls))
    assert duck.replay(chosen, order, quiet, [place])[:2] == (len(calls), 0)
