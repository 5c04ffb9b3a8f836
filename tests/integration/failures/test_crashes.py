"""Workers and their children that die (R4)."""

import os
import signal
from itertools import combinations

import pytest

from tests.harness.failing_world import TAKEN_OVER_S, World, is_alive


@pytest.mark.parametrize("task", ["hold", "spin"])
def test_no_child_outlives_its_parent(world: World, task: str) -> None:
    worker = world.worker(processes=2, concurrency=2)
    world.put(task, "a")
    world.put(task, "b")
    world.until_started("a", "b")
    children = worker.children()
    assert len(children) == 2
    worker.process.kill()
    worker.wait()
    world.until(lambda: not any(map(is_alive, children)))


def test_only_what_a_dead_child_was_running_crashes(world: World) -> None:
    victim, other = world.put("hold", "victim"), world.put("hold", "other")
    worker = world.worker(processes=2, concurrency=2)
    world.until_started("victim", "other")
    os.kill(world.notes("start", "victim")[0].process, signal.SIGKILL)
    world.until(lambda: world.attempts(victim))
    world.let_go("other")
    world.let_go("victim")
    world.until_done(victim, other)
    assert [one.outcome for one in world.attempts(victim)] == ["crashed", "done"]
    assert [one.outcome for one in world.attempts(other)] == ["done"]
    assert other.result(0) == world.notes("start", "other")[0].process
    worker.stop()


def test_a_job_that_kills_its_process_is_dead_after_three_children(world: World) -> None:
    poison = world.put("vanish", "poison")
    others = [world.put("fine", f"fine {number}") for number in range(20)]
    worker = world.worker(processes=2)
    world.until(lambda: poison.status == "dead")
    world.until_done(*others)
    assert len(world.notes("start", "poison")) == 3
    assert world.row(poison).crashes == 3
    assert world.row(poison).error.startswith("Poison: 3 workers died on it.")
    worker.stop()


@pytest.mark.parametrize("lease_s", [1.0])
def test_a_job_that_kills_its_worker_is_dead_after_three_counted_crashes(world: World) -> None:
    poison = world.put("vanish", "poison")
    others = [world.put("fine", f"fine {number}") for number in range(20)]
    worker = world.restart_until_dead(poison)
    # The first start may have killed its worker before it could be written down.
    assert len(world.notes("start", "poison")) in (3, 4)
    assert world.row(poison).crashes == 3
    world.until_done(*others)
    worker.stop()


@pytest.mark.parametrize("lease_s", [TAKEN_OVER_S])
def test_suspects_run_alone_until_they_are_cleared(world: World) -> None:
    suspects = [world.put("hold", f"suspect {number}") for number in range(3)]
    first = world.worker(concurrency=4)
    world.until_started(*(f"suspect {number}" for number in range(3)))
    world.until(lambda: all(world.row(job).state == 2 for job in suspects))
    first.process.kill()
    first.wait()
    others = [world.put("brief", f"other {number}", 0.1) for number in range(8)]
    for number in range(3):
        world.let_go(f"suspect {number}")
    second = world.worker(concurrency=4)
    world.until_done(*suspects, *others)
    # Whatever the second worker ran beside a suspect would overlap it; the holds end at once,
    # so what is asked is that a suspect's claim ends before anything else starts.
    spans = []
    for note in world.notes("start"):
        if note.process == second.process.pid:
            end = next(one for one in world.notes("end", note.tag) if one.process == note.process)
            spans.append((note.tag, note.at_s, end.at_s))
    overlapping = [
        (one[0], other[0])
        for one, other in combinations(sorted(spans, key=lambda span: span[1]), 2)
        if other[1] < one[2] and "suspect" in one[0] + other[0]
    ]
    assert overlapping == []
    for job in suspects:
        assert [one.outcome for one in world.attempts(job)] == ["crashed", "done"]
    second.stop()


@pytest.mark.parametrize("lease_s", [TAKEN_OVER_S])
def test_nothing_starts_beside_a_suspect_that_takes_long(world: World) -> None:
    suspect = world.put("hold", "suspect")
    first = world.worker()
    world.until_started("suspect")
    world.until(lambda: world.row(suspect).state == 2)
    first.process.kill()
    first.wait()
    second = world.worker()
    world.until(lambda: len(world.notes("start", "suspect")) == 2)
    other = world.put("fine", "other")
    late = world.put("brief", "late", 0.0)
    beats = world.row(suspect).at_us
    world.until(lambda: world.row(suspect).at_us > beats)  # a third of a lease has passed
    assert not world.notes("start", "other")
    world.let_go("suspect")
    world.until_done(suspect, other, late)
    second.stop()
