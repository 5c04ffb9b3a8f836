"""Large arguments and results, as an application uses them, on every store (C14)."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from dueline import (
    BadInput,
    BatchOptions,
    BlobLost,
    Call,
    ConfigError,
    Context,
    Dueline,
    DurableContext,
    JobFailed,
    Retry,
    StoreUnavailable,
    group,
    pipeline,
)
from dueline.contrib.crypto import Cipher
from dueline.core.blobs import HOUR_US
from dueline.core.clock import StoreTime
from dueline.core.job import JobId
from dueline.core.store import Transactional
from dueline.monitor.blob_removal import GRACE_US, remove_blobs
from dueline.workflows import records
from tests.harness.addresses import IN_MEMORY, WITH_ADDRESS, address
from tests.harness.clocks import HandClock

TEXT = "x" * 200_000


MADE: list[int] = []


def make(length: int) -> str:
    """Make a value, as a step does; note it."""
    MADE.append(length)
    return "y" * length


class Site:
    """An application with a folder of blobs, and a clock that is moved by hand."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.passed_us = 0
        self.clock = HandClock(time.time_ns() // 1000)  # a server expires records by its own
        self.app = self.make()

    def make(self, url: str | None = None, **options: object) -> Dueline:
        """Return an application with tasks; another process would make the same."""
        app = Dueline(
            url or self.url, clock=self.clock, blobs=self.folder.as_uri(), **options,  # type: ignore[arg-type]
        )  # fmt: skip

        @app.task(name="twice", retry=Retry(attempts=2, base=0))
        def twice(text: str) -> str:
            return text + text

        @app.task(name="size", large=0)
        def size(*texts: str) -> int:
            return sum(map(len, texts))

        @app.task(name="sizes")
        def sizes(texts: list[str]) -> int:
            return sum(map(len, texts))

        return app

    def blobs(self) -> list[str]:
        """Return the kinds of the blobs that exist."""
        return sorted(path.name.split("-")[1] for path in self.folder.rglob("*-*"))

    def collect(self, hours: int = 0) -> int:
        """Do what the maintenance leader does some hours from now; return what it removed."""
        self.passed_us += hours * HOUR_US
        engine = replace(self.app.engine, time=cast("StoreTime", Later(self)))
        removed, after = 0, None
        while True:
            step = remove_blobs(engine, after)
            removed, after = removed + step.acts, step.after
            if after is None:
                return removed


class Later:
    """The time of a store, some hours later; a server's clock cannot be moved."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def earliest_us(self) -> int:
        """Return the time."""
        return self._site.app.engine.time.earliest_us() + self._site.passed_us


@pytest.fixture(params=[*IN_MEMORY, *WITH_ADDRESS])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """Make a site on an empty store of each kind."""
    with address(request.param, tmp_path) as url:
        site = Site(url, tmp_path / "blobs")
        yield site
        site.app.close()


def test_large_values_are_files_and_small_ones_are_in_the_row(site: Site) -> None:
    twice, size = site.app.task_named("twice"), site.app.task_named("size")
    jobs = twice.enqueue_many([(TEXT,), ("small",)])
    always = size.enqueue("a", "b")
    assert site.blobs() == ["arguments", "arguments"]
    (row,) = site.app.engine.store.find([JobId(bytes.fromhex(jobs[0].id))])
    assert row is not None
    assert len(row.body) < 400
    site.app.run_worker(burst=True)
    assert [job.result(timeout=0) for job in jobs] == [TEXT + TEXT, "smallsmall"]
    assert always.result(timeout=0) == 2
    assert site.blobs() == ["arguments", "arguments", "result", "result"]


def test_blobs_are_removed_with_their_jobs_and_never_before(site: Site) -> None:
    twice = site.app.task_named("twice")
    waiting = twice.using(after=1_000_000, keep=0).enqueue(TEXT)
    job = twice.using(keep=100 * 3600).enqueue(TEXT)
    twice.using(keep=0).enqueue(TEXT)
    site.app.run_worker(burst=True)
    assert site.collect(48) == 1
    assert job.result(timeout=0) == TEXT + TEXT
    waiting.cancel()
    assert site.collect() == 1
    assert job.result(timeout=0) == TEXT + TEXT
    assert sorted(path.name.split("-")[0] for path in site.folder.rglob("*-*")) == [job.id] * 2


def test_folders_of_hours_without_blobs_are_removed(site: Site) -> None:
    site.app.task_named("twice").using(keep=0).enqueue_many([(f"{n}{TEXT}",) for n in range(3)])
    site.app.run_worker(burst=True)
    assert site.collect(48) == 3
    assert list(site.folder.glob("*/*")) == []


def test_what_an_interrupted_call_leaves_is_removed_after_a_day(site: Site) -> None:
    twice = site.app.task_named("twice")
    job = twice.enqueue(TEXT)
    (row,) = site.app.engine.store.find([JobId(bytes.fromhex(job.id))])
    assert row is not None
    assert site.app.engine.blobs is not None
    site.app.engine.blobs.placed([row._replace(id=JobId(bytes(16)))])  # and the process was killed
    draft = next(site.folder.rglob("*-*")).with_name("half-written")
    draft.write_bytes(b"x")
    assert len(site.blobs()) == 3
    assert site.collect(GRACE_US // HOUR_US - 2) == 0
    assert site.collect(4) == 2
    site.app.run_worker(burst=True)
    assert job.result(timeout=0) == TEXT + TEXT


def test_a_blob_that_is_gone_or_damaged_ends_the_job_with_an_error(site: Site) -> None:
    twice = site.app.task_named("twice")
    gone = twice.enqueue(TEXT)
    (path,) = site.folder.rglob("*-arguments-*")
    path.unlink()
    damaged = twice.enqueue(TEXT)
    (path,) = site.folder.rglob("*-arguments-*")
    path.write_bytes(b"[]")
    done = twice.enqueue(TEXT[:150_000])
    site.app.run_worker(burst=True)
    for job, word in ((gone, "is gone"), (damaged, "is damaged")):
        assert job.status == "dead"
        with pytest.raises(JobFailed, match=rf"file:///.*{job.id}.*sha256 [0-9a-f]{{64}}, {word}"):
            job.result(timeout=0)
    (path,) = site.folder.rglob("*-result-*")
    path.unlink()
    with pytest.raises(BlobLost, match=f"{done.id}-result"):
        done.result(timeout=0)


def test_workflows_pass_results_that_are_blobs(site: Site) -> None:
    site.app.queue("default", keep=0)
    twice, size, sizes = map(site.app.task_named, ("twice", "size", "sizes"))
    flow = site.app.start(pipeline(twice.step(TEXT), size.step(TEXT)))
    many = site.app.start(pipeline(group(*[twice.step(TEXT) for _ in range(3)]), sizes.step()))
    last = site.app.start(group(twice.step(TEXT), twice.step("a")))
    site.app.run_worker(burst=True)
    assert flow.result(timeout=0) == 600_000
    assert many.result(timeout=0) == 1_200_000
    site.collect(48)  # the workflow is known for longer than the results of its jobs
    assert last.result(timeout=0) == [TEXT + TEXT, "aa"]
    store = site.app.engine.store
    for each in (flow, many, last):
        flow_id = JobId(bytes.fromhex(each.id))
        assert list(records.forget(store, flow_id, records.read(store, flow_id)))
    assert site.collect() > 0
    assert site.blobs() == []


def test_durable_functions_keep_large_values_and_pass_them(site: Site) -> None:
    twice = site.app.task_named("twice")
    MADE.clear()

    @site.app.durable(name="long")
    def long(ctx: DurableContext, text: str) -> str:
        own = ctx.step(make, 300_000)
        other = ctx.call(twice, text)
        many = ctx.gather([twice.call(text), twice.call("a")])
        return own + other + "".join(many)  # type: ignore[no-any-return]

    job = long.enqueue(TEXT)
    for _ in range(30):
        site.app.run_worker(burst=True)
        if job.status == "done":
            break
    assert len(job.result(timeout=0)) == 300_000 + 2 * 2 * len(TEXT) + 2
    assert MADE == [300_000]
    assert site.blobs().count("value") == 2  # the call and the gather have the same result


def test_an_application_without_the_folder_leaves_such_jobs_alone(site: Site) -> None:
    if site.url.startswith("memory"):
        pytest.skip("no other process has this store")
    job = site.app.task_named("twice").enqueue(TEXT)
    other = Dueline(site.url, clock=site.clock)
    other.task(name="twice")(lambda text: text)
    other.run_worker(burst=True)
    assert job.status in ("ready", "retrying", "scheduled")
    site.clock.advance(3600)
    site.app.run_worker(burst=True)
    assert job.result(timeout=0) == TEXT + TEXT
    with pytest.raises(BadInput, match=r"Dueline\(\.\.\., blobs="):
        other.job(job.id).result(timeout=0)
    other.close()


def test_a_folder_that_cannot_be_written_refuses_the_call_and_stores_nothing(site: Site) -> None:
    site.folder.write_text("no folder")
    with pytest.raises(StoreUnavailable, match="cannot be written"):
        site.app.task_named("twice").enqueue(TEXT)
    assert list(site.app.admin.list("default").jobs) == []


def test_blobs_of_encrypted_tasks_are_encrypted(site: Site) -> None:
    Cipher({"1": "11" * 32}).install(site.app)
    twice = site.app.task_named("twice")
    job = twice.enqueue(TEXT)
    site.app.run_worker(burst=True)
    assert job.result(timeout=0) == TEXT + TEXT
    paths = list(site.folder.rglob("*-*"))
    assert len(paths) == 2
    assert not any(b"xxxx" in path.read_bytes() for path in paths)


def test_jobs_that_run_again_and_forked_functions_have_blobs_of_their_own(site: Site) -> None:
    site.app.queue("default", history="arguments", keep=0)
    twice = site.app.task_named("twice")

    @site.app.durable(name="waits")
    def waits(ctx: DurableContext) -> int:
        own = ctx.step(make, 300_000)
        return len(own) + ctx.wait_signal("more")  # type: ignore[no-any-return]

    job = twice.enqueue(TEXT)
    begun = waits.enqueue()
    site.app.run_worker(burst=True)
    again = site.app.job(
        site.app.admin.operations("a test").run_again(JobId(bytes.fromhex(job.id)))
    )
    forked = begun.reset(as_new=True)
    for path in site.folder.rglob("*-*"):
        if path.name.startswith((job.id, begun.id)):
            path.unlink()
    site.app.queue("default", keep=3600)
    forked.signal("more", 5)
    for _ in range(9):
        site.app.run_worker(burst=True)
    assert again.result(timeout=0) == TEXT + TEXT
    assert forked.result(timeout=0) == 300_005


def test_coroutines_batches_and_transactions_have_large_values(site: Site) -> None:
    @site.app.task(name="later")
    async def later(text: str) -> str:
        return text + "!"

    @site.app.task(name="each", batch=BatchOptions(size=1))
    def each(calls: list[Call[str]]) -> list[str]:
        return [call.value + "?" for call in calls]

    jobs = [later.enqueue(TEXT), each.enqueue(TEXT)]
    if isinstance(site.app.engine.store, Transactional):

        @site.app.task(name="finishes")
        def finishes(ctx: Context, text: str) -> str:
            with site.app.transaction() as tx:
                return ctx.finish(tx, text + ".")

        with site.app.transaction() as tx:
            jobs.append(finishes.using(tx=tx).enqueue(TEXT))
    site.app.run_worker(burst=True)
    assert [job.result(timeout=0)[-2:] for job in jobs] == ["x!", "x?", "x."][: len(jobs)]
    assert site.blobs().count("result") == len(jobs)


def test_batches_have_large_items_and_results(site: Site) -> None:
    batch = site.app.task_named("twice").map([TEXT, "a"], name="texts")
    site.app.run_worker(burst=True)
    assert list(batch.results()) == [TEXT + TEXT, "aa"]
    assert site.blobs() == ["arguments", "result"]


def test_lists_show_the_name_and_the_size_and_read_no_blob(site: Site) -> None:
    twice = site.app.task_named("twice")
    waiting = twice.using(after=3600).enqueue(TEXT)
    done = twice.enqueue(TEXT)
    site.app.run_worker(burst=True)
    for path in site.folder.rglob("*-*"):
        path.unlink()
    shown = site.app.admin.get(waiting.id).arguments
    assert waiting.id in shown["$blob"]
    assert (shown["size"], shown["task"]) == (len(TEXT) + 4, "twice")
    assert site.app.admin.get(done.id).result["size"] == 2 * len(TEXT) + 2


@pytest.mark.parametrize("blobs", ["", "blobs", "file://host/x", "file:", 5, "http://[x"])
def test_what_is_no_address_of_a_folder_is_refused(blobs: str) -> None:
    with pytest.raises(ConfigError, match=r"file:///srv/blobs"):
        Dueline("memory://", blobs=blobs)


def test_sizes_and_large_need_a_folder_and_a_number() -> None:
    with pytest.raises(BadInput, match="needs a folder"):
        Dueline("memory://").task(large=5)
    with pytest.raises(BadInput, match="blobs_above"):
        Dueline("memory://", blobs="file:///tmp/x", blobs_above=-1)
    with pytest.raises(BadInput, match="large"):
        Dueline("memory://", blobs="file:///tmp/x").task(large="often")  # type: ignore[call-overload]
