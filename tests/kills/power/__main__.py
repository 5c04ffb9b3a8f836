"""`python -m tests.kills.power`: let the power fail at random steps.

`--images 10000`, or IMAGES from the environment: how often, with FULL and with NORMAL each; every
life five hundred times, and in every other one a thread copies the log. Prints a report as JSON;
answers 1 where there is a fault.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tests.kills.power.losses import Copier, Report, Synchronous, fail, judge, record

IMAGES_OF_A_LIFE = 500
FAULTS_TOLD = 10


def main() -> int:
    """Run with FULL and with NORMAL, which may lose the last commits."""
    parser = argparse.ArgumentParser(prog="python -m tests.kills.power")
    parser.add_argument("--images", type=int, default=int(os.environ.get("IMAGES") or 1000))
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4)))
    chosen = parser.parse_args()
    began = time.monotonic()
    ways: tuple[Synchronous, ...] = ("FULL", "NORMAL")
    told = {way: _told(_run(way, chosen.seed, chosen.images)) for way in ways}
    took_s = round(time.monotonic() - began, 1)
    print(json.dumps({"seed": chosen.seed, "took_s": took_s, **told}, indent=2))  # noqa: T201
    return 1 if any(report["faults"] for report in told.values()) else 0


def _run(way: Synchronous, seed: int, images: int) -> Report:
    total = Report(0, 0, [])
    while total.images < images:
        count = min(IMAGES_OF_A_LIFE, images - total.images)
        with tempfile.TemporaryDirectory() as life, tempfile.TemporaryDirectory() as place:
            copier: Copier = "a thread" if total.images // IMAGES_OF_A_LIFE % 2 else "commits"
            recorded = record(Path(life), seed + total.images, synchronous=way, copier=copier)
            left = fail(recorded, Path(place), images=count, seed=seed + total.images)
        judged = judge(recorded, left, may_lose="all" if way == "NORMAL" else "claims")
        total = Report(
            total.images + count, total.ahead + judged.ahead, [*total.faults, *judged.faults]
        )
    return total


def _told(report: Report) -> Mapping[str, object]:
    examples = {"examples": report.faults[:FAULTS_TOLD]} if report.faults else {}
    return {**report._asdict(), "faults": len(report.faults), **examples}


if __name__ == "__main__":
    raise SystemExit(main())
