"""Tables of a period: nothing is said of what was before it, or after."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake")


from dueline import Dueline
from dueline.core.errors import BadInput, Conflict
from dueline.core.ids import Ids
from dueline.core.job import Job
from dueline.spark.pipeline.delta import place_of
from tests.harness.spark.tables import instant_us, made, quiet, rows_in, spoil

HOUR_US = 3_600_000_000


class Age:
    """A store with jobs of before and after an instant: some have ended, others wait."""

    def __init__(self, folder: Path) -> None:
        """Live before the instant, and after it."""
        app = self.app = Dueline(f"sqlite:///{folder / 'jobs.db'}?synchronous=NORMAL")
        self.lake = folder / "lake"
        app.queue("mail", shards=2, history="all")

        @app.task(name="send", queue="mail")
        def send(number: int) -> None:
            pass

        self.task = send
        self.old = self.live(10)
        self.since_us = instant_us(app)
        app.queues.reschedule(self.old[0].id, self.since_us + 2 * HOUR_US)  # tells of an old job
        (moved,) = [job for job in app.queues.engine.jobs_of("mail") if job.id == self.old[0].id]
        self.old[0] = moved
        self.new = self.live(6)
        self.pipe: Any = made(self.lake, app, queues=("mail",))

    def live(self, jobs: int) -> list[Job]:
        """Run some jobs, and leave as many waiting; tell those."""
        self.task.enqueue_many([(number,) for number in range(jobs)])
        self.app.run_worker(burst=True)
        before = {job.id for job in self.app.queues.engine.jobs_of("mail")}
        self.task.using(after=3600).enqueue_many([(number,) for number in range(jobs)])
        return [job for job in self.app.queues.engine.jobs_of("mail") if job.id not in before]

    def audit(self, **options: Any) -> tuple[str, int, int]:
        """Judge; tell the verdict, the findings, and how many jobs nothing was said of."""
        (one,) = self.pipe.audit(quiet, **options).queues
        return one.verdict, one.findings, one.unjudged


@pytest.fixture
def age(tmp_path: Path) -> Age:
    """Make a store with two ages."""
    return Age(tmp_path)


def test_tables_keep_the_period_that_they_are_begun_with(age: Age) -> None:
    age.pipe.run([], quiet, since_us=age.since_us)
    rows = [dict(one) for one in rows_in(age.lake, "bronze")]
    assert min(one["at"] for one in rows) >= age.since_us
    assert {one["outcome"] for one in rows} == {"enqueued", "done", "changed"}
    assert len(rows) == 1 + 6 + 6 + 6
    assert all(check.is_good for check in age.pipe.verify())
    assert sum(one["behind"] for one in age.pipe.status()[1]) == 0
    age.live(2)
    assert age.pipe.run(["bronze"], quiet)[0].rows == 2 * 3
    assert age.pipe.run(["bronze"], quiet, since_us=age.since_us)[0].rows == 0
    for other in ({"since_us": age.since_us + 1}, {"until_us": age.since_us + HOUR_US}):
        with pytest.raises(Conflict, match="hold the history from"):
            age.pipe.run(["bronze"], quiet, **other)


def test_a_job_of_before_is_neither_clean_nor_lost(age: Age) -> None:
    # P11
    spoil(age.app, [age.old[0], age.old[1], age.new[0]])  # what an audit of all is to find
    assert age.audit() == ("failed", 3, 0)
    age.pipe = made(age.lake.with_name("later"), age.app, queues=("mail",))
    age.pipe.run(["bronze"], quiet, since_us=age.since_us)
    said = age.pipe.audit(quiet)
    assert [one["job_id"] for one in said.findings] == [age.new[0].id.hex()]
    assert (said.queues[0].verdict, said.queues[0].unjudged) == ("failed", 1)
    assert said.queues[0].since_us == age.since_us
    everybody = [job.id.hex() for job in (*age.old, *age.new)]
    unknown = [Ids().one(age.since_us + 10_000).hex(), "12" * 16]  # by its time, and without one
    said = age.pipe.audit(quiet, expected=[*_known(age), *everybody, *unknown])
    assert {one["job_id"] for one in said.findings} == {age.new[0].id.hex(), unknown[0]}


def _known(age: Age) -> set[str]:
    return {dict(one)["job_id"] for one in rows_in(age.lake, "bronze")}


def test_tables_of_what_was_before_every_job_audit_nothing(age: Age) -> None:
    age.pipe.run(["bronze"], quiet, since_us=instant_us(age.app))
    age.app.queues.reschedule(age.old[1].id, age.since_us + 2 * HOUR_US)
    assert age.audit() == ("not audited", 0, 1)


def test_an_audit_of_a_period_judges_those_who_were_born_in_it(age: Age) -> None:
    from dueline.spark.pipeline.history_bounds import EnqueuePeriod

    spoil(age.app, [age.old[0], age.new[0]])
    assert age.audit(enqueued=EnqueuePeriod(since_us=age.since_us)) == ("failed", 1, 20)
    assert age.audit(enqueued=EnqueuePeriod(until_us=age.since_us)) == ("failed", 1, 12)
    assert age.audit(enqueued=EnqueuePeriod(until_us=1)) == ("not audited", 0, 32)
    assert age.audit() == ("failed", 2, 0)


def test_tables_with_an_end_say_nothing_of_lost_jobs(age: Age) -> None:
    age.pipe.run(["bronze"], quiet, until_us=age.since_us)
    assert max(dict(one)["at"] for one in rows_in(age.lake, "bronze")) < age.since_us
    assert sum(one["behind"] for one in age.pipe.status()[1]) == 0
    spoil(age.app, age.old[:2])  # they may have ended after it
    said = age.pipe.audit(quiet)
    assert (said.queues[0].verdict, said.findings) == ("not audited", [])
    assert "lost" in said.not_audited
    told = age.pipe.archive(place_of(str(age.lake.with_name("there"))), quiet)
    assert told.until_us == age.since_us
    assert age.pipe.run(["bronze"], quiet)[0].rows == 0


def test_an_archive_of_what_tables_do_not_hold_is_refused(age: Age) -> None:
    age.pipe.run(["bronze"], quiet, since_us=age.since_us)
    there = place_of(str(age.lake.with_name("there")))
    with pytest.raises(BadInput, match="begin after the start of that period"):
        age.pipe.archive(there, quiet, since_us=age.since_us - 1)
    told = age.pipe.archive(there, quiet)
    assert (told.rows, told.since_us) == (19, age.since_us)


def test_what_had_gone_when_tables_were_begun_is_not_in_them(
    age: Age, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dueline.log import trimming

    place = age.since_us, b""
    monkeypatch.setattr(
        trimming, "places", lambda _, stream: {0: place} if "mail" in stream else {}
    )
    age.pipe.run(["bronze"], quiet)
    (standing,) = age.pipe.audit(quiet).queues
    assert standing.since_us == age.since_us + 1
    assert standing.unjudged > 1
    assert [one["verdict"] for one in age.pipe.past(age.since_us + HOUR_US)] == ["partial"]


def test_the_future_has_no_history(age: Age) -> None:
    with pytest.raises(BadInput, match="in the future"):
        age.pipe.run(["bronze"], quiet, since_us=age.since_us + 24 * HOUR_US)


def test_the_command_keeps_and_tells_the_period(
    age: Age, capsys: pytest.CaptureFixture[str]
) -> None:
    from dueline.cli import run
    from dueline.core.clock import to_datetime

    words = ["--store", age.app.url, "-o", "json", "pipeline"]
    rest = ["--out", str(age.lake), "--engine", "duckdb", "--queue", "mail"]
    since = ["--since", to_datetime(age.since_us).isoformat()]
    assert run([*words, "run", "bronze", *rest, *since]) == 0
    assert run([*words, "run", *rest]) == 0
    capsys.readouterr()
    assert run([*words, "audit", *rest, "--since", "2020-01-01T00:00:00Z"]) == 0
    (queue,) = json.loads(capsys.readouterr().out)["data"]["queues"]
    assert (queue["verdict"], queue["unjudged"]) == ("clean", 1)
    assert queue["since"].startswith(to_datetime(age.since_us).isoformat()[:19])
    assert run([*words, "run", *rest, "--since", "2020-01-01T00:00:00Z"]) == 5
    assert run([*words, "run", *rest, *since, "--print-submit"]) == 0
    assert "--since" in capsys.readouterr().out
