"""Rows measured in interleaved rounds, and what was found held against what was recorded."""

import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import apsw

from benchmarks.commands import Failed
from benchmarks.rows import Row
from benchmarks.samples import Samples, is_less_better

RECORDED: Final = Path(__file__).with_name("recorded.json")
SHARE: Final = 0.9
"""Part of the recorded median that a run must reach."""


def run(rows: Sequence[Row], rounds: int) -> dict[str, Samples]:
    """Measure the rows in turn, and all of them again in the next round."""
    found = {row.name: Samples() for row in rows}
    for number in range(rounds):
        for row in rows:
            if number < row.rounds_max:
                _measure(row, found[row.name], number)
    return found


def _measure(row: Row, samples: Samples, number: int) -> None:
    folder = Path(tempfile.mkdtemp(prefix="dueline-bench-"))
    began = time.monotonic()
    failure = ""
    try:
        for side, sample in row.measure(folder).items():
            samples.add(side, sample)
    except (Failed, AssertionError, OSError, ValueError) as error:
        failure = f"round {number + 1}: {type(error).__name__} {error}"
        samples.failures.append(failure)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    took_s = time.monotonic() - began
    print(f"{row.name}, round {number + 1}: {took_s:.1f} s {failure}", file=sys.stderr, flush=True)


def machine() -> Mapping[str, object]:
    """Describe the machine; times compare only within a class of machines."""
    return {
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "apsw": apsw.apsw_version(),
        "flush_ms": _flush_ms(),
        "load": round(os.getloadavg()[0], 1),
    }


def _flush_ms() -> float:
    """Time fdatasync of 4 KiB that are written over: the median of fifty."""
    took_ms = []
    with tempfile.NamedTemporaryFile() as file:
        for _ in range(50):
            os.pwrite(file.fileno(), os.urandom(4096), 0)
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            took_ms.append((time.perf_counter() - began) * 1e3)
    return round(sorted(took_ms)[25], 3)


def is_same_class(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether times of two machines may be compared."""
    return all(one.get(name) == other.get(name) for name in ("cpus", "machine", "system"))


def recorded() -> dict[str, Any]:
    """Read what was recorded."""
    if not RECORDED.exists():
        return {"rows": {}, "machine": {}}
    found: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found


def record(report: Mapping[str, Any]) -> None:
    """Record the rows of a report; those that it lacks or that failed stay as they are."""
    known = recorded()
    date = datetime.now(UTC).date().isoformat()
    rows = dict(known["rows"])
    for name, row in report["rows"].items():
        if not row.get("failures"):
            rows[name] = {key: row[key] for key in ("title", "sides", "ratios")} | {"date": date}
    machine_now = {name: one for name, one in report["machine"].items() if name != "load"}
    asked = {**known.get("asked", {}), **report["asked"]}
    found = {"machine": machine_now, "asked": asked, "rows": rows}
    RECORDED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def bars(
    row: Row, samples: Samples, known: Mapping[str, Any], *, is_comparable: bool
) -> list[Mapping[str, object]]:
    """Judge a row: by what is promised, and by nine tenths of the recorded median."""
    found: list[Mapping[str, object]] = []
    for limit in row.limits:
        spread = (
            samples.ratio(limit.side, limit.to, limit.measure)
            if limit.to
            else samples.spread(limit.side, limit.measure)
        )
        if spread:
            what = f"{limit.side} {limit.measure}" + (f" to {limit.to}" if limit.to else "")
            found.append(_bar(what, limit.measure, limit.bound, spread.median))
    for to, measure in row.bars:
        part = known.get("ratios", {}).get(to, {}) if to else known.get("sides", {}).get("ours", {})
        now = samples.ratio("ours", to, measure) if to else samples.spread("ours", measure)
        if now is None or measure not in part or not (to or is_comparable):
            continue
        least = part[measure]["median"]
        bound = least / SHARE if is_less_better(measure) else least * SHARE
        what = f"{measure} to {to}, recorded" if to else f"{measure}, recorded"
        found.append(_bar(what, measure, float(f"{bound:.4g}"), now.median))
    return found


def _bar(what: str, measure: str, bound: float, reached: float) -> Mapping[str, object]:
    is_most = is_less_better(measure)
    is_met = reached <= bound if is_most else reached >= bound
    limit = {"at_most" if is_most else "at_least": bound}
    return {"what": what, **limit, "median": reached, "is_met": is_met}
