"""Streams and jobs on Spark: how late, and how long."""

import json
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from benchmarks.local_spark import queue_at
from dueline import Dueline
from dueline.spark import consume
from dueline.spark.reading.batch_reader import BatchReader
from dueline.spark.runtime.options import READING, Options
from dueline.spark.source import DuelineSource

Act = Callable[[int], object]
"""Does something once, in a round."""

BATCHES: Final = 8
EVENTS: Final = 40
"""Of which the latency is measured, each round."""

BETWEEN_S: Final = (0.3, 0.6)
"""An event comes so long after the one before, by chance."""

CALL: Final = "job_id string, payload string"


class TupleSource(DuelineSource):
    """The data source with its rows as Python's tuples, as most are written."""

    @classmethod
    def name(cls) -> str:
        """Name the format."""
        return "dueline_tuples"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Read a table once."""
        return _TupleReader(Options(self._given, READING), schema)


class _TupleReader(BatchReader):
    def read(self, partition: InputPartition) -> Iterator[Any]:
        for batch in super().read(partition):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def drains(spark: Any, url: str, folder: Path, rows: int) -> dict[str, Act]:  # noqa: ANN401
    """Name the ways to follow a history to its end."""

    def stream(most: int) -> Any:  # noqa: ANN401
        asked = {"store": url, "table": "attempts", "maxRowsPerTrigger": most}
        return spark.readStream.format("dueline").options(**asked).load()

    def drive(writer: Any) -> None:  # noqa: ANN401
        checkpoint = tempfile.mkdtemp(dir=folder)
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        query.start().awaitTermination()

    def handle(number: int) -> None:
        sink = {"store": queue_at(folder / f"handled-{number}.db"), "queue": "mail"}
        calls = stream(-(-rows // BATCHES)).mapInArrow(handled, CALL)
        drive(calls.writeStream.format("dueline").options(**sink, task="shop.charge"))

    def noop(most: int) -> Act:
        return lambda _: drive(stream(most).writeStream.format("noop"))

    return {
        "drain": noop(rows * 2),
        "drain in 8": noop(-(-rows // BATCHES)),
        "handle in 8": handle,
    }


def handled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Make a keyed result of each row."""
    for batch in batches:
        body = pa.array(["[]"] * batch.num_rows)
        yield pa.RecordBatch.from_arrays(
            [batch.column("job_id"), body], names=["job_id", "payload"]
        )


def jobs(spark: Any, folder: Path, count: int) -> dict[str, Act]:  # noqa: ANN401
    """Name the ways to run jobs that do nothing: here, and on Spark, one or many a call."""

    def run(number: int, name: str, work: Callable[[Dueline], None]) -> None:
        app = Dueline(f"sqlite:///{folder / f'{name}-{number}.db'}?synchronous=NORMAL")

        @app.task(name="shop.charge", queue="mail")
        def charge(order: int) -> None:
            """Do nothing."""

        charge.enqueue_many((order,) for order in range(count))
        work(app)
        assert next(iter(app.queues.engine.jobs_of("mail")), None) is None, "some were left"
        app.close()

    def here(app: Dueline) -> None:
        app.run_worker(burst=True, concurrency=1)

    def on_spark(app: Dueline) -> None:
        consume(spark, app, "mail", members=1, burst=True).awaitTermination()

    def many(app: Dueline) -> None:
        act = {"shop.charge": lambda _: None}
        query = consume(spark, app, "mail", arrow=act, members=1, batch=1000, burst=True)
        query.awaitTermination()

    return {
        name: lambda number, name=name, work=work: run(number, name, work)  # type: ignore[misc]
        for name, work in (("worker", here), ("consume", on_spark), ("consume many", many))
    }


class Latency:
    """From an append, or a file that is laid down, to the function that gets its batch."""

    def __init__(self, spark: Any, folder: Path) -> None:  # noqa: ANN401
        """Take a session, and where files may lie."""
        self._spark = spark
        self._folder = folder

    def of_stream(self) -> list[float]:
        """Follow a stream; tell how many seconds each event took."""
        app = Dueline(f"sqlite:///{self._folder / 'live.db'}?synchronous=NORMAL")
        live = app.stream("live")
        frame = self._spark.readStream.format("dueline")
        frame = frame.options(store=app.url, table="stream", stream="live").load()
        sent = "get_json_object(cast(body AS string), '$.value.sent')"
        found = self._follow(
            frame.selectExpr(f"double({sent}) AS sent"), lambda: live.append({"sent": time.time()})
        )
        app.close()
        return found

    def of_files(self) -> list[float]:
        """Follow a folder of JSON files, as Spark does by itself."""
        into, numbers = Path(tempfile.mkdtemp(dir=self._folder)), iter(range(1 << 30))

        def send() -> None:
            number = next(numbers)
            fresh = self._folder / f"{number}.fresh"
            fresh.write_text(json.dumps({"sent": time.time()}), encoding="utf-8")
            fresh.rename(into / f"{number}.json")

        return self._follow(self._spark.readStream.schema("sent double").json(str(into)), send)

    def _follow(self, frame: Any, send: Callable[[], object]) -> list[float]:  # noqa: ANN401
        found: list[float] = []
        come = threading.Event()

        def put(batch: Any, _: int) -> None:  # noqa: ANN401
            rows, now_s = batch.collect(), time.time()
            found.extend(now_s - row.sent for row in rows if row.sent)
            come.set()

        checkpoint = tempfile.mkdtemp(dir=self._folder)
        query = frame.writeStream.foreachBatch(put).option("checkpointLocation", checkpoint).start()
        send()
        come.wait()  # it runs
        for _ in range(EVENTS):
            time.sleep(random.uniform(*BETWEEN_S))
            send()
        query.processAllAvailable()
        query.stop()
        return found[-EVENTS:]
