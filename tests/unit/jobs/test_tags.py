"""Words to find jobs by."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline import Dueline
from dueline.admin.search import JobFilter, search
from dueline.core.call_options import TAGS_MAX, CallOptions, Rule, read_options, tags_of
from dueline.core.clock import SECOND_US
from dueline.core.errors import BadInput, Conflict, StoreUnavailable
from dueline.core.job import UNCLAIMED_TOKEN, Job, JobId
from dueline.core.lane import bucket_of
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import Move, Store
from dueline.jobs.moves import Change
from dueline.jobs.queue import Queues
from tests.harness.calls import call, claim_all, number_of, put
from tests.harness.clocks import HandClock
from tests.harness.world import EVERY_KIND, store_on


@pytest.fixture(params=EVERY_KIND)
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: HandClock) -> Iterator[Store]:
    store = store_on(request.param, tmp_path, clock)
    yield store
    store.close()


def tagged(queues: Queues, number: int, *tags: str, due_us: int | None = None) -> Job:
    (job,) = put(
        queues, call(number, due_us=due_us)._replace(opts=CallOptions(tags=tags).to_bytes())
    )
    return job


def found(queues: Queues, tag: str, state: str | None = None) -> list[int]:
    return [
        number_of(job) for job in search(queues.engine, JobFilter(state, tag=tag), limit=50).jobs
    ]


def tags(queues: Queues, job: Job) -> tuple[str, ...]:
    row = queues.find(job.id).row
    assert row is not None
    return tags_of(row)


def test_a_priority_and_tags_change_together(
    queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    # C20
    job = tagged(queues, 1, "x")
    change = Queues._change

    def interrupted(self: Queues, job_id: JobId, word: str, step: Change) -> None:
        if step.priority is not None:
            raise StoreUnavailable("The network is down.")
        change(self, job_id, word, step)

    with monkeypatch.context() as patch:
        patch.setattr(Queues, "_change", interrupted)
        with pytest.raises(StoreUnavailable):
            queues.change(job.id, tags=["y"], headers={"a": "b"}, priority=7)
    assert tags(queues, job) == (("x",) if queues.engine.store.transactional else ("y",))
    queues.change(job.id, tags=["y"], priority=7)
    (row,) = claim_all(queues)
    assert (row.lane.priority, tags_of(row)) == (7, ("y",))


def test_jobs_are_found_by_a_tag(queues: Queues) -> None:
    # C20, V1
    tagged(queues, 1, "import", "night")
    put(queues, call(2))
    tagged(queues, 3, "import")
    assert found(queues, "import") == [1, 3]
    assert found(queues, "night") == [1]
    assert found(queues, "imp") == []


def test_dead_jobs_are_found_by_a_tag(queues: Queues, clock: HandClock) -> None:
    job = tagged(queues, 1, "import")
    (claimed,) = claim_all(queues)
    home = claimed.lane._replace(queue="default!dead")
    now_us = clock.wall_us()
    bucket = bucket_of(now_us, QueueSettings().width_us)
    token = queues.engine.ids.token()
    assert queues.engine.store.settle(
        [Move(claimed, now_us, token, bucket, 1, 0, state=3, to=home)]
    )[0]
    assert found(queues, "import", "dead") == [1]
    queues.retry(job.id)
    assert tags(queues, job) == ("import",)


def test_the_tags_of_a_job_that_waits_are_changed(queues: Queues, clock: HandClock) -> None:
    # C20
    job = tagged(queues, 1, "import", due_us=clock.wall_us() + SECOND_US)
    queues.change(job.id, tags=["b", "a", "b"])
    assert tags(queues, job) == ("a", "b")
    assert (found(queues, "a"), found(queues, "import")) == ([1], [])
    queues.change(job.id, tags=[])
    row = queues.find(job.id).row
    assert row is not None
    assert row._replace(token=UNCLAIMED_TOKEN, hop=0) == job._replace(opts=b"")


def test_a_change_of_tags_leaves_the_rest_of_what_was_asked(
    queues: Queues, clock: HandClock
) -> None:
    asked = CallOptions(clock.wall_us() + SECOND_US, Rule("k"), tags=("x",))
    (job,) = put(queues, call(1)._replace(opts=asked.to_bytes()))
    queues.change(job.id, tags=["y"], priority=7)
    row = queues.find(job.id).row
    assert row is not None
    assert read_options(row.opts) == CallOptions(asked.expires_us, asked.unique, tags=("y",))
    assert row.lane.priority == 7
    (claimed,) = claim_all(queues)
    assert tags_of(claimed) == ("y",)


def test_the_tags_of_a_job_that_runs_are_not_changed(queues: Queues) -> None:
    job = tagged(queues, 1, "x")
    claim_all(queues)
    with pytest.raises(Conflict, match="running"):
        queues.change(job.id, tags=["y"])
    assert tags(queues, job) == ("x",)


def test_a_change_that_says_nothing_is_refused(queues: Queues) -> None:
    (job,) = put(queues, call(1))
    with pytest.raises(BadInput):
        queues.change(job.id)


def test_a_birth_that_is_sent_again_does_not_bring_old_tags_back(queues: Queues) -> None:
    job = tagged(queues, 1, "old")
    queues.change(job.id, tags=["new"])
    queues.enqueue_again([job])
    assert tags(queues, job) == ("new",)
    assert [tags_of(job) for job in claim_all(queues)] == [("new",)]


@pytest.mark.parametrize("bad", ["import", [""], ["a\n"], ["x" * 65], [3], 7,
                                 [str(n) for n in range(TAGS_MAX + 1)], ["\ud800"]])  # fmt: skip
def test_tags_that_cannot_be_are_refused(bad: object) -> None:
    app = Dueline("memory://")

    @app.task(name="nothing")
    def nothing() -> None: ...

    with pytest.raises(BadInput):
        nothing.using(tags=bad)  # type: ignore[arg-type]


def test_a_tagged_call_and_its_handle() -> None:
    app = Dueline("memory://")

    @app.task(name="nothing")
    def nothing(number: int) -> int:
        return number

    job = nothing.using(tags={"night", "import"}).enqueue(1)
    many = nothing.using(tags=["import"]).enqueue_many([(2,), (3,)])
    first: tuple[str, ...] = job.tags
    assert first == ("import", "night")
    assert [job.tags for job in many] == [("import",), ("import",)]
    job.change(tags=["day"])
    assert [*job.tags] == ["day"]
    app.run_worker(burst=True)
    assert ([*job.tags], job.result()) == ([], 1)
