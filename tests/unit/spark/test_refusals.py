"""What is refused says why; no Spark is started (P1)."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dueline import BadInput, ConfigError, Dueline
from dueline.core.errors import DuelineError
from tests.harness.spark.readers import reader_of


def java_at(folder: Path, says: str) -> Path:
    """Make a Java that says its version."""
    (folder / "bin").mkdir(parents=True)
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    return folder


def test_a_machine_without_a_java_that_fits_is_told(tmp_path: Path) -> None:
    from dueline.spark.runtime.java import choose_java

    with pytest.raises(ConfigError, match=r"contains no Java.*Install a JDK of 17"):
        choose_java({"JAVA_HOME": str(tmp_path / "none")})
    old = java_at(tmp_path / "old", 'openjdk version "1.8.0_392"')
    with pytest.raises(ConfigError, match=r"Java 17 or later.*1\.8\.0_392"):
        choose_java({"JAVA_HOME": str(old)})
    new = java_at(tmp_path / "new", 'openjdk version "21.0.2"')
    assert choose_java({"JAVA_HOME": str(new)}) == new / "bin" / "java"


@pytest.mark.parametrize("table", ["attempts", "jobs", "workers"])
def test_a_wrong_address_is_told_without_its_password(table: str) -> None:
    from pyspark_dueline import DefaultSource

    for url in ("sqlight:///jobs.db", "oracle://me:s3cret@host/jobs", "jobs.db"):
        source = DefaultSource({"store": url, "table": table})
        with pytest.raises(BadInput) as caught:
            source.reader(schema=source.schema()).partitions()
        assert caught.value.hint
        assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("job_id int", "column job_id of attempts cannot be read as int32.*type is string"),
        ("due bigint", "column due of attempts cannot be read as int64.*type is timestamp"),
        ("error binary", "cannot be read as binary"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused_before_a_task_runs(
    shop: Dueline, schema: str, words: str
) -> None:
    with pytest.raises(BadInput, match=words):
        reader_of(shop, schema, table="attempts")
    reader_of(shop, "due string, attempt bigint", table="attempts")


@pytest.mark.parametrize(
    ("table", "options", "words"),
    [
        ("attempts", {"queue": "post"}, "There is no queue post"),
        ("jobs", {"queue": "post"}, "There is no queue post"),
        ("stream", {}, "No stream is named"),
        ("jobs", {"tabel": "x"}, "Did you mean table"),
        ("attempts", {"startingTimestamp": "noon"}, "noon"),
        ("job", {}, "Did you mean jobs"),
    ],
)
def test_what_cannot_be_read_is_refused_before_spark_is_asked(
    shop: Dueline, table: str, options: Any, words: str
) -> None:
    from dueline.spark import read

    spark: Any = None
    with pytest.raises(DuelineError, match=words):
        read(spark, shop.url, table, **options)


def test_what_cannot_be_enqueued_is_refused_before_spark_is_asked(
    shop: Dueline, tmp_path: Path
) -> None:
    from dueline.spark import enqueue
    from dueline.spark.reading.schemas import struct_of

    frame: Any = SimpleNamespace(schema=struct_of({"job_id": "string", "payload": "string"}))
    with pytest.raises(BadInput, match="no column queue"):
        enqueue(frame, shop.url, task="note")
    with pytest.raises(ConfigError, match="There is no store at"):
        enqueue(frame, f"sqlite:///{tmp_path / 'none.db'}", queue="mail", task="note")


def test_the_refusal_of_a_task_is_found_in_what_spark_says_of_it() -> None:
    from dueline.spark.runtime.refusals import refusal_in

    said = (
        "Job aborted due to stage failure: Traceback (most recent call last):\n"
        '  File "worker.py", line 9, in main\n'
        "dueline.core.errors.BadInput: A payload for send is not a call: x. Write [1].\n\n"
        "Driver stack:\n"
    )
    refusal = refusal_in(RuntimeError(said))
    assert isinstance(refusal, BadInput)
    assert str(refusal) == "A payload for send is not a call: x. Write [1]."
    for other in ("Job aborted", "dueline.core.errors.encode: x", "dueline.core.errors.Nothing: x"):
        assert refusal_in(RuntimeError(other)) is None
