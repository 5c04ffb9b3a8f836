"""What Spark finds by itself.

Spark imports each top-level module whose name begins so, and registers the `DefaultSource` in it:
`spark.read.format("dueline")` needs no other line.
"""

from dueline.spark.source import DuelineSource as DefaultSource

__all__ = ["DefaultSource"]
