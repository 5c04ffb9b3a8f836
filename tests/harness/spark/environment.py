"""What the tests on Spark need."""

import importlib.util
import subprocess

from tests.harness.servers import absent

BRIEF = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""A plan that runs once, on a few rows, does not repay the second compiler, nor a process that
lives for seconds the verification of Spark's own classes."""

BRIEF_VARIABLES = ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS")
"""Of drivers, of what starts each process of Spark, and of the parts of a cluster."""

PLAIN_PLANS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
}
"""A plan that runs once does not repay generated code, either. Pages of the docs run with the
settings of users."""

TIMEOUT_S = 600
"""Spark's first steps take a minute on a busy machine."""


def need_spark() -> None:
    """Skip where pyspark or Java is absent; fail where DUELINE_REQUIRE names spark."""
    for name in ("pyspark", "pyarrow"):
        if importlib.util.find_spec(name) is None:
            absent("spark", f"{name} is not installed (make test-spark makes a place of its own)")
    try:
        subprocess.run(["java", "-version"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        absent("spark", f"Java does not run: {error}")
