"""The judge of jobs that move between two queues (O6)."""

from collections import Counter

from tests.kills.requeues import faults_of


def test_what_must_not_be_is_noticed() -> None:
    assert list(faults_of(["a", "b"], Counter({"a": 1, "b": 1}))) == []
    assert list(faults_of(["a", "b"], Counter({"b": 2}))) == [
        "a is lost", "b has ended 2 times",
    ]  # fmt: skip
