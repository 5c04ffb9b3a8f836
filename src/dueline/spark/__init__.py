"""Queues and streams on Spark."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dueline.spark.pipeline.alerts import alerts
    from dueline.spark.pipeline.updates import Updated, update_tables
    from dueline.spark.reading.frame import read
    from dueline.spark.reading.lag import Lag, lag
    from dueline.spark.runtime.refusals import refusal_in
    from dueline.spark.runtime.session import session
    from dueline.spark.views import register
    from dueline.spark.worker.spark_worker import Consuming, consume
    from dueline.spark.writing.append import append_once
    from dueline.spark.writing.enqueue import Written
    from dueline.spark.writing.frame import enqueue
    from dueline.spark.writing.key_columns import job_id
    from dueline.spark.writing.keys import job_id_of

__all__ = [
    "Consuming",
    "Lag",
    "Updated",
    "Written",
    "alerts",
    "append_once",
    "consume",
    "enqueue",
    "job_id",
    "job_id_of",
    "lag",
    "read",
    "refusal_in",
    "register",
    "session",
    "update_tables",
]

_PLACES = {
    "Consuming": "worker.spark_worker",
    "Lag": "reading.lag",
    "Updated": "pipeline.updates",
    "Written": "writing.enqueue",
    "alerts": "pipeline.alerts",
    "append_once": "writing.append",
    "consume": "worker.spark_worker",
    "enqueue": "writing.frame",
    "job_id": "writing.key_columns",
    "job_id_of": "writing.keys",
    "lag": "reading.lag",
    "read": "reading.frame",
    "refusal_in": "runtime.refusals",
    "register": "views",
    "session": "runtime.session",
    "update_tables": "pipeline.updates",
}
"""The module of each public name; it is imported when the name is first used.

Spark starts several Python processes for each read and write, which import this package.
"""

_INSTALLED_WITH_SPARK = ("deltalake", "duckdb", "pandas", "pyarrow", "pyspark", "sqlglot")

if not TYPE_CHECKING:  # a checker knows the names from above

    def __getattr__(name: str) -> object:
        """Import a public name."""
        if name not in _PLACES:
            raise AttributeError(f"module 'dueline.spark' has no attribute {name!r}")
        try:
            value = getattr(import_module(f"dueline.spark.{_PLACES[name]}"), name)
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package not in _INSTALLED_WITH_SPARK:
                raise
            raise ModuleNotFoundError(
                f"dueline.spark.{name} needs {package}: pip install 'dueline[spark]'",
                name=package,
            ) from error
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """List the public names, too."""
        return sorted({*globals(), *__all__})
