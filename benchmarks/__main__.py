"""`python -m benchmarks`: ratios as JSON.

Usage: python -m benchmarks [--jobs 50000] [--rounds 5] [--singles 2000] [--tenants 100000]
         [--events 100000] [--peer-jobs 50000] [--cassandra-jobs 20000]
         [--cassandra-singles 200] [--idle-lanes 1000000] [--cassandra-idle-lanes 100000]
         [--only sqlite|workflow|latency|inversion|idle|cassandra]
"""

import argparse
import importlib.util
import json
import os
import platform
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import apsw

from benchmarks import (
    against_raw,
    against_stream,
    idle,
    inversion,
    latency,
    ours,
    peers,
    raw,
    workflow,
)
from benchmarks.against_raw import Comparison
from benchmarks.rounds import Rounds

SYNCHRONOUS = ("NORMAL", "FULL")
HUEY_BAR = 10.0

Measure = Callable[[Path], Mapping[str, Any]]
Bars = Callable[[Mapping[str, Any]], Sequence[Mapping[str, object]]]


def main() -> None:
    """Measure, then print one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--jobs", type=int, default=50_000, help="of each bulk measurement")
    parser.add_argument("--singles", type=int, default=2_000, help="enqueued one by one")
    parser.add_argument("--peer-jobs", type=int, default=50_000, help="that other queues drain")
    parser.add_argument("--tenants", type=int, default=100_000, help="with a job each")
    parser.add_argument("--events", type=int, default=100_000, help="of a stream")
    parser.add_argument("--rounds", type=int, default=5, help="of everything, interleaved")
    parser.add_argument("--cassandra-jobs", type=int, default=20_000, help="as --jobs")
    parser.add_argument("--cassandra-singles", type=int, default=200, help="with a lock each")
    parser.add_argument("--idle-lanes", type=int, default=1_000_000, help="beside a claim")
    parser.add_argument("--cassandra-idle-lanes", type=int, default=100_000, help="the same")
    choices = ("sqlite", "workflow", "latency", "inversion", "idle", "cassandra")
    parser.add_argument("--only", choices=choices, help="measure this")
    asked = parser.parse_args()
    if asked.jobs < raw.BATCH or asked.jobs % raw.BATCH:
        parser.error(f"--jobs is a multiple of {raw.BATCH}")
    of_cassandra = (asked.cassandra_jobs, asked.cassandra_singles)
    counts = (asked.rounds, asked.tenants, asked.events, asked.peer_jobs, *of_cassandra)
    if min(*counts, asked.singles // against_raw.CALLERS) < 1:
        parser.error(f"all counts are 1 or more, --singles at least {against_raw.CALLERS}")
    report: dict[str, object] = {
        "machine": _machine(),
        "asked": {**vars(asked), "batch": raw.BATCH, "body_bytes": len(against_raw.BODY)},
    }
    if asked.only in {None, "sqlite"}:
        report |= _sqlite(asked)
    parts: dict[str, tuple[Measure, Bars]] = {
        "workflow": (partial(workflow.measure, rounds=asked.rounds), workflow.bars),
        "latency": (latency.measure, latency.bars),
        "inversion": (inversion.measure, inversion.bars),
        "idle": (partial(idle.measure, most=asked.idle_lanes), idle.bars),
    }
    for name, (measure, bars) in parts.items():
        if asked.only in {None, name}:
            report[name] = _measured(measure, bars)
    if asked.only in {None, "cassandra"}:
        report["cassandra"] = _cassandra(asked)
    print(json.dumps(report, indent=2))


def _sqlite(asked: argparse.Namespace) -> Mapping[str, object]:
    measured = {synchronous: _against_raw(synchronous, asked) for synchronous in SYNCHRONOUS}
    common = (*against_raw.COMPARISONS, *against_stream.COMPARISONS)
    compared = {way: (*common, against_raw.BULK_TO_SINGLE[way]) for way in SYNCHRONOUS}
    return {
        "ratios_to_raw": {way: _ratios(rounds, compared[way]) for way, rounds in measured.items()},
        "jobs_per_s": {way: rounds.medians() for way, rounds in measured.items()},
        "bars": [
            {**bar, "synchronous": way}
            for way, rounds in measured.items()
            for bar in _bars(rounds, compared[way])
        ],
        "peers": {"huey": _huey(asked)},
    }


def _measured(measure: Measure, bars: Bars) -> Mapping[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder))
    return {**found, "bars": bars(found)}


def _cassandra(asked: argparse.Namespace) -> Mapping[str, object] | str:
    """Compare on a node with raw loops and with a lock per job, where one answers."""
    if importlib.util.find_spec("cassandra") is None:
        return "skipped: the driver is not installed"
    from benchmarks import against_cassandra, idle_cassandra  # noqa: PLC0415  (need the driver)

    host = against_cassandra.find_host()
    if host is None:
        return "skipped: no node answers; `make cassandra-up` starts one"

    rounds = Rounds()
    with against_cassandra.opened(host) as (url, raw_session):
        for _ in range(asked.rounds):
            against_cassandra.run(
                rounds, url, raw_session, jobs=asked.cassandra_jobs, singles=asked.cassandra_singles
            )
    beside_idle = idle_cassandra.measure(host, most=asked.cassandra_idle_lanes)
    return {
        "ratios_to_raw": _ratios(rounds, against_cassandra.COMPARISONS),
        "jobs_per_s": rounds.medians(),
        "idle": beside_idle,
        "bars": [*_bars(rounds, against_cassandra.COMPARISONS), *idle.bars(beside_idle)],
    }


def _against_raw(synchronous: str, asked: argparse.Namespace) -> Rounds:
    rounds = Rounds()
    for _ in range(asked.rounds):
        with tempfile.TemporaryDirectory() as folder:
            against_raw.run(
                rounds,
                Path(folder),
                synchronous,
                jobs=asked.jobs,
                singles=asked.singles,
                tenants=asked.tenants,
            )
            against_stream.run(rounds, Path(folder), synchronous, events=asked.events)
    return rounds


def _ratios(rounds: Rounds, compared: Sequence[Comparison]) -> Mapping[str, object]:
    return {one.name: asdict(rounds.ratios(one.ours, one.raw)) for one in compared}


def _bars(rounds: Rounds, compared: Sequence[Comparison]) -> list[Mapping[str, object]]:
    found: list[Mapping[str, object]] = []
    for one in compared:
        if one.bar is not None:
            reached = rounds.ratios(one.ours, one.raw).median
            found.append(
                {
                    "what": one.name,
                    "at_least": one.bar,
                    "median": reached,
                    "is_met": reached >= one.bar,
                }
            )
    return found


def _huey(asked: argparse.Namespace) -> Mapping[str, object] | str:
    """Compare with huey on SQLite: history on, results off, the same flushes, as many jobs."""
    if not peers.has_huey():
        return "skipped: huey is not installed"
    found = {way: _against_huey(way, asked) for way in SYNCHRONOUS}
    drains = {way: rounds.ratios("drain", "huey drain") for way, rounds in found.items()}
    reached = drains["NORMAL"].median
    return {
        "ours_to_huey": {
            way: {
                "single_enqueue": asdict(rounds.ratios("enqueue", "huey enqueue")),
                "drain": asdict(drains[way]),
            }
            for way, rounds in found.items()
        },
        "jobs_per_s": {way: rounds.medians() for way, rounds in found.items()},
        "bars": [
            {
                "what": "drain_with_history_to_huey",
                "at_least": HUEY_BAR,
                "median": reached,
                "is_met": reached >= HUEY_BAR,
                "synchronous": "NORMAL",
            }
        ],
    }


def _against_huey(synchronous: str, asked: argparse.Namespace) -> Rounds:
    rounds = Rounds()
    for _ in range(asked.rounds):
        with tempfile.TemporaryDirectory() as folder:
            place, jobs = Path(folder), asked.peer_jobs
            peers.run_huey(rounds, place, jobs=jobs, text=against_raw.TEXT, synchronous=synchronous)
            url = ours.sqlite(place / "ours.db", synchronous)
            app, task = ours.open_app(url, history="attempts")
            with rounds.timed("enqueue", jobs):
                ours.enqueue_singly(task, jobs, against_raw.TEXT)
            with rounds.timed("drain", jobs):
                ours.drain(app)
            app.close()
    return rounds


def _machine() -> Mapping[str, object]:
    return {
        "cpus": os.cpu_count(),
        "load": [round(one, 1) for one in os.getloadavg()],
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "apsw": apsw.apsw_version(),
        "sqlite": apsw.sqlite_lib_version(),
    }


if __name__ == "__main__":
    main()
