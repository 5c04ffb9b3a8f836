"""Rows of parts of dueline that no worker's command shows alone, measured in this version only."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from benchmarks import against_stream, idle, idle_reads, inversion, workflow
from benchmarks.commands import HERE, Sample
from benchmarks.rounds import Rounds
from benchmarks.rows import APP, FULL, Limit, Row, Sizes, between, place_of, worker

EVENTS = 100_000
IDLE_LANES = 1_000_000
TENANTS_LEAST = 0.33


def rows(sizes: Sizes) -> list[Row]:
    """Return the rows, in the order in which they are measured."""
    behind = inversion.MOST
    return [
        Row("tenants", "drain of as many tenants as jobs, against one tenant, FULL",
            partial(tenants, jobs=sizes.jobs), [("one tenant", "per_s")],
            [Limit("per_s", TENANTS_LEAST, to="one tenant")]),
        Row("streams", "events appended and read, against a raw log, NORMAL",
            streams, [("raw", "append_per_s"), ("raw", "read_per_s")],
            [Limit("append_per_s", 0.5, to="raw"), Limit("read_per_s", 0.5, to="raw")]),
        Row("workflow", "children of a group of 10,000, without results and history, NORMAL",
            workflow.measure, [("", "per_s")], [Limit("per_s", workflow.PER_S_LEAST)]),
        Row("inversion", "less urgent jobs that start before an urgent one",
            inversion.measure, (),
            [Limit("most_behind", behind), Limit("most_behind", behind, side="8 shards")],
            rounds_max=1),
        Row("idle-lanes", "a claim beside a million idle lanes, against one beside 1,000",
            partial(idle.measure, most=IDLE_LANES), (),
            [Limit("claim_us", idle.RATIO_MAX, to="few"),
             Limit("claim_us", idle.RATIO_MAX, side="tenants", to="few tenants")],
            rounds_max=1, is_long=True),
        Row("idle-reads", "reads a second of 100 idle workers in one process",
            idle_reads.measure, (), [Limit("reads_per_s", idle_reads.READS_MAX)],
            rounds_max=1, is_long=True),
    ]  # fmt: skip


def tenants(folder: Path, *, jobs: int) -> Mapping[str, Sample]:
    """Drain a job of each of many tenants, and as many of one."""
    found: dict[str, Sample] = {}
    for name, many in (("ours", jobs), ("one tenant", 1)):
        part = folder / str(many)
        part.mkdir()
        place = place_of(HERE, part, FULL, BENCH_SETTINGS='{"keep": 0}')
        place.side(APP, "lanes", part, jobs, many, 10_000)
        place.run(worker(place, "--burst"))
        found[name] = between(place, jobs)
    return found


def streams(folder: Path) -> Mapping[str, Sample]:
    """Append and read events."""
    rounds = Rounds()
    against_stream.run(rounds, folder, "NORMAL", events=EVENTS)
    rates = {name: one[0] for name, one in rounds.rates.items()}
    sides = {"ours": "{} events", "raw": "raw {}", "6 shards": "{} events, sharded"}
    return {
        side: {f"{what}_per_s": rates[name.format(what)] for what in ("append", "read")}
        for side, name in sides.items()
    }
