"""A driver that dies, or stands still, at a moment of its work.

`python -m tests.unit.spark.driver MOMENT FIRST LAST` enqueues numbers, and runs what is there on
the Spark of another process, which the environment names. So many drivers can die in a few seconds.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from dueline.core.attempt import Done
from dueline.spark import consume
from dueline.spark.worker.executors import Fleet
from dueline.stores.sqlite.connection import SqliteConnection
from dueline.worker.settler import Settler
from tests.kills.workload import FOLDER_VARIABLE, QUEUE, app, record, work

PORT_VARIABLE, SECRET_VARIABLE = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
BEFORE, AFTER, SETTLED, OVER, STILL = "before", "after", "settled", "over", "still"
"""When: before handlers are called, after they were, after that was written, after all is done;
and: after they were, it stands still and goes on. After one at least was done, that is: of a
failure nothing is settled."""

TURN = 2
"""Not the first time that it comes by there. It does so twice at least: before it knows how long
jobs run, a worker claims no more than it has slots for."""


def attached() -> SparkSession:
    """Use the Spark of the process that the environment names."""
    gateway = launch_gateway()
    jvm: Any = gateway.jvm
    context = jvm.org.apache.spark.SparkContext.getOrCreate()
    java = jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(context)
    conf = SparkConf(_jconf=java.getConf())
    return SparkSession(SparkContext(gateway=gateway, jsc=java, conf=conf))


def stand_still(connection: SqliteConnection) -> None:
    """Stop this process between two calls of its store.

    A process that stops inside a write blocks all others: docs/operations/sqlite.md, "Limits".
    """
    with connection._lock:
        # This thread itself stops first. A signal to the process may reach another thread, and
        # this one goes on until that is its turn: into a write, at worst.
        signal.raise_signal(signal.SIGSTOP)


def strike(moment: str, connection: SqliteConnection) -> None:
    """Have this process die, or stand still, at its moment."""

    def end() -> None:
        if moment == STILL:
            stand_still(connection)
        else:
            os.kill(os.getpid(), signal.SIGKILL)

    owner, name, is_after, turn = {
        BEFORE: (Fleet, "submit", False, TURN),
        AFTER: (Fleet, "collect", True, TURN),
        STILL: (Fleet, "collect", True, TURN),
        SETTLED: (Settler, "settle", True, TURN),
        OVER: (Fleet, "close", True, 1),
    }[moment]
    real: Callable[..., Any] = getattr(owner, name)
    left = turn

    def struck(self: object, *args: Any) -> Any:
        nonlocal left
        if not is_after:
            left -= 1
            if not left:
                end()
        answer = real(self, *args)
        if is_after and (name != "collect" or any(isinstance(one.ending, Done) for one in answer)):
            left -= 1
            if not left:
                end()
        return answer

    setattr(owner, name, struck)


def main(moment: str, first: int, last: int) -> None:
    """Enqueue, attach, work, and die on the way."""
    record()
    recorded: Any = app.store
    work.enqueue_many([(number,) for number in range(first, last + 1)])
    strike(moment, recorded._store._file)
    spark = attached()
    spark.sparkContext.environment[FOLDER_VARIABLE] = os.environ[FOLDER_VARIABLE]
    consume(spark, app, QUEUE, members=1, concurrency=2, burst=True).awaitTermination()
    os._exit(0)  # Spark is not its own


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
