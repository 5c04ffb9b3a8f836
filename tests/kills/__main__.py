"""`python -m tests.kills`: the long loop.

KILLS and JOBS, from the environment, say how many.
"""

import json
import os
import tempfile
import time
from pathlib import Path

from tests.kills.loop import Loop

KILLS, JOBS = 50, 20_000


def main() -> int:
    """Run the loop once and print its report as JSON; answer 1 where there is a fault."""
    kills, jobs = int(os.environ.get("KILLS") or KILLS), int(os.environ.get("JOBS") or JOBS)
    seed = int.from_bytes(os.urandom(4))
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Loop(Path(folder), jobs=jobs, kills=kills, seed=seed).run()
    faults = {verdict: len(found) for verdict, found in report.faults.items()}
    examples = {verdict: found[:5] for verdict, found in report.faults.items() if found}
    took_s = round(time.monotonic() - began, 1)
    print(json.dumps({"seed": seed, "took_s": took_s, **report.counts, "faults": faults}, indent=2))  # noqa: T201
    if examples:
        print(json.dumps(examples, indent=2))  # noqa: T201
    return 1 if examples else 0


if __name__ == "__main__":
    raise SystemExit(main())
