"""The table of a call's options: each face has what it says, and jobs carry what is given."""

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dueline import BadInput, Dueline
from dueline.admin.move import Mover
from dueline.api.job_handle import parse_id
from dueline.api.task import Using
from dueline.cli.call_options import CallOptions as WordsOfCalls
from dueline.cli.call_options import ScheduleCallOptions
from dueline.core.call_options import CARRIED, Carried, read_options
from dueline.core.clock import SystemClock
from dueline.core.job import Job
from dueline.core.option_table import OPTIONS, Option
from dueline.web import api
from dueline.web.http_api.shapes import JobDetails, NewJob
from tests.harness.carried_options import PASSED, expected, given, given_for, shown
from tests.harness.cassandra_node import keyspaces_on_a_node
from tests.harness.http_api import Program
from tests.harness.postgres import schemas

EACH = pytest.mark.parametrize("option", PASSED, ids=[option.name for option in PASSED])


def stored(job: Job | None, option: Option) -> Any:  # noqa: ANN401  (as the option is shown)
    """Return what a job carries, as people see it."""
    assert job is not None
    return shown(read_options(job.opts), option)


# Faces


def test_each_face_has_the_options_of_the_table() -> None:
    names = {option.name for option in OPTIONS}
    assert set(inspect.signature(Using.using).parameters) - {"self", "unknown"} == names
    members = set(NewJob.__struct_fields__) - {"task", "args", "kwargs"}
    assert members == {option.name for option in OPTIONS if option.http}
    words = {field.name for field in fields(WordsOfCalls)} - {"mode", "failures", "dead"}
    assert words == {option.word for option in OPTIONS} - {""}
    schedule_words = {field.name for field in fields(ScheduleCallOptions)}
    assert schedule_words == {option.schedule_word for option in OPTIONS} - {""}


def test_what_a_job_carries_is_in_the_table_and_on_every_face() -> None:
    assert set(CARRIED) == set(Carried.__struct_fields__) - {
        "terms",
        "durable",
        "awaits",
        "webhook",
    }
    for option in PASSED:
        assert option.step
        assert not option.instead
        assert option.http
        assert option.word
        assert option.column == option.name


def test_the_guides_name_each_option() -> None:
    tasks = Path("docs/guides/tasks.md").read_text(encoding="utf-8")
    writing = Path("docs/pipeline/writing.md").read_text(encoding="utf-8")
    for option in OPTIONS:
        assert f"`{option.name}=`" in tasks, option.name
        assert not option.column or f"`{option.column}`" in writing, option.name


@pytest.mark.parametrize("name", [option.name for option in OPTIONS if not option.step])
def test_the_table_says_which_options_steps_do_not_have(name: str) -> None:
    app = Dueline("memory://")
    task = app.task(name="add")(print)
    app.webhooks(secret="x" * 16)
    with app.transaction() as tx:
        values: dict[str, Any] = {
            "unique": "k", "tx": tx, "keep": 0, "window": 5, "order_key": "k",
            "webhook": "https://example.com",
        }  # fmt: skip
        using = task.using(**{name: values[name]})
        with pytest.raises(BadInput, match=rf"does not support .*`{name}`"):
            using.step()


@pytest.mark.parametrize(
    "option", [one for one in OPTIONS if one.instead], ids=lambda one: one.name
)
def test_the_table_says_which_options_schedules_do_not_have(option: Option) -> None:
    app = Dueline("memory://")
    task = app.task(name="add")(print)
    later = datetime.now(UTC) + timedelta(hours=1)
    values: dict[str, Any] = {
        "due": later,
        "after": 0,
        "expires": later,
        "deadline": 0,
        "unique": "k",
        "depends_on": "0" * 32,
        "order_key": "k",
        "webhook": "https://example.com",
    }
    app.webhooks(secret="x" * 16)
    with app.transaction() as tx:
        using = task.using(**{option.name: values.get(option.name, tx)})
        message = re.escape(f"cannot have the option `{option.name}`")
        with pytest.raises(BadInput, match=message) as raised:
            using.recurring()
    assert raised.value.hint == option.instead


# What jobs carry


def on_memory(folder: Path) -> Iterator[str]:
    """Name a store in memory."""
    yield "memory://"


def without_transactions(folder: Path) -> Iterator[str]:
    """Name a store without transactions."""
    yield "memory://?transactional=off"


def on_sqlite(folder: Path) -> Iterator[str]:
    """Name a new file."""
    yield f"sqlite:///{folder}/jobs.db"


def on_postgres(folder: Path) -> Iterator[str]:
    """Name a new schema."""
    with schemas() as made:
        yield made.fresh()


def on_cassandra(folder: Path) -> Iterator[str]:
    """Name a new keyspace."""
    with keyspaces_on_a_node(1) as made:
        yield made.fresh()


@pytest.fixture(
    params=[
        pytest.param(on_memory, marks=pytest.mark.memory),
        pytest.param(without_transactions, marks=pytest.mark.memory),
        pytest.param(on_sqlite, marks=pytest.mark.sqlite),
        pytest.param(on_postgres, marks=pytest.mark.postgres),
        pytest.param(on_cassandra, marks=pytest.mark.cassandra),
    ]
)
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Dueline]:
    """Make an application on each kind of store."""
    make: Callable[[Path], Iterator[str]] = request.param
    for url in make(tmp_path):
        made = Dueline(url)
        made.task(name="echo")(echo)
        yield made
        made.close()


def echo(*values: int) -> int:
    """Return the number of arguments."""
    return len(values)


def rows(app: Dueline) -> dict[bytes, Job]:
    """Return all waiting jobs, by their arguments."""
    return {row.body: row for row in app.queues.engine.jobs_of("default")}


def with_all_that_is_carried(app: Dueline) -> Using[..., Any]:
    """Return a task whose calls are given all options that a job carries."""
    return app.task_named("echo").using(**given())


def store_each_kind_of_call(app: Dueline) -> None:
    """Store jobs of a call, a bulk call, a call by name, a workflow and a schedule."""
    using = with_all_that_is_carried(app).using(after=3600)
    using.enqueue(1)
    app.enqueue_many([using.call(2), app.task_named("echo").using(after=3600).call(20)])
    using.enqueue_many([(3,)])
    app.send("echo", [4], after=3600, **given())
    app.start(using.step(5))
    app.schedules.set("s", with_all_that_is_carried(app), [6], every=30)


@pytest.mark.slow
def test_a_job_carries_what_its_call_was_given_however_it_is_made(app: Dueline) -> None:
    store_each_kind_of_call(app)
    found = rows(app)
    found[b"[7]"] = app.queues.find(parse_id(app.schedules.trigger("s").id)).row or found[b"[1]"]
    for option in PASSED:
        carried = {body: stored(row, option) for body, row in found.items() if body != b"[20]"}
        assert carried == dict.fromkeys(carried, expected(option)), option.name
        assert not stored(found[b"[20]"], option)
    assert {f"[{number}]".encode() for number in range(1, 7)} <= found.keys()


@pytest.mark.slow
def test_what_a_job_carries_moves_to_another_store(app: Dueline, tmp_path: Path) -> None:
    store_each_kind_of_call(app)
    before = rows(app)
    other = Dueline(f"sqlite:///{tmp_path}/other.db")
    try:
        Mover(
            app.queues, other.queues, ("old", "new"),
            clock=SystemClock(), report=lambda *_: None, grace_us=0,
        ).run()  # fmt: skip
        after = rows(other)
        assert before.keys() == after.keys()
        for option in PASSED:
            assert {body: stored(row, option) for body, row in after.items()} == {
                body: stored(row, option) for body, row in before.items()
            }
        row = other.queues.find(parse_id(other.schedules.trigger("s").id)).row
        assert all(stored(row, option) == expected(option) for option in PASSED)
    finally:
        other.close()


@pytest.mark.slow
@EACH
def test_http_takes_what_a_job_carries(app: Dueline, option: Option) -> None:
    program = Program(api(app, role="admin"))
    call = {"task": "echo", "args": [1], option.name: given_for(option)}
    one = program.call("POST", "/jobs", call, status=201)
    (many,) = program.call("POST", "/jobs/bulk", {"jobs": [call]}, status=201)
    for job in (one, many):
        assert stored(app.queues.find(parse_id(job["id"])).row, option) == expected(option)
        if option.name in JobDetails.__struct_fields__:
            assert program.call("GET", f"/jobs/{job['id']}")[option.name] == expected(option)


def test_options_are_stored_as_json_that_earlier_versions_read() -> None:
    job = msgspec.json.decode(
        read_options(b'{"tags":["a"],"headers":[["by","x"]],"other":1}').to_bytes()
    )
    assert job == {"tags": ["a"], "headers": [["by", "x"]]}
