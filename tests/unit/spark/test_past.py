"""A queue's state at any instant: what a history tells is what was seen then (P8)."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.harness.spark.audits import columns_of
from tests.harness.spark.past import Life, State
from tests.harness.spark.past_oracle import state_at
from tests.harness.spark.tables import BORN, SECOND, Line, attempt, bare
from tests.harness.world import EVERY_KIND


def agree(told: list[Line], at_us: int, queries: Any = None) -> int:
    """Compare the state that the SQL finds with the oracle's; count the jobs."""
    from dueline.spark.pipeline import past
    from dueline.spark.pipeline.queries import Duck, lines_of

    found = lines_of(past.state_at(queries or Duck(), columns_of(told), at_us))
    assert bare(found) == bare(state_at(told, at_us))
    return len(found)


def living(states: Any) -> dict[str, State]:
    """Keep what has a row, as it is seen."""
    return {
        one["job_id"]: (
            one["queue"],
            one["state"],
            one["priority"],
            one["tenant"],
            one["attempt"] if one["state"] != "dead" else 0,
        )
        for one in states
        if one["state"] in ("waiting", "running", "dead")
    }


@pytest.mark.parametrize("kind", EVERY_KIND)
@pytest.mark.parametrize("seed", range(5))
def test_a_history_tells_what_was_seen_at_each_instant(
    kind: str, seed: int, tmp_path: Path
) -> None:
    life = Life(kind, tmp_path, seed)
    life.lead()
    told = life.history()
    for at_us, seen in life.seen.items():
        found = living(
            one for one in state_at(told, at_us) if one["job_id"] not in life.lapsed[at_us]
        )
        assert found == seen, at_us
    for at_us in list(life.seen)[::40]:
        agree(told, at_us)
    kinds = Counter(line["outcome"] for line in told)
    assert {"enqueued", "changed", "done", "retried", "crashed"} <= kinds.keys()


def test_spark_tells_the_same_past(spark: Any, tmp_path: Path) -> None:
    from dueline.spark.pipeline.queries import Spark

    life = Life("steps", tmp_path, 1)
    life.lead()
    told = life.history()
    for at_us in list(life.seen)[30::45]:
        assert agree(told, at_us, Spark(spark))


def test_a_claim_that_is_told_of_twice_ended_as_was_told_first() -> None:
    died = attempt("a", 1, "dead")
    late = attempt("a", 1, "retried", at=BORN + 90 * SECOND, ended=BORN + 90 * SECOND)
    for told in ([died, late], [late, died]):
        assert [one["state"] for one in state_at(told, BORN + 100 * SECOND)] == ["dead"]
        assert [one["state"] for one in state_at(told, died["claimed"])] == ["running"]
        assert agree(told, BORN + 100 * SECOND) == agree(told, died["claimed"]) == 1
