"""Write docs/reference/tables.json: the pipeline's tables, for programs and language models.

Columns and types are those of the code, words those of docs/pipeline/tables.md and columns.md.
Needs the packages of the pipeline: `.venv-spark/bin/python -m tools.table_schema`.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dueline.spark.pipeline.tables import AUDIT, DESIGNS, SUMS

DOCS: Final = Path(__file__).parents[1] / "docs"
PAGE: Final = DOCS / "reference" / "tables.json"

EXAMPLES: Final[Mapping[str, str]] = {
    "How late did jobs start in each queue, in seconds (p99)?": "SELECT queue,"
    " quantile_cont(lateness_us, 0.99) / 1e6 AS p99_s FROM silver WHERE started IS NOT NULL"
    " GROUP BY queue",
    "Which errors killed most jobs?": "SELECT task, fingerprint, dead FROM poison ORDER BY dead"
    " DESC LIMIT 10",
    "How many attempts ended in each hour, by outcome?": "SELECT date_trunc('hour', minute) AS"
    " hour, sum(done) AS done, sum(dead) AS dead, sum(retried) AS retried FROM gold_minute"
    " GROUP BY ALL ORDER BY hour",
    "What happened to one job?": "SELECT attempt, outcome, started, ended, error FROM silver"
    " WHERE job_id = '01a22750532f76cc8329a88f6f703d62' ORDER BY enqueued, attempt",
    "How many jobs that were due waited at a time?": "SELECT queue, sum(came - went) AS backlog"
    " FROM flow WHERE minute <= TIMESTAMPTZ '2026-11-29 12:00:00Z' GROUP BY queue",
}


def _cells(page: str, section: str = "") -> list[list[str]]:
    """Return the rows of all tables of a page, or of a section."""
    text = (DOCS / "pipeline" / page).read_text(encoding="utf-8")
    if section:
        text = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in text.splitlines()
        if line.startswith("| `")
    ]


def _plain(words: str) -> str:
    """Return words without the marks of Markdown."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", words).replace("`", "").strip("| ")


def _named(rows: list[list[str]]) -> dict[str, list[str]]:
    """Return the other cells of rows by each name in their first one."""
    return {
        name: [_plain(cell) for cell in row[1:]]
        for row in rows
        for name in re.findall(r"`(\w+)`", row[0])
    }


def schema() -> dict[str, Any]:
    """Return the description of all tables."""
    tables, words = _named(_cells("tables.md")), _named(_cells("columns.md"))
    own = {name: _named(_cells("columns.md", name)) for name in ("bronze", "silver", "audit")}
    own["silver"] = own["bronze"] | own["silver"]
    described = []
    for design in (*DESIGNS.values(), AUDIT):
        name = design.name
        columns = own.get(name, {})
        fields = [
            {"name": field.name, "type": str(field.type)}
            | ({"meaning": columns[field.name][0]} if field.name in columns else {})
            for field in design.shape
        ]
        entry = {"name": name, "description": tables[name][0]}
        if name not in own:
            entry["columns_in_words"] = "; ".join(words[name])
        described.append(
            entry
            | {
                "partition": design.partitions,
                "keys": list(SUMS[name].keys) if name in SUMS else [],
            }
            | {"columns": fields}
        )
    return {
        "about": "Tables of what job queues did, made by `dueline pipeline run`. Each is a Delta"
        " table in a folder of its name. Times are in UTC; columns that end in _us are durations"
        " in microseconds. A run of a job is (job_id, enqueued). Examples are in DuckDB's SQL.",
        "tables": described,
        "examples": [{"question": words, "sql": sql} for words, sql in EXAMPLES.items()],
    }  # fmt: skip


def text() -> str:
    """Return the file."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
