"""The judge, on hand-made histories."""

from collections.abc import Sequence
from dataclasses import replace

from checker.journal import Event
from simulation.judge import Final, Recorded, Report, judge

ASKED = Event(1_000_000, "10", "invoke", "enqueue", "a", at=1_000_000, note="7")
ACK = replace(ASKED, t=1_000_010, type="ok", note="")
START = Event(1_200_000, "11", "ok", "start", "a", attempt=1)
GOOD = [ASKED, ACK, START]
DONE = {"a": Final("done", 7)}
RECORDED = [Recorded("a", 1, "done")]


def faults(
    events: Sequence[Event],
    finals: dict[str, Final] | None = None,
    recorded: Sequence[Recorded] = RECORDED,
) -> dict[str, list[str]]:
    report: Report = judge(events, DONE if finals is None else finals, recorded, prefetch=0)
    return {verdict: list(stories) for verdict, stories in report.faults.items() if stories}


def test_a_job_that_ran_once_is_no_fault() -> None:
    assert faults(GOOD) == {}


def test_a_dead_job_is_not_lost() -> None:
    assert faults(GOOD, {"a": Final("dead")}, [Recorded("a", 1, "dead")]) == {}


def test_what_the_checker_finds_is_a_fault_with_its_story() -> None:
    faulty = faults(GOOD, {"a": Final("gone")})
    assert list(faulty) == ["lost"]
    assert faulty["lost"][0].startswith("lost: a was acknowledged, and is gone\n")


def test_a_call_under_two_ids_is_doubled() -> None:
    other = [replace(event, id="b") for event in GOOD]
    finals = {**DONE, "b": Final("done", 7)}
    assert faults([*GOOD, *other], finals) == {"doubled": ["number 7: ['a', 'b']"]}


def test_a_call_that_ran_under_an_id_that_nobody_acknowledged_is_doubled() -> None:
    other = [replace(event, id="b") for event in GOOD if event is not ACK]
    finals = {**DONE, "b": Final("done", 7)}
    assert faults([*GOOD, *other], finals) == {"doubled": ["number 7: ['a', 'b']"]}


def test_a_call_that_was_refused_under_its_first_id_is_not_doubled() -> None:
    refused = [replace(ASKED, id="b"), replace(ACK, id="b", type="no")]
    assert faults([*refused, *GOOD], {**DONE, "b": Final("gone")}) == {}


def test_a_second_recorded_finish_is_a_fault() -> None:
    recorded = [*RECORDED, Recorded("a", 2, "dead")]
    assert faults(GOOD, recorded=recorded) == {"recorded twice": ["a"]}


def test_a_result_without_a_start_is_a_phantom() -> None:
    assert faults([ASKED, ACK]) == {"phantom": ["a"]}


def test_the_result_of_another_job_is_wrong() -> None:
    assert faults(GOOD, {"a": Final("done", 8)}) == {"wrong": ["a: 8"]}


def test_a_missing_result_is_wrong() -> None:
    assert faults(GOOD, {"a": Final("done")}) == {"wrong": ["a: None"]}


KEYED = [replace(ASKED, note="7 key"), ACK, START]
END = Event(1_500_000, "11", "invoke", "settle", "a", attempt=1)
OTHER = [
    replace(ASKED, id="b", note="8 key", t=1_600_000),
    replace(ACK, id="b", t=1_600_010),
    replace(START, id="b", t=1_700_000),
]
BOTH = {**DONE, "b": Final("done", 8)}


def test_a_job_may_follow_another_of_its_key_that_has_ended() -> None:
    assert faults([*KEYED, END, *OTHER], BOTH) == {}


def test_two_living_jobs_of_one_key_are_found() -> None:
    faulty = faults([*KEYED, replace(END, t=1_600_020), *OTHER], BOTH)
    assert faulty == {"beside": ["key: b beside a"]}


def test_a_job_that_was_stored_while_another_of_its_key_may_have_ended_is_no_fault() -> None:
    assert faults([*KEYED, replace(END, t=1_600_005), *OTHER], BOTH) == {}


def test_counts_say_what_happened() -> None:
    counts = judge(GOOD, DONE, RECORDED, prefetch=0).counts
    assert (counts["acknowledged"], counts["starts"], counts["done"]) == (1, 1, 1)
