"""What is refused says why; no Spark is started."""

from pathlib import Path

import pytest

from dueline import BadInput, ConfigError, Dueline
from tests.spark.test_slices import reader_of


def java_at(folder: Path, says: str) -> Path:
    """Make a Java that says its version."""
    (folder / "bin").mkdir(parents=True)
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    return folder


def test_a_machine_without_a_java_that_fits_is_told(tmp_path: Path) -> None:
    from dueline.spark.java import choose_java

    with pytest.raises(ConfigError, match=r"there is no Java in it.*Install a JDK of 17"):
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
        ("job_id int", "column job_id of attempts cannot be read as int32.*of type string"),
        ("due bigint", "column due of attempts cannot be read as int64.*of type timestamp"),
        ("error binary", "cannot be read as binary"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused_before_a_task_runs(
    shop: Dueline, schema: str, words: str
) -> None:
    with pytest.raises(BadInput, match=words):
        reader_of(shop, schema, table="attempts")
    reader_of(shop, "due string, attempt bigint", table="attempts")
