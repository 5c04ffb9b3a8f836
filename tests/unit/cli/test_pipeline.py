"""`dueline pipeline` where nothing of it is installed."""

import subprocess
import sys
from importlib.machinery import ModuleSpec

import pytest

from dueline.cli import pipeline_options
from dueline.cli.commands import pipeline
from tests.harness.shell import Shell


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing be installed."""

    def nothing(_: str) -> ModuleSpec | None:
        return None

    for module in (pipeline_options, pipeline):
        monkeypatch.setattr(module, "find_spec", nothing)


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    "command",
    [
        "run",
        "status",
        "verify",
        "audit",
        "archive --to there",
        "verify --archive there",
        "redrive",
        "optimize",
        "vacuum",
        "what-if --workers 4",
        "plan --target p99<2s",
    ],
)
def test_what_is_missing_is_named_with_the_extra_that_brings_it(shell: Shell, command: str) -> None:
    answer = shell.app("pipeline", *command.split())
    assert answer.code == 7
    assert answer.why == "The pipeline needs pyarrow, which is not installed."
    extra = "spark" if command.partition(" ")[0] in ("run", "audit", "archive") else "lake"
    assert f"pip install 'dueline[{extra}]'" in answer.err


@pytest.mark.usefixtures("bare")
def test_the_doctor_names_it_too(shell: Shell) -> None:
    answer = shell.app("pipeline", "doctor")
    assert answer.code == 7
    assert answer.out.count("pip install 'dueline[spark]'") == 6


def test_the_line_for_a_cluster_holds_no_password(shell: Shell) -> None:
    words = ("pipeline", "run", "silver", "--queue", "mail", "--master", "spark://m:7077")
    plain = shell("--store", "sqlite:///jobs.db", *words, "--print-submit")
    assert plain.code == 0
    assert plain.out.startswith("spark-submit --master spark://m:7077 --py-files dueline.zip ")
    assert plain.out.endswith(
        "pipeline run silver --queue mail --out lake --store sqlite:///jobs.db\n"
    )
    secret = shell("--store", "cassandra://me:hidden@db/jobs", *words, "--print-submit")
    assert secret.code == 0
    assert "hidden" not in secret.out
    assert "--store" not in secret.out


def test_what_excludes_each_other_is_refused(shell: Shell) -> None:
    assert shell.app("pipeline", "run", "--once", "--every", "3s").code == 2
    assert shell.app("pipeline", "run", "--objective", "1.5").code == 2


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("what-if --workers many", "'many' is not a number of workers."),
        ("what-if --priority shop.mail", "'shop.mail' is not a name and a number."),
        ("what-if --limit api", "'api' is not a limit."),
        ("what-if --limit api=3/never", "'never' is not a duration."),
        ("what-if --weights a", "'a' is not a valid weight."),
        ("what-if --target soon", "'soon' is not a target."),
        ("plan --target soon", "'soon' is not a target."),
    ],
)
def test_what_a_simulation_does_not_understand_is_named(shell: Shell, words: str, why: str) -> None:
    answer = shell.app("pipeline", *words.split())
    assert (answer.code, answer.why) == (2, why)


def test_what_all_engines_import_needs_no_spark() -> None:
    line = "import sys; sys.modules['pyspark'] = None; import dueline.spark.runtime.options"
    subprocess.run([sys.executable, "-c", line], check=True, timeout=60)
