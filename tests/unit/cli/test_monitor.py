"""`dueline monitor`."""

import pytest

from tests.harness.shell import Shell


@pytest.mark.parametrize(
    ("interval", "why"),
    [("2h", "`interval` must be a duration of at most one hour"), ("x", "'x' is not a duration")],
)
def test_an_interval_that_cannot_be_ends_the_command(shell: Shell, interval: str, why: str) -> None:
    answer = shell.app("monitor", "--interval", interval)
    assert answer.code == 2
    assert answer.why is not None
    assert why in answer.why
