"""What a recording store writes down."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from checker.journal import Event
from dueline.core.errors import Unknown
from dueline.core.job import UNCLAIMED_TOKEN, Job, JobId, State, Token
from dueline.core.lane import Lane, dead_queue
from dueline.core.store import Drop, Extend, Group, Lease, Move, Store, Want
from dueline.stores.memory.store import MemoryStore
from simulation.recorder import RecordingStore
from tests.harness.clocks import HandClock
from tests.harness.failing_store import FailingStore, Fault

LANE = Lane("kills", 0, 0, 5, "")
JOB = Job(LANE, 1000, JobId(bytes([1] * 16)), 0, 900, 1000, "work", 0, b"[7]", b"", 1000)
TOKEN, FRESH = Token(bytes([2] * 16)), Token(bytes([3] * 16))
ID, CLAIMED = JOB.id.hex(), TOKEN.hex()


class Diary(list[Event]):
    """A diary in memory. now: counts the events that were made."""

    now = 0

    def write(self, *events: Event) -> None:
        self.extend(events)

    def event(self, **told: str | int) -> Event:
        self.now += 1
        return Event(self.now, "me", **told)  # type: ignore[arg-type]  # the fields of an Event


def recording(store: Store | None = None) -> tuple[RecordingStore, Diary]:
    diary = Diary()
    inner = store or MemoryStore(HandClock())
    return RecordingStore(inner, diary, diary.event, note=lambda job: job.body.decode()), diary


def told(events: Sequence[Event]) -> list[Event]:
    return [replace(event, t=0, proc="") for event in events]


def event(type_: str, f: str, **rest: str | int) -> Event:
    return Event(0, "", type_, f, **rest)  # type: ignore[arg-type]  # the fields of an Event


def claimed(store: RecordingStore, diary: Diary) -> Job:
    store.add([JOB])
    claim = store.claim([Want(LANE, 1)], limit=1, lease=Lease(2000, 50, "me", TOKEN))
    diary.clear()
    return claim.jobs[0]


def test_births_are_told_of_before_and_after() -> None:
    store, diary = recording()
    store.add([JOB])
    asked = event("invoke", "enqueue", id=ID, at=900, note="[7]")
    assert told(diary) == [asked, replace(asked, type="ok", note="")]
    assert diary[0].t < diary[1].t


@pytest.mark.parametrize("fault", Fault)
def test_an_unknown_birth_is_told_of_as_such(fault: Fault) -> None:
    store, diary = recording(FailingStore(MemoryStore(HandClock()), {1: fault}))
    with pytest.raises(Unknown):
        store.add([JOB])
    assert [event.type for event in diary] == ["invoke", "unknown"]


def test_rows_of_the_dead_are_no_births() -> None:
    store, diary = recording()
    grave = JOB._replace(lane=LANE._replace(queue=dead_queue("kills")), hop=1, state=State.DEAD)
    store.add([grave])
    assert diary == []


def test_a_claim_is_told_of_with_the_time_it_was_asked_for() -> None:
    store, diary = recording()
    store.add([JOB])
    diary.clear()
    store.claim([Want(LANE, 1)], limit=1, lease=Lease(2000, 50, "me", TOKEN))
    assert told(diary) == [
        event("invoke", "claim", token=CLAIMED),
        event("ok", "claim", id=ID, attempt=1, token=CLAIMED, at=2050, priority=5, shard="kills/0"),
    ]
    store.claim([Want(LANE, 1)], limit=1, lease=Lease(2000, 50, "me", FRESH))
    assert len(diary) == len(("asked", "answered"))


def test_verdicts_are_told_of_by_what_they_do() -> None:
    store, diary = recording()
    job = claimed(store, diary)
    again = Move(job, 3000, FRESH, 0, errors=1, crashes=0)
    assert list(store.settle([Extend(job, 2100), again, Drop(job)])) == [True, True, False]
    same: dict[str, str | int] = {"id": ID, "attempt": 1, "token": CLAIMED}
    asked = [
        event("invoke", "extend", at=2100, **same),
        event("invoke", "release", at=3000, note="errors 1, crashes 0", **same),
        event("invoke", "settle", **same),
    ]
    answers = zip(asked, ("ok", "ok", "no"), strict=True)
    assert told(diary) == [*asked, *(replace(event, type=word, note="") for event, word in answers)]  # type: ignore[arg-type]  # one of Event.type


def test_an_outcome_ends_a_job_and_clearing_it_away_does_not_again() -> None:
    store, diary = recording()
    job = claimed(store, diary)
    store.settle([Move(job, 3000, FRESH, 0, errors=0, crashes=0, outcome=b"{}")])
    assert [(event.type, event.f) for event in diary] == [("invoke", "settle"), ("ok", "settle")]
    diary.clear()
    store.settle([Drop(job._replace(token=FRESH, outcome=b"{}"))])
    assert diary == []


def test_a_job_that_changes_its_lane_is_carried_and_one_among_the_dead_has_ended() -> None:
    store, diary = recording()
    job = claimed(store, diary)
    store.settle([Move(job, 3000, FRESH, 0, 0, 0, to=LANE._replace(priority=9))])
    dead = LANE._replace(queue=dead_queue("kills"))
    store.settle([Move(job, 3000, FRESH, 0, 0, 0, state=State.DEAD, to=dead)])
    assert [(event.type, event.f) for event in diary] == [
        ("invoke", "carry"), ("ok", "carry"), ("invoke", "settle"), ("no", "settle"),
    ]  # fmt: skip


def test_groups_are_told_of_one_by_one() -> None:
    store, diary = recording()
    job = claimed(store, diary)
    other = JOB._replace(id=JobId(bytes([4] * 16)))
    refused = Group((Drop(job._replace(token=UNCLAIMED_TOKEN)),))
    store.together([Group((Drop(job),), jobs=(other,)), refused])
    answers = [(event.f, event.type) for event in diary if event.type != "invoke"]
    assert answers == [("settle", "ok"), ("enqueue", "ok"), ("settle", "no")]


def test_marks_are_told_of_when_they_are_new() -> None:
    store, diary = recording()
    store.add([JOB])
    diary.clear()
    for _ in range(2):
        store.lanes("kills", 0, until_bucket=9, after=None, limit=9)
    assert [(event.type, event.f, event.id) for event in diary] == [
        ("invoke", "mark", "swept kills/0"), ("ok", "mark", "swept kills/0"),
        ("invoke", "mark", "closed kills/0"), ("ok", "mark", "closed kills/0"),
    ]  # fmt: skip
