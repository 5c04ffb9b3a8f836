"""What Spark's Python processes load: each read and write starts several of them."""

import subprocess
import sys

import pytest

import dueline.spark
from tests.harness.modules import loaded, typed_names

SLOW = {"pandas", "deltalake", "duckdb", "sqlglot", "dueline.worker.worker"}


def test_the_package_loads_its_names_when_they_are_used() -> None:
    found = loaded("import dueline.spark")
    assert not found & (SLOW | {"pyspark", "pyarrow"})
    found = loaded("from dueline.spark import job_id_of")
    assert not found & (SLOW | {"pyspark", "pyarrow"})


def test_a_process_that_reads_or_writes_does_not_load_the_pipeline() -> None:
    found = loaded("import pyspark_dueline")
    assert "dueline.spark.source" in found
    assert not found & SLOW
    assert not {name for name in found if name.startswith("dueline.spark.pipeline")}


def test_a_process_that_writes_does_not_load_what_declares_tasks() -> None:
    found = loaded("import dueline.spark.writing.enqueue")
    assert not found & {"dueline.api.call_options", "dueline.api.task_declaration"}


def test_the_public_names_are_those_that_checkers_and_editors_see() -> None:
    seen = typed_names(dueline.spark)
    assert sorted(seen) == dueline.spark.__all__
    for name, module in seen.items():
        assert getattr(dueline.spark, name) is getattr(sys.modules[str(module)], name)
    assert {*dueline.spark.__all__} <= {*dir(dueline.spark)}
    with pytest.raises(AttributeError, match=r"module 'dueline\.spark' has no attribute 'Nothing'"):
        dueline.spark.Nothing  # type: ignore[attr-defined]  # noqa: B018


def test_a_name_whose_package_is_missing_says_how_to_install_it() -> None:
    program = "import sys; sys.modules['pyspark'] = None; from dueline.spark import read"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ended.stderr.endswith(
        "ModuleNotFoundError: dueline.spark.read needs pyspark: pip install 'dueline[spark]'\n"
    )
