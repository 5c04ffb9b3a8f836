"""A quick benchmark from the command line (V7)."""

import pytest

from dueline import Dueline
from dueline.cli.commands import bench
from dueline.core.errors import Conflict
from dueline.worker.heartbeat import Load, PresenceReporter
from tests.harness.shell import Shell

STORE = ("--store", "sqlite:///jobs.db")


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure little."""
    monkeypatch.setattr(bench, "SCHEDULED", 5)
    monkeypatch.setattr(bench, "SINGLES_MAX", 3)


def test_it_measures_in_a_file_of_its_own(shell: Shell) -> None:
    shell.enqueue("tasks.add", "1")
    before = shell.ids()
    answer = shell("bench", "run", "--jobs", "700", "-o", "json")
    assert answer.code == 0, answer.err
    assert (answer.data["jobs"], answer.data["scheduled"], answer.data["early"]) == (700, 5, 0)
    for name in ("bulk_enqueue_per_second", "enqueue_per_second", "drain_per_second"):
        assert answer.data[name] > 0
    assert 0 <= answer.data["late_p50_ms"] <= answer.data["late_p99_ms"]
    assert "temporary file" in answer.err
    assert shell.ids() == before


def test_a_table_is_for_people(shell: Shell) -> None:
    answer = shell("bench", "run", "--jobs", "10")
    assert answer.out.startswith("store")
    assert "late p99 ms" in answer.out


@pytest.mark.slow
def test_it_leaves_nothing_behind_in_the_store_that_it_is_given(shell: Shell) -> None:
    job_id = shell.enqueue("tasks.add", "1")
    assert shell("bench", "run", "--jobs", "10", *STORE).code == 0
    assert shell("bench", "run", "--jobs", "10", *STORE).code == 0
    assert shell.ids() == [job_id]
    assert shell.ids("--state", "dead") == []


def test_it_refuses_a_queue_with_other_jobs(shell: Shell) -> None:
    living = shell.enqueue("tasks.add", "1")
    answer = shell("bench", "run", *STORE, "--queue", "default")
    assert (answer.code, answer.why) == (
        5, "The queue default is in use: it holds jobs, or a worker serves it.",
    )  # fmt: skip
    assert shell.ids() == [living]


def test_it_refuses_a_queue_with_dead_jobs(shell: Shell) -> None:
    shell.enqueue("tasks.fail", "no")
    shell.work()
    assert shell("bench", "run", *STORE, "--queue", "default").code == 5
    assert len(shell.ids("--state", "dead")) == 1


def test_it_refuses_a_queue_that_a_worker_serves(shell: Shell) -> None:
    app = Dueline(f"sqlite:///{shell.folder}/jobs.db")
    queues = app.queues
    queues.engine.catalog.settings("served")
    bench.check_unused(queues, "served")
    PresenceReporter(queues.engine, "w1", serving=("served",)).report(Load(slots=1, held=0))
    with pytest.raises(Conflict, match="a worker serves it"):
        bench.check_unused(queues, "served")
    app.close()


def test_a_queue_that_is_looked_at_is_not_made(shell: Shell) -> None:
    shell.enqueue("tasks.add", "1")
    app = Dueline("sqlite:///jobs.db")
    bench.check_unused(app.queues, "new")
    assert "new" not in app.queues.engine.catalog.names()
    app.close()
    assert shell("bench", "run", "--queue", "No").code == 2
