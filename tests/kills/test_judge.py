"""The judge, on hand-made histories."""

from collections.abc import Mapping, Sequence

import pytest

from tests.kills.judge import OUTAGE_US_MAX, Event, Final, Recorded, Report, judge

WORKER, OTHER, PRODUCER, CHILD = 10, 11, 12, 13

ATTEMPT = Event("attempt", 1_000_000, PRODUCER, number=7)
ACK = Event("ack", 1_100_000, PRODUCER, number=7, job="a")
START = Event("start", 1_200_000, WORKER, number=7, job="a", fence=1, due_us=1_000_000)
AGAIN = START._replace(t_us=3_200_000, process=OTHER, fence=2)
FINISH = START._replace(kind="finish", t_us=1_300_000)
KILL = Event("kill", 1_250_000, WORKER)
OUTAGE = Event("outage", 1_250_000, 99)
UNKNOWN = ACK._replace(kind="unknown")
DONE = {"a": Final("done", 7)}
RECORDED = [Recorded("a", 1, "done", 1_300_000)]
RECORDED_LATER = [Recorded("a", 2, "done", 3_300_000)]
GOOD = [ATTEMPT, ACK, START, FINISH]


def faults(
    events: Sequence[Event],
    finals: Mapping[str, Final] = DONE,
    recorded: Sequence[Recorded] = RECORDED,
) -> dict[str, list[str]]:
    report: Report = judge(events, finals, recorded)
    return {verdict: list(found) for verdict, found in report.faults.items() if found}


def test_a_job_that_ran_once_is_no_fault() -> None:
    assert faults(GOOD) == {}


def test_a_dead_job_is_not_lost() -> None:
    assert faults(GOOD, {"a": Final("dead")}, [Recorded("a", 1, "dead", 1)]) == {}


def test_an_enqueue_whose_answer_was_not_seen_may_run() -> None:
    assert faults([ATTEMPT, START, FINISH]) == {}


def test_an_enqueue_whose_answer_was_not_seen_may_be_gone() -> None:
    assert faults([ATTEMPT], {}, []) == {}


def test_an_unknown_enqueue_that_ran_is_recovered() -> None:
    report = judge([ATTEMPT, UNKNOWN, START, FINISH], DONE, RECORDED)
    assert not any(report.faults.values())
    assert (report.counts["unknown at first"], report.counts["recovered"]) == (1, 1)


def test_an_unknown_enqueue_may_be_gone() -> None:
    assert faults([ATTEMPT, UNKNOWN], {}, []) == {}


def test_an_unknown_enqueue_that_was_sent_again_and_never_ran_is_lost() -> None:
    assert faults([ATTEMPT, UNKNOWN, ACK], {}, []) == {"lost": ["a"]}


def test_an_unknown_enqueue_that_ran_under_another_id_is_doubled() -> None:
    found = faults([ATTEMPT, UNKNOWN._replace(job="b"), *GOOD])
    assert found == {"doubled": ["number 7: ['a', 'b']"]}


def test_a_job_that_was_acknowledged_beside_unknown_ones_is_told_by_its_number() -> None:
    nameless = ACK._replace(job="")
    assert faults([ATTEMPT, nameless, START, FINISH]) == {}
    assert faults([ATTEMPT, nameless], {}, []) == {"lost": ["number 7"]}
    assert faults([ATTEMPT, nameless, START], {"a": Final("gone")}, []) == {"lost": ["a"]}


@pytest.mark.parametrize(
    "state", ["gone", "ready", "running", "scheduled", "retrying", "cancelled"]
)
def test_an_acknowledged_job_that_did_not_end_is_lost(state: str) -> None:
    assert faults([ATTEMPT, ACK], {"a": Final(state)}, []) == {"lost": ["a"]}


def test_an_acknowledged_job_that_nobody_knows_is_lost() -> None:
    assert faults([ATTEMPT, ACK], {}, []) == {"lost": ["a"]}


def test_a_call_that_was_never_attempted_is_unexpected() -> None:
    assert faults([START, FINISH]) == {"unexpected": ["a"]}


def test_a_call_under_two_ids_is_doubled() -> None:
    other = START._replace(job="b")
    finals = {**DONE, "b": Final("done", 7)}
    found = faults([*GOOD, other], finals, [*RECORDED, Recorded("b", 1, "done", 1)])
    assert found == {"doubled": ["number 7: ['a', 'b']"]}


@pytest.mark.parametrize(("due_us", "is_early"), [(1_201_000, False), (1_201_001, True)])
def test_a_start_more_than_a_millisecond_before_it_is_due_is_early(
    due_us: int, *, is_early: bool
) -> None:
    events = [ATTEMPT, ACK, START._replace(due_us=due_us), FINISH]
    assert faults(events) == ({"early": ["a"]} if is_early else {})


def test_a_second_start_needs_a_reason() -> None:
    assert faults([*GOOD, AGAIN], recorded=RECORDED_LATER) == {"unexplained": ["a after fence 1"]}


def test_a_second_start_under_one_claim_has_no_reason() -> None:
    again = AGAIN._replace(fence=1)
    assert faults([*GOOD, again, KILL]) == {"unexplained": ["a after fence 1"]}


@pytest.mark.parametrize("outcome", ["done", "dead", "cancelled"])
def test_a_recorded_finish_is_no_reason_to_start_again(outcome: str) -> None:
    found = faults([*GOOD, AGAIN], recorded=[Recorded("a", 1, outcome, 1_300_000)])
    assert found["unexplained"] == ["a after fence 1"]


def test_a_retry_that_no_handler_asked_for_is_no_reason() -> None:
    found = faults([*GOOD, AGAIN], recorded=[Recorded("a", 1, "retried", 1), *RECORDED_LATER])
    assert found == {"unexplained": ["a after fence 1"]}


def test_a_reason_for_another_claim_is_none() -> None:
    found = faults([*GOOD, AGAIN, KILL._replace(process=OTHER)], recorded=RECORDED_LATER)
    assert found == {"unexplained": ["a after fence 1"]}


def test_each_start_needs_a_reason_of_its_own() -> None:
    third = AGAIN._replace(fence=3, t_us=5_000_000)
    recorded = [Recorded("a", 3, "done", 5_300_000)]
    found = faults([*GOOD, AGAIN, third, KILL], recorded=recorded)
    assert found == {"unexplained": ["a after fence 2"]}


@pytest.mark.parametrize(
    "reason",
    [KILL, START._replace(kind="raise"), OUTAGE],
    ids=["its process was killed", "its handler raised", "its server was killed"],
)
def test_a_second_start_may_follow(reason: Event) -> None:
    assert faults([*GOOD, AGAIN, reason], recorded=RECORDED_LATER) == {}


def test_a_process_that_was_killed_later_is_no_reason() -> None:
    found = faults([*GOOD, AGAIN, KILL._replace(t_us=AGAIN.t_us)], recorded=RECORDED_LATER)
    assert found == {"unexplained": ["a after fence 1"]}


@pytest.mark.parametrize("t_us", [START.t_us - OUTAGE_US_MAX - 1, AGAIN.t_us + 1])
def test_an_outage_before_or_after_both_starts_is_no_reason(t_us: int) -> None:
    found = faults([*GOOD, AGAIN, OUTAGE._replace(t_us=t_us)], recorded=RECORDED_LATER)
    assert found == {"unexplained": ["a after fence 1"]}


@pytest.mark.parametrize("outcome", ["done", "dead", "cancelled"])
def test_an_ending_by_a_claim_that_another_had_followed_is_stale(outcome: str) -> None:
    found = faults([*GOOD, AGAIN, KILL], recorded=[Recorded("a", 1, outcome, 3_300_000)])
    assert found == {"stale": ["a ended under fence 1"]}


def test_a_second_start_may_follow_the_death_of_the_parent() -> None:
    first = START._replace(process=CHILD, parent=WORKER)
    assert faults([ATTEMPT, ACK, first, AGAIN, KILL], recorded=RECORDED_LATER) == {}


@pytest.mark.parametrize("outcome", ["crashed", "given_back"])
def test_a_second_start_may_follow_a_claim_that_ended(outcome: str) -> None:
    recorded = [Recorded("a", 1, outcome, 2), Recorded("a", 2, "done", 3)]
    assert faults([*GOOD, AGAIN], recorded=recorded) == {}


def test_a_second_recorded_finish_is_a_fault() -> None:
    recorded = [*RECORDED, Recorded("a", 2, "done", 3_300_000)]
    assert faults([*GOOD, AGAIN, KILL], recorded=recorded)["finished twice"] == ["a"]


def test_done_and_dead_are_two_finishes() -> None:
    recorded = [*RECORDED, Recorded("a", 2, "dead", 3_300_000)]
    assert faults([*GOOD, AGAIN, KILL], recorded=recorded)["finished twice"] == ["a"]


def test_a_result_without_a_start_is_a_phantom() -> None:
    assert faults([ATTEMPT, ACK]) == {"phantom": ["a"]}


def test_the_result_of_another_job_is_wrong() -> None:
    assert faults(GOOD, {"a": Final("done", 8)}) == {"wrong": ["a"]}


def test_a_missing_result_is_wrong() -> None:
    assert faults(GOOD, {"a": Final("done")}) == {"wrong": ["a"]}


def test_counts_say_what_happened() -> None:
    unknown = [UNKNOWN, UNKNOWN, OUTAGE]
    report = judge([*GOOD, AGAIN, KILL, *unknown], DONE, RECORDED_LATER)
    assert report.counts == {
        "attempted": 1,
        "acknowledged": 1,
        "unknown at first": 1,
        "recovered": 0,
        "done": 1,
        "dead": 0,
        "kills": 1,
        "kills of the server": 1,
        "starts": 2,
        "started again: killed": 1,
    }
