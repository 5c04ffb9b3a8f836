"""An error of the source is one sentence on top, whatever Spark wraps around it."""

from pathlib import Path
from typing import Any

import pytest

from dueline import BadInput, Dueline
from dueline.core.errors import StoreCorrupt
from tests.harness.spark.readers import row
from tests.harness.spark.sentences import told


def test_a_read_that_is_refused_says_so_on_top(spark: Any, shop: Dueline) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        spark.read.format("dueline").options(store=shop.url, tabel="jobs").load()
    told(caught.value, BadInput, "Did you mean table?")
    with pytest.raises(PySparkException) as caught:
        spark.read.format("dueline").options(store=shop.url, table="stream").load().collect()
    told(caught.value, BadInput, "No stream is named.")


@pytest.mark.long
def test_a_write_that_is_refused_says_so_on_top(spark: Any, shop: Dueline) -> None:
    from pyspark.errors import PySparkException

    frame = spark.range(3).selectExpr("concat('n', id) AS job_id", "'7' AS payload")
    for mode in ("direct", "staged"):
        options = {"store": shop.url, "queue": "mail", "task": "note", "writeMode": mode}
        with pytest.raises(PySparkException) as caught:
            frame.write.format("dueline").mode("append").options(**options).save()
        told(caught.value, BadInput, "A payload for note is not a call")


def test_a_query_that_fails_says_so_on_top(spark: Any, shop: Dueline, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    shop.store.append([row("torn", 1, 10)])
    options = {"store": shop.url, "table": "stream", "stream": "torn"}
    offset = '{"s": {"torn/00000": [99999999999999999, ""]}, "v": 1}'
    frame = spark.readStream.format("dueline").options(**options, startingOffsets=offset).load()
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(PySparkException) as caught:
        query.awaitTermination()
    told(caught.value, StoreCorrupt, "the store went back in time")


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": "latest"}, 'A query that starts at "latest" needs a name.'),
        ({"maxRowsPerTrigger": "-1"}, "maxRowsPerTrigger"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay"),
        ({"table": "jobs"}, "updated in place and cannot be followed"),
    ],
)
def test_a_stream_that_is_refused_says_so_on_top(
    spark: Any, shop: Dueline, tmp_path: Path, options: Any, words: str
) -> None:
    from pyspark.errors import PySparkException

    given = {"store": shop.url, "table": "attempts"} | options
    frame = spark.readStream.format("dueline").options(**given).load()
    folder = str(tmp_path / "checkpoint")
    writer = frame.writeStream.format("noop").option("checkpointLocation", folder)
    triggers: list[dict[str, Any]] = [{"availableNow": True}, {"processingTime": "1 second"}]
    for trigger in triggers:
        query = writer.trigger(**trigger).start()
        with pytest.raises(PySparkException) as caught:
            query.awaitTermination()
        told(caught.value, BadInput, words)


def test_other_errors_keep_their_traceback_and_causes_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import os
    import sys
    from types import SimpleNamespace

    from dueline.spark.runtime.refusals import in_one_sentence

    @in_one_sentence
    class Reader:
        """Fails."""

        def read(self) -> Any:
            """Fail in a task."""
            yield 1
            raise BadInput("No.") from OSError("the disk\nis full")

        def partitions(self) -> None:
            """Fail by mistake."""
            raise ValueError("by mistake")

    monkeypatch.delenv("SPARK_HIDE_TRACEBACK", raising=False)
    with pytest.raises(BadInput):
        list(Reader().read())
    assert "SPARK_HIDE_TRACEBACK" not in os.environ  # not in processes of the user
    main = SimpleNamespace(__spec__=SimpleNamespace(name="pyspark.daemon"))
    monkeypatch.setitem(sys.modules, "__main__", main)
    with pytest.raises(ValueError, match="by mistake"):
        Reader().partitions()
    assert "SPARK_HIDE_TRACEBACK" not in os.environ
    with pytest.raises(BadInput) as caught:
        list(Reader().read())
    assert caught.value.__notes__ == ["Caused by OSError: the disk is full"]
    assert os.environ.pop("SPARK_HIDE_TRACEBACK") == "1"
