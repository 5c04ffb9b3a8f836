"""How many jobs a worker claims ahead."""

import pytest

from dueline.core.claim_buffer import buffer_size, learn_run_us


@pytest.mark.parametrize(
    ("run_us", "threads", "most"),
    [(0, 16, 0), (50, 16, 1000), (1000, 1, 50), (1000, 4, 200), (100_000, 1, 0), (60_000, 2, 1)],
)
def test_the_buffer_holds_fifty_milliseconds_of_work(
    run_us: float, threads: int, most: int
) -> None:
    # H11
    assert buffer_size(run_us, threads) == most


def test_run_times_are_learnt_up_at_once() -> None:
    assert learn_run_us(0.0, [300, 100]) == 200.0
    assert learn_run_us(200.0, [5_000]) == 5_000.0


def test_run_times_are_learnt_down_slowly_and_by_the_job() -> None:
    few = learn_run_us(10_000.0, [0] * 5)
    assert 8_000 < few < 9_000
    assert learn_run_us(few, [0] * 5) == pytest.approx(learn_run_us(10_000.0, [0] * 10))
    assert learn_run_us(10_000.0, [0] * 200) < 50
