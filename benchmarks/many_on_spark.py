"""`python -m benchmarks.many_on_spark`: ten million jobs from a table, twice.

Usage: python -m benchmarks.many_on_spark [--rows 10000000] [--shards 4]

The second write has the name of the first, as a Spark that runs its job again has, and adds none.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.local_spark import orders, queue_at, two_cores
from dueline.spark import enqueue

PARTITIONS = 8


def main() -> None:
    """Write, write again, and print one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_on_spark", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--shards", type=int, default=4)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps({"writes": list(write_twice(Path(folder), asked))}, indent=2))


def write_twice(folder: Path, asked: argparse.Namespace) -> Iterator[Mapping[str, Any]]:
    """Enqueue a table two times under one name; tell what each came to."""
    spark = two_cores("many")
    frame = orders(spark, asked.rows, parts=PARTITIONS)
    url = queue_at(folder / "jobs.db", shards=asked.shards)
    for _ in range(2):
        begun_s = time.perf_counter()
        done = enqueue(frame, url, queue="mail", task="shop.charge", writeId="once")
        took_s = time.perf_counter() - begun_s
        sizes = {one.name: one.stat().st_size >> 20 for one in sorted(folder.glob("jobs.db*"))}
        yield {**done._asdict(), "seconds": round(took_s, 1), "mebibytes": sizes}
    spark.stop()


if __name__ == "__main__":
    main()
