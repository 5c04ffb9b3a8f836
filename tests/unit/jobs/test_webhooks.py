"""Deliveries are stored with the ends of jobs, wherever a process stops (A16)."""

import socket
import threading
from contextlib import suppress

import pytest

from dueline import BadInput, Dueline
from dueline.api.webhook_requests import NotDelivered, Refused, is_private, post, signed
from dueline.core.attempt import Done, Ended, Outcome
from dueline.core.call_options import CallOptions, read_options
from dueline.core.errors import Unknown
from dueline.core.job import Job, JobId
from dueline.core.pagination import rows_in
from dueline.core.store import Store
from dueline.jobs import completion, webhooks
from dueline.jobs.completion import (
    Finished,
    complete,
    finish,
    finish_of,
    stored,
)
from dueline.jobs.history import HISTORY_SUFFIX
from tests.harness.calls import claim_all
from tests.harness.failing_store import FailingStore, Fault
from tests.harness.webhooks import receiving, shop, work
from tests.harness.world import World

ADDRESS = "https://hooks.example.com/jobs?token=hidden"


def claimed(world: World) -> Job:
    """Claim a new job with a webhook."""
    job_id = world.put(queue="default")
    (job,) = claim_all(world.queues)
    assert job.id == job_id
    return job._replace(opts=CallOptions(webhook=ADDRESS).to_bytes())


def end(store: Store, world: World, job: Job, outcome: Outcome) -> None:
    """End a job in a process that stops when a call has no response."""
    settings = world.queues.engine.catalog.settings("default")
    finish(store, [Finished(job, finish_of(job, outcome, None, settings))])


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("state", ["done", "dead"])
def test_a_delivery_is_stored_wherever_the_end_is_cut(
    world: World, state: str, fault: Fault
) -> None:
    # rule T3
    for call in range(1, 6):
        job = claimed(world)
        outcome = Outcome(state, world.now_us, value="1")  # type: ignore[arg-type]
        (delivery,) = webhooks.deliveries(job, outcome)
        try:
            end(FailingStore(world.store, {call: fault}), world, job, outcome)
        except Unknown:
            row = world.store.find([job.id])[0]
            if row is not None and row.state != 3 and not row.outcome:
                end(world.store, world, job, outcome)
        row = world.store.find([job.id])[0]
        if row is not None and row.outcome:  # another process claims what was left
            whole = row._replace(opts=job.opts)
            complete(world.store, [stored(whole)])
            complete(world.store, [stored(whole)])
        inserted = world.store.find([delivery.id])[0]
        assert inserted is not None
        assert (inserted.task, inserted.lane, inserted.body) == (
            webhooks.TASK, delivery.lane, delivery.body,
        )  # fmt: skip
        assert ADDRESS not in inserted.body.decode()


def test_each_end_has_a_delivery_of_its_own(world: World) -> None:
    job = claimed(world)
    first = webhooks.deliveries(job, Outcome("dead", 1_000_000))
    assert webhooks.deliveries(job, Outcome("dead", 1_000_000)) == first
    (second,) = webhooks.deliveries(job, Outcome("dead", 2_000_000))
    assert second.id != first[0].id
    assert webhooks.deliveries(job._replace(opts=b""), Outcome("dead", 1)) == ()


def test_a_delivery_is_claimed_whatever_the_width_of_its_queue(world: World) -> None:
    """Its lane is listed, and due at once."""
    for width_us in (10_000_000, 86_400_000_000):
        job = claimed(world)
        (delivery,) = webhooks.deliveries(job, Outcome("done", world.now_us))
        world.store.add([delivery])
        page = world.store.lanes(
            webhooks.QUEUE, 0, until_bucket=world.now_us // width_us, after=None, limit=10
        )
        assert delivery.lane in [pointer.lane for pointer in page.pointers]


def test_bad_addresses_are_refused() -> None:
    app = Dueline("memory://")
    task = app.task(name="does")(print)
    with pytest.raises(BadInput, match="delivers no webhooks"):
        task.using(webhook=ADDRESS)
    secrets: tuple[object, ...] = ("short", "whsec_!!!!!!!!!!!!!!!!!!", 5, [])
    for secret in secrets:
        with pytest.raises(BadInput):
            app.webhooks(secret=secret)  # type: ignore[arg-type]
    with pytest.raises(BadInput):
        app.webhooks(secret="x" * 16, allow="hooks.example.com")
    app.webhooks(secret=["x" * 16, "whsec_" + "QUJD" * 8])
    with pytest.raises(BadInput, match="before"):
        app.webhooks(secret="x" * 16)
    for bad in (
        "http://hooks.example.com", "ftp://hooks.example.com", "https://", "hooks", 7,
        "https://user:pass-1@hooks.example.com", "https://hooks.example.com/#part",
        "https://hooks.example.com:x/", "https://hooks.example.com/a b", "https://10.0.0.1/",
        "https://127.0.0.1/", "https://[::1]/", "https://[::ffff:10.0.0.1]/", "https://localhost/",
        "https://169.254.169.254/latest", f"https://{'a' * 300}.example.com/",
    ):  # fmt: skip
        with pytest.raises(BadInput) as caught:
            task.using(webhook=bad)  # type: ignore[arg-type]
        assert "pass-1" not in caught.value.message
    task.using(webhook=ADDRESS)
    using = task.using(webhook=ADDRESS)
    for refused in (
        using.step,
        lambda: app.schedule("s", using, every=60),
        lambda: using.map(["a"], name="b"),
    ):
        with pytest.raises(BadInput, match="webhook"):
            refused()


def test_an_allow_list_names_hosts_and_domains() -> None:
    app = Dueline("memory://")
    task = app.task(name="does")(print)
    app.webhooks(secret="x" * 16, allow=["10.0.0.7", "*.example.com"])
    for good in ("http://10.0.0.7:8080/", "https://a.example.com", "https://a.b.example.com/x"):
        task.using(webhook=good)
    for bad in ("https://example.com", "https://10.0.0.8", "https://example.org"):
        with pytest.raises(BadInput, match="allow"):
            task.using(webhook=bad)


def test_a_name_with_a_private_address_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    places = [(2, 1, 6, "", ("93.184.216.34", 443)), (2, 1, 6, "", ("10.1.2.3", 443))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: places)
    with pytest.raises(Refused):
        post(ADDRESS, b"{}", "msg_1", [b"k" * 16], may_be_private=False, timeout_s=1)
    assert not is_private("example.com")
    assert not is_private("93.184.216.34")


def test_a_receiver_that_answers_bit_by_bit_is_cut_off() -> None:
    """Each bit comes in time, and the whole answer does not."""
    ended = threading.Event()

    def drip() -> None:
        connection, _ = server.accept()
        with connection, suppress(OSError):
            for bit in b"HTTP/1.1 204 No Content\r\n\r\n":
                ended.wait(0.03)
                connection.send(bytes([bit]))

    with socket.create_server(("127.0.0.1", 0)) as server:
        receiver = threading.Thread(target=drip)
        receiver.start()
        try:
            with pytest.raises(NotDelivered, match="no whole answer"):
                post(f"http://127.0.0.1:{server.getsockname()[1]}/", b"{}", "msg_1", [b"k" * 16],
                     may_be_private=True, timeout_s=0.3)  # fmt: skip
        finally:
            ended.set()
            receiver.join()


def test_signatures_are_those_of_standard_webhooks() -> None:
    """The example of the specification."""
    key = b"\x30\xb5\xd3\x2f\x4d\x45\x33\x5b\x2f\x4d\x45\x33\x5b\x2f\x4d\x45"
    headers = signed(b'{"test": 2432232314}', "msg_p5jXN8AQM9LWM0D4loKWxJek", [key], 1614265330.9)
    assert headers["webhook-id"] == "msg_p5jXN8AQM9LWM0D4loKWxJek"
    assert headers["webhook-timestamp"] == "1614265330"
    assert headers["webhook-signature"].startswith("v1,")


def test_jobs_that_end_together_insert_the_same_deliveries(world: World) -> None:
    # rule T3
    jobs = [claimed(world) for _ in range(3)]
    done = [Ended(job, Done(b"1"), world.now_us, world.now_us) for job in jobs]
    settings = world.queues.engine.catalog.settings("default")
    group = completion.successes(done, {"default": settings})
    outcome = Outcome("done", world.now_us, value="1")
    assert list(group.jobs) == [webhooks.deliveries(job, outcome)[0] for job in jobs]


@pytest.mark.parametrize("url", ["memory://", "memory://?transactional=off"])
def test_the_history_has_no_address(url: str) -> None:
    app = Dueline(url)
    app.webhooks(secret="x" * 16)
    app.queue("default", history="arguments")
    task = app.task(name="does")(print)
    headers = {"request": "7f3a"}
    task.using(webhook=ADDRESS, headers=headers).enqueue("one")
    task.using(webhook=ADDRESS, headers=headers).enqueue_many([("two",), ("three",)])
    app.run_worker(burst=True)
    rows = [
        row
        for queue in ("default", webhooks.QUEUE)
        for row in rows_in(app.store, f"{queue}{HISTORY_SUFFIX}", 0, after=None)
    ]
    assert b"7f3a" in b"".join(row.body for row in rows)
    assert b"hidden" not in b"".join(row.body for row in rows)


def test_a_delivery_that_keeps_failing_is_dead_and_its_job_is_not() -> None:
    with receiving() as (address, receiver):
        receiver.refuse += [500] * 5
        app = shop("memory://")
        job = app.task_named("does").using(webhook=address).enqueue("done")
        work(app)
        (delivery,) = app.admin.list("queue:webhooks state:dead").jobs
        assert job.status == "done"
        assert "127.0.0.1 answered 500" in delivery.error
        assert "hidden" not in delivery.error
        app.job(delivery.id).retry()
        work(app)
        assert [got.job for got in receiver.received] == [(job.id, "done")]


def test_a_store_with_webhooks_is_refused_by_versions_that_lack_them() -> None:
    app = shop("memory://")
    app.task_named("does").using(webhook="http://127.0.0.1/").enqueue("done")
    assert app.engine.catalog.features.has("webhooks")
    plain = Dueline("memory://")
    plain.task(name="does")(print).enqueue()
    assert not plain.engine.catalog.features.has("webhooks")


def test_a_task_has_a_webhook_by_default() -> None:
    app = Dueline("memory://")
    with pytest.raises(BadInput, match="delivers no webhooks"):
        app.task(name="early", webhook=ADDRESS)(print)
    app.webhooks(secret="x" * 16)
    task = app.task(name="does", webhook=ADDRESS)(print)
    other = "https://hooks.example.com/other"
    for call, address in ((task, ADDRESS), (task.using(webhook=other), other)):
        row = app.engine.store.find([JobId(bytes.fromhex(call.enqueue().id))])[0]
        assert row is not None
        assert read_options(row.opts).webhook == address
    for refused in (
        lambda: app.task(name="bad", webhook="http://hooks.example.com")(print),
        lambda: app.task(name="on", webhook=ADDRESS, on="user.created")(print),
        task.step,
        lambda: app.schedule("hourly", task, cron="0 * * * *"),
    ):
        with pytest.raises(BadInput, match="webhook"):
            refused()
    app.close()
