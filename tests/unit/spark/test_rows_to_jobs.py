"""Jobs made of data (P2)."""

from datetime import UTC, datetime
from typing import Any

import pytest

from dueline import BadInput
from dueline.core.queue_settings import QueueSettings
from tests.harness.spark.writers import NOW_US, new_batch_of, new_jobs_of


def test_ids_come_from_the_data_and_are_the_same_each_time() -> None:
    uuid = "0190a6f3-3c5e-7bbb-8000-000000000001"
    rows = [{"payload": "[]", "job_id": text} for text in (uuid, "order 17", "order 18")]
    first, again = new_jobs_of(rows), new_jobs_of(rows)
    assert [one.id for one in first] == [one.id for one in again]
    assert first[0].id.hex() == uuid.replace("-", "")
    assert len({one.id for one in first}) == 3
    keyed = [{"payload": "[]", "dedupe_key": "a", "queue": queue} for queue in ("mail", "bills")]
    assert len({one.id for one in new_jobs_of(keyed)}) == 2
    data = [{"payload": "[]", "order": order, "day": "mon"} for order in (1, 2, 1)]
    found = new_jobs_of(data, id_columns=("order", "day"))
    assert found[0].id == found[2].id != found[1].id


def test_a_job_lies_where_its_id_and_due_time_say() -> None:
    from dueline.spark.writing.rows_to_jobs import jobs_of

    due = datetime(2030, 1, 1, tzinfo=UTC)
    rows: list[dict[str, Any]] = [
        {"payload": '{"args": [1]}', "job_id": "a", "due": due, "priority": 5, "tenant": "acme"},
        {"payload": "[1]", "job_id": "b", "due": None, "priority": None, "tenant": None},
    ]
    jobs = jobs_of(
        new_batch_of(rows), now_us=NOW_US, settings=lambda _: QueueSettings(shards=4, shards_read=4)
    )
    late = next(job for job in jobs if job.lane.tenant)
    now = next(job for job in jobs if not job.lane.tenant)
    assert late.due_us == late.pos_us == late.at_us == round(due.timestamp()) * 1_000_000
    assert (late.lane.priority, late.body, late.task) == (5, b'{"args": [1]}', "send")
    assert (now.due_us, now.at_us, now.lane.priority) == (NOW_US, NOW_US, 0)


@pytest.mark.parametrize(
    "text",
    [
        "0190a6f3-3c5e-7bbb-8000-000000000001", "0190A6F33C5E7BBB8000000000000001",
        "{0190a6f3-3c5e-7bbb-8000-000000000001}", "urn:uuid:0190a6f3-3c5e-7bbb-8000-000000000001",
    ],
)  # fmt: skip
def test_a_uuid_is_the_id_in_all_the_ways_to_write_it(text: str) -> None:
    rows = [{"payload": "[]", "job_id": one} for one in ("a", text, text[:-1] + " ")]
    short, uuid, named = new_jobs_of(rows)
    assert uuid.id.hex() == "0190a6f33c5e7bbb8000000000000001"
    assert len({short.id, uuid.id, named.id}) == 3


def test_what_is_no_call_is_told_of_among_others() -> None:
    rows: list[dict[str, Any]] = [
        {"payload": "[]", "job_id": "a"},
        {"payload": ' {"args": []}', "job_id": "b"},
    ]
    assert [one.body for one in new_jobs_of(rows)] == [b"[]", b' {"args": []}']
    sealed = [row | {"codec": None} for row in rows]
    sealed.append({"payload": "7", "job_id": "c", "codec": 5})
    assert [one.codec for one in new_jobs_of(sealed)] == [0, 0, 5]
    with pytest.raises(BadInput, match="A payload for send is not a call"):
        new_jobs_of([*rows, {"payload": '{"to": 1}', "job_id": "c"}])


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"payload": "[]"}, "No column identifies a job"),
        ({"payload": "[]", "job_id": None}, "A row has no value that identifies its job"),
        ({"job_id": "a"}, "no column payload"),
        ({"payload": None, "job_id": "a"}, "has no payload"),
        ({"payload": "7", "job_id": "a"}, "is not a call"),
        ({"payload": '{"to": 1}', "job_id": "a"}, "is not a call"),
        ({"payload": "[", "job_id": "a"}, "is not a call"),
        ({"payload": "[]", "job_id": "a", "queue": "Mail!"}, "is not a queue name"),
        ({"payload": "[]", "job_id": "a", "priority": 2**40}, "signed 32-bit"),
        ({"payload": "[]", "job_id": "a", "prioriti": 1}, "Did you mean priority"),
        (
            {"payload": "[]", "job_id": "a", "priority": "high"},
            "column priority must hold integers",
        ),
        ({"payload": "[]", "job_id": "a", "due": "soon"}, "column due must hold timestamps"),
        ({"payload": "[]", "job_id": "a", "expires": [1]}, "column expires must hold timestamps"),
        ({"payload": "[]", "job_id": "a", "tags": "a"}, "column tags must hold arrays of strings"),
        ({"payload": "[]", "job_id": "a", "headers": "a"}, "column headers must hold maps of"),
        ({"payload": "[]", "job_id": "a", "jitter": "x"}, "column jitter must hold seconds or"),
        ({"payload": "[]", "job_id": "a", "tenant": [1]}, "column tenant must hold strings"),
        ({"payload": [1], "job_id": "a"}, "column payload must hold strings"),
        ({"payload": "[]", "job_id": [1]}, "column job_id must hold strings"),
        ({"payload": "[]", "job_id": "a", "task": ""}, "has no task"),
        ({"payload": "[]", "job_id": "a", "codec": 128}, "the unknown codec 128"),
        ({"payload": '["%s"]' % ("x" * 300_000), "job_id": "a"}, "are allowed"),
    ],
)
def test_what_cannot_be_a_job_is_refused(row: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        new_jobs_of([row])


def test_a_queue_and_a_task_must_be_said() -> None:
    row = {"payload": "[]", "job_id": "a"}
    with pytest.raises(BadInput, match="no column queue"):
        new_jobs_of([row], queue="")
    with pytest.raises(BadInput, match="no column task"):
        new_jobs_of([row], task="")
    with pytest.raises(BadInput, match="idColumns names 'day'"):
        new_jobs_of([row], id_columns=("day",))
