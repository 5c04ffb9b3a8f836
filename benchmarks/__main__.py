"""`python -m benchmarks`: measure, and print medians, ratios and bars as JSON.

Each row is measured in each round: our side, then its peers and limits. `cpu_us` is the time of
the processor for each job, beside each rate. `--list` names the rows; `--record` writes what was
found to benchmarks/recorded.json, from which the documentation's figures are made.
"""

import argparse
import json
import sys
from dataclasses import fields, replace
from typing import Any

from benchmarks import measure, parts
from benchmarks.commands import Checkout
from benchmarks.rows import Bench, Row, Sizes

SIZES = [one.name for one in fields(Sizes) if one.name != "backlogs"]


def parser(name: str) -> argparse.ArgumentParser:
    """Return a parser of the options that runs have in common."""
    found = argparse.ArgumentParser(prog=f"python -m {name}", description=__doc__)
    found.add_argument("--only", action="append", metavar="ROW", help="a row; repeatable")
    found.add_argument("--rounds", type=int, default=3, help="of everything, interleaved")
    found.add_argument("--cassandra", metavar="HOST", help="measure on this node as well")
    found.add_argument("--postgres", metavar="URL", help="measure on this server as well")
    found.add_argument("--list", action="store_true", help="name the rows and measure nothing")
    for size in SIZES:
        kind = type(getattr(Sizes(), size))
        found.add_argument(f"--{size.replace('_', '-')}", type=kind, default=getattr(Sizes(), size))
    found.add_argument("--backlogs", type=int, nargs="+", default=Sizes().backlogs)
    return found


def sizes_of(asked: argparse.Namespace) -> Sizes:
    """Return the sizes asked for."""
    return replace(Sizes(), backlogs=asked.backlogs, **{s: getattr(asked, s) for s in SIZES})


def chosen(rows: list[Row], asked: argparse.Namespace, error: argparse.ArgumentParser) -> list[Row]:
    """Return the rows asked for; all that are not long if none is."""
    if asked.list:
        for row in rows:
            print(f"{row.name:16} {row.title}{' (only if named)' if row.is_long else ''}")
        sys.exit()
    if asked.rounds < 1:
        error.error("--rounds is 1 or more")
    names = asked.only or [row.name for row in rows if not row.is_long]
    unknown = sorted(set(names) - {row.name for row in rows})
    if unknown:
        error.error(f"there is no row {unknown[0]}; see --list")
    return [row for row in rows if row.name in names]


def on_postgres(url: str | None, sizes: Sizes, base: Checkout | None) -> list[Row]:
    """Return the rows on PostgreSQL; none without a server."""
    if url is None:
        return []
    from benchmarks import rows_postgres  # noqa: PLC0415  (needs the driver)

    return rows_postgres.rows(url, sizes, base)


def on_cassandra(host: str | None, sizes: Sizes, base: Checkout | None) -> list[Row]:
    """Return the rows on Cassandra; none without a host."""
    if host is None:
        return []
    from benchmarks import rows_cassandra  # noqa: PLC0415  (needs the driver)

    return rows_cassandra.rows(host, sizes, base)


def main() -> int:
    """Measure, then print one JSON object; return the exit code."""
    options = parser("benchmarks")
    options.add_argument("--record", action="store_true", help="write benchmarks/recorded.json")
    options.add_argument("--skip", action="append", metavar="ROW", default=[], help="not this row")
    asked = options.parse_args()
    sizes = sizes_of(asked)
    every = [
        *Bench(sizes).rows(),
        *parts.rows(sizes),
        *on_cassandra(asked.cassandra, sizes, None),
        *on_postgres(asked.postgres, sizes, None),
    ]
    rows = [row for row in chosen(every, asked, options) if row.name not in asked.skip]
    found = measure.run(rows, asked.rounds)
    known, machine = measure.recorded(), measure.machine()
    is_comparable = measure.is_same_class(machine, known["machine"])
    described: dict[str, dict[str, Any]] = {
        row.name: {
            "title": row.title,
            **found[row.name].report(),
            "bars": measure.bars(
                row,
                found[row.name],
                known["rows"].get(row.name, {}),
                is_comparable=is_comparable,
            ),
        }
        for row in rows
    }
    missed = [
        f"{name}: {bar['what']}"
        for name, row in described.items()
        for bar in row["bars"]
        if not bar["is_met"]
    ]
    report = {"machine": machine, "asked": vars(asked), "rows": described, "missed": missed}
    print(json.dumps(report, indent=1))
    if asked.record:
        sizes_asked = {name: vars(asked)[name] for name in ("rounds", "jobs", "backlogs")}
        measure.record({**report, "asked": sizes_asked})
    return 1 if any(found[row.name].failures for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
