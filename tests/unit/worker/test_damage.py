"""A worker on a store in which a record or a row cannot be read."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dueline import Dueline, pipeline
from dueline.admin.health import examine
from dueline.api.job_handle import Job as Handle
from dueline.core.job import Job, JobId, Token
from dueline.core.pagination import records_in
from dueline.core.store import SETTINGS_PARTITION, Move, Put
from dueline.jobs.history import HISTORY_SUFFIX
from tests.harness.cassandra_node import Keyspaces, expect_node, keyspaces_on_a_node

URLS = ["memory://", "memory://?transactional=off", "sqlite:///{}/a.db?synchronous=NORMAL"]
JOBS = 5


@pytest.fixture(params=URLS)
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Dueline]:
    app = opened(request.param.format(tmp_path))
    yield app
    app.close()


@pytest.fixture(scope="module")
def keyspaces() -> Iterator[Keyspaces]:
    expect_node()
    with keyspaces_on_a_node(1) as keyspaces:
        yield keyspaces


def opened(url: str) -> Dueline:
    app = Dueline(url)
    app.queue("default", keep=60)
    app.semaphore("press", capacity=2)
    app.rate("mail", 100, per=1)
    return app


class Shop:
    """Tasks, what they have seen, and a job of each kind."""

    def __init__(self, app: Dueline) -> None:
        self.app = app
        self.seen: list[str] = []
        plain = app.task(name="plain")(self.seen.append)
        pressed = app.task(name="pressed", limits=["press"])(self.seen.append)
        mailed = app.task(name="mailed", limits=["mail"])(self.seen.append)
        step = app.task(name="step")(self._stepper())
        later = app.task(name="later")(lambda _: self.seen.append("second"))
        self.plain = [plain.enqueue(f"plain {number}") for number in range(JOBS)]
        self.victim = plain.using(priority=9).enqueue("victim")
        self.pressed = pressed.enqueue("pressed")
        self.mailed = mailed.enqueue("mailed")
        self.flow = app.start(pipeline(step.step("first"), later.step()))

    def _stepper(self) -> Callable[[str], str]:
        def step(word: str) -> str:
            self.seen.append(word)
            return word

        return step

    def row(self, job: Handle[Any]) -> Job:
        (row,) = self.app.store.find([JobId(bytes.fromhex(job.id))])
        assert row is not None
        return row

    def move(self, outcome: bytes = b"", opts: bytes | None = None) -> None:
        """Have the victim's row say something else; it stays due."""
        row = self.row(self.victim)
        move = Move(row, row.at_us, Token(b"t" * 16), row.lane.bucket, 0, 0,
                    outcome=outcome, opts=opts)  # fmt: skip
        assert self.app.store.settle([move]) == [True]

    def spoil(self, partition: str, key: str = "") -> None:
        """Write what cannot be read into a record, or all of a partition."""
        keys = [key] if key else [record.key for record in records_in(self.app.store, partition)]
        assert keys
        puts = [Put(key, b"v" * 16, b"\x00{") for key in keys]
        self.app.store.commit(partition, puts)


def spoil_ends(shop: Shop) -> None:
    first = shop.flow.id
    shop.app.store.commit(f"flows/{first}/0", (Put("0000zz", b"v" * 16, b"none"),))


WAITS: dict[str, tuple[Callable[[Shop], None], set[str], str]] = {
    "an outcome": (lambda shop: shop.move(outcome=b"{}"), {"victim"}, "job"),
    "options": (lambda shop: shop.move(opts=b"{"), {"victim"}, ""),
    "the permits of a semaphore": (
        lambda shop: shop.spoil("permits/press", "press"),
        {"pressed"},
        "record permits/press/press",
    ),
    "a semaphore": (
        lambda shop: shop.spoil("semaphores", "press"),
        {"pressed"},
        "record semaphores/press",
    ),
    "a rate": (lambda shop: shop.spoil("rates", "mail"), {"mailed"}, "record rates/mail"),
    "the meter of a rate": (
        lambda shop: shop.spoil("meters/mail", "mail"),
        {"mailed"},
        "record meters/mail/mail",
    ),
    "a workflow's layout": (
        lambda shop: shop.spoil(f"flows/{shop.flow.id}", "layout"),
        {"second"},
        "workflow",
    ),
    "how steps ended": (spoil_ends, {"second"}, "workflow"),
    "a worker's presence": (
        lambda shop: shop.spoil("workers", "host:1:ab"),
        set(),
        "record workers/host:1:ab",
    ),
    "a worker on the roster": (
        lambda shop: shop.spoil("roster", "host:1:ab"),
        set(),
        "record roster/host:1:ab",
    ),
    "a schedule": (
        lambda shop: shop.spoil("schedules", "nightly"),
        set(),
        "record schedules/nightly",
    ),
    "a stream": (lambda shop: shop.spoil("streams", "s"), set(), "record streams/s"),
    "the settings of another queue": (
        lambda shop: shop.spoil(SETTINGS_PARTITION, "other"),
        set(),
        f"record {SETTINGS_PARTITION}/other",
    ),
}
"""By what is damaged: how, what must not have run after that, and how doctor names it."""

ALL = {*(f"plain {number}" for number in range(JOBS)), "victim", "pressed", "mailed", "first",
       "second"}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", WAITS)
def test_what_cannot_be_read_stops_nothing_else(app: Dueline, name: str) -> None:
    check_that_the_rest_goes_on(app, name)


@pytest.mark.cassandra
@pytest.mark.parametrize(
    "name", ["an outcome", "options", "the permits of a semaphore", "how steps ended"]
)
def test_what_cannot_be_read_stops_nothing_else_on_cassandra(
    keyspaces: Keyspaces, name: str
) -> None:
    app = opened(keyspaces.fresh())
    try:
        check_that_the_rest_goes_on(app, name)
    finally:
        app.close()


def check_that_the_rest_goes_on(app: Dueline, name: str) -> None:
    shop = Shop(app)
    damage, waits, place = WAITS[name]
    damage(shop)
    app.run_worker(burst=True, queues=["default", "other"])
    assert set(shop.seen) == ALL - waits
    assert len(shop.seen) == len(set(shop.seen))
    bad = [check for check in examine(app.queues.engine).checks if check.verdict == "bad"]
    if not place:  # it is dead, and says why
        assert shop.victim.status == "dead"
    elif place == "job":
        assert [check.name for check in bad] == [f"job {shop.victim.id} in default"]
    else:
        assert any(check.name.startswith(place) for check in bad), bad


def spoil_place(shop: Shop) -> None:
    """Keep the JSON of a checkpoint, but not the id in it."""
    (record,) = records_in(shop.app.store, "stream-checkpoints/orders/mail")
    value = record.value.replace(b'"id":"', b'"id":"xy')
    shop.app.store.commit("stream-checkpoints/orders/mail", [Put(record.key, b"v" * 16, value)])


RECORDS: dict[str, Callable[[Shop], None]] = {
    "record offices/monitor": lambda shop: shop.spoil("offices", "monitor"),
    "record quotas/default/queue": lambda shop: shop.spoil("quotas/default", "queue"),
    "record stream-groups/orders/mail": lambda shop: shop.spoil("stream-groups/orders", "mail"),
    "record stream-leases/orders/mail/0": lambda shop: shop.spoil("stream-leases/orders/mail"),
    "record stream-checkpoints/orders/mail/0": lambda shop: shop.spoil(
        "stream-checkpoints/orders/mail"
    ),
    "record stream-checkpoints/orders/mail/0 ": spoil_place,
    "record stream-members/orders/mail/m": lambda shop: shop.spoil(
        "stream-members/orders/mail", "m"
    ),
}
"""How records are damaged that are not a job's, by how doctor names them."""


@pytest.mark.slow
@pytest.mark.parametrize("place", RECORDS)
def test_damaged_records_of_streams_quotas_and_offices_are_named(app: Dueline, place: str) -> None:
    check_that_a_damaged_record_is_named(app, place)


@pytest.mark.cassandra
@pytest.mark.parametrize("place", [*RECORDS][:3])
def test_damaged_records_are_named_on_cassandra(keyspaces: Keyspaces, place: str) -> None:
    app = opened(keyspaces.fresh())
    try:
        check_that_a_damaged_record_is_named(app, place)
    finally:
        app.close()


def check_that_a_damaged_record_is_named(app: Dueline, place: str) -> None:
    app.quota("default", depth=1000)
    shop = Shop(app)
    handled = threading.Event()
    orders = app.stream("orders", shards=1)
    orders.append({"number": 1})
    orders.consumer("mail")(lambda _: handled.set())
    with app.consuming():
        assert handled.wait(30)
    RECORDS[place](shop)
    assert place.rstrip() in [
        check.name for check in examine(app.queues.engine).checks if check.verdict == "bad"
    ]


def test_damaged_marks_of_streams_are_named() -> None:
    app = opened("memory://?transactional=off")
    check_that_damaged_marks_are_named(app, lambda stream: close_for_ever(app, stream))
    app.close()


@pytest.mark.cassandra
@pytest.mark.parametrize("is_null", [False, True])
def test_damaged_marks_of_streams_are_named_on_cassandra(
    keyspaces: Keyspaces, *, is_null: bool
) -> None:
    url, session = keyspaces.fresh_session()
    app = opened(url)

    def damage(stream: str) -> None:
        close_for_ever(app, stream)
        if is_null:
            session.decide([(NO_MARK, (None, stream, 0, 2**63 - 1))])

    try:
        check_that_damaged_marks_are_named(app, damage)
    finally:
        app.close()


NO_MARK = (
    "UPDATE {keyspace}.stream_marks SET closed_us = ? WHERE stream = ? AND shard = ?"
    " IF closed_us = ?"
)


def close_for_ever(app: Dueline, stream: str) -> None:
    app.store.close_until(stream, 0, at_us=2**63 - 1)


def check_that_damaged_marks_are_named(app: Dueline, damage: Callable[[str], None]) -> None:
    shop = Shop(app)
    app.stream("orders", shards=1).append({"number": 1})
    streams = ["orders", f"default{HISTORY_SUFFIX}"]
    for stream in streams:
        damage(stream)
    bad = [check.name for check in examine(app.queues.engine).checks if check.verdict == "bad"]
    assert bad == [f"mark of stream {stream}, shard 0" for stream in streams]
    app.run_worker(burst=True)
    assert set(shop.seen) == ALL


@pytest.mark.slow
def test_a_job_whose_end_cannot_be_read_is_kept_as_it_is(app: Dueline) -> None:
    # a newer version may be able to read it
    shop = Shop(app)
    shop.move(outcome=b'{"of":"tomorrow"}')
    app.run_worker(burst=True)
    row = shop.row(shop.victim)
    assert row.outcome == b'{"of":"tomorrow"}'
    assert "cannot be read" in row.error
    assert not row.is_claimed()


@pytest.mark.slow
def test_settings_that_are_damaged_while_jobs_run_change_nothing(app: Dueline) -> None:
    shop = Shop(app)

    def spoil(_: object) -> None:
        shop.spoil(SETTINGS_PARTITION, "default")
        app.queues.engine.catalog.forget("default")

    app.on("before_run")(spoil)
    app.run_worker(burst=True)
    assert set(shop.seen) == ALL
    (bad,) = [
        check for check in examine(app.queues.engine).checks if check.name.startswith("record")
    ]
    assert bad.name == f"record {SETTINGS_PARTITION}/default"


def test_a_damaged_mark_of_a_history_stops_no_job() -> None:
    app = opened("memory://?transactional=off")
    shop = Shop(app)
    app.store.close_until(f"default{HISTORY_SUFFIX}", 0, at_us=2**63 - 1)
    app.run_worker(burst=True)
    assert set(shop.seen) == ALL
    app.close()
