"""Simulate runs of a queue: many with `--seeds 2000`, or one with `--seed 7 --trace`.

One run in eight is a run of a stream, with a negative seed. One in sixteen is a run of a schedule,
one has limits, one order keys, one workflows, one several versions of workers, and one durable
functions.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from simulation.crowd import FAILURES_MAX, Sum, lead, quieten
from simulation.life import Life
from simulation.lives import PLACES, live, seeds_from
from simulation.nth import KINDS, every
from simulation.report import Progress, story, summary
from simulation.scripts import SCRIPTS
from simulation.shrink import Shrinker

REGRESSIONS = Path(__file__).with_name("regressions.txt")
SHRUNK_MAX = 3


def commit() -> str:
    """Return the hash of the current commit, or zeros."""
    asked = ["git", "rev-parse", "HEAD"]
    try:
        answer = subprocess.run(asked, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "0" * 40
    return answer.stdout.strip()


def base_of(commit_hash: str) -> int:
    """Return the first seed of a commit: each commit explores other runs."""
    return int(commit_hash[:8], 16) * 1_000_000


def regressions() -> list[int]:
    """Read the seeds that once failed."""
    lines = REGRESSIONS.read_text().splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


def shrunk(life: Life) -> Life:
    """Return the simplest run with the first verdict of this one."""
    return Shrinker(life, verdict=min(life.faults)).shrink()


def one(seed: int, *, trace: bool, shrinks: bool) -> int:
    """Run one seed and print the result."""
    life = live(seed, trace=print if trace else None)
    if life.faults and shrinks:
        life = shrunk(life)
    print(story(life, at=commit()))
    print(f"trace {life.digest}")
    return int(bool(life.faults))


def many(seeds: Sequence[int], first: int, workers: int | None, *, digests: bool) -> int:
    """Run many seeds, and those that once failed; print counts and faults.

    Args: first: index of the first seed to run.
    """
    at = commit()
    print(f"commit {at}, seeds from {seeds[first]}, and the regressions", flush=True)
    listed = Sum()
    for part in lead(regressions(), workers=1):
        listed.add(part)
    progress = Progress(first, partial(print, flush=True))
    total = Sum()
    for part in lead(seeds[first:], workers=workers):
        total.add(part)
        progress.tell(total)
        for seed, names in part.failed.items():
            print(f"seed {seed}: {', '.join(names)}", flush=True)
        if len(total.failed) >= FAILURES_MAX:
            print("too many failures: skipping the rest")
            break
    total.add(listed)
    if digests:
        for seed in sorted(total.digests):
            print(seed, total.digests[seed])
    for seed in sorted(total.failed)[:SHRUNK_MAX]:
        print(story(shrunk(live(seed)), at=at))
    print(summary(total, progress.took_s()))
    return int(bool(total.failed))


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="number of runs")
    parser.add_argument("--base", type=int, help="first seed; default: derived from the commit")
    parser.add_argument("--kind", choices=PLACES, help="only runs of this kind")
    parser.add_argument("--seed", type=int, help="run only this seed")
    parser.add_argument("--trace", action="store_true", help="print every step")
    parser.add_argument("--no-shrink", action="store_true", help="do not reduce a failing run")
    parser.add_argument(
        "--from", type=int, default=0, dest="first", help="skip this many seeds, to continue"
    )
    parser.add_argument("--workers", type=int, help="processes; default: one for each core")
    parser.add_argument("--digests", action="store_true", help="print the digest of each run")
    parser.add_argument(
        "--calls", action="store_true", help="fail each call of the scripts in turn"
    )
    asked = parser.parse_args()
    quieten()
    if asked.calls:
        return min(1, every(tuple(SCRIPTS), KINDS, processes=asked.workers))
    if asked.seed is not None:
        return one(asked.seed, trace=asked.trace, shrinks=not asked.no_shrink)
    base = base_of(commit()) if asked.base is None else asked.base
    seeds = seeds_from(base, asked.seeds, asked.kind)
    if not 0 <= asked.first < len(seeds):
        parser.error("--from must be less than --seeds")
    return many(seeds, asked.first, asked.workers, digests=asked.digests)


if __name__ == "__main__":
    sys.exit(main())
