"""Runs a loop of kills, and prints its report."""

import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

EXAMPLES = 20
"""Maximum number of faults that are shown."""


def reported(run: Callable[[Path, int], Any]) -> int:
    """Run a loop in a folder of its own with a new seed; return 1 if its report has faults."""
    seed = int.from_bytes(os.urandom(4))
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        report = run(Path(temporary), seed)
    shown = report._asdict() | {"seed": seed, "took_s": round(time.monotonic() - began, 1)}
    shown |= {"faults": len(report.faults), "examples": report.faults[:EXAMPLES]}
    print(json.dumps(shown, indent=2))  # noqa: T201
    return 1 if report.faults else 0
