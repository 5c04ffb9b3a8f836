"""The short run of kills among jobs that take random units of semaphores (F12)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.kills.costs import (
    CAPACITIES,
    OVERTAKES_MAX,
    Call,
    Costs,
    Hold,
    calls_in,
    faults_of,
    holds_in,
    overtakes_of,
)

KILLS = 4
DONE = {name: ["done"] for name in ("a", "b", "large")}


def test_units_return_and_each_job_ends_despite_kills(tmp_path: Path) -> None:
    report: Any = Costs(tmp_path, kills=KILLS, seed=1).run()
    assert report.faults == []
    assert report.kills == KILLS
    assert report.starts >= report.jobs > 0
    assert report.peaks == CAPACITIES  # all units are used, at times
    assert report.large > 0


def faults(calls: Sequence[Call], holds: Sequence[Hold], **ends: list[str]) -> list[str]:
    return list(faults_of(calls, holds, DONE | ends))


def test_units_beyond_a_capacity_are_noticed() -> None:
    holds = [Hold("a", {"slots": 3}, 10, 20), Hold("b", {"slots": 2, "memory": 8}, 15, 30)]
    assert faults([], holds) == []
    assert faults([], [*holds, Hold("c", {"slots": 3}, 20, 25)]) == []
    assert faults([], [*holds, Hold("c", {"slots": 3}, 19, 25)]) == [
        "8 units of slots were held at once, of 5"
    ]
    assert faults([], [*holds, Hold("c", {"slots": 1, "memory": 1}, 22, 25)]) == [
        "9 units of memory were held at once, of 8"
    ]


def test_jobs_that_did_not_end_once_are_noticed() -> None:
    calls = [Call(job, "ants", {"slots": 1}, 5) for job in ("a", "b")]
    assert faults(calls, []) == []
    assert faults(calls, [], a=[]) == ["a has ended 0 times"]
    assert faults(calls, [], b=["dead", "done"]) == ["b has ended 2 times"]


def test_small_jobs_that_overtake_a_large_one_for_ever_are_noticed() -> None:
    first, large = Call("a", "ants", {"slots": 2}, 5), Call("large", "ants", {"slots": 5}, 6)
    begins_ns = range(100, 100 + OVERTAKES_MAX + 1)
    small = [Hold(f"small {number}", {"slots": 1}, number, number + 1) for number in begins_ns]
    end_ns = begins_ns[-1] + 1
    early, late = Hold("a", {"slots": 2}, 50, 51), Hold("a", {"slots": 2}, end_ns, end_ns + 1)
    holds = [*small, Hold("large", {"slots": 5}, end_ns + 1, end_ns + 2)]
    assert faults([first, large], [early, *holds]) == [
        f"{OVERTAKES_MAX + 1} smaller jobs overtook large"
    ]
    assert faults([first, large], [early, *holds[1:]]) == []
    assert overtakes_of([first, large], [*holds, late]) == {"large": 0}  # not the first of its lane


def test_handlers_hold_units_until_their_process_is_killed(tmp_path: Path) -> None:
    lines = ['100 in a 1 {"slots": 2}', "120 out a 1", '130 in b 1 {"slots": 3}']
    (tmp_path / "7.holds").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "8.calls").write_text('90 a ants {"slots": 2}\n')
    assert calls_in(tmp_path) == [Call("a", "ants", {"slots": 2}, 90)]
    assert holds_in(tmp_path, {7: 200}) == [
        Hold("a", {"slots": 2}, 100, 120),
        Hold("b", {"slots": 3}, 130, 200),
    ]
