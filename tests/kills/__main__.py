"""`python -m tests.kills`: the long loop.

`--store cassandra` for a node; `--kills 200 --pauses 50 --jobs 100000` for the full form.
`--store full-disk` for a file on a small disk that is full now and then; root may mount it, and
for others it is skipped. `--jumping` for processes whose wall clocks jump by ten minutes.
KILLS, PAUSES and JOBS, from the environment, say how many where the options do not; NODE_KILLS
how often Cassandra's node itself is killed, FILLS how often the disk is full.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from simulation.judge import Report
from tests.kills.disk import MountError, small_disk
from tests.kills.loop import Loop
from tests.kills.node import killed_node

DEFAULTS = {
    "sqlite": {"KILLS": 50, "PAUSES": 10, "JOBS": 20_000},
    "full-disk": {"KILLS": 10, "PAUSES": 0, "JOBS": 10_000, "FILLS": 20},
    "cassandra": {"KILLS": 30, "PAUSES": 0, "JOBS": 5_000, "NODE_KILLS": 5},
}


def main() -> int:
    """Run the loop once and print its report as JSON; answer 1 where there is a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.kills")
    parser.add_argument("--store", choices=DEFAULTS, default="sqlite")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4)))
    parser.add_argument("--kills", type=int)
    parser.add_argument("--pauses", type=int)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--jumping", action="store_true", help="SQLite: all wall clocks jump")
    chosen = parser.parse_args()
    seed = chosen.seed
    began = time.monotonic()
    asked = {"KILLS": chosen.kills, "PAUSES": chosen.pauses, "JOBS": chosen.jobs}
    try:
        report = _run(chosen.store, seed, asked, jumping=chosen.jumping)
    except MountError as error:
        print(f"SKIPPED: no small disk can be mounted: {error}")  # noqa: T201
        return 0
    examples = {verdict: found[:5] for verdict, found in report.faults.items() if found}
    told = {
        "store": chosen.store,
        "seed": seed,
        "took_s": round(time.monotonic() - began, 1),
        **report.counts,
        "faults": {verdict: len(found) for verdict, found in report.faults.items()},
    }
    print(json.dumps(told, indent=2))  # noqa: T201
    if examples:
        print(json.dumps(examples, indent=2))  # noqa: T201
    return 1 if examples else 0


def _run(store: str, seed: int, chosen: Mapping[str, int | None], *, jumping: bool) -> Report:
    counts = {
        name: most if (most := chosen.get(name)) is not None else int(os.environ.get(name) or usual)
        for name, usual in DEFAULTS[store].items()
    }
    jobs, kills, pauses = counts["JOBS"], counts["KILLS"], counts["PAUSES"]
    with tempfile.TemporaryDirectory() as folder:
        if store == "sqlite":
            return Loop(
                Path(folder), jobs=jobs, kills=kills, pauses=pauses, seed=seed, jumping=jumping
            ).run()
        if store == "full-disk":
            return _run_full(Path(folder), seed, counts)
        with killed_node(Path(folder, "node")) as node:
            diaries = Path(folder, "diaries")
            diaries.mkdir()
            return Loop(
                diaries,
                jobs=jobs,
                kills=kills,
                pauses=pauses,
                seed=seed,
                node=node,
                node_kills=counts["NODE_KILLS"],
            ).run()


def _run_full(folder: Path, seed: int, counts: Mapping[str, int]) -> Report:
    mounted, diaries = folder / "disk", folder / "diaries"
    mounted.mkdir()
    diaries.mkdir()
    with small_disk(mounted) as disk:
        return Loop(
            diaries,
            jobs=counts["JOBS"],
            kills=counts["KILLS"],
            pauses=counts["PAUSES"],
            seed=seed,
            disk=disk,
            fills=counts["FILLS"],
        ).run()


if __name__ == "__main__":
    raise SystemExit(main())
