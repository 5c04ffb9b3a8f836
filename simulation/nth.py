"""Fail each call of a script in turn, in each possible way."""

import multiprocessing
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from simulation.crowd import quieten
from simulation.data import Data, Kind
from simulation.faults import Fault
from simulation.life import Life, lived
from simulation.scripts import SCRIPTS
from simulation.tape import Tape
from simulation.world import World

KINDS: Sequence[Kind] = ("memory", "steps", "sqlite")

WAYS = (Fault.DROPPED, Fault.UNANSWERED, Fault.LATE, Fault.OVERTAKES, Fault.KILLED_AFTER)

POINTS_MAX = 2_000
"""Maximum number of calls of a script."""


class Point(NamedTuple):
    """A failing call: script, number, kind of fault."""

    script: str
    kind: Kind
    number: int
    way: Fault

    def __str__(self) -> str:
        return f"{self.script} on {self.kind}, call {self.number} {self.way.value}"


def played(script: str, kind: Kind, planned: dict[int, Fault]) -> Life:
    """Run a script in which some calls fail."""
    world = World(Tape(0, ()))
    world.planned = planned
    chosen = SCRIPTS[script]
    scenario = chosen.scenario(is_stepped=kind == "steps")
    return lived(world, scenario, Data(world, kind), chosen.begin, seed=0)


def points(script: str, kind: Kind, ways: Sequence[Fault] = WAYS) -> Iterator[Point]:
    """Return the points of a script on a kind of store."""
    count = played(script, kind, {}).calls
    assert 0 < count < POINTS_MAX, f"{script} has {count} calls"
    for number in range(1, count + 1):
        yield from (Point(script, kind, number, way) for way in ways)


def fail(point: Point) -> tuple[Point, Life]:
    """Run a point."""
    return point, played(point.script, point.kind, {point.number: point.way})


def failed(chunk: Sequence[Point]) -> list[tuple[Point, dict[str, str]]]:
    """Run some points; return the first description of each verdict for each."""
    return [
        (point, {verdict: stories[0] for verdict, stories in life.faults.items()})
        for point, life in map(fail, chunk)
    ]


def every(scripts: Sequence[str], kinds: Sequence[Kind], *, processes: int | None = None) -> int:
    """Run all points, and print counts and faults; return the number of failed points."""
    context = multiprocessing.get_context("forkserver")
    counts: Counter[str] = Counter()
    wrong = 0
    with context.Pool(processes or os.cpu_count(), initializer=quieten) as pool:
        plan = [point for script in scripts for kind in kinds for point in points(script, kind)]
        chunks = [plan[start : start + 20] for start in range(0, len(plan), 20)]
        for answer in pool.imap_unordered(failed, chunks):
            for point, faults in answer:
                counts[point.kind] += 1
                wrong += bool(faults)
                for verdict, story in faults.items():
                    print(f"{point}: {verdict}\n{story}", flush=True)
    by_kind = ", ".join(f"{count} on {kind}" for kind, count in sorted(counts.items()))
    print(
        f"{counts.total()} calls failed in {len(scripts)} scripts: {by_kind}; {wrong} with faults"
    )
    return wrong
