"""Dead jobs that are run again, by how they died (P10)."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dueline import Dueline, Retry
from dueline.api.raw_queue import RawQueue
from dueline.core.queue_settings import QueueSettings
from dueline.jobs.history_batch import unbundled
from dueline.jobs.queue import EnqueueRequest
from dueline.tasks.hooks import Hooks
from tests.harness.clocks import HandClock
from tests.harness.queues import queues_on
from tests.harness.spark.tables import made, quiet
from tests.harness.world import EVERY_KIND, store_on


class Clinic:
    """A store with jobs that die, of two tasks in two queues, and its tables."""

    def __init__(self, folder: Path) -> None:
        """Let 30 jobs die."""
        app = self.app = Dueline(f"sqlite:///{folder / 'jobs.db'}?synchronous=NORMAL")
        self.lake = folder / "lake"
        self.ran: list[int] = []

        @app.task(name="send", queue="mail", retry=Retry(attempts=1))
        def send(number: int) -> None:
            self.ran.append(number)
            if number % 2:
                raise TimeoutError(f"server {number} is silent")
            raise ValueError(f"{number} is no address")

        @app.task(name="pay", queue="bills", retry=Retry(attempts=1))
        def pay(number: int) -> None:
            raise TimeoutError(f"bank {number} is silent")

        send.enqueue_many([(number,) for number in range(20)])
        pay.enqueue_many([(number,) for number in range(10)])
        self.live()
        self.copy()

    def live(self) -> None:
        """Run all that is due."""
        self.app.run_worker(burst=True)

    def copy(self) -> None:
        """Bring the tables up to date."""
        made(self.lake, self.app).run([], quiet)

    def deaths(self, *queues: str, **wanted: Any) -> list[Any]:
        """Ask which jobs died."""
        from dueline.spark.pipeline.dead_jobs import Wanted

        return list(made(self.lake, self.app, queues=queues).deaths(Wanted(**wanted)))

    def redrive(self, deaths: list[Any]) -> int:
        """Run some again, once what they died of is healed."""
        from dueline.spark.pipeline.dead_jobs import redrive

        return redrive(self.app.queues, deaths, quiet)


@pytest.fixture
def clinic(tmp_path: Path) -> Clinic:
    """Make a store with dead jobs, and its tables."""
    return Clinic(tmp_path)


def test_deaths_are_found_by_queue_task_error_and_time(clinic: Clinic) -> None:
    assert len(clinic.deaths()) == 30
    assert len(clinic.deaths("mail")) == 20
    assert {one.task for one in clinic.deaths("bills")} == {"pay"}
    assert len(clinic.deaths(task="pay")) == 10
    assert len(clinic.deaths(error="TimeoutError")) == 20
    assert len(clinic.deaths("mail", error="TimeoutError: server # is silent")) == 10
    assert len(clinic.deaths(error="server 7 is")) == 1
    now_us = clinic.app.queues.engine.time.latest_us()
    assert len(clinic.deaths(until_us=now_us)) == 30
    assert not clinic.deaths(since_us=now_us)
    assert len({one.job_id for one in clinic.deaths()}) == 30


def test_each_death_is_redriven_once(clinic: Clinic) -> None:
    deaths = clinic.deaths("mail", error="TimeoutError")
    clinic.ran.clear()
    assert clinic.redrive(deaths) == 10
    assert clinic.redrive(deaths) == 0  # they wait
    clinic.live()
    assert sorted(clinic.ran) == list(range(1, 20, 2))
    assert clinic.redrive(deaths) == 0  # each has died again since, which the tables do not tell
    clinic.copy()
    later = clinic.deaths("mail", error="TimeoutError")
    assert {one.job_id for one in later} == {one.job_id for one in deaths}
    assert clinic.redrive(later) == 10


def test_a_redrive_that_was_cut_off_goes_on_with_the_rest(
    clinic: Clinic, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dueline.spark.pipeline import dead_jobs as redrive

    def stop(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(redrive, "PAGE", 8)
    deaths = clinic.deaths()
    with pytest.raises(KeyboardInterrupt):
        redrive.redrive(clinic.app.queues, deaths, stop)
    assert sum(one.dead for one in redrive.kinds(clinic.app.queues, deaths)) == 22
    assert clinic.redrive(deaths) == 22


def test_kinds_tell_who_is_still_dead_of_what(clinic: Clinic) -> None:
    from dueline.spark.pipeline.dead_jobs import kinds

    clinic.redrive(clinic.deaths("bills"))
    assert [tuple(one) for one in kinds(clinic.app.queues, clinic.deaths())] == [
        ("mail", "send", "TimeoutError: server # is silent", 10, 10),
        ("mail", "send", "ValueError: # is no address", 10, 10),
        ("bills", "pay", "TimeoutError: bank # is silent", 10, 0),
    ]


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_job_that_killed_its_workers_is_redriven_once(kind: str, tmp_path: Path) -> None:
    import pyarrow as pa

    from dueline.spark.pipeline import dead_jobs
    from dueline.spark.pipeline.dead_jobs import Wanted, redrive
    from dueline.spark.pipeline.queries import Duck
    from dueline.spark.pipeline.tables import SILVER
    from tests.harness.spark import oracle
    from tests.harness.spark.tables import line_of

    clock = HandClock()
    defaults = QueueSettings(lease_us=3_000_000)
    store = store_on(kind, tmp_path, clock)
    queues = queues_on(store, clock, defaults)
    queues.engine.catalog.configure("mail")
    host: Any = SimpleNamespace(queues=queues, tasks={}, hooks=Hooks())
    hand = RawQueue(host, "mail")
    queues.enqueue(EnqueueRequest("mail", "t", 0, [b"[]"]))
    while hand.claim(1):
        clock.advance(4)
    rows = store.tail("mail!history", 0, after=None, limit=100).rows
    silver = oracle.silver([line_of("mail", one) for row in rows for one in unbundled(row)])
    view = pa.Table.from_pylist(silver, SILVER.inside)
    deaths = dead_jobs.deaths(Duck(), view, Wanted())
    assert len(deaths) == 1
    assert [redrive(queues, deaths, quiet) for _ in range(2)] == [1, 0]
    hand.reject(hand.claim(1), "bad")
    assert redrive(queues, deaths, quiet) == 0


def test_the_command_counts_asks_and_redrives(
    clinic: Clinic, capsys: pytest.CaptureFixture[str]
) -> None:
    from dueline.cli import run

    words = ["--store", clinic.app.url, "-o", "json", "pipeline", "redrive"]
    words += ["--out", str(clinic.lake), "--error", "bank"]

    def answer(*more: str) -> tuple[int, int]:
        assert run([*words, *more]) == 0
        data = json.loads(capsys.readouterr().out)["data"]
        assert data["deaths"] == 10
        return data["matching"], data["redriven"]

    assert answer("--dry-run") == (10, 0)
    assert run(words) == 5
    assert "would be retried: 10" in capsys.readouterr().err
    assert answer("--yes") == (10, 10)
    assert answer("--yes") == (0, 0)
    assert run([*words, "--out", str(clinic.lake / "none")]) == 4
    assert run([*words, "--queue", "none"]) == 4
