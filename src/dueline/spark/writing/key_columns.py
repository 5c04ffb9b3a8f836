"""Job ids as Spark columns."""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (as all of Spark's users write)

from dueline.spark.writing.keys import GIVEN


def job_id(column: Column | str, queue: Column | str | None = None) -> Column:
    """Return the ids of the jobs that rows of data become, as the tables show them.

    The same as `job_id_of`, computed by Spark.

    Args:
        column: The column `job_id` of the data, or its name; with a queue, `dedupe_key`.
        queue: For a `dedupe_key`, the name of the queue, or a column of names.
    """
    text = (F.col(column) if isinstance(column, str) else column).cast("string")
    if queue is not None:
        name = F.lit(queue) if isinstance(queue, str) else queue
        nul = F.lit("\0")
        return _hashed(F.concat(F.lit("spark\0dedupe_key\0"), name, nul, text))
    digits = F.replace(text, F.lit("-"), F.lit(""))
    pattern = r"^(?:urn:)?(?:uuid:)?\{?([0-9a-fA-F]{32})\}?\z"
    uuid = F.lower(F.regexp_extract(digits, pattern, 1))
    return F.when(uuid != "", uuid).otherwise(_hashed(F.concat(F.lit(GIVEN.decode()), text)))


def _hashed(cause: Column) -> Column:
    """Make a name-based UUID (RFC 9562, version 5), as `dueline.core.ids.derived` does."""
    digest = F.sha1(F.concat(cause, F.lit("0")).cast("binary"))
    variant = F.translate(F.substring(digest, 17, 1), "0123456789abcdef", "89ab" * 4)
    return F.concat(
        F.substring(digest, 1, 12),
        F.lit("5"),
        F.substring(digest, 14, 3),
        variant,
        F.substring(digest, 18, 15),
    )
