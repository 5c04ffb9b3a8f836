"""The words of an explanation."""

import pytest

from dueline.jobs.explanation import listed


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, ""),
        (1, "0"),
        (3, "0, 1, 2"),
        (4, "0, 1, 2, and 1 more"),
        (6, "0, 1, 2, and 3 more"),
    ],
)
def test_some_of_many_are_listed_and_the_others_counted(count: int, expected: str) -> None:
    assert listed(map(str, range(count)), most=3) == expected
