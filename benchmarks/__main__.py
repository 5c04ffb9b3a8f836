"""`python -m benchmarks`: ratios as JSON.

Usage: python -m benchmarks [--jobs 50000] [--rounds 5] [--singles 2000]
"""

import argparse
import json
import os
import platform
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import apsw

from benchmarks import against_raw, ours, peers, raw
from benchmarks.rounds import Rounds

SYNCHRONOUS = ("NORMAL", "FULL")


def main() -> None:
    """Measure, then print one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--jobs", type=int, default=50_000, help="of each bulk measurement")
    parser.add_argument("--singles", type=int, default=2_000, help="enqueued one by one")
    parser.add_argument("--rounds", type=int, default=5, help="of everything, interleaved")
    asked = parser.parse_args()
    if asked.jobs < raw.BATCH or asked.jobs % raw.BATCH or asked.rounds < 1 or asked.singles < 1:
        parser.error(f"--jobs is a multiple of {raw.BATCH}, the others are 1 or more")
    measured = {synchronous: _against_raw(synchronous, asked) for synchronous in SYNCHRONOUS}
    report = {
        "machine": _machine(),
        "asked": {**vars(asked), "batch": raw.BATCH, "body_bytes": len(against_raw.BODY)},
        "ratios_to_raw": {way: _ratios(rounds) for way, rounds in measured.items()},
        "jobs_per_s": {way: rounds.medians() for way, rounds in measured.items()},
        "bars": [bar for way, rounds in measured.items() for bar in _bars(way, rounds)],
        "peers": {"huey": _huey(asked)},
    }
    print(json.dumps(report, indent=2))


def _against_raw(synchronous: str, asked: argparse.Namespace) -> Rounds:
    rounds = Rounds()
    for _ in range(asked.rounds):
        with tempfile.TemporaryDirectory() as folder:
            against_raw.run(
                rounds, Path(folder), synchronous, jobs=asked.jobs, singles=asked.singles
            )
    return rounds


def _ratios(rounds: Rounds) -> Mapping[str, object]:
    return {one.name: asdict(rounds.ratios(one.ours, one.raw)) for one in against_raw.COMPARISONS}


def _bars(synchronous: str, rounds: Rounds) -> list[Mapping[str, object]]:
    found: list[Mapping[str, object]] = []
    for one in against_raw.COMPARISONS:
        if one.bar is not None:
            reached = rounds.ratios(one.ours, one.raw).median
            found.append(
                {
                    "what": one.name,
                    "synchronous": synchronous,
                    "at_least": one.bar,
                    "median": reached,
                    "is_met": reached >= one.bar,
                }
            )
    return found


def _huey(asked: argparse.Namespace) -> Mapping[str, object] | str:
    """Compare with huey on SQLite, synchronous FULL, single enqueues, as many jobs."""
    if not peers.has_huey():
        return "skipped: huey is not installed"

    rounds = Rounds()
    for _ in range(asked.rounds):
        with tempfile.TemporaryDirectory() as folder:
            peers.run_huey(rounds, Path(folder), jobs=asked.singles, text=against_raw.TEXT)
            app, task = ours.open_app(Path(folder) / "ours.db", "FULL", history="off")
            with rounds.timed("enqueue", asked.singles):
                ours.enqueue_singly(task, asked.singles, against_raw.TEXT)
            with rounds.timed("drain", asked.singles):
                ours.drain(app)
            app.close()
    return {
        "ours_to_huey": {
            "single_enqueue": asdict(rounds.ratios("enqueue", "huey enqueue")),
            "drain": asdict(rounds.ratios("drain", "huey drain")),
        },
        "jobs_per_s": rounds.medians(),
    }


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
