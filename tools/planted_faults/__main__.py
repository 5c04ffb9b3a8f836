"""Plant usual mistakes in the code, one at a time, and report which of them the tests notice.

The faults are a random sample of each package. For each, the tests that run its function are run
until one fails, the nearest first. A fault that no test notices needs a test of what it breaks, or
a line in equivalent.txt that says why it breaks nothing.
"""

import argparse
import json
import random
import sys
import time
from collections import Counter, deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

from tools.planted_faults.faults import Fault, faults_of
from tools.planted_faults.selection import choose, file_of, package_of
from tools.planted_faults.suite import CACHE, PACKAGES, SOURCE, measured
from tools.planted_faults.trial import Bench, Verdict, import_libraries

NEAR_S = 10
"""Processor time of the tests of a fault that come before the other faults."""

EXPLAINED = Path(__file__).parent / "equivalent.txt"


def read_sources() -> dict[str, bytes]:
    """Return the modules of all packages, and their SQL, by their files."""
    return {
        str(path.relative_to(SOURCE)): path.read_bytes()
        for package in PACKAGES
        for pattern in ("*.py", "sql/*.sql")
        for path in sorted((SOURCE / package).glob(pattern))
    }


def explained(text: str) -> dict[str, str]:
    """Return the faults that break nothing, and why: a line of each, in turn."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return {fault: reason.strip() for fault, reason in zip(lines[::2], lines[1::2], strict=True)}


def sample(faults: Sequence[Fault], packages: Sequence[str], size: int, seed: str) -> list[Fault]:
    """Choose faults of each package at random; the packages take turns."""
    chosen = []
    for package in packages:
        of_package = [fault for fault in faults if package_of(fault.file) == package]
        chance = random.Random(f"{seed} {package}")
        chosen += list(enumerate(chance.sample(of_package, min(size, len(of_package)))))
    return [fault for _, fault in sorted(chosen, key=lambda placed: placed[0])]


def run(
    faults: Sequence[Fault], sources: Mapping[str, bytes], *, processes: int, only: Sequence[str]
) -> Iterator[tuple[Fault, Verdict]]:
    """Run the tests of each fault, or `only` these files: all others after the nearest ones."""
    tests = measured(processes)
    import_libraries()
    benches = [Bench(sources) for _ in range(processes)]
    trials: list[tuple[Fault, list[str], Generator[None, None, Verdict]] | None]
    trials = [None] * processes
    pending = deque(
        (fault, [name for name in tests if file_of(name) in only] or choose(fault, tests))
        for fault in faults
    )
    while pending or any(trials):
        for place, trial in enumerate(trials):
            if trial is None and pending:
                fault, names = pending.popleft()
                spent_s = accumulate(tests[name].seconds for name in names)
                near = sum(seconds < NEAR_S for seconds in spent_s) or 1
                chosen = {name: tests[name] for name in names[:near]}
                trials[place] = fault, names[near:], benches[place].run(fault, chosen)
            elif trial is not None:
                fault, others, running = trial
                try:
                    next(running)
                except StopIteration as end:
                    trials[place] = None
                    if end.value.word == "survived" and others:
                        pending.append((fault, others))
                        print(f"not yet   {fault.key}", flush=True)
                    else:
                        yield fault, end.value
        time.sleep(0.02)


def main() -> int:
    """Run; exit with 1 if a fault survived that is not explained."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--package", action="append", choices=PACKAGES, help="default: all")
    parser.add_argument("--sample", type=int, default=40, help="number of faults of each package")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--only", default="", help="faults whose line holds this text")
    parser.add_argument("--again", type=Path, help="the survivors of an earlier run's results")
    parser.add_argument("--tests", nargs="*", default=[], help="run these files' tests only")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--resume", action="store_true", help="go on with this seed's last run")
    options = parser.parse_args()
    sources = read_sources()
    faults = [fault for file, source in sources.items() for fault in faults_of(file, source)]
    if options.again:
        earlier = json.loads(options.again.read_text(encoding="utf-8"))
        keys = {key for key, word, *_ in earlier if word == "survived"}
        chosen = [fault for fault in faults if fault.key in keys]
    elif options.only:
        chosen = [fault for fault in faults if options.only in fault.key]
    else:
        chosen = sample(faults, options.package or PACKAGES, options.sample, options.seed)
    reasons = explained(EXPLAINED.read_text(encoding="utf-8"))
    for key in reasons.keys() - {fault.key for fault in faults}:
        print(f"{EXPLAINED.name} explains a fault that no longer exists: {key}")
    counts: Counter[tuple[str, str]] = Counter()
    name = "again" if options.again or options.only else options.seed
    path = CACHE / f"results-{name}.json"
    CACHE.mkdir(parents=True, exist_ok=True)
    results = json.loads(path.read_text(encoding="utf-8")) if options.resume else []
    for key, word, *_ in results:
        counts[package_of(key.partition(" ")[0]), word] += 1
    known = {*reasons, *(key for key, *_ in results)}
    for fault, verdict in run(
        [fault for fault in chosen if fault.key not in known],
        sources, processes=options.processes, only=options.tests,
    ):  # fmt: skip
        counts[package_of(fault.file), verdict.word] += 1
        results.append([fault.key, *verdict])
        print(f"{verdict.word:<9} {verdict.took_s:6.1f} s  {fault.key}  {verdict.test}", flush=True)
        path.write_text(json.dumps(results), encoding="utf-8")
    for fault in chosen:
        counts[package_of(fault.file), "equivalent"] += fault.key in reasons
    print_rates(counts)
    return int(any(word == "survived" for _, word in counts))


def print_rates(counts: Counter[tuple[str, str]]) -> None:
    """Print how many faults of each package were caught."""
    words = ("caught", "survived", "equivalent", "unusable")
    print(f"\n{'package':<16}" + "".join(f"{word:>12}" for word in words) + f"{'rate':>8}")
    packages = sorted({package for package, _ in counts})
    rows = [(package, [counts[package, word] for word in words]) for package in packages]
    rows.append(("all", [sum(numbers) for numbers in zip(*(row for _, row in rows), strict=True)]))
    for name, numbers in rows:
        rate = numbers[0] / max(1, sum(numbers[:2]))
        print(f"{name:<16}" + "".join(f"{number:12}" for number in numbers) + f"{rate:8.1%}")


if __name__ == "__main__":
    sys.exit(main())
