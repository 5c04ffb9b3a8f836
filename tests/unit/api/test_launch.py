"""What a process is set to while it is a worker."""

import sys
from collections.abc import Iterator

import pytest

from dueline import Dueline
from dueline.api.launch import TURN_S_MAX


@pytest.fixture
def turns() -> Iterator[None]:
    """Give back what this process was set to."""
    before_s = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before_s)


@pytest.mark.usefixtures("turns")
@pytest.mark.parametrize(("before_s", "meanwhile_s"), [(0.02, TURN_S_MAX), (0.0005, 0.0005)])
def test_threads_take_short_turns_while_a_worker_runs(before_s: float, meanwhile_s: float) -> None:
    app = Dueline("memory://")
    seen_s: list[float] = []

    @app.task()
    def look() -> None:
        seen_s.append(sys.getswitchinterval())

    look.enqueue()
    sys.setswitchinterval(before_s)
    app.run_worker(burst=True)
    assert seen_s == [pytest.approx(meanwhile_s)]
    assert sys.getswitchinterval() == pytest.approx(before_s)
