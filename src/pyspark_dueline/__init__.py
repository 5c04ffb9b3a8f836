"""The entry point that Spark discovers.

Spark imports each top-level module whose name starts with `pyspark_` and registers its
`DefaultSource`: `spark.read.format("dueline")` needs no setup.
"""

from dueline.spark.source import DuelineSource as DefaultSource

__all__ = ["DefaultSource"]
