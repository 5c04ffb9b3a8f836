"""Leads lives: `python -m simulation --seeds 2000`, or one: `--seed 7 --trace`."""

import argparse
import subprocess
import sys
import time
from pathlib import Path

from simulation.crowd import FAILURES_MAX, Sum, lead, quieten
from simulation.life import Life, live
from simulation.nth import KINDS, every
from simulation.scripts import SCRIPTS
from simulation.shrink import Shrinker
from simulation.world import BEGIN_US

REGRESSIONS = Path(__file__).with_name("regressions.txt")
HOUR_US = 3600 * 1_000_000
SHRUNK_MAX = 3
ACCIDENTS_SHOWN = 30


def commit() -> str:
    """Give the present commit's hash, as far as there is one."""
    asked = ["git", "rev-parse", "HEAD"]
    try:
        found = subprocess.run(asked, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "0" * 40
    return found.stdout.strip()


def base_of(commit_hash: str) -> int:
    """Make the first of a commit's seeds: each commit explores lives of its own."""
    return int(commit_hash[:8], 16) * 1_000_000


def regressions() -> list[int]:
    """Read the seeds that once failed: a line each, then words."""
    lines = REGRESSIONS.read_text().splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


def told(life: Life, *, at: str) -> str:
    """Tell what went wrong in a life, in words."""
    lines = [f"seed {life.seed} at commit {at}: {', '.join(sorted(life.faults)) or 'all well'}"]
    lines.append(
        f"  {sum(map(bool, life.tape))} of {len(life.tape)} choices are not 0; {life.steps} steps, "
        f"{life.simulated_us / 1e6:.1f} s"
    )
    for when_us, who, what in life.accidents[:ACCIDENTS_SHOWN]:
        lines.append(f"  {(when_us - BEGIN_US) / 1e6:10.6f} s  {who}: {what}")
    for verdict, stories in sorted(life.faults.items()):
        lines.append(f"  {verdict}: {len(stories)}")
        lines += ["    " + line for line in stories[0].splitlines()]
    return "\n".join(lines)


def shrunk(life: Life) -> Life:
    """Look for the simplest life with the first verdict of this one."""
    return Shrinker(life, verdict=min(life.faults)).shrink()


def one(seed: int, *, trace: bool, shrinks: bool) -> int:
    """Lead one life; tell what came of it."""
    life = live(seed, trace=print if trace else None)
    if life.faults and shrinks:
        life = shrunk(life)
    print(told(life, at=commit()))
    print(f"trace {life.digest}")
    return int(bool(life.faults))


def many(base: int, count: int, processes: int | None, *, digests: bool) -> int:
    """Lead many lives, and those that once failed; tell the counts, and what went wrong."""
    at = commit()
    print(f"commit {at}, seeds {base} to {base + count - 1}, and the list", flush=True)
    began_s = time.monotonic()
    total = Sum()
    for seed in regressions():
        total.add(next(lead(seed, 1, processes=1)))
    for some in lead(base, count, processes=processes):
        total.add(some)
        for seed, names in some.failed.items():
            print(f"seed {seed}: {', '.join(names)}", flush=True)
        if len(total.failed) >= FAILURES_MAX:
            print("too many fail: the rest is left")
            break
    if digests:
        for seed in sorted(total.digests):
            print(seed, total.digests[seed])
    for seed in sorted(total.failed)[:SHRUNK_MAX]:
        print(told(shrunk(live(seed)), at=at))
    print(summary(total, time.monotonic() - began_s))
    return int(bool(total.failed))


def summary(total: Sum, took_s: float) -> str:
    """Tell what many lives came to."""
    events = ", ".join(f"{count} {name}" for name, count in sorted(total.counts.items()) if count)
    befell = "\n".join(f"  {count:8} {what}" for what, count in total.befell.most_common())
    verdicts = "all verdicts zero"
    if total.failed:
        verdicts = f"{len(total.failed)} FAILED: " + ", ".join(
            f"{seed} ({', '.join(names)})" for seed, names in sorted(total.failed.items())
        )
    return (
        f"{events}\n{befell}\n"
        f"{total.lives} lives, {total.steps} steps, {total.calls} calls of the store, "
        f"{total.simulated_us / HOUR_US:.1f} simulated hours, "
        f"{sum(total.befell.values())} accidents; drained at most "
        f"{total.drained_us_max / 1e6:.0f} s after the last; {total.cpu_s:.0f} CPU s, "
        f"{took_s:.0f} s\n{verdicts}"
    )


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="how many lives")
    parser.add_argument("--base", type=int, help="the first seed; by default the commit's")
    parser.add_argument("--seed", type=int, help="lead this one life")
    parser.add_argument("--trace", action="store_true", help="tell every step of it")
    parser.add_argument("--no-shrink", action="store_true", help="tell it as it is")
    parser.add_argument("--processes", type=int, help="by default one a core")
    parser.add_argument("--digests", action="store_true", help="print each life's digest")
    parser.add_argument("--calls", action="store_true", help="fail each call of twelve scripts")
    asked = parser.parse_args()
    quieten()
    if asked.calls:
        return min(1, every(tuple(SCRIPTS), KINDS, processes=asked.processes))
    if asked.seed is not None:
        return one(asked.seed, trace=asked.trace, shrinks=not asked.no_shrink)
    base = base_of(commit()) if asked.base is None else asked.base
    return many(base, asked.seeds, asked.processes, digests=asked.digests)


if __name__ == "__main__":
    sys.exit(main())
